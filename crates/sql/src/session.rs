//! Commands that concern the session or the transaction, not the data.

use crate::command::{Isolation, Kind, TransactionModes};
use crate::cursor;
use crate::names::fold;
use crate::privileges;
use crate::publications;
use crate::role_statement::RoleSpec;
use crate::roles;
use crate::start_parameters;
use crate::subscriptions;
use crate::translated::Translated;
use crate::types;
use crate::vacuum;
use holdfast_types::access::{Access, Need};
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use holdfast_types::quoting::quote_ident;
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use sqlparser::ast::{
    DataType, DiscardObject, Expr, Ident, ObjectName, Reset, Set, Statement, TransactionAccessMode,
    TransactionIsolationLevel, TransactionMode,
};
use std::sync::Arc;

/// Translates commands that the parser does not know or reads differently, and frequent short commands, without the
/// parser.
pub fn from_text(text: &str) -> SqlResult<Option<Translated>> {
    let text = after_comments(text);
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or("").to_ascii_uppercase();
    let rest: Vec<String> = words.map(|w| w.to_ascii_uppercase()).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let plain = TransactionModes::default();
    Ok(Some(match (first.as_str(), rest.as_slice()) {
        ("BEGIN", [] | ["TRANSACTION"] | ["WORK"]) => Translated::command(Kind::Begin(plain), "BEGIN"),
        ("COMMIT" | "END", [] | ["TRANSACTION"] | ["WORK"]) => {
            Translated::command(Kind::Commit { chain: false }, "COMMIT")
        }
        ("ROLLBACK" | "ABORT", [] | ["TRANSACTION"] | ["WORK"]) => {
            Translated::command(Kind::Rollback { chain: false }, "ROLLBACK")
        }
        ("VACUUM", _) => return vacuum::translate(text).map(Some),
        ("ANALYZE" | "ANALYSE", _) => {
            Translated { steps: vec!["ANALYZE".to_owned().into()], ..Translated::command(Kind::Analyze, "ANALYZE") }
        }
        ("CHECKPOINT", []) => {
            let message = "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT".to_owned();
            let access = Access::of(vec![Need::Superuser { message, owner_of: None }]);
            Translated { access, ..Translated::command(Kind::NoOp, "CHECKPOINT") }
        }
        ("DEALLOCATE", ["ALL"] | ["PREPARE", "ALL"]) => Translated::command(Kind::Deallocate(None), "DEALLOCATE ALL"),
        ("DECLARE" | "FETCH" | "MOVE" | "CLOSE", _) => return cursor::translate(text).map(Some),
        ("LISTEN" | "NOTIFY" | "UNLISTEN", rest) if first != "UNLISTEN" || rest != ["*"] => {
            return Err(SqlError::unsupported(first));
        }
        ("UNLISTEN", _) => Translated::command(Kind::NoOp, "UNLISTEN"),
        ("SET", ["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION", ..]) => {
            let modes = text_modes(&rest[4..])?;
            let Some(level) = modes.isolation else {
                return Ok(Some(Translated::command(
                    Kind::Set {
                        name: "default_transaction_read_only".into(),
                        value: Some(if modes.read_only == Some(true) { "on" } else { "off" }.into()),
                        local: false,
                    },
                    "SET",
                )));
            };
            let value = Some(isolation_name(level).to_owned());
            Translated::command(Kind::Set { name: "default_transaction_isolation".into(), value, local: false }, "SET")
        }
        ("BEGIN" | "START", ["TRANSACTION", modes @ ..]) => Translated::command(
            Kind::Begin(text_modes(modes)?),
            if first == "START" { "START TRANSACTION" } else { "BEGIN" },
        ),
        ("BEGIN", modes) => {
            let modes = if modes.first() == Some(&"WORK") { &modes[1..] } else { modes };
            Translated::command(Kind::Begin(text_modes(modes)?), "BEGIN")
        }
        ("SET", ["ROLE", ..] | ["SESSION" | "LOCAL", "ROLE", ..]) => return roles::set(text).map(Some),
        ("SET", ["SESSION", "AUTHORIZATION", ..] | ["SESSION" | "LOCAL", "SESSION", "AUTHORIZATION", ..]) => {
            return roles::set(text).map(Some);
        }
        ("SET", ["TRANSACTION", "SNAPSHOT", ..]) => return Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT")),
        ("SET", ["TRANSACTION", modes @ ..]) | ("SET", ["LOCAL", "TRANSACTION", modes @ ..]) => {
            Translated::command(Kind::SetTransaction(text_modes(modes)?), "SET")
        }
        ("PREPARE", ["TRANSACTION", ..]) | ("COMMIT" | "ROLLBACK", ["PREPARED", ..]) => {
            return cursor::two_phase(text).map(Some);
        }
        ("USE", [_]) => {
            let words = words_of(text)?;
            let value = Some(database_name(words.get(1).map(String::as_str))?);
            Translated::command(Kind::Set { name: "database".into(), value, local: false }, "USE")
        }
        ("GRANT" | "REVOKE", _) => {
            let of_roles = roles::translate(text)?;
            return of_roles.map_or_else(|| privileges::translate(text), |t| Ok(Some(t)));
        }
        ("REASSIGN", _) | ("DROP", ["OWNED", ..]) | ("ALTER", ["DEFAULT", ..]) => return privileges::translate(text),
        ("ALTER", ["TABLE" | "VIEW" | "SEQUENCE" | "SCHEMA", .., "OWNER", "TO", _]) => {
            return privileges::translate(text);
        }
        ("CREATE" | "ALTER" | "DROP", ["PUBLICATION", ..]) | ("COMMENT", ["ON", "PUBLICATION", ..]) => {
            return publications::translate(text).map(Some);
        }
        ("CREATE" | "ALTER" | "DROP", ["SUBSCRIPTION", ..]) | ("COMMENT", ["ON", "SUBSCRIPTION", ..]) => {
            return subscriptions::translate(text).map(Some);
        }
        ("CREATE", ["DATABASE", ..]) => return create_database(text).map(Some),
        ("DROP", ["DATABASE", ..]) => return drop_database(text).map(Some),
        ("CREATE" | "DROP" | "ALTER", ["ROLE" | "USER" | "GROUP", ..]) => return roles::translate(text),
        ("ALTER", ["DATABASE", ..]) => {
            let of_access = roles::translate(text)?;
            return of_access.map_or_else(|| start_parameters::translate(text), Ok).map(Some);
        }
        _ => return Ok(None),
    }))
}

/// A statement without the comments before it.
pub fn after_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after).trim_start()
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after).trim_start()
        } else {
            return rest;
        };
    }
}

fn isolation_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

/// The modes of BEGIN and SET TRANSACTION, as upper-case words.
fn text_modes(words: &[&str]) -> SqlResult<TransactionModes> {
    let joined = words.join(" ").replace(',', " ");
    let mut words = joined.split_ascii_whitespace().peekable();
    let mut modes = TransactionModes::default();
    let bad =
        |w: &str| SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{}\"", w.to_lowercase()));
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("ISOLATION", Some("LEVEL")) => {
                modes.isolation = Some(match (words.next(), words.peek().copied()) {
                    (Some("SERIALIZABLE"), _) => Isolation::Serializable,
                    (Some("REPEATABLE"), Some("READ")) => Isolation::RepeatableRead,
                    (Some("READ"), Some("COMMITTED")) => Isolation::ReadCommitted,
                    (Some("READ"), Some("UNCOMMITTED")) => Isolation::ReadUncommitted,
                    (other, _) => return Err(bad(other.unwrap_or("LEVEL"))),
                });
                if modes.isolation != Some(Isolation::Serializable) {
                    words.next();
                }
            }
            ("READ", Some("ONLY")) => modes.read_only = Some(true),
            ("READ", Some("WRITE")) => modes.read_only = Some(false),
            ("NOT", Some("DEFERRABLE")) => modes.deferrable = Some(false),
            ("DEFERRABLE", next) => {
                modes.deferrable = Some(true);
                if let Some(next) = next {
                    return Err(bad(next));
                }
            }
            (word, _) => return Err(bad(word)),
        }
    }
    Ok(modes)
}

/// Translates `CREATE DATABASE name [WITH] [option [=] value ...]`. PostgreSQL does not have the option `DIALECT =
/// sqlite`.
fn create_database(text: &str) -> SqlResult<Translated> {
    let words = words_of(text)?;
    let mut words = words.iter().map(String::as_str).skip(2).peekable();
    let mut if_not_exists = false;
    if words.peek().is_some_and(|w| w.eq_ignore_ascii_case("if")) {
        if_not_exists = true;
        words.by_ref().take(3).for_each(drop);
    }
    let name = database_name(words.next())?;
    let mut dialect = Dialect::Postgres;
    let (mut owner, mut connection_limit) = (None, None);
    while let Some(option) = words.next() {
        let option = option.to_ascii_uppercase();
        if option == "WITH" {
            continue;
        }
        if option == "OWNER" {
            owner = Some(owner_name(words.next())?);
            continue;
        }
        if option == "CONNECTION" && words.peek().is_some_and(|w| w.eq_ignore_ascii_case("limit")) {
            let limit = words.nth(1).and_then(|n| n.parse().ok());
            let limit: i32 =
                limit.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "CONNECTION LIMIT needs a number"))?;
            connection_limit = Some(limit);
            continue;
        }
        let value = words.next().unwrap_or("").trim_matches('\'').to_ascii_lowercase();
        match (option.as_str(), value.as_str()) {
            ("DIALECT", "sqlite") => dialect = Dialect::Sqlite,
            ("DIALECT", "postgres" | "postgresql") => dialect = Dialect::Postgres,
            ("ENCODING", "utf8" | "utf-8" | "unicode" | "default") => {}
            ("TEMPLATE" | "STRATEGY", _) => {}
            ("LC_COLLATE" | "LC_CTYPE" | "LOCALE", "c" | "posix" | "c.utf-8" | "c.utf8" | "default") => {}
            _ => return Err(SqlError::unsupported(format!("CREATE DATABASE with {option} = {value}"))),
        }
    }
    let kind = Kind::CreateDatabase { name, dialect, if_not_exists, owner, connection_limit };
    Ok(Translated::command(kind, "CREATE DATABASE"))
}

/// OWNER of CREATE DATABASE; DEFAULT is the current role.
fn owner_name(word: Option<&str>) -> SqlResult<RoleSpec> {
    let word = word.unwrap_or_default();
    Ok(match word.to_ascii_lowercase().as_str() {
        "default" | "current_user" | "current_role" => RoleSpec::CurrentRole,
        "session_user" => RoleSpec::SessionUser,
        _ => RoleSpec::Name(database_name(Some(word.trim_matches('\'')))?),
    })
}

fn drop_database(text: &str) -> SqlResult<Translated> {
    let words = words_of(text)?;
    let mut words = words.iter().map(String::as_str).skip(2).peekable();
    let mut if_exists = false;
    if words.peek().is_some_and(|w| w.eq_ignore_ascii_case("if")) {
        if_exists = true;
        words.by_ref().take(2).for_each(drop);
    }
    let name = database_name(words.next())?;
    match words.next() {
        None => Ok(Translated::command(Kind::DropDatabase { name, if_exists }, "DROP DATABASE")),
        Some(option) => Err(SqlError::unsupported(format!("DROP DATABASE with {option}"))),
    }
}

/// Splits a text into words and quoted names; `=` counts as a blank.
fn words_of(text: &str) -> SqlResult<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = match rest.strip_prefix(['"', '\'']) {
            Some(inner) => inner.find(&rest[..1]).map(|n| n + 2),
            None => Some(rest.find(|c: char| c.is_ascii_whitespace() || c == '=').unwrap_or(rest.len())),
        };
        let end = end.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "unterminated quoted name"))?;
        words.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '=');
    }
    Ok(words)
}

pub fn database_name(word: Option<&str>) -> SqlResult<String> {
    let word = word.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"))?;
    Ok(match word.strip_prefix('"').and_then(|w| w.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => word.to_lowercase(),
    })
}

/// Translates the session commands that need the parser. `None` for any other statement.
pub fn translate(statement: &Statement) -> SqlResult<Option<Translated>> {
    Ok(Some(match statement {
        Statement::StartTransaction { modes, statements, .. } if statements.is_empty() => {
            Translated::command(Kind::Begin(modes_of(modes)?), "BEGIN")
        }
        Statement::Commit { chain, modifier: None, .. } => {
            Translated::command(Kind::Commit { chain: *chain }, "COMMIT")
        }
        Statement::Rollback { chain, savepoint: None } => {
            Translated::command(Kind::Rollback { chain: *chain }, "ROLLBACK")
        }
        Statement::Rollback { savepoint: Some(name), .. } => {
            Translated::command(Kind::RollbackTo(fold(name)), "ROLLBACK")
        }
        Statement::Savepoint { name } => Translated::command(Kind::Savepoint(fold(name)), "SAVEPOINT"),
        Statement::ReleaseSavepoint { name } => Translated::command(Kind::Release(fold(name)), "RELEASE"),
        Statement::Set(set) => return self::set(set).map(Some),
        Statement::Reset(reset) => {
            let name = match &reset.reset {
                Reset::ALL => None,
                Reset::SessionAuthorization => Some("session_authorization".to_owned()),
                Reset::ConfigurationParameter(name) => Some(setting_name(name)),
            };
            Translated::command(Kind::Reset(name), "RESET")
        }
        Statement::ShowVariable { variable } => show(variable),
        Statement::Discard { object_type } => {
            let (what, verb) = match object_type {
                DiscardObject::ALL => ("ALL", "DISCARD ALL"),
                DiscardObject::PLANS => ("PLANS", "DISCARD PLANS"),
                DiscardObject::SEQUENCES => ("SEQUENCES", "DISCARD SEQUENCES"),
                DiscardObject::TEMP => ("TEMP", "DISCARD TEMP"),
            };
            Translated::command(Kind::Discard(what), verb)
        }
        Statement::Deallocate { name, .. } => Translated::command(Kind::Deallocate(Some(fold(name))), "DEALLOCATE"),
        Statement::Grant(_) | Statement::Revoke(_) => {
            return Err(SqlError::unsupported("this form of GRANT and REVOKE"));
        }
        _ => return Ok(None),
    }))
}

fn modes_of(modes: &[TransactionMode]) -> SqlResult<TransactionModes> {
    let mut out = TransactionModes::default();
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(a) => out.read_only = Some(*a == TransactionAccessMode::ReadOnly),
            TransactionMode::IsolationLevel(level) => {
                out.isolation = Some(match level {
                    TransactionIsolationLevel::ReadUncommitted => Isolation::ReadUncommitted,
                    TransactionIsolationLevel::ReadCommitted => Isolation::ReadCommitted,
                    TransactionIsolationLevel::RepeatableRead => Isolation::RepeatableRead,
                    TransactionIsolationLevel::Serializable => Isolation::Serializable,
                    TransactionIsolationLevel::Snapshot => {
                        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"snapshot\""));
                    }
                });
            }
        }
    }
    Ok(out)
}

fn setting_name(name: &ObjectName) -> String {
    let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.to_lowercase()).collect();
    parts.join(".")
}

fn set(set: &Set) -> SqlResult<Translated> {
    use sqlparser::ast::ContextModifier;
    let command =
        |name: String, value: Option<String>, local: bool| Translated::command(Kind::Set { name, value, local }, "SET");
    Ok(match set {
        Set::SingleAssignment { scope, hivevar: false, variable, values } => {
            let local = matches!(scope, Some(ContextModifier::Local));
            let of_role = ["role", "session_authorization"].contains(&&*setting_name(variable));
            let value = |e: &Expr| match e {
                // A name of a role, which is folded.
                Expr::Identifier(name) if of_role => Ok(fold(name)),
                other => setting_value(other),
            };
            let texts: Vec<String> = values.iter().map(value).collect::<SqlResult<_>>()?;
            let name = setting_name(variable);
            if let Some(modes) = transaction_mode(&name, &texts) {
                return Ok(Translated::command(Kind::SetTransaction(modes?), "SET"));
            }
            // Each name of a list, as PostgreSQL shows it.
            let is_list = LISTS_OF_NAMES.contains(&name.as_str());
            let texts: Vec<String> = if is_list { texts.iter().map(|t| quote_ident(t)).collect() } else { texts };
            let default = matches!(values.as_slice(), [Expr::Identifier(i)] if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
            command(name, (!default).then(|| texts.join(", ")), local)
        }
        Set::SetTimeZone { local, value } => {
            let value = match value {
                // Its offset, in hours.
                Expr::Interval(interval) => zone_of(interval)?,
                other => setting_value(other)?,
            };
            let default = value.eq_ignore_ascii_case("default") || value.eq_ignore_ascii_case("local");
            command("timezone".into(), (!default).then_some(value), *local)
        }
        Set::SetNames { charset_name, .. } => {
            command("client_encoding".into(), Some(charset_name.value.clone()), false)
        }
        Set::SetNamesDefault {} => command("client_encoding".into(), None, false),
        Set::SetTransaction { modes, snapshot: None, session: false } => {
            Translated::command(Kind::SetTransaction(modes_of(modes)?), "SET")
        }
        other => return Err(SqlError::unsupported(format!("{other}"))),
    })
}

/// Parameters whose value is a list of names.
const LISTS_OF_NAMES: [&str; 2] = ["search_path", "temp_tablespaces"];

/// SET of a parameter that is a mode of the current transaction.
fn transaction_mode(name: &str, values: &[String]) -> Option<SqlResult<TransactionModes>> {
    let [value] = values else { return None };
    let invalid = || {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
    };
    let on = match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    };
    let plain = TransactionModes::default();
    Some(match (name, on) {
        ("transaction_isolation", _) => match text_modes(&["ISOLATION", "LEVEL", &value.to_ascii_uppercase()]) {
            Ok(modes) if modes.isolation.is_some() => Ok(modes),
            _ => invalid(),
        },
        ("transaction_read_only", Some(on)) => Ok(TransactionModes { read_only: Some(on), ..plain }),
        ("transaction_deferrable", Some(on)) => Ok(TransactionModes { deferrable: Some(on), ..plain }),
        ("transaction_read_only" | "transaction_deferrable", None) => invalid(),
        _ => return None,
    })
}

/// The zone of `SET TIME ZONE INTERVAL '...'`: hours east of UTC.
fn zone_of(interval: &sqlparser::ast::Interval) -> SqlResult<String> {
    let Expr::Value(value) = interval.value.as_ref() else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in SET TIME ZONE"));
    };
    let mut text = value.value.clone().into_string().unwrap_or_default();
    // `INTERVAL '-8' HOUR`; a time of day says itself what it is.
    if !text.contains(':')
        && let Some(field) = &interval.leading_field
    {
        text = format!("{text} {field}");
    }
    let read = holdfast_types::interval::parse(&text, None)?;
    if (read.months, read.days) != (0, 0) {
        let message = "time zone interval must not include months or days";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok((read.us as f64 / 3.6e9).to_string())
}

fn setting_value(value: &Expr) -> SqlResult<String> {
    Ok(match value {
        Expr::Value(v) => match &v.value {
            sqlparser::ast::Value::Number(n, _) => n.clone(),
            sqlparser::ast::Value::Boolean(b) => if *b { "on" } else { "off" }.into(),
            other => other.clone().into_string().unwrap_or_else(|| other.to_string()),
        },
        Expr::Identifier(i) => fold(i),
        Expr::UnaryOp { op: sqlparser::ast::UnaryOperator::Minus, expr } => format!("-{}", setting_value(expr)?),
        Expr::UnaryOp { op: sqlparser::ast::UnaryOperator::Plus, expr } => setting_value(expr)?,
        other => other.to_string(),
    })
}

fn show(variable: &[Ident]) -> Translated {
    let words: Vec<String> = variable.iter().map(|i| i.value.to_lowercase()).collect();
    let name = match words.join(" ").as_str() {
        "time zone" => "timezone".to_owned(),
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "session authorization" => "session_authorization".to_owned(),
        _ => words.join("."),
    };
    let text = |name: &str| ColumnDesc::new(name, oid::TEXT);
    let columns = match name.as_str() {
        "all" => vec![text("name"), text("setting"), text("description")],
        // Settings whose names are shown in mixed case.
        "timezone" => vec![text("TimeZone")],
        "datestyle" => vec![text("DateStyle")],
        "intervalstyle" => vec![text("IntervalStyle")],
        other => vec![text(other)],
    };
    let desc = Arc::new(StatementDesc { params: Vec::new(), columns, empty_rows: false });
    Translated { desc, ..Translated::command(Kind::Show(name), "SHOW") }
}

/// Translates PREPARE name (types) AS statement. The statement's text is what follows AS.
pub fn prepare(name: &Ident, data_types: &[DataType], text: &str) -> SqlResult<Translated> {
    let param_types = data_types.iter().map(|t| Ok(types::from_ast(t)?.oid)).collect::<SqlResult<_>>()?;
    let lower = text.to_ascii_lowercase();
    let as_at = lower
        .match_indices("as")
        .find(|(at, _)| {
            let edge = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || c == ')');
            edge(lower[..*at].chars().next_back())
                && lower[at + 2..].chars().next().is_none_or(|c| c.is_whitespace() || c == '(')
                && lower[..*at].trim() != "prepare"
        })
        .map(|(at, _)| at + 2)
        .ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"))?;
    let statement = text[as_at..].trim().to_owned();
    let kind = Kind::Prepare { name: fold(name), statement, param_types };
    Ok(Translated { cacheable: false, ..Translated::command(kind, "PREPARE") })
}

/// Translates EXECUTE name (constants).
pub fn execute(name: Option<&ObjectName>, parameters: &[Expr]) -> SqlResult<Translated> {
    let Some(name) = name.and_then(|n| n.0.last()).and_then(|p| p.as_ident()) else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "EXECUTE requires the name of a prepared statement"));
    };
    let args = parameters.iter().map(constant).collect::<SqlResult<_>>()?;
    Ok(Translated { cacheable: false, ..Translated::command(Kind::Execute { name: fold(name), args }, "EXECUTE") })
}

fn constant(e: &Expr) -> SqlResult<Value> {
    Ok(match e {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => constant(inner)?,
        Expr::UnaryOp { op: sqlparser::ast::UnaryOperator::Minus, expr } => match constant(expr)? {
            Value::Text(t) => Value::Text(format!("-{t}")),
            other => other,
        },
        Expr::Value(v) => match &v.value {
            sqlparser::ast::Value::Null => Value::Null,
            sqlparser::ast::Value::Number(n, _) => Value::Text(n.clone()),
            sqlparser::ast::Value::Boolean(b) => Value::Text(b.to_string()),
            other => Value::Text(other.clone().into_string().unwrap_or_default()),
        },
        _ => return Err(SqlError::unsupported("EXECUTE with an argument that is not a constant")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        from_text(text).unwrap().unwrap().kind
    }

    #[test]
    fn transaction_modes_are_read() {
        let Kind::Begin(modes) = kind("begin transaction isolation level repeatable read, read only, not deferrable")
        else {
            panic!("not a BEGIN")
        };
        assert_eq!(modes.isolation, Some(Isolation::RepeatableRead));
        assert_eq!((modes.read_only, modes.deferrable), (Some(true), Some(false)));
        assert!(from_text("begin immediate").is_err());
        assert_eq!(kind("START TRANSACTION"), Kind::Begin(TransactionModes::default()));
    }

    #[test]
    fn databases() {
        let Kind::CreateDatabase { name, dialect, .. } = kind("create database \"My Db\" dialect = sqlite") else {
            panic!("not a CREATE DATABASE")
        };
        assert_eq!((name.as_str(), dialect), ("My Db", Dialect::Sqlite));
        assert_eq!(kind("drop database if exists A"), Kind::DropDatabase { name: "a".into(), if_exists: true });
    }

    #[test]
    fn prepare_keeps_the_statement_text() {
        let t = prepare(&Ident::new("p"), &[], "PREPARE p (int) AS SELECT $1 AS a").unwrap();
        let Kind::Prepare { statement, .. } = t.kind else { panic!("not a PREPARE") };
        assert_eq!(statement, "SELECT $1 AS a");
    }
}
