//! `CREATE STORED ...`: a definition as a database stores it, in SQLite's SQL, in a database of PostgreSQL's dialect.
//!
//! A table that is brought back from a dump has to be defined as it was. What PostgreSQL's CREATE TABLE is stored as cannot
//! always be written as PostgreSQL's CREATE TABLE again, as a check may be stored in other words than it was given in. So
//! `CREATE STORED` with the rest of the stored text runs that text.
//!
//! | the text | is |
//! |---|---|
//! | `CREATE STORED TABLE t (...)`, `INDEX`, `UNIQUE INDEX`, `VIEW` | run without STORED |
//! | `CREATE STORED` and anything else, or a name with a schema | 42601 |
//!
//! Privileges are those of the statement in a database of SQLite's dialect: SQLite reports what a text reads. A view needs a
//! superuser.
//!
//! Failure: what SQLite refuses is reported as it is in SQLite's dialect.

use super::{temporary, texts};
use crate::command::Kind;
use crate::context::Context;
use crate::session::after_comments;
use crate::translated::Translated;
use crate::types::RowidKind;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// What follows `CREATE STORED`, where a statement begins with that.
pub fn stored_definition(text: &str) -> Option<&str> {
    let rest = after_word(after_comments(text), "create")?;
    after_word(rest, "stored").map(str::trim_start)
}

fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let (first, rest) = text.split_at_checked(word.len())?;
    (first.eq_ignore_ascii_case(word) && rest.starts_with(|c: char| c.is_ascii_whitespace())).then_some(rest)
}

/// Translates the statement; `definition` is what follows `CREATE STORED`.
pub fn create_stored(definition: &str, context: &Context<'_>) -> SqlResult<Translated> {
    let verb = match (after_word(definition, "unique"), definition) {
        (Some(rest), _) if after_word(rest, "index").is_some() => "CREATE INDEX",
        (None, rest) if after_word(rest, "index").is_some() => "CREATE INDEX",
        (None, rest) if after_word(rest, "table").is_some() => "CREATE TABLE",
        (None, rest) if after_word(rest, "view").is_some() => "CREATE VIEW",
        _ => {
            let word = definition.split_ascii_whitespace().next().unwrap_or_default();
            let near = SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{word}\""));
            return Err(near.with_hint("CREATE STORED creates a TABLE, an INDEX, a UNIQUE INDEX or a VIEW."));
        }
    };
    let text = format!("CREATE {definition}");
    if has_schema(&text) {
        let message = "a stored definition names its objects without a schema";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if temporary::ddl(&text, context.schema)?.is_some() {
        return Err(SqlError::unsupported("CREATE STORED of a temporary object"));
    }
    texts::refuse_marks(&text)?;
    // What a view reads is checked by its text when it is used, and this text is not read by our own binder.
    let mut access =
        if verb == "CREATE VIEW" { texts::superuser() } else { texts::access(&text, true, context.schema) };
    if let Some(creates) = &mut access.creates {
        creates.sequence = verb == "CREATE TABLE" && RowidKind::is_serial_in(&text);
    }
    Ok(Translated {
        steps: vec![text.into()],
        access,
        access_after_prepare: true,
        cacheable: false,
        ..Translated::command(Kind::Ddl, verb)
    })
}

/// Whether a name in front of the list or the query has a schema before it.
fn has_schema(text: &str) -> bool {
    let tokens = Tokenizer::new(&SQLiteDialect {}, text).tokenize().unwrap_or_default();
    let ends = |token: &Token| match token {
        Token::LParen => true,
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("as"),
        _ => false,
    };
    tokens.iter().take_while(|token| !ends(token)).any(|token| *token == Token::Period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::schema::{Dialect, Schema};

    fn translated(text: &str) -> SqlResult<Translated> {
        let schema = Schema::default();
        let context = Context {
            dialect: Dialect::Postgres,
            schema: &schema,
            database: "d",
            user: "u",
            param_types: &[],
            applies: false,
        };
        create_stored(stored_definition(text).unwrap(), &context)
    }

    #[test]
    fn the_text_is_run_as_it_is() {
        let done =
            translated("create  Stored\ttable \"a b\" (i INTEGER /*serial*/ PRIMARY KEY, c check (instr(c, 'x')))");
        let done = done.unwrap();
        assert_eq!(
            done.steps[0].sql,
            "CREATE table \"a b\" (i INTEGER /*serial*/ PRIMARY KEY, c check (instr(c, 'x')))"
        );
        let creates = done.access.creates.unwrap();
        assert!(creates.sequence && creates.name == "a b");
        assert_eq!(translated("CREATE STORED UNIQUE INDEX i ON t(a)").unwrap().verb, "CREATE INDEX");
        assert_eq!(translated("CREATE STORED VIEW v AS SELECT 1").unwrap().verb, "CREATE VIEW");
    }

    #[test]
    fn nothing_else_is_stored() {
        for text in
            ["TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END", "VIRTUAL TABLE v USING fts5(a)", "TEMP TABLE t(a)", ""]
        {
            let error = translated(&format!("CREATE STORED {text}")).unwrap_err();
            assert_eq!(error.state(), SqlState::SYNTAX_ERROR, "{text}");
        }
        for text in ["create table stored (a int)", "create storedtable t(a)", "select 1", "create"] {
            assert_eq!(stored_definition(text), None, "{text}");
        }
    }
}
