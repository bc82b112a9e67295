//! What a statement locks: rows by FOR UPDATE and its like, tables by LOCK TABLE.
//!
//! The locking clauses of a SELECT are taken out of its tokens before the parser sees them ([`take_clauses`]): it
//! knows two of the four strengths, one name after OF, and no clause before LIMIT. What they mean for the tables of the
//! FROM clause is found in `bind/lock.rs`.

use crate::bind::fold;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// How much a row lock keeps others from, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockStrength {
    /// FOR KEY SHARE
    KeyShare,
    /// FOR SHARE
    Share,
    /// FOR NO KEY UPDATE
    NoKeyUpdate,
    /// FOR UPDATE
    Update,
}

impl LockStrength {
    /// The clause's words.
    pub fn words(self) -> &'static str {
        match self {
            LockStrength::KeyShare => "FOR KEY SHARE",
            LockStrength::Share => "FOR SHARE",
            LockStrength::NoKeyUpdate => "FOR NO KEY UPDATE",
            LockStrength::Update => "FOR UPDATE",
        }
    }
}

/// What to do about a row that somebody else has locked. Where clauses differ the later of these wins, as in
/// PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWait {
    Wait,
    /// Leave the row out.
    SkipLocked,
    /// Fail with 55P03.
    NoWait,
}

/// The rows of one table that a SELECT returns are to be locked.
///
/// The statement's rows have hidden columns behind those of `desc.columns`, with the keys of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLock {
    /// The stored table, by its exact name.
    pub table: String,
    pub strength: LockStrength,
    pub wait: LockWait,
    /// Positions of the result columns that identify the row: its rowid, or the primary key of a WITHOUT ROWID table
    /// in the key's order.
    pub key: Vec<usize>,
    /// Position of the result column that holds the query's LIMIT: the same integer in every row, negative for no
    /// limit. Only with SKIP LOCKED: then the SQL has no LIMIT, and the rows end when so many have been locked.
    pub limit: Option<usize>,
}

/// The modes of LOCK TABLE, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableLockMode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

/// A locking clause as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    pub strength: LockStrength,
    /// The names after OF; empty for all tables.
    pub of: Vec<String>,
    pub wait: LockWait,
}

/// Takes the locking clauses of the outermost query out of a statement's tokens. Those in parentheses stay, in
/// spellings that the parser knows.
pub fn take_clauses(tokens: &mut Vec<TokenWithSpan>) -> SqlResult<Vec<Clause>> {
    let solid: Vec<usize> = (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
    let mut words = Words { tokens, solid: &solid, at: 0 };
    let (mut clauses, mut taken, mut depth) = (Vec::new(), Vec::new(), 0);
    while let Some(token) = words.token(0) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if words.peek("FOR") => {
                let start = words.at;
                match words.strength() {
                    None => {}
                    // FOR [NO KEY] UPDATE, FOR [KEY] SHARE
                    Some(_) if depth > 0 => {
                        taken.extend(start + 1..words.at - 1);
                        continue;
                    }
                    Some(strength) => {
                        clauses.push(words.clause(strength)?);
                        taken.extend(start..words.at);
                        continue;
                    }
                }
            }
            _ => {}
        }
        words.at += 1;
    }
    let taken: Vec<usize> = taken.into_iter().map(|i| solid[i]).collect();
    let mut index = 0;
    tokens.retain(|_| {
        index += 1;
        taken.binary_search(&(index - 1)).is_err()
    });
    Ok(clauses)
}

/// A statement's tokens without the blanks between them.
struct Words<'t> {
    tokens: &'t [TokenWithSpan],
    solid: &'t [usize],
    at: usize,
}

impl Words<'_> {
    fn token(&self, ahead: usize) -> Option<&Token> {
        self.solid.get(self.at + ahead).map(|i| &self.tokens[*i].token)
    }

    fn peek(&self, word: &str) -> bool {
        matches!(self.token(0), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    /// Steps over these words, or stays.
    fn accept(&mut self, words: &[&str]) -> bool {
        let begun = self.at;
        for word in words {
            if !self.peek(word) {
                self.at = begun;
                return false;
            }
            self.at += 1;
        }
        true
    }

    fn strength(&mut self) -> Option<LockStrength> {
        use LockStrength::*;
        let all: [(&[&str], LockStrength); 4] = [
            (&["FOR", "UPDATE"], Update),
            (&["FOR", "NO", "KEY", "UPDATE"], NoKeyUpdate),
            (&["FOR", "SHARE"], Share),
            (&["FOR", "KEY", "SHARE"], KeyShare),
        ];
        all.into_iter().find(|(words, _)| self.accept(words)).map(|(_, strength)| strength)
    }

    /// What follows the strength.
    fn clause(&mut self, strength: LockStrength) -> SqlResult<Clause> {
        let mut of = Vec::new();
        if self.accept(&["OF"]) {
            of.push(self.name(strength)?);
            while self.token(0) == Some(&Token::Comma) {
                self.at += 1;
                of.push(self.name(strength)?);
            }
        }
        let wait = if self.accept(&["NOWAIT"]) {
            LockWait::NoWait
        } else if self.accept(&["SKIP", "LOCKED"]) {
            LockWait::SkipLocked
        } else {
            LockWait::Wait
        };
        Ok(Clause { strength, of, wait })
    }

    fn name(&mut self, strength: LockStrength) -> SqlResult<String> {
        let syntax = |message: String| SqlError::new(SqlState::SYNTAX_ERROR, message);
        let name = match self.token(0) {
            Some(Token::Word(w)) => fold(&Ident {
                value: w.value.clone(),
                quote_style: w.quote_style,
                span: sqlparser::tokenizer::Span::empty(),
            }),
            Some(other) => return Err(syntax(format!("syntax error at or near \"{other}\""))),
            None => return Err(syntax("syntax error at end of input".into())),
        };
        self.at += 1;
        match self.token(0) {
            Some(Token::Period) => Err(syntax(format!("{} must specify unqualified relation names", strength.words()))),
            _ => Ok(name),
        }
    }
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
