//! What a statement of SQLite's SQL is by its own words, read from its tokens as SQLite splits them.
//!
//! The text is the one that runs, so a subquery that the translation has put into it counts. A word in quotes, a string or a
//! comment is no keyword.
//!
//! Failure: a text with a token that SQLite refuses has no facts; SQLite reports the error when it prepares it.

use crate::lex::{Lexeme, Tokens};
use holdfast_types::StatementFacts;

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
    let Some(tokens) = Tokens::new(sql) else { return StatementFacts::default() };
    StatementFacts { verb: verb(&tokens), names_its_rows: names_its_rows(&tokens) }
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

fn names_its_rows(tokens: &Tokens) -> bool {
    let verbs = [&["insert", "into"][..], &["update"], &["delete", "from"]];
    let Some(rest) = verbs.into_iter().map(|verb| tokens.skip(0, verb)).find(|rest| *rest > 0) else { return false };
    let elsewhere = |at| LOOKS_ELSEWHERE.iter().any(|word| tokens.is(at, word));
    !(rest..tokens.0.len()).any(elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

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
