//! What SQLite's own texts say about privileges, as far as SQLite does not report it when it prepares them.
//!
//! Failure: a text that cannot be read as tokens defines every name, mentions every table, and changes the schema as a
//! superuser only: what is not understood is refused.

use crate::command::Kind;
use holdfast_types::access::check::word_of;
use holdfast_types::access::needs::{Creates, ObjectWord};
use holdfast_types::access::{Access, Need};
use holdfast_types::schema::{Schema, Table};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::HashSet;

/// A text's tokens without white space.
struct Tokens(Vec<Token>);

impl Tokens {
    fn new(text: &str) -> Option<Tokens> {
        let tokens = Tokenizer::new(&SQLiteDialect {}, text).tokenize().ok()?;
        Some(Tokens(tokens.into_iter().filter(|t| !matches!(t, Token::Whitespace(_))).collect()))
    }

    /// A name: SQLite also takes a string for one.
    fn name(&self, at: usize) -> Option<&str> {
        match self.0.get(at)? {
            Token::Word(word) => Some(&word.value),
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Some(text),
            _ => None,
        }
    }

    fn is(&self, at: usize, word: &str) -> bool {
        matches!(self.0.get(at), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    fn has(&self, word: &str) -> bool {
        (0..self.0.len()).any(|at| self.is(at, word))
    }

    /// The position behind these words, where they come next.
    fn skip(&self, at: usize, words: &[&str]) -> usize {
        let found = words.iter().enumerate().all(|(i, word)| self.is(at + i, word));
        if found { at + words.len() } else { at }
    }

    /// The name at a position, without the schema before it, and the position behind it.
    fn object(&self, at: usize) -> Option<(&str, usize)> {
        let at = if self.0.get(at + 1) == Some(&Token::Period) { at + 2 } else { at };
        Some((self.name(at)?, at + 1))
    }

    /// The name behind the first of this word.
    fn object_after(&self, from: usize, word: &str) -> Option<&str> {
        let at = (from..self.0.len()).find(|at| self.is(*at, word))?;
        self.object(at + 1).map(|(name, _)| name)
    }
}

/// The names in a text, as far as they say what the text touches.
#[derive(Debug)]
pub struct TextWords {
    /// `None`: the text cannot be read.
    names: Option<HashSet<String>>,
    /// Names where a table may stand.
    tables: HashSet<String>,
    /// Names that the text may define by WITH; a function's name may be among them.
    defined: HashSet<String>,
    target: Option<String>,
}

impl TextWords {
    pub fn new(text: &str) -> TextWords {
        let Some(tokens) = Tokens::new(text) else {
            return TextWords { names: None, tables: HashSet::new(), defined: HashSet::new(), target: None };
        };
        let (mut names, mut tables, mut defined) = (HashSet::new(), HashSet::new(), HashSet::new());
        let opens = |at: usize| tokens.0.get(at) == Some(&Token::LParen);
        let defines = |at: usize| {
            let as_query = opens(at + 1) || tokens.is(at + 1, "materialized") || tokens.is(at + 1, "not");
            (tokens.is(at, "as") && as_query) || opens(at)
        };
        let with = tokens.has("with");
        for at in 0..tokens.0.len() {
            let Some(name) = tokens.name(at).map(str::to_ascii_lowercase) else { continue };
            let before = at.checked_sub(1).and_then(|at| tokens.0.get(at));
            let after_sign = matches!(before, Some(Token::Comma | Token::LParen | Token::Period));
            if after_sign || ["from", "join"].iter().any(|word| at > 0 && tokens.is(at - 1, word)) {
                tables.insert(name.clone());
            }
            if with && defines(at + 1) {
                defined.insert(name.clone());
            }
            names.insert(name);
        }
        TextWords { names: Some(names), tables, defined, target: target(&tokens) }
    }

    /// Whether a name occurs in the text.
    pub fn mentions(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(&name.to_ascii_lowercase()))
    }

    /// Whether a name occurs where a table may stand.
    pub fn reads_from(&self, name: &str) -> bool {
        self.names.is_none() || self.tables.contains(&name.to_ascii_lowercase())
    }

    /// Whether the text may define a WITH query of this name.
    pub fn defines(&self, name: &str) -> bool {
        self.names.is_none() || self.defined.contains(&name.to_ascii_lowercase())
    }

    /// The table that the text inserts into, updates or deletes from, if it is a statement of this kind.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }
}

fn target(tokens: &Tokens) -> Option<String> {
    let mut depth = 0;
    for at in 0..tokens.0.len() {
        match tokens.0.get(at)? {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::Word(_) if depth == 0 => {
                let behind = match () {
                    () if tokens.is(at, "into") => at + 1,
                    () if tokens.is(at, "delete") && tokens.is(at + 1, "from") => at + 2,
                    () if tokens.is(at, "update") && tokens.is(at + 1, "or") => at + 3,
                    () if tokens.is(at, "update") => at + 1,
                    () => continue,
                };
                return tokens.object(behind).map(|(name, _)| name.to_owned());
            }
            _ => {}
        }
    }
    None
}

/// What a statement needs in addition to what SQLite reports.
pub fn access(text: &str, kind: &Kind, schema: &Schema) -> Access {
    let tokens = Tokens::new(text);
    match (kind, tokens) {
        (Kind::Ddl, Some(tokens)) => ddl(&tokens, schema).unwrap_or_else(superuser),
        (Kind::Ddl, None) => superuser(),
        (Kind::Insert | Kind::Update, Some(tokens)) => {
            let replaces = tokens.has("replace");
            Access { inserts: insert_columns(&tokens), replaces, ..Access::default() }
        }
        (Kind::Insert | Kind::Update, None) => Access { replaces: true, ..Access::default() },
        _ => Access::default(),
    }
}

fn superuser() -> Access {
    let message = "must be superuser to run this schema change".to_owned();
    Access::of(vec![Need::Superuser { message, owner_of: None }])
}

/// The columns that an INSERT lists.
fn insert_columns(tokens: &Tokens) -> Option<Vec<String>> {
    let into = (0..tokens.0.len()).find(|at| tokens.is(*at, "into"))?;
    let (_, mut at) = tokens.object(into + 1)?;
    if tokens.is(at, "as") {
        at += 2;
    }
    if tokens.0.get(at) != Some(&Token::LParen) {
        return None;
    }
    let mut names = Vec::new();
    loop {
        names.push(tokens.name(at + 1)?.to_owned());
        match tokens.0.get(at + 2)? {
            Token::Comma => at += 2,
            Token::RParen => return Some(names),
            _ => return None,
        }
    }
}

fn ddl(tokens: &Tokens, schema: &Schema) -> Option<Access> {
    let table = |name: &str| schema.table(name).filter(|t| !t.temp);
    let owner = |table: &Table, word: ObjectWord, name: &str, or_schema: bool| Need::Owner {
        table: table.oid,
        word,
        name: name.to_owned(),
        or_schema,
    };
    let of_table = |name: &str| table(name).map(|t| owner(t, word_of(t), &t.name, false)).into_iter();
    let temporary = ["temp", "temporary"].iter().any(|word| tokens.is(1, word));
    let mut needs = Vec::new();
    let mut creates = None;
    if tokens.is(0, "create") && !temporary {
        let at = tokens.skip(1, &["unique"]);
        let named = tokens.skip(at + 1, &["if", "not", "exists"]);
        if tokens.is(at, "index") {
            needs.extend(of_table(tokens.object_after(named, "on")?));
            needs.push(Need::CreateInSchema);
        } else if tokens.is(at, "trigger") {
            // Its program runs with the privileges of the table's owner.
            needs.extend(of_table(tokens.object_after(named, "on")?));
        } else if tokens.is(at, "table") || tokens.is(at, "view") {
            let (name, _) = tokens.object(named)?;
            needs.push(Need::CreateInSchema);
            // IF NOT EXISTS does nothing to the object that exists.
            if table(name).is_none() {
                creates = Some(Creates { name: name.to_owned(), sequence: false, replaces: None });
            }
        } else {
            // A virtual table reads other tables by itself.
            return None;
        }
    } else if tokens.is(0, "drop") {
        let (name, _) = tokens.object(tokens.skip(2, &["if", "exists"]))?;
        let is_it = |other: &str| other.eq_ignore_ascii_case(name);
        let mut tables = schema.tables.iter().filter(|t| !t.temp);
        if tokens.is(1, "index") {
            let of = tables.find(|t| t.indexes.iter().any(|i| is_it(&i.name)));
            needs.extend(of.map(|t| owner(t, ObjectWord::Index, name, true)));
        } else if tokens.is(1, "trigger") {
            let of = tables.find(|t| t.triggers.iter().any(|trigger| is_it(&trigger.name)));
            needs.extend(of.map(|t| owner(t, word_of(t), &t.name, false)));
        } else {
            needs.extend(table(name).map(|t| owner(t, word_of(t), &t.name, true)));
        }
    } else if tokens.is(0, "alter") {
        let (name, at) = tokens.object(tokens.skip(1, &["table"]))?;
        needs.extend(of_table(name));
        if tokens.is(at, "rename") && tokens.is(at + 1, "to") {
            needs.push(Need::CreateInSchema);
        }
    } else if tokens.is(0, "reindex") {
        let (name, _) = tokens.object(1)?;
        let indexed = |t: &&std::sync::Arc<Table>| {
            t.name.eq_ignore_ascii_case(name) || t.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(name))
        };
        let of = schema.tables.iter().find(indexed)?;
        needs.push(owner(of, word_of(of), &of.name, false));
    } else {
        return if temporary { Some(Access::of(vec![Need::Temporary])) } else { None };
    }
    Some(Access { needs, creates, ..Access::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_a_text() {
        assert!(!TextWords::new("select a as b from v as x").defines("v"));
        let with =
            "WITH v AS (select 1), 'w'(a) as materialized (select 2), [x] as not materialized (select 3) select 1";
        let words = TextWords::new(with);
        assert!(["V", "w", "x"].iter().all(|name| words.defines(name)), "{words:?}");
        let words = TextWords::new("select b from \"T\", main.u join 'w' where c");
        assert!(["t", "u", "W"].iter().all(|name| words.reads_from(name)) && !words.reads_from("c"), "{words:?}");
        assert!(words.mentions("c") && !words.mentions("d") && !words.defines("t"));
        let target = |text: &str| TextWords::new(text).target().map(str::to_owned);
        assert_eq!(target("with c as (delete from x) insert or replace into main.t values(1)"), Some("t".into()));
        assert_eq!(target("update or ignore t set a = 1"), Some("t".into()));
        assert_eq!(target("delete from 't' where a in (select b from u)"), Some("t".into()));
        assert_eq!(target("select a from t"), None);
        let broken = TextWords::new("select 'x");
        assert!(broken.mentions("t") && broken.reads_from("t") && broken.defines("t"));
    }

    #[test]
    fn the_columns_of_an_insert() {
        let columns = |text: &str| insert_columns(&Tokens::new(text).unwrap());
        assert_eq!(
            columns("insert or replace into main.t as x(a, \"B\") values(1, 2)"),
            Some(vec!["a".into(), "B".into()])
        );
        assert_eq!(columns("insert into t values(1)"), None);
        assert_eq!(columns("insert into t default values"), None);
    }

    #[test]
    fn a_schema_change_that_is_not_understood_needs_a_superuser() {
        let schema = Schema::default();
        let needs = |text: &str| access(text, &Kind::Ddl, &schema).needs;
        for text in ["create virtual table f using fts5(a, content='secret')", "reindex", "create table 'x"] {
            assert!(matches!(needs(text).as_slice(), [Need::Superuser { .. }]), "{text}");
        }
        assert_eq!(needs("create table t(a)"), [Need::CreateInSchema]);
        assert_eq!(needs("create temp table t(a)"), [Need::Temporary]);
    }
}
