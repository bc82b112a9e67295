//! Tables, indexes, keys and checks as PostgreSQL describes them, for the catalogue tables that show them.

use super::oids;
use crate::keys::{CONSTRAINT_MARK, index_name, is_primary_index};
use crate::types::{self, RowidKind, Type};
use holdfast_types::access::check::sequence_name;
use holdfast_types::quoting::quote_ident;
use holdfast_types::schema::{Dialect, ForeignKey, Index, Table, TableKind};

/// An index as PostgreSQL would show it.
pub struct IndexShape<'a> {
    pub oid: u32,
    pub name: String,
    pub table: &'a Table,
    /// Key columns, or expressions, as text.
    pub keys: Vec<String>,
    /// Their attribute numbers, 0 for an expression.
    pub attnums: Vec<i64>,
    pub descending: Vec<bool>,
    pub unique: bool,
    pub primary: bool,
    /// The index belongs to a constraint.
    pub constraint: bool,
    pub predicate: Option<String>,
}

pub fn attnum(table: &Table, column: &str) -> i64 {
    table.columns.iter().position(|c| c.name.eq_ignore_ascii_case(column)).map_or(0, |i| i as i64 + 1)
}

/// The indexes of a table, including the key of a rowid alias.
pub fn indexes(table: &Table) -> Vec<IndexShape<'_>> {
    let mut out = Vec::new();
    if let Some(i) = table.columns.iter().position(|c| c.rowid_alias) {
        out.push(IndexShape {
            oid: oids::rowid_key(table),
            name: table.key_name.clone(),
            table,
            keys: vec![quote_ident(&table.columns[i].name)],
            attnums: vec![i as i64 + 1],
            descending: vec![false],
            unique: true,
            primary: true,
            constraint: true,
            predicate: None,
        });
    }
    out.extend(table.indexes.iter().map(|index| shape(table, index)));
    out
}

fn shape<'a>(table: &'a Table, index: &Index) -> IndexShape<'a> {
    let texts = index.sql.as_deref().map(key_texts).unwrap_or_default();
    let plain = |i: usize| texts.get(i).map_or("", |t| t.as_str());
    let keys = index.columns.iter().enumerate().map(|(i, c)| match c {
        Some(name) => quote_ident(name),
        None => readable(plain(i).trim_end_matches(" DESC").trim_end_matches(" ASC")),
    });
    let primary = is_primary_index(table, index);
    IndexShape {
        oid: index.oid,
        name: index_name(table, index),
        table,
        keys: keys.collect(),
        attnums: index.columns.iter().map(|c| c.as_deref().map_or(0, |n| attnum(table, n))).collect(),
        descending: (0..index.columns.len()).map(|i| plain(i).to_ascii_uppercase().ends_with(" DESC")).collect(),
        unique: index.unique,
        primary,
        constraint: primary || index.sql.as_deref().is_none_or(|s| s.contains(CONSTRAINT_MARK)),
        predicate: index.sql.as_deref().and_then(predicate),
    }
}

impl IndexShape<'_> {
    /// One key, with its direction.
    pub fn key(&self, i: usize) -> String {
        let descending = self.descending.get(i).copied().unwrap_or(false);
        format!("{}{}", self.keys[i], if descending { " DESC" } else { "" })
    }

    /// What `pg_get_indexdef` returns for the index.
    pub fn definition(&self) -> String {
        let unique = if self.unique { "UNIQUE " } else { "" };
        let keys: Vec<String> = (0..self.keys.len()).map(|i| self.key(i)).collect();
        let filter = self.predicate.as_ref().map(|p| format!(" WHERE {p}")).unwrap_or_default();
        format!(
            "CREATE {unique}INDEX {} ON {}.{} USING btree ({}){filter}",
            quote_ident(&self.name),
            oids::namespace(self.table).1,
            quote_ident(&self.table.name),
            keys.join(", ")
        )
    }
}

/// Where the key list of CREATE INDEX begins and ends.
fn key_list(sql: &str) -> Option<(usize, usize)> {
    let on = find_outside(sql, 0, |rest| rest.len() > 3 && rest[..4].eq_ignore_ascii_case(" on "))?;
    let open = find_outside(sql, on, |rest| rest.starts_with('('))?;
    let mut depth = 0;
    let close = find_outside(sql, open, |rest| {
        depth += i32::from(rest.starts_with('(')) - i32::from(rest.starts_with(')'));
        depth == 0
    })?;
    Some((open + 1, close))
}

/// The first position at or after `from`, outside quotes and comments, where the rest of the text satisfies `test`.
fn find_outside(sql: &str, from: usize, mut test: impl FnMut(&str) -> bool) -> Option<usize> {
    let mut quote = None;
    let mut at = from;
    while let Some(c) = sql.get(at..).and_then(|r| r.chars().next()) {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if sql[at..].starts_with("/*") => {
                at += sql[at..].find("*/").map_or(sql.len() - at, |n| n + 2);
                continue;
            }
            None => {
                if test(&sql[at..]) {
                    return Some(at);
                }
                if matches!(c, '\'' | '"' | '`') {
                    quote = Some(c);
                }
            }
        }
        at += c.len_utf8();
    }
    None
}

fn split_commas(list: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0, 0);
    let mut at = 0;
    while let Some(next) = find_outside(list, at, |rest| {
        depth += i32::from(rest.starts_with('(')) - i32::from(rest.starts_with(')'));
        depth == 0 && rest.starts_with(',')
    }) {
        parts.push(list[from..next].trim().to_owned());
        from = next + 1;
        at = from;
    }
    parts.push(list[from..].trim().to_owned());
    parts
}

fn key_texts(sql: &str) -> Vec<String> {
    key_list(sql).map(|(open, close)| split_commas(&sql[open..close])).unwrap_or_default()
}

fn predicate(sql: &str) -> Option<String> {
    let (_, close) = key_list(sql)?;
    let rest = sql[close + 1..].trim();
    let (word, condition) = rest.split_at_checked(5)?;
    word.eq_ignore_ascii_case("where").then(|| readable(condition.trim()))
}

/// Stored SQL with the quotes around plain names taken off.
pub fn readable(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['"', '\'']) {
        out.push_str(&rest[..at]);
        let quote = &rest[at..at + 1];
        let Some(end) = rest[at + 1..].find(quote).map(|n| at + 1 + n) else {
            rest = &rest[at..];
            break;
        };
        let inner = &rest[at + 1..end];
        out.push_str(&if quote == "\"" { quote_ident(inner) } else { rest[at..=end].to_owned() });
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

/// Named checks of a table: name and condition.
pub fn checks(table: &Table) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    while let Some(start) = find_outside(&table.sql, at, |rest| {
        rest.get(..5).is_some_and(|w| w.eq_ignore_ascii_case("check")) && rest[5..].trim_start().starts_with('(')
    }) {
        let Some(open) = table.sql[start..].find('(').map(|n| start + n) else { break };
        let mut depth = 0;
        let Some(close) = find_outside(&table.sql, open, |rest| {
            depth += i32::from(rest.starts_with('(')) - i32::from(rest.starts_with(')'));
            depth == 0
        }) else {
            break;
        };
        let name = named_before(&table.sql[..start]).unwrap_or_else(|| match out.len() {
            0 => format!("{}_check", table.name),
            n => format!("{}_check{n}", table.name),
        });
        out.push((name, readable(&table.sql[open..=close])));
        at = close + 1;
    }
    out
}

/// The name of `CONSTRAINT "name"` at the end of a text.
fn named_before(text: &str) -> Option<String> {
    let text = text.trim_end();
    let (before, name) = match text.strip_suffix('"') {
        Some(inner) => {
            let open = inner.rfind('"')?;
            (&inner[..open], inner[open + 1..].to_owned())
        }
        None => text.rsplit_once(|c: char| c.is_whitespace()).map(|(b, n)| (b, n.to_owned()))?,
    };
    let word = before.trim_end();
    let at = word.len().checked_sub(10)?;
    word.get(at..)?.eq_ignore_ascii_case("constraint").then_some(name)
}

/// `pg_get_constraintdef` of a foreign key.
pub fn foreign_key(key: &ForeignKey) -> String {
    let own: Vec<String> = key.columns.iter().map(|c| quote_ident(c)).collect();
    let parent: Vec<String> = key.parent_columns.iter().flatten().map(|c| quote_ident(c)).collect();
    let mut text = format!("FOREIGN KEY ({}) REFERENCES {}", own.join(", "), quote_ident(&key.parent));
    if !parent.is_empty() {
        text.push_str(&format!("({})", parent.join(", ")));
    }
    for (what, action) in [("UPDATE", &key.on_update), ("DELETE", &key.on_delete)] {
        if !action.is_empty() && !action.eq_ignore_ascii_case("no action") {
            text.push_str(&format!(" ON {what} {}", action.to_uppercase()));
        }
    }
    match (key.deferrable, key.deferred) {
        (_, true) => text.push_str(" DEFERRABLE INITIALLY DEFERRED"),
        (true, false) => text.push_str(" DEFERRABLE"),
        _ => {}
    }
    if !key.valid {
        text.push_str(" NOT VALID");
    }
    text
}

/// The names of the checks of a table, in the order of its text.
pub fn check_names(table: &Table) -> Vec<String> {
    checks(table).into_iter().map(|(name, _)| name).collect()
}

/// True for tables and views that clients see.
pub fn visible(table: &Table) -> bool {
    !table.name.starts_with("sqlite_")
}

pub fn relkind(table: &Table) -> &'static str {
    if table.kind == TableKind::View { "v" } else { "r" }
}

/// Whether a serial column gives the table a sequence. An identity column's is not shown.
pub fn has_sequence(table: &Table) -> bool {
    let kind = RowidKind::of(table);
    table.columns.iter().any(|c| c.rowid_alias) && kind.serial() && table.kind == TableKind::Table
}

/// The name of the sequence that a serial column gives the table.
pub fn sequence(table: &Table, dialect: Dialect) -> Option<String> {
    let shown = dialect == Dialect::Postgres && visible(table) && has_sequence(table);
    if shown { sequence_name(table) } else { None }
}

pub fn column_type(table: &Table, i: usize, dialect: Dialect) -> Type {
    types::of_column(table, &table.columns[i], dialect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_texts_are_taken_apart() {
        let sql =
            "CREATE UNIQUE INDEX \"a on b\" /*constraint*/ ON \"t\" (lower(\"a\"), \"b\" DESC) WHERE (\"c\" > ')')";
        assert_eq!(key_texts(sql), ["lower(\"a\")", "\"b\" DESC"]);
        assert_eq!(predicate(sql).as_deref(), Some("(c > ')')"));
        assert_eq!(readable("(\"a\" + \"B c\")"), "(a + \"B c\")");
    }

    #[test]
    fn checks_are_found_with_their_names() {
        let table = Table {
            temp: false,
            oid: 16384,
            name: "t".into(),
            kind: TableKind::Table,
            without_rowid: false,
            sql: "CREATE TABLE \"t\" (\"a\" integer CONSTRAINT \"t_a_check\" CHECK (\"a\" > 0), \"check\" text, CHECK ((a) <> 5))".into(),
            columns: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            triggers: Vec::new(),
            key_name: String::new(),
        };
        assert_eq!(checks(&table), [("t_a_check".into(), "(a > 0)".into()), ("t_check1".into(), "((a) <> 5)".into())]);
    }
}
