//! What a statement of SQLite's SQL is by its own words, read from its tokens as SQLite splits them.
//!
//! The text is the one that runs, so a subquery that the translation has put into it counts. A word in quotes, a string or a
//! comment is no keyword.
//!
//! Failure: a text with a token that SQLite refuses has no facts; SQLite reports the error when it prepares it.

mod schema_change;

use crate::lex::{Lexeme, Tokens, token_end};
use holdfast_types::StatementFacts;
use holdfast_types::definition::redefinition::{Redefinition, SEPARATOR};
use schema_change::schema_change;
use std::sync::Arc;

/// The words that a statement may begin with.
const VERBS: [&str; 14] = [
    "SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "REINDEX", "ANALYZE",
    "VACUUM", "EXPLAIN", "PRAGMA",
];

/// Words that read another table or another row, or skip a row: a second table (UPDATE ... FROM), a subquery, several rows, ON
/// CONFLICT, OR IGNORE.
const LOOKS_ELSEWHERE: [&str; 7] = ["select", "from", "conflict", "in", "or", "exists", "with"];

/// The facts of one statement.
pub fn facts(sql: &str) -> StatementFacts {
    // The parts of a redefinition behind the first are about indexes of its table.
    let head = sql.split(SEPARATOR).next().filter(|_| Redefinition::is(sql)).unwrap_or(sql);
    let Some(tokens) = Tokens::new(head) else { return StatementFacts::default() };
    StatementFacts {
        verb: verb(&tokens),
        explained_at: token_end(sql, explains(&tokens)),
        pragma: tokens.is(explains(&tokens), "pragma"),
        names_its_rows: names_its_rows(&tokens),
        or_replace_at: token_end(sql, usize::from(takes_or_replace(&tokens))),
        schema_change: schema_change(&tokens).map(Arc::new),
    }
}

/// The first word; after WITH, the first verb outside parentheses.
fn verb(tokens: &Tokens) -> &'static str {
    let known = |at| VERBS.into_iter().find(|verb| tokens.is(at, verb));
    if !tokens.is(0, "with") {
        return known(0).unwrap_or_default();
    }
    let mut depth = 0;
    let mut outside = tokens.0.iter().enumerate().filter_map(|(at, token)| {
        depth += i32::from(*token == Lexeme::Open) - i32::from(*token == Lexeme::Close);
        (depth == 0).then_some(at)
    });
    outside.find_map(known).unwrap_or_default()
}

/// The number of words of EXPLAIN or EXPLAIN QUERY PLAN; 0: it is no EXPLAIN.
fn explains(tokens: &Tokens) -> usize {
    match tokens.skip(0, &["explain"]) {
        1 => tokens.skip(1, &["query", "plan"]),
        _ => 0,
    }
}

fn names_its_rows(tokens: &Tokens) -> bool {
    let verbs = [&["insert", "into"][..], &["update"], &["delete", "from"]];
    let Some(rest) = verbs.into_iter().map(|verb| tokens.skip(0, verb)).find(|rest| *rest > 0) else { return false };
    let elsewhere = |at| LOOKS_ELSEWHERE.iter().any(|word| tokens.is(at, word));
    !(rest..tokens.0.len()).any(elsewhere)
}

/// An INSERT or UPDATE that does not say itself what to do with duplicates.
fn takes_or_replace(tokens: &Tokens) -> bool {
    let changes = tokens.is(0, "insert") || tokens.is(0, "update");
    changes && !tokens.is(1, "or") && !(1..tokens.0.len()).any(|at| tokens.skip(at, &["on", "conflict"]) > at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_replace_can_be_put_into_plain_statements_only() {
        let replacing = |sql: &str| {
            let at = facts(sql).or_replace_at?;
            Some(format!("{} or replace{}", &sql[..at], &sql[at..]))
        };
        assert_eq!(replacing(" INSERT INTO t VALUES(1)").unwrap(), " INSERT or replace INTO t VALUES(1)");
        assert_eq!(replacing("/* c */update/**/t set a = 1").unwrap(), "/* c */update or replace/**/t set a = 1");
        assert!(replacing("insert into t values('on conflict', \"on conflict\") -- on conflict").is_some());
        for sql in [
            "insert or ignore into t values(1)",
            "insert into t values(1) on conflict do nothing",
            "insert into t values(1) on\n/**/ conflict do nothing",
            "delete from t",
            "with w as (select 1) insert into t select * from w",
        ] {
            assert_eq!(replacing(sql), None, "{sql}");
        }
    }

    #[test]
    fn what_looks_elsewhere_does_not_only_name_its_rows() {
        for sql in [
            "INSERT INTO t(a) VALUES(?1)",
            "update t set a = ?1 where id = ?2 returning a",
            "delete from t where id = 1",
            "/* one row */ delete from t where id = 1 -- in",
            "INSERT INTO \"from\" (\"in\") VALUES ('select or with')",
        ] {
            assert!(facts(sql).names_its_rows, "{sql}");
        }
        for sql in [
            "update t set a = o.a from o where t.id = 1 and o.id = 2",
            "update t set a = (select a from o) where id = 1",
            "insert into t values(1) on conflict do nothing",
            "insert or ignore into t values(1)",
            "replace into t values(1)",
            "update t set a = 1 where id in (1, 2)",
            "delete from t where id=1 or\tid=2",
            "with w as (select 1) delete from t",
            "select 1",
            "update t set a = 'x",
            "",
        ] {
            assert!(!facts(sql).names_its_rows, "{sql}");
        }
    }

    #[test]
    fn explain_is_looked_through() {
        for (sql, explained, pragma) in [
            ("EXPLAIN QUERY PLAN select 1", Some(" select 1"), false),
            ("/* c */ explain\n-- d\ndelete from t", Some("\n-- d\ndelete from t"), false),
            ("explain pragma table_info(t)", Some(" pragma table_info(t)"), true),
            (" PRAGMA table_info(t)", None, true),
            ("select plan from query where a = 'pragma'", None, false),
            ("\"explain\" select 1", None, false),
        ] {
            let facts = facts(sql);
            assert_eq!((facts.explained_at.map(|at| &sql[at..]), facts.pragma), (explained, pragma), "{sql}");
        }
    }

    #[test]
    fn the_verb_is_that_of_the_statement() {
        for (sql, verb) in [
            ("select 1", "SELECT"),
            ("/* c */ Insert into t values(1)", "INSERT"),
            ("with a as (delete from x), \"update\"(x) as (select 1) select 1", "SELECT"),
            ("WITH RECURSIVE n(i) AS (SELECT 1) update t set a = (select 1)", "UPDATE"),
            ("EXPLAIN QUERY PLAN delete from t", "EXPLAIN"),
            ("\"select\" 1", ""),
            ("", ""),
        ] {
            assert_eq!(facts(sql).verb, verb, "{sql}");
        }
    }
}
