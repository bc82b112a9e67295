//! `ALTER DATABASE name SET ...`, `ALTER ROLE name SET ...` and their RESET: what later sessions start with.
//!
//! What follows the name is read as the SET or RESET of a session. All other changes of databases and roles are 0A000.

use crate::command::Kind;
use crate::parse;
use crate::session;
use crate::translated::Translated;
use holdfast_types::{ParameterChange, ParametersOf, SqlError, SqlResult, SqlState};

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
        return Err(SqlError::unsupported(format!("{verb} other than {verb} NAME SET or RESET")));
    }
    let change = match setting(rest)? {
        Kind::Set { name, value: Some(value), local: false } => ParameterChange::Set { name, value },
        Kind::Set { name, value: None, local: false } => ParameterChange::Reset(name),
        Kind::Reset(Some(name)) => ParameterChange::Reset(name),
        Kind::Reset(None) => ParameterChange::ResetAll,
        _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in {verb} ... SET"))),
    };
    let of = if database { ParametersOf::Database(name) } else { ParametersOf::Role { role: name, database: None } };
    Ok(Translated { cacheable: false, ..Translated::command(Kind::AlterParameters { of, change }, verb) })
}

/// Reads a SET or RESET without what precedes it.
fn setting(text: &str) -> SqlResult<Kind> {
    if let Some(command) = session::from_text(text)? {
        return Ok(command.kind);
    }
    parse::with_room(text, || {
        let (statement, _) = parse::parse_locking(text)?;
        Ok(session::translate(&statement)?.map(|t| t.kind).unwrap_or_default())
    })
}

/// Splits off the first word or quoted name.
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

    fn read(text: &str) -> (ParametersOf, ParameterChange) {
        match translate(text).unwrap().kind {
            Kind::AlterParameters { of, change } => (of, change),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn set_and_reset_are_read_as_in_a_session() {
        let (shop, clerk) =
            (ParametersOf::Database("shop".into()), ParametersOf::Role { role: "My Clerk".into(), database: None });
        let set = |name: &str, value: &str| ParameterChange::Set { name: name.to_owned(), value: value.to_owned() };
        let reset = || ParameterChange::Reset("lock_timeout".to_owned());
        for (text, change) in [
            ("ALTER DATABASE Shop SET auto_transaction = on", set("auto_transaction", "on")),
            ("alter database \"shop\" set lock_timeout to '1 s'", set("lock_timeout", "1 s")),
            ("ALTER DATABASE shop SET lock_timeout TO DEFAULT", reset()),
            ("ALTER DATABASE shop RESET lock_timeout", reset()),
            ("ALTER DATABASE shop RESET ALL", ParameterChange::ResetAll),
        ] {
            assert_eq!(read(text), (shop.clone(), change), "{text}");
        }
        let change = set("auto_transaction", "on");
        assert_eq!(read("ALTER ROLE \"My Clerk\" SET auto_transaction TO on"), (clerk, change));
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
