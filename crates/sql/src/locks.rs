//! What a statement locks: rows by FOR UPDATE, FOR SHARE and so on, tables by LOCK TABLE.
//!
//! The locking clauses of a SELECT are removed from its tokens before the parser sees them ([`take_clauses`]), because
//! the parser knows only two of the four strengths, one name after OF, and no clause before LIMIT. `bind/lock.rs`
//! applies them to the tables of the FROM clause.

use crate::words::Words;
use holdfast_types::{LockStrength, LockWait, SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A locking clause as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    pub strength: LockStrength,
    /// The names after OF; empty for all tables.
    pub of: Vec<String>,
    pub wait: LockWait,
}

/// Removes the locking clauses of the outermost query from a statement's tokens. Those in parentheses stay, in
/// spellings that the parser knows.
pub fn take_clauses(tokens: &mut Vec<TokenWithSpan>) -> SqlResult<Vec<Clause>> {
    let mut words = Words::new(tokens);
    let (mut clauses, mut taken, mut depth) = (Vec::new(), Vec::new(), 0);
    while let Some(token) = words.token() {
        let start = words.at;
        match (token, strength(&mut words)) {
            // FOR [NO KEY] UPDATE, FOR [KEY] SHARE
            (_, Some(_)) if depth > 0 => taken.extend((start + 1..words.at - 1).map(|i| words.place(i))),
            (_, Some(strength)) => {
                clauses.push(clause(&mut words, strength)?);
                taken.extend((start..words.at).map(|i| words.place(i)));
            }
            (token, None) => {
                depth += i32::from(*token == Token::LParen) - i32::from(*token == Token::RParen);
                words.at += 1;
            }
        }
    }
    let mut place = 0..;
    tokens.retain(|_| place.next().is_none_or(|p| taken.binary_search(&p).is_err()));
    Ok(clauses)
}

fn strength(words: &mut Words<'_>) -> Option<LockStrength> {
    use LockStrength::*;
    let all: [(&[&str], LockStrength); 4] = [
        (&["FOR", "UPDATE"], Update),
        (&["FOR", "NO", "KEY", "UPDATE"], NoKeyUpdate),
        (&["FOR", "SHARE"], Share),
        (&["FOR", "KEY", "SHARE"], KeyShare),
    ];
    all.into_iter().find(|(clause, _)| words.accept(clause)).map(|(_, strength)| strength)
}

/// Reads what follows the strength.
fn clause(words: &mut Words<'_>, strength: LockStrength) -> SqlResult<Clause> {
    let mut of = Vec::new();
    if words.accept(&["OF"]) {
        of.push(name(words, strength)?);
        while words.take(&Token::Comma) {
            of.push(name(words, strength)?);
        }
    }
    let wait = if words.accept(&["NOWAIT"]) {
        LockWait::NoWait
    } else if words.accept(&["SKIP", "LOCKED"]) {
        LockWait::SkipLocked
    } else {
        LockWait::Wait
    };
    Ok(Clause { strength, of, wait })
}

fn name(words: &mut Words<'_>, strength: LockStrength) -> SqlResult<String> {
    let name = words.name()?;
    if words.token() == Some(&Token::Period) {
        let message = format!("{} must specify unqualified relation names", strength.words());
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    fn taken(sql: &str) -> SqlResult<(String, Vec<Clause>)> {
        let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location().unwrap();
        let clauses = take_clauses(&mut tokens)?;
        let left: String = tokens.iter().map(|t| t.token.to_string()).collect();
        Ok((left.split_whitespace().collect::<Vec<_>>().join(" "), clauses))
    }

    #[test]
    fn clauses_are_taken_out() {
        let clause =
            |strength, of: &[&str], wait| Clause { strength, of: of.iter().map(|s| (*s).to_owned()).collect(), wait };
        let (left, clauses) =
            taken("select * from t, u for no key update of T, \"U\" skip locked for key share nowait limit 5").unwrap();
        assert_eq!(left, "select * from t, u limit 5");
        assert_eq!(
            clauses,
            [
                clause(LockStrength::NoKeyUpdate, &["t", "U"], LockWait::SkipLocked),
                clause(LockStrength::KeyShare, &[], LockWait::NoWait),
            ]
        );
        let (left, clauses) =
            taken("select (select 1 for no key update), substring(a for 2) from t for share").unwrap();
        assert_eq!(left, "select (select 1 for update), substring(a for 2) from t");
        assert_eq!(clauses, [clause(LockStrength::Share, &[], LockWait::Wait)]);
        assert_eq!(taken("select * from t for update of public.t").unwrap_err().state(), SqlState::SYNTAX_ERROR);
        assert_eq!(taken("select * from t for update of").unwrap_err().state(), SqlState::SYNTAX_ERROR);
    }
}
