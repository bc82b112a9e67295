//! `ALTER DATABASE name SET ...` and its RESET: what later sessions start with. [`change`] reads the same of a role.
//!
//! What follows the name is read as the SET or RESET of a session. All other changes of databases are 0A000.

use crate::command::Kind;
use crate::parse;
use crate::session;
use crate::translated::Translated;
use holdfast_types::{ParameterChange, SqlError, SqlResult, SqlState};

/// Translates the statement, which begins with ALTER DATABASE.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let (_, rest) = cut_word(text)?;
    let (_, rest) = cut_word(rest)?;
    let (name, rest) = cut_word(rest)?;
    let database = session::database_name(Some(name).filter(|n| !n.is_empty()))?;
    let change = change(rest, "ALTER DATABASE")?;
    let kind = Kind::AlterParameters { database: Some(database), change };
    Ok(Translated { cacheable: false, ..Translated::command(kind, "ALTER DATABASE") })
}

/// The change that `SET ...` or `RESET ...` after the name makes.
pub fn change(rest: &str, verb: &str) -> SqlResult<ParameterChange> {
    let (command, _) = cut_word(rest)?;
    if !command.eq_ignore_ascii_case("set") && !command.eq_ignore_ascii_case("reset") {
        return Err(SqlError::unsupported(format!("this form of {verb}")));
    }
    Ok(match setting(rest)? {
        Kind::Set { name, value: Some(value), local: false } => ParameterChange::Set { name, value },
        Kind::Set { name, value: None, local: false } => ParameterChange::Reset(name),
        Kind::Reset(Some(name)) => ParameterChange::Reset(name),
        Kind::Reset(None) => ParameterChange::ResetAll,
        _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in {verb} ... SET"))),
    })
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

    fn read(text: &str) -> (String, ParameterChange) {
        match translate(text).unwrap().kind {
            Kind::AlterParameters { database, change } => (database.unwrap(), change),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn set_and_reset_are_read_as_in_a_session() {
        let set = |name: &str, value: &str| ParameterChange::Set { name: name.to_owned(), value: value.to_owned() };
        let reset = || ParameterChange::Reset("lock_timeout".to_owned());
        for (text, change) in [
            ("ALTER DATABASE Shop SET auto_transaction = on", set("auto_transaction", "on")),
            ("alter database \"shop\" set lock_timeout to '1 s'", set("lock_timeout", "1 s")),
            ("ALTER DATABASE shop SET lock_timeout TO DEFAULT", reset()),
            ("ALTER DATABASE shop RESET lock_timeout", reset()),
            ("ALTER DATABASE shop RESET ALL", ParameterChange::ResetAll),
        ] {
            assert_eq!(read(text), ("shop".to_owned(), change), "{text}");
        }
        assert_eq!(change("SET auto_transaction TO on", "ALTER ROLE"), Ok(set("auto_transaction", "on")));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "ALTER DATABASE shop RENAME TO other",
            "ALTER DATABASE shop SET LOCAL lock_timeout = 1",
            "ALTER DATABASE shop SET TRANSACTION READ ONLY",
            "ALTER DATABASE",
        ] {
            assert!(translate(text).is_err(), "{text}");
        }
    }
}
