//! `ALTER DATABASE name SET ...`, `ALTER ROLE name SET ...` and their RESET: what later sessions start with.
//!
//! What follows the name is a SET or RESET as a session would say it, and is read as one. Everything else about
//! databases and roles that ALTER can change is 0A000.

use crate::parse;
use crate::session;
use crate::translate::{Kind, Translated};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// Whose sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParametersOf {
    Database(String),
    Role(String),
}

/// Translates the statement, which begins with ALTER DATABASE, ALTER ROLE or ALTER USER.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let (_, rest) = cut_word(text)?;
    let (what, rest) = cut_word(rest)?;
    let (name, rest) = cut_word(rest)?;
    let name = session::database_name(Some(name).filter(|n| !n.is_empty()))?;
    let database = what.eq_ignore_ascii_case("database");
    let verb = if database { "ALTER DATABASE" } else { "ALTER ROLE" };
    let (command, _) = cut_word(rest)?;
    let known = command.eq_ignore_ascii_case("set") || command.eq_ignore_ascii_case("reset");
    if !known || (!database && name == "all") {
        return Err(SqlError::unsupported(format!("{verb} other than SET and RESET of one name's parameters")));
    }
    let (parameter, value) = match setting(rest)? {
        Kind::Set { name, value, local: false } => (Some(name), value),
        Kind::Reset(name) => (name, None),
        _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in {verb} ... SET"))),
    };
    let of = if database { ParametersOf::Database(name) } else { ParametersOf::Role(name) };
    Ok(Translated { cacheable: false, ..Translated::command(Kind::AlterParameters { of, parameter, value }, verb) })
}

/// A SET or RESET by itself.
fn setting(text: &str) -> SqlResult<Kind> {
    if let Some(command) = session::from_text(text)? {
        return Ok(command.kind);
    }
    parse::with_room(text, || {
        let (statement, _) = parse::parse_locking(text)?;
        Ok(session::translate(&statement)?.map(|t| t.kind).unwrap_or_default())
    })
}

/// The first word or quoted name, and what follows it.
fn cut_word(text: &str) -> SqlResult<(&str, &str)> {
    let text = session::after_comments(text);
    let end = match text.strip_prefix('"') {
        Some(inner) => inner.find('"').map(|n| n + 2),
        None => Some(text.find(char::is_whitespace).unwrap_or(text.len())),
    };
    let end = end.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "unterminated quoted name"))?;
    Ok(text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (ParametersOf, Option<String>, Option<String>) {
        match translate(text).unwrap().kind {
            Kind::AlterParameters { of, parameter, value } => (of, parameter, value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn set_and_reset_are_read_as_a_session_says_them() {
        let (shop, clerk) = (ParametersOf::Database("shop".into()), ParametersOf::Role("My Clerk".into()));
        let set = |name: &str, value: &str| (Some(name.to_owned()), Some(value.to_owned()));
        for (text, (parameter, value)) in [
            ("ALTER DATABASE Shop SET auto_transaction = on", set("auto_transaction", "on")),
            ("alter database \"shop\" set lock_timeout to '1 s'", set("lock_timeout", "1 s")),
            ("ALTER DATABASE shop SET lock_timeout TO DEFAULT", (Some("lock_timeout".into()), None)),
            ("ALTER DATABASE shop RESET lock_timeout", (Some("lock_timeout".into()), None)),
            ("ALTER DATABASE shop RESET ALL", (None, None)),
        ] {
            assert_eq!(read(text), (shop.clone(), parameter, value), "{text}");
        }
        let (parameter, value) = set("auto_transaction", "on");
        assert_eq!(read("ALTER ROLE \"My Clerk\" SET auto_transaction TO on"), (clerk, parameter, value));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "ALTER DATABASE shop RENAME TO other",
            "ALTER DATABASE shop OWNER TO me",
            "ALTER DATABASE shop SET LOCAL lock_timeout = 1",
            "ALTER DATABASE shop SET TRANSACTION READ ONLY",
            "ALTER ROLE ALL SET lock_timeout = 1",
            "ALTER ROLE clerk IN DATABASE shop SET lock_timeout = 1",
            "ALTER USER clerk SUPERUSER",
            "ALTER DATABASE",
        ] {
            assert!(translate(text).is_err(), "{text}");
        }
    }
}
