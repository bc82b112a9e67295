//! VACUUM in PostgreSQL's forms and in SQLite's: a table list does not restrict it, `INTO 'file'` writes a copy.
//!
//! Failure: 42601 for what is neither's grammar, 42602 for a path that depends on the server's working directory.

use crate::command::Kind;
use crate::parse;
use crate::translated::Translated;
use crate::words::Words;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// invalid_name
const INVALID_NAME: SqlState = SqlState("42602");

/// SQLite's names for the databases of a connection, which stand where PostgreSQL has tables.
const SQLITE_SCHEMAS: [&str; 2] = ["main", "temp"];

/// The command that a text beginning with VACUUM is.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    if !words.accept(&["VACUUM"]) {
        return Err(words.syntax());
    }
    let analyze = if words.take(&Token::LParen) { options(&mut words)? } else { old_options(&mut words) };
    let mut tables = Vec::new();
    if words.token().is_some() && !words.peek("INTO") {
        tables.extend(table(&mut words)?);
        while words.take(&Token::Comma) {
            tables.extend(table(&mut words)?);
        }
    }
    let into = if words.accept(&["INTO"]) { Some(file(&mut words)?) } else { None };
    words.end()?;
    if into.is_some() && !tables.is_empty() {
        let message = "VACUUM INTO copies the whole database";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_hint("Leave out the names of tables."));
    }
    let steps = if analyze { vec!["ANALYZE".to_owned().into()] } else { Vec::new() };
    Ok(Translated { steps, cacheable: into.is_none(), ..Translated::command(Kind::Vacuum { tables, into }, "VACUUM") })
}

/// `FULL FREEZE VERBOSE ANALYZE`; `true` with the last.
fn old_options(words: &mut Words<'_>) -> bool {
    let mut analyze = false;
    loop {
        if words.accept(&["ANALYZE"]) || words.accept(&["ANALYSE"]) {
            analyze = true;
        } else if !["FULL", "FREEZE", "VERBOSE"].iter().any(|option| words.accept(&[option])) {
            return analyze;
        }
    }
}

/// `option [value], ...)`; `true` with ANALYZE.
fn options(words: &mut Words<'_>) -> SqlResult<bool> {
    let mut analyze = false;
    loop {
        let named = words.accept(&["ANALYZE"]) || words.accept(&["ANALYSE"]);
        if !named {
            words.name()?;
        }
        let is_off = ["FALSE", "OFF"].iter().any(|value| words.peek(value));
        analyze |= named && !is_off;
        if !matches!(words.token(), Some(Token::Comma | Token::RParen) | None) {
            words.at += 1;
        }
        if words.take(&Token::RParen) {
            return Ok(analyze);
        }
        if !words.take(&Token::Comma) {
            return Err(words.syntax());
        }
    }
}

/// `[schema.]name [(column, ...)]`; `None` for one of SQLite's schemas.
fn table(words: &mut Words<'_>) -> SqlResult<Option<String>> {
    let mut name = words.name()?;
    let mut is_schema = SQLITE_SCHEMAS.contains(&&*name);
    if words.take(&Token::Period) {
        is_schema = matches!(&*name, "pg_catalog" | "information_schema");
        name = words.name()?;
    }
    if words.take(&Token::LParen) {
        words.name()?;
        while words.take(&Token::Comma) {
            words.name()?;
        }
        if !words.take(&Token::RParen) {
            return Err(words.syntax());
        }
    }
    Ok((!is_schema).then_some(name))
}

fn file(words: &mut Words<'_>) -> SqlResult<String> {
    let Some(Token::SingleQuotedString(path) | Token::EscapedStringLiteral(path)) = words.token() else {
        return Err(match words.token() {
            None => words.syntax(),
            Some(_) => SqlError::unsupported("VACUUM INTO an expression")
                .with_hint("Write the path as a literal: VACUUM INTO '/path/to/copy.db'."),
        });
    };
    words.at += 1;
    if !path.starts_with('/') {
        return Err(SqlError::new(INVALID_NAME, "relative path not allowed for VACUUM INTO")
            .with_detail(format!("The path is \"{path}\"."))
            .with_hint("The server writes the file on its own machine: give the whole path, from \"/\" on."));
    }
    Ok(path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> (Kind, bool) {
        let translated = translate(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        (translated.kind, !translated.steps.is_empty())
    }

    #[test]
    fn every_form_of_vacuum_is_read() {
        let of =
            |tables: &[&str]| Kind::Vacuum { tables: tables.iter().map(|t| (*t).to_owned()).collect(), into: None };
        assert_eq!(kind("vacuum"), (of(&[]), false));
        assert_eq!(kind("VACUUM FULL FREEZE VERBOSE ANALYZE t, public.u (a, b)"), (of(&["t", "u"]), true));
        assert_eq!(kind("vacuum (full, analyze false, parallel 2) t"), (of(&["t"]), false));
        assert_eq!(kind("vacuum (verbose, analyze) \"T t\""), (of(&["T t"]), true));
        assert_eq!(kind("vacuum main"), (of(&[]), false));
        assert_eq!(kind("vacuum pg_catalog.pg_class"), (of(&[]), false));
        let into = Kind::Vacuum { tables: Vec::new(), into: Some("/tmp/it's.db".into()) };
        assert_eq!(kind("vacuum into '/tmp/it''s.db'"), (into.clone(), false));
        assert_eq!(kind("vacuum main into '/tmp/it''s.db'"), (into, false));
    }

    #[test]
    fn what_is_no_vacuum_is_refused() {
        for (text, state) in [
            ("vacuum into", "42601"),
            ("vacuum t into '/x'", "42601"),
            ("vacuum t u", "42601"),
            ("vacuum (full", "42601"),
            ("vacuum into 'copy.db'", "42602"),
            ("vacuum into $1", "0A000"),
            ("vacuum into '/a' || '/b'", "42601"),
        ] {
            assert_eq!(translate(text).unwrap_err().state().0, state, "{text}");
        }
        assert!(!translate("vacuum into '/x'").unwrap().cacheable, "the path is part of it");
    }
}
