//! What a statement locks: rows by FOR UPDATE and its like, tables by LOCK TABLE.
//!
//! The locking clauses of a SELECT are taken out of its tokens before the parser sees them ([`take_clauses`]): it
//! knows two of the four strengths, one name after OF, and no clause before LIMIT. What they mean for the tables of the
//! FROM clause is found in `bind/lock.rs`.

use crate::bind::{Among, relation_name, scope};
use crate::catalogue;
use crate::translate::{Context, Kind, Translated};
use crate::words::Words;
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{Lock, LockTableMode};
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

/// LOCK TABLE. Its tables have to be stored ones: 42P01 for a name that is none, 42501 for a catalogue's.
pub fn lock_table(lock: &Lock, context: &Context<'_>) -> SqlResult<Translated> {
    let mut tables = Vec::with_capacity(lock.tables.len());
    for target in &lock.tables {
        let (among, name) = relation_name(&target.name)?;
        if among != Among::Temporary && catalogue::find(None, &name).is_some() {
            let message = format!("permission denied for table {name}");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let table = scope::table(context.schema, among, &name)?;
        if table.kind == TableKind::View {
            return Err(SqlError::unsupported("LOCK TABLE of a view").with_hint("Lock the tables that it reads."));
        }
        // Nobody else sees a temporary table.
        if !table.temp {
            tables.push(name);
        }
    }
    let mode = match &lock.lock_mode {
        Some(LockTableMode::AccessShare) => TableLockMode::AccessShare,
        Some(LockTableMode::RowShare) => TableLockMode::RowShare,
        Some(LockTableMode::RowExclusive) => TableLockMode::RowExclusive,
        Some(LockTableMode::ShareUpdateExclusive) => TableLockMode::ShareUpdateExclusive,
        Some(LockTableMode::Share) => TableLockMode::Share,
        Some(LockTableMode::ShareRowExclusive) => TableLockMode::ShareRowExclusive,
        Some(LockTableMode::Exclusive) => TableLockMode::Exclusive,
        Some(LockTableMode::AccessExclusive) | None => TableLockMode::AccessExclusive,
    };
    let kind = Kind::LockTable { tables, mode, no_wait: lock.nowait };
    Ok(Translated { locks: true, ..Translated::command(kind, "LOCK TABLE") })
}

/// Takes the locking clauses of the outermost query out of a statement's tokens. Those in parentheses stay, in
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

/// What follows the strength.
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
