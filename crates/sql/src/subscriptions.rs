//! Subscriptions: reads the statements about them. What a statement changes depends on the role that runs it, on the schema and
//! on what the publisher publishes, so the session has it worked out when it runs ([`work_out`]).
//!
//! The grammar and its errors are PostgreSQL 15's (`CreateSubscriptionStmt` and following, `parse_subscription_options`).
//!
//! Failure: 42601 for what PostgreSQL's grammar does not have; 0A000 for what the protocol here does not have: binary, streaming and
//! two_phase, and for a `schedule` or another `mode` than 'partition'.

mod change;
mod connection;
pub(crate) mod partition;
mod tables;

use crate::command::Kind;
use crate::parse;
use crate::publications::{boolean, comma_separated, role, value};
use crate::subscription_statement::{Alteration, Listing, SubscriptionStatement, WrittenOptions};
use crate::translated::Translated;
use crate::words::Words;
pub use change::{Asked, AtPublisher, Outcome, Published, RemoteTable, check_may_own, work_out};
use holdfast_types::lsn::parse_lsn;
use holdfast_types::subscription::SynchronousCommit;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// Options of each statement.
const OF_CREATE: &[&str] = &[
    "connect",
    "enabled",
    "create_slot",
    "slot_name",
    "copy_data",
    "synchronous_commit",
    "binary",
    "streaming",
    "two_phase",
    "disable_on_error",
    "mode",
];
const OF_SET: &[&str] = &["slot_name", "synchronous_commit", "binary", "streaming", "disable_on_error"];
const OF_LISTING: &[&str] = &["copy_data", "refresh"];
const OF_REFRESH: &[&str] = &["copy_data"];

/// Translates a statement about subscriptions.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    let (statement, verb) = if words.accept(&["CREATE", "SUBSCRIPTION"]) {
        (create(&mut words)?, "CREATE SUBSCRIPTION")
    } else if words.accept(&["ALTER", "SUBSCRIPTION"]) {
        let name = words.name()?;
        (SubscriptionStatement::Alter { name, change: alteration(&mut words)? }, "ALTER SUBSCRIPTION")
    } else if words.accept(&["DROP", "SUBSCRIPTION"]) {
        let if_exists = words.accept(&["IF", "EXISTS"]);
        let name = words.name()?;
        let _ = words.accept(&["CASCADE"]) || words.accept(&["RESTRICT"]);
        (SubscriptionStatement::Drop { name, if_exists }, "DROP SUBSCRIPTION")
    } else if words.accept(&["COMMENT", "ON", "SUBSCRIPTION"]) {
        let name = words.name()?;
        if !words.accept(&["IS"]) {
            return Err(words.syntax());
        }
        words.skip_all();
        (SubscriptionStatement::Comment(name), "COMMENT")
    } else {
        return Err(words.syntax());
    };
    words.take(&Token::SemiColon);
    words.end()?;
    let kind = Kind::Subscription(Box::new(statement));
    Ok(Translated { cacheable: false, ..Translated::command(kind, verb) })
}

fn create(words: &mut Words<'_>) -> SqlResult<SubscriptionStatement> {
    let name = words.name()?;
    if !words.accept(&["CONNECTION"]) {
        return Err(words.syntax());
    }
    let connection = string(words)?;
    if !words.accept(&["PUBLICATION"]) {
        return Err(words.syntax());
    }
    let publications = comma_separated(words, |words| words.name())?;
    let options = if words.accept(&["WITH"]) { options(words, OF_CREATE)? } else { WrittenOptions::default() };
    Ok(SubscriptionStatement::Create { name, connection, publications, options })
}

fn alteration(words: &mut Words<'_>) -> SqlResult<Alteration> {
    if words.accept(&["RENAME", "TO"]) {
        return Ok(Alteration::Rename(words.name()?));
    }
    if words.accept(&["OWNER", "TO"]) {
        return Ok(Alteration::Owner(role(words)?));
    }
    if words.accept(&["CONNECTION"]) {
        return Ok(Alteration::Connection(string(words)?));
    }
    if words.accept(&["ENABLE"]) {
        return Ok(Alteration::Enable(true));
    }
    if words.accept(&["DISABLE"]) {
        return Ok(Alteration::Enable(false));
    }
    if words.accept(&["SKIP"]) {
        return Ok(Alteration::Skip(options(words, &["lsn"])?));
    }
    let with = |words: &mut Words<'_>, known: &[&str]| match words.accept(&["WITH"]) {
        true => options(words, known),
        false => Ok(WrittenOptions::default()),
    };
    if words.accept(&["REFRESH", "PUBLICATION"]) {
        return Ok(Alteration::Refresh(with(words, OF_REFRESH)?));
    }
    for (how, word) in [(Listing::Set, "SET"), (Listing::Add, "ADD"), (Listing::Drop, "DROP")] {
        if words.accept(&[word, "PUBLICATION"]) {
            let names = comma_separated(words, |words| words.name())?;
            return Ok(Alteration::Publications { how, names, options: with(words, OF_LISTING)? });
        }
    }
    if !words.accept(&["SET"]) {
        return Err(words.syntax());
    }
    Ok(Alteration::Options(options(words, OF_SET)?))
}

fn string(words: &mut Words<'_>) -> SqlResult<String> {
    let text = match words.token() {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
        _ => return Err(words.syntax()),
    };
    words.at += 1;
    Ok(text)
}

/// Reads `(slot_name = 'x', enabled = false, ...)`.
fn options(words: &mut Words<'_>, known: &[&str]) -> SqlResult<WrittenOptions> {
    if !words.take(&Token::LParen) {
        return Err(words.syntax());
    }
    let mut options = WrittenOptions::default();
    comma_separated(words, |words| {
        let mut name = words.name()?;
        while words.take(&Token::Period) {
            name = format!("{name}.{}", words.name()?);
        }
        let value = if words.take(&Token::Eq) { Some(value(words)?) } else { None };
        if name == "mode" && !known.contains(&"mode") {
            return Err(SqlError::unsupported("to change the mode of a subscription")
                .with_hint("Drop the subscription, and create it with the other mode."));
        }
        if name == "schedule" || name.starts_with("holdfast.") {
            return Err(SqlError::unsupported(format!("the subscription parameter \"{name}\""))
                .with_hint("Leave it out: the subscription then follows all changes as they are made."));
        }
        if !known.contains(&name.as_str()) {
            let message = format!("unrecognized subscription parameter: \"{name}\"");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        options.take(&name, value)
    })?;
    if words.take(&Token::RParen) { Ok(options) } else { Err(words.syntax()) }
}

impl WrittenOptions {
    /// An option and its value; each may be written once.
    fn take(&mut self, name: &str, value: Option<String>) -> SqlResult<()> {
        match name {
            "slot_name" => put(&mut self.slot_name, || slot_name(&text(name, value)?)),
            "synchronous_commit" => put(&mut self.synchronous_commit, || synchronous_commit(&text(name, value)?)),
            "lsn" => put(&mut self.lsn, || lsn(&text(name, value)?)),
            "binary" => put(&mut self.binary, || off(name, value)),
            "streaming" => put(&mut self.streaming, || off(name, value)),
            "two_phase" => put(&mut self.two_phase, || off(name, value)),
            "connect" => put(&mut self.connect, || boolean(name, value)),
            "create_slot" => put(&mut self.create_slot, || boolean(name, value)),
            "enabled" => put(&mut self.enabled, || boolean(name, value)),
            "copy_data" => put(&mut self.copy_data, || boolean(name, value)),
            "mode" => put(&mut self.partition, || mode(&text(name, value)?)),
            "refresh" => put(&mut self.refresh, || boolean(name, value)),
            _ => put(&mut self.disable_on_error, || boolean(name, value)),
        }
    }
}

fn put<T>(option: &mut Option<T>, value: impl FnOnce() -> SqlResult<T>) -> SqlResult<()> {
    if option.is_some() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
    }
    *option = Some(value()?);
    Ok(())
}

fn text(name: &str, value: Option<String>) -> SqlResult<String> {
    value.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a parameter")))
}

/// Whether a mode is that of partitions.
fn mode(value: &str) -> SqlResult<bool> {
    match value {
        "partition" => Ok(true),
        other => Err(SqlError::unsupported(format!("the subscription mode \"{other}\"")).with_hint(
            "Leave it out: the subscribed tables are then read-only. With mode = 'partition' only the subscribed rows are.",
        )),
    }
}

/// An option that may only be off.
fn off(name: &str, value: Option<String>) -> SqlResult<bool> {
    match boolean(name, value)? {
        false => Ok(false),
        true => Err(SqlError::unsupported(format!("a subscription with {name} = true"))
            .with_hint(format!("Leave it out, or set {name} = false."))),
    }
}

fn slot_name(name: &str) -> SqlResult<Option<String>> {
    let invalid =
        |state, what: &str| SqlError::new(SqlState(state), format!("replication slot name \"{name}\" {what}"));
    match name {
        "none" => Ok(None),
        "" => Err(invalid("42602", "is too short")),
        _ if name.len() > 63 => Err(invalid("42622", "is too long")),
        _ if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') => {
            Err(invalid("42602", "contains invalid character").with_hint(
                "Replication slot names may only contain lower case letters, numbers, and the underscore character.",
            ))
        }
        _ => Ok(Some(name.to_owned())),
    }
}

fn synchronous_commit(value: &str) -> SqlResult<SynchronousCommit> {
    SynchronousCommit::parse(value).ok_or_else(|| {
        let message = format!("invalid value for parameter \"synchronous_commit\": \"{value}\"");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Available values: local, remote_write, remote_apply, on, off.")
    })
}

fn lsn(value: &str) -> SqlResult<u64> {
    if value == "none" {
        return Ok(0);
    }
    let message = || format!("invalid input syntax for type pg_lsn: \"{value}\"");
    match parse_lsn(value).ok_or_else(|| SqlError::new(SqlState("22P02"), message()))? {
        0 => {
            let message = format!("invalid WAL location (LSN): {value}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
        lsn => Ok(lsn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege_statement::RoleName;

    fn read(text: &str) -> SubscriptionStatement {
        match translate(text).unwrap().kind {
            Kind::Subscription(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn statements() {
        let text = "create subscription S connection 'host=hq user=''r2''' publication p, \"Q\" with (connect = false, \
                    create_slot = off, enabled = 0, slot_name = NONE, copy_data = 'false', binary = false, streaming = off, \
                    synchronous_commit = remote_apply, two_phase = false, disable_on_error, mode = partition);";
        let options = WrittenOptions {
            connect: Some(false),
            create_slot: Some(false),
            enabled: Some(false),
            slot_name: Some(None),
            copy_data: Some(false),
            refresh: None,
            synchronous_commit: Some(SynchronousCommit::RemoteApply),
            disable_on_error: Some(true),
            partition: Some(true),
            binary: Some(false),
            streaming: Some(false),
            two_phase: Some(false),
            lsn: None,
        };
        let connection = "host=hq user='r2'".to_owned();
        let (name, publications) = ("s".to_owned(), names(&["p", "Q"]));
        assert_eq!(read(text), SubscriptionStatement::Create { name, connection, publications, options });
        let drop = SubscriptionStatement::Drop { name: "s".into(), if_exists: true };
        assert_eq!(read("drop subscription if exists s cascade"), drop);
    }

    #[test]
    fn alterations() {
        let none = WrittenOptions::default();
        let no_copy = WrittenOptions { copy_data: Some(false), ..none.clone() };
        let set = |how, options| Alteration::Publications { how, names: names(&["p", "q"]), options };
        let lsn = |lsn| Alteration::Skip(WrittenOptions { lsn: Some(lsn), ..WrittenOptions::default() });
        let slot = WrittenOptions { slot_name: Some(Some("x_1".into())), ..none.clone() };
        let no_refresh = WrittenOptions { refresh: Some(false), ..none.clone() };
        for (text, expected) in [
            ("rename to Q", Alteration::Rename("q".into())),
            ("owner to current_user", Alteration::Owner(RoleName::CurrentRole)),
            ("connection 'host=x'", Alteration::Connection("host=x".into())),
            ("enable", Alteration::Enable(true)),
            ("disable", Alteration::Enable(false)),
            ("refresh publication", Alteration::Refresh(none.clone())),
            ("refresh publication with (copy_data = off)", Alteration::Refresh(no_copy)),
            ("set publication p, q", set(Listing::Set, none.clone())),
            ("add publication p, q with (refresh = false)", set(Listing::Add, no_refresh.clone())),
            ("drop publication p, q with (refresh = false)", set(Listing::Drop, no_refresh)),
            ("set (slot_name = 'x_1')", Alteration::Options(slot)),
            ("skip (lsn = '1/2A')", lsn(0x1_0000_002A)),
            ("skip (lsn = NONE)", lsn(0)),
        ] {
            let text = format!("alter subscription s {text}");
            assert_eq!(read(&text), SubscriptionStatement::Alter { name: "s".into(), change: expected }, "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        let create = "create subscription s connection '' publication p with";
        for (text, state) in [
            ("create subscription s publication p".to_owned(), "42601"),
            ("create subscription s connection x publication p".to_owned(), "42601"),
            ("create subscription s connection ''".to_owned(), "42601"),
            ("create subscription s connection '' publication p connect = false".to_owned(), "42601"),
            ("alter subscription s".to_owned(), "42601"),
            ("alter subscription s refresh".to_owned(), "42601"),
            ("alter subscription s set (copy_data = true)".to_owned(), "42601"),
            ("alter subscription s drop publication p with (enabled = true)".to_owned(), "42601"),
            ("alter subscription s skip (lsn = 'x')".to_owned(), "22P02"),
            ("alter subscription s skip (lsn = '0/0')".to_owned(), "22023"),
            ("drop subscription a, b".to_owned(), "42601"),
            (format!("{create} (enabled = maybe)"), "42601"),
            (format!("{create} (enabled, enabled)"), "42601"),
            (format!("{create} (refresh = true)"), "42601"),
            (format!("{create} (slot_name = 'No')"), "42602"),
            (format!("{create} (slot_name = '')"), "42602"),
            (format!("{create} (slot_name)"), "42601"),
            (format!("{create} (slot_name = {})", "x".repeat(64)), "42622"),
            (format!("{create} (synchronous_commit = often)"), "22023"),
            (format!("{create} (binary = true)"), "0A000"),
            (format!("{create} (streaming)"), "0A000"),
            (format!("{create} (two_phase = on)"), "0A000"),
            (format!("{create} (mode = 'master')"), "0A000"),
            (format!("{create} (holdfast.compact = on)"), "0A000"),
        ] {
            assert_eq!(translate(&text).unwrap_err().state().0, state, "{text}");
        }
    }
}
