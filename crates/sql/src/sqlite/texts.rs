//! What SQLite's own texts say about privileges, as far as SQLite does not report it when it prepares them.
//!
//! Failure: a text that cannot be read as tokens defines every name, mentions every table, and changes the schema as a
//! superuser only: what is not understood is refused.

use crate::advisory::ADVISORY_FUNCTION;
use crate::ids::NEXT_ID_FUNCTION;
use crate::lex::{Lexeme, Tokens, has_bare_mark};
use holdfast_types::access::check::word_of;
use holdfast_types::access::needs::{Creates, ObjectWord, TableNeed, WHOLE_TABLE};
use holdfast_types::access::{Access, Need, Privileges};
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::collections::HashSet;

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
        let opens = |at: usize| tokens.0.get(at) == Some(&Lexeme::Open);
        let defines = |at: usize| {
            let as_query = opens(at + 1) || tokens.is(at + 1, "materialized") || tokens.is(at + 1, "not");
            (tokens.is(at, "as") && as_query) || opens(at)
        };
        let with = tokens.has("with");
        for at in 0..tokens.0.len() {
            let Some(name) = tokens.name(at).map(str::to_ascii_lowercase) else { continue };
            let before = at.checked_sub(1).and_then(|at| tokens.0.get(at));
            let after_sign = matches!(before, Some(Lexeme::Comma | Lexeme::Open | Lexeme::Period));
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
            Lexeme::Open => depth += 1,
            Lexeme::Close => depth -= 1,
            Lexeme::Word(_) if depth == 0 => {
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

/// Refuses what no text of a client may hold: U+FEFF outside quotes, which readers of the text do not see, and calls of the
/// server's own functions.
pub fn refuse(text: &str) -> SqlResult<()> {
    refuse_marks(text)?;
    // Without tokens, SQLite refuses the text.
    let Some(tokens) = Tokens::new(text) else { return Ok(()) };
    let is_index = verb_of(&tokens) == "CREATE INDEX";
    for at in 0..tokens.0.len() {
        let Some(name) = tokens.name(at).filter(|_| tokens.0.get(at + 1) == Some(&Lexeme::Open)) else { continue };
        let is_own = name.get(..3).is_some_and(|head| head.eq_ignore_ascii_case("hf_"))
            || [NEXT_ID_FUNCTION, ADVISORY_FUNCTION].iter().any(|own| name.eq_ignore_ascii_case(own));
        // In `INSERT INTO name (...)` and `CREATE TABLE name (...)` it is a table.
        let before = ["into", "table", "view", "exists", "references", "with", "recursive"];
        let is_table = at > 0
            && (before.iter().any(|word| tokens.is(at - 1, word))
                || tokens.is(at - 1, "on") && is_index
                || tokens.0.get(at - 1) == Some(&Lexeme::Period));
        if is_own && !is_table {
            let message = format!("permission denied for function {name}");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("Functions with this prefix are the server's own."));
        }
    }
    Ok(())
}

/// Refuses U+FEFF outside quotes.
pub fn refuse_marks(text: &str) -> SqlResult<()> {
    if has_bare_mark(text) {
        let message = "syntax error: the text has U+FEFF (a byte order mark) outside quotes";
        return Err(
            SqlError::new(SqlState::SYNTAX_ERROR, message).with_hint("Remove the character, or quote the name.")
        );
    }
    Ok(())
}

/// The words of the command tag of a schema change.
pub fn ddl_verb(text: &str) -> &'static str {
    Tokens::new(text).map_or("ALTER TABLE", |tokens| verb_of(&tokens))
}

fn verb_of(tokens: &Tokens) -> &'static str {
    let create = tokens.is(0, "create");
    let at = match create {
        true => ["temp", "temporary", "unique", "virtual"].iter().fold(1, |at, word| tokens.skip(at, &[word])),
        false => 1,
    };
    let kind = ["index", "view", "trigger"].iter().position(|word| tokens.is(at, word));
    match (create, tokens.is(0, "drop"), kind) {
        (true, _, Some(0)) => "CREATE INDEX",
        (true, _, Some(1)) => "CREATE VIEW",
        (true, _, Some(_)) => "CREATE TRIGGER",
        (true, _, None) => "CREATE TABLE",
        (_, true, Some(0)) => "DROP INDEX",
        (_, true, Some(1)) => "DROP VIEW",
        (_, true, Some(_)) => "DROP TRIGGER",
        (_, true, None) => "DROP TABLE",
        _ if tokens.is(0, "reindex") => "REINDEX",
        _ => "ALTER TABLE",
    }
}

/// What a statement needs in addition to what SQLite reports. `ddl`: it changes the schema.
pub fn access(text: &str, is_ddl: bool, schema: &Schema) -> Access {
    match (is_ddl, Tokens::new(text)) {
        (true, Some(tokens)) => ddl(&tokens, schema).unwrap_or_else(superuser),
        (true, None) => superuser(),
        (false, Some(tokens)) => {
            let replaces = tokens.has("replace");
            Access { inserts: insert_columns(&tokens), replaces, ..Access::default() }
        }
        (false, None) => Access { replaces: true, ..Access::default() },
    }
}

/// REFERENCES on each table that a foreign key of the text refers to, except the table itself.
fn references(tokens: &Tokens, itself: &str, schema: &Schema) -> Vec<Need> {
    let mut needs = Vec::new();
    for at in (0..tokens.0.len()).filter(|at| tokens.is(*at, "references")) {
        let Some((name, behind)) = tokens.object(at + 1).filter(|(name, _)| !name.eq_ignore_ascii_case(itself)) else {
            continue;
        };
        let Some(table) = schema.tables.iter().find(|t| !t.temp && t.name.eq_ignore_ascii_case(name)) else {
            // The table of another role may get this name later: only the owner of the database may prepare for that.
            let name = name.to_owned();
            needs.push(Need::Owner { table: 0, word: ObjectWord::Table, name, or_schema: true });
            continue;
        };
        let mut need = TableNeed { table: table.oid, privileges: Privileges::REFERENCES, ..TableNeed::default() };
        let listed = tokens.0.get(behind) == Some(&Lexeme::Open);
        let end = (behind..tokens.0.len()).find(|at| tokens.0.get(*at) == Some(&Lexeme::Close)).unwrap_or(behind);
        let number = |name: &str| table.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name));
        match listed {
            true => need.select.extend(
                (behind..end).filter_map(|at| tokens.name(at)).map(|n| number(n).map_or(WHOLE_TABLE, |n| n as i16 + 1)),
            ),
            false => need.select.extend((1i16..).zip(&table.columns).filter(|(_, c)| c.pk > 0).map(|(n, _)| n)),
        }
        needs.push(Need::Table(need));
    }
    needs
}

/// What the creation of a temporary table needs.
pub fn temporary() -> Access {
    Access::of(vec![Need::Temporary])
}

/// What a schema change needs whose text does not say what it touches.
pub fn superuser() -> Access {
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
    if tokens.0.get(at) != Some(&Lexeme::Open) {
        return None;
    }
    let mut names = Vec::new();
    loop {
        names.push(tokens.name(at + 1)?.to_owned());
        match tokens.0.get(at + 2)? {
            Lexeme::Comma => at += 2,
            Lexeme::Close => return Some(names),
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
            if tokens.is(at, "table") {
                needs.extend(references(tokens, name, schema));
            }
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
        needs.extend(references(tokens, name, schema));
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
        let needs = |text: &str| access(text, true, &schema).needs;
        for text in ["create virtual table f using fts5(a, content='secret')", "reindex", "create table 'x"] {
            assert!(matches!(needs(text).as_slice(), [Need::Superuser { .. }]), "{text}");
        }
        assert_eq!(needs("create table t(a)"), [Need::CreateInSchema]);
        assert_eq!(needs("create temp table t(a)"), [Need::Temporary]);
        assert_eq!(needs("create table t(a references \"T\")"), [Need::CreateInSchema]);
        assert!(matches!(
            needs("create table t(a references u)").as_slice(),
            [Need::CreateInSchema, Need::Owner { table: 0, or_schema: true, .. }]
        ));
    }

    #[test]
    fn the_verb_of_a_schema_change() {
        for (text, verb) in [
            ("create table view as select 1", "CREATE TABLE"),
            ("create table trigger as select 1", "CREATE TABLE"),
            ("create/**/table x1 as select 1", "CREATE TABLE"),
            ("create unique/**/index i on t(a)", "CREATE INDEX"),
            ("CREATE VIEW table1 as select 1", "CREATE VIEW"),
            ("create trigger view after insert on t begin select 1; end", "CREATE TRIGGER"),
            ("drop table \"index\"", "DROP TABLE"),
            ("drop/* view */index i", "DROP INDEX"),
            ("reindex t", "REINDEX"),
            ("alter table view add column a", "ALTER TABLE"),
        ] {
            assert_eq!(ddl_verb(text), verb, "{text}");
        }
    }

    #[test]
    fn the_servers_own_functions_are_refused() {
        for text in [
            "select holdfast_next_id('t')",
            "select \"HF_right\" /**/ ('a', 1)",
            "create trigger tr after insert on t begin select [hf_reload_conf]('holdfast'); end",
            "create view v as select`hf_signal`(1)",
            "select 1 from t join u on hf_reload_conf('holdfast')",
            "create table t(a default (hf_x()))",
        ] {
            assert_eq!(refuse(text).unwrap_err().state(), SqlState::INSUFFICIENT_PRIVILEGE, "{text}");
        }
        for text in
            ["create table hf_t(a)", "insert into hf_t(a) values('hf_x()')", "select right('hf_a', 1), hf_a from hf_t"]
        {
            refuse(text).unwrap();
        }
        assert_eq!(refuse("select * from \u{feff}t").unwrap_err().state(), SqlState::SYNTAX_ERROR);
    }
}
