//! The locks of schema changes on a branch.
//!
//! A change of the schema runs on the branch like any other statement, and its text is among the images; MAIN runs it
//! again at COMMIT. One transaction of a database does that at a time, so that ids of new tables and the schema's epoch
//! come out the same on MAIN; what comes out otherwise is refused there (40001). Writers on other tables run concurrently with it.
//!
//! | transaction | lock of the schema |
//! |---|---|
//! | changes it on a branch, or in one message | exclusive, and the tables it is about ([`locks_for`]) |
//! | a writer that keeps its snapshot (REPEATABLE READ) | shared: it could not continue under another schema |
//! | any other writer | none: a statement on an older schema is stale at its first change and begins again |
//!
//! What is not listed in [`locks_for`] needs the exclusive writer.

use crate::state::database::DatabaseState;
use crate::state::locks::{LockId, Target};
use holdfast_store::schema_map::{
    POSITIONS_TABLE, PRIVILEGES_TABLE, PUBLICATIONS_TABLE, SUBSCRIPTIONS_TABLE, TableMap,
};
use holdfast_types::schema::{Schema, TableKind};
use holdfast_types::{TableId, TableLockMode};
use std::sync::Arc;

/// The internal tables whose rows schema changes write. Positions are written so only where a table is added to a subscription
/// or taken out of one.
const CHANGED_BY_SCHEMA_CHANGES: [&str; 4] =
    [PRIVILEGES_TABLE, PUBLICATIONS_TABLE, SUBSCRIPTIONS_TABLE, POSITIONS_TABLE];

/// The name of the schema's lock.
pub fn schema_lock(database: &DatabaseState) -> LockId {
    LockId { volume: database.id, target: Target::Schema }
}

/// Whether a statement can run on a branch, as far as its text shows; else its transaction should begin as the exclusive
/// writer.
pub fn runs_on_a_branch(database: &DatabaseState, sql: &str) -> bool {
    let verb = sql.trim_start().get(..6).unwrap_or_default().to_ascii_lowercase();
    let changes_schema = ["create", "alter ", "drop t", "drop v", "drop i"].contains(&verb.as_str());
    !changes_schema || locks_for(sql, &database.map(), &database.schema.read()).is_some()
}

/// The tables that a schema change is about, and how it locks them, as PostgreSQL does; `None` for what needs the exclusive
/// writer.
///
/// | change | locks |
/// |---|---|
/// | CREATE TABLE, VIEW | SHARE ROW EXCLUSIVE on tables it refers to |
/// | CREATE INDEX | SHARE on its table |
/// | ALTER TABLE | ACCESS EXCLUSIVE on it, SHARE ROW EXCLUSIVE on tables it refers to |
/// | a change of owners and privileges, of publications or of subscriptions | none |
/// | DROP TABLE, INDEX | ACCESS EXCLUSIVE on the table |
/// | triggers; any change but CREATE where there are triggers; virtual tables; all else | needs the exclusive writer |
pub fn locks_for(sql: &str, map: &TableMap, schema: &Schema) -> Option<Vec<(TableId, TableLockMode)>> {
    let tokens = tokens(sql);
    let mut words = Words { tokens: &tokens };
    let mut locks = Vec::new();
    let mut add = |name: &str, mode| -> Option<()> {
        if schema.table(name).is_some_and(|t| t.kind == TableKind::Virtual) {
            return None;
        }
        let table = map.tables().iter().find(|t| t.name.eq_ignore_ascii_case(name));
        if table.is_some_and(|t| t.locking.exclusive) {
            return None;
        }
        locks.extend(table.map(|t| (t.id, mode)));
        Some(())
    };
    match words.next()?.as_str() {
        "create" => {
            words.skip(&["unique"]);
            match words.next()?.as_str() {
                "table" => words.rest_refers_to().try_for_each(|p| add(p, TableLockMode::ShareRowExclusive))?,
                "view" => {}
                "index" => {
                    words.skip(&["if", "not", "exists"]);
                    words.name()?;
                    words.skip(&["on"]);
                    add(words.name()?, TableLockMode::Share)?;
                }
                _ => return None,
            }
        }
        "alter" if !map.has_triggers => {
            words.skip(&["table"]);
            add(words.name()?, TableLockMode::AccessExclusive)?;
            words.rest_refers_to().try_for_each(|p| add(p, TableLockMode::ShareRowExclusive))?;
        }
        "drop" if !map.has_triggers => {
            let what = words.next()?;
            words.skip(&["if", "exists"]);
            let name = words.name()?;
            match what.as_str() {
                "table" => add(name, TableLockMode::AccessExclusive)?,
                "view" => {}
                "index" => {
                    let of = |t: &&Arc<holdfast_types::schema::Table>| {
                        t.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(name))
                    };
                    schema.tables.iter().find(of).map_or(Some(()), |t| add(&t.name, TableLockMode::AccessExclusive))?;
                }
                _ => return None,
            }
        }
        // Of the server's own statements only those on these tables are schema changes.
        "insert" | "delete" if CHANGED_BY_SCHEMA_CHANGES.iter().any(|table| sql.contains(table)) => {}
        _ => return None,
    }
    Some(locks)
}

/// A word in lower case if it may be a keyword, a quoted name, or a sign.
#[derive(Debug, PartialEq)]
enum Token {
    Word { lower: String, text: String },
    Quoted(String),
    Sign(char),
}

struct Words<'t> {
    tokens: &'t [Token],
}

impl<'t> Words<'t> {
    /// The next word, in lower case.
    fn next(&mut self) -> Option<String> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        if let Token::Word { lower, .. } = first { Some(lower.clone()) } else { None }
    }

    /// Passes over these words where they come next.
    fn skip(&mut self, words: &[&str]) {
        for word in words {
            match self.tokens.split_first() {
                Some((Token::Word { lower, .. }, rest)) if lower == word => self.tokens = rest,
                _ => return,
            }
        }
    }

    /// The next name, without the schema it may be qualified with.
    fn name(&mut self) -> Option<&'t str> {
        let name = one_name(self.tokens.first()?)?;
        match self.tokens {
            [_, Token::Sign('.'), second, rest @ ..] => {
                self.tokens = rest;
                one_name(second)
            }
            _ => {
                self.tokens = &self.tokens[1..];
                Some(name)
            }
        }
    }

    /// The names after each remaining REFERENCES.
    fn rest_refers_to(&self) -> impl Iterator<Item = &'t str> {
        let refers = |t: &Token| matches!(t, Token::Word { lower, .. } if lower == "references");
        self.tokens.windows(2).filter(move |pair| refers(&pair[0])).filter_map(|pair| one_name(&pair[1]))
    }
}

fn one_name(token: &Token) -> Option<&str> {
    match token {
        Token::Word { text, .. } => Some(text),
        Token::Quoted(name) => Some(name),
        Token::Sign(_) => None,
    }
}

/// SQLite's tokens, as far as names and keywords have to be distinguished. String literals count as quoted names.
fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        let (token, used) = match c {
            _ if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
            _ if rest.starts_with("/*") => (None, rest[2..].find("*/").map_or(rest.len(), |end| end + 4)),
            '"' | '\'' | '`' => quoted(rest, c),
            '[' => {
                let end = rest.find(']').unwrap_or(rest.len());
                (Some(Token::Quoted(rest[1..end].into())), (end + 1).min(rest.len()))
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                let text = &rest[..end];
                (Some(Token::Word { lower: text.to_ascii_lowercase(), text: text.into() }), end)
            }
            _ if c.is_whitespace() => (None, c.len_utf8()),
            _ => (Some(Token::Sign(c)), c.len_utf8()),
        };
        tokens.extend(token);
        rest = &rest[used..];
    }
    tokens
}

/// A name in quotes, which are doubled inside it, and its length in bytes.
fn quoted(text: &str, quote: char) -> (Option<Token>, usize) {
    let mut name = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            name.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            name.push(quote);
        } else {
            return (Some(Token::Quoted(name)), at + c.len_utf8());
        }
    }
    (Some(Token::Quoted(name)), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::schema_map::create_internal_tables;
    use holdfast_store::schema_read::read_schema;
    use holdfast_store::sqlite::{Conn, OpenFlags};
    use holdfast_types::VolumeId;

    fn locks(sql: &str) -> Option<Vec<(String, TableLockMode)>> {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec(
            "create table P(id integer primary key); create table \"o d\"\"d\"(a); create index oi on \"o d\"\"d\"(a)",
        )
        .unwrap();
        let map = create_internal_tables(&mut conn, VolumeId(1)).unwrap();
        let schema = read_schema(&mut conn, &map).unwrap();
        let name = |id| map.by_id(id).unwrap().name.clone();
        Some(locks_for(sql, &map, &schema)?.into_iter().map(|(id, mode)| (name(id), mode)).collect())
    }

    #[test]
    fn a_change_locks_what_it_is_about() {
        use TableLockMode::{AccessExclusive, Share, ShareRowExclusive};
        let p = |mode| Some(vec![("P".to_owned(), mode)]);
        let odd = |mode| Some(vec![("o d\"d".to_owned(), mode)]);
        assert_eq!(locks("create table t(a)"), Some(vec![]));
        assert_eq!(locks("CREATE TABLE if not exists t(a /* references x */ references p)"), p(ShareRowExclusive));
        assert_eq!(locks("create unique index i on main.\"o d\"\"d\"(a)"), odd(Share));
        assert_eq!(locks("alter table [o d\"d] add column b"), odd(AccessExclusive));
        assert_eq!(locks("drop table if exists main.p"), p(AccessExclusive));
        assert_eq!(locks("drop index OI"), odd(AccessExclusive));
        assert_eq!(locks("drop index nothing"), Some(vec![]));
        for alone in ["create virtual table v using fts5(a)", "create trigger t after insert on p begin select 1; end"]
        {
            assert_eq!(locks(alone), None, "{alone}");
        }
        assert_eq!(locks("analyze"), None);
        assert_eq!(locks("create temp table t(a)"), None);
    }
}
