//! A schema change of Holdfast's own: another text for a stored table and its indexes, whose rows stay as they are.
//!
//! SQLite cannot add or drop a foreign key, or change a type or a default. A redefinition does: the text in
//! `sqlite_schema` is replaced, as sqlite.org/lang_altertable.html describes it for changes that do not concern the
//! content of a table. It is text, like every schema change, so the trail carries it and redo repeats it.
//!
//! | part of the text | content |
//! |---|---|
//! | 1 | `ALTER TABLE "name" AS `, then the table's CREATE TABLE with the same columns |
//! | each further one, after U+001E | `INDEX "name" AS `, then the index's CREATE INDEX, which may have another name |
//!
//! It is never a statement of SQLite's, and no text of a client is taken for one.
//!
//! Rows that were stored before ALTER TABLE ADD COLUMN are shorter than the table; SQLite reads the column's default in
//! place of what they lack. So a change of defaults writes every row first: [`Redefinition::rewritten_column`].

use super::token::tokens;
use super::{ClauseKind, Definition};
use crate::quoting::quote;

/// Between the parts.
pub const SEPARATOR: char = '\u{1e}';

/// A redefinition.
#[derive(Clone, Debug, PartialEq)]
pub struct Redefinition {
    pub table: String,
    /// The table's new CREATE TABLE.
    pub sql: String,
    /// Indexes by their names, with their new names and CREATE INDEX.
    pub indexes: Vec<(String, String, String)>,
    /// A change of defaults is among the changes: the CREATE TABLE before.
    pub rewrites: bool,
}

/// In the text of a redefinition that changes a default.
const REWRITES_MARK: &str = "/*rows*/ ";

/// The quoted name at the beginning of a text, and the rest behind ` AS `.
fn named(text: &str) -> Option<(String, &str)> {
    let name = tokens(text.get(..text.len().min(4096))?).into_iter().next()?;
    let rest = text.get(name.at.end..)?.strip_prefix(" AS ")?;
    text.starts_with('"').then_some((name.name(text)?, rest))
}

impl Redefinition {
    /// Whether a text is a redefinition.
    pub fn is(text: &str) -> bool {
        Redefinition::of(text).is_some()
    }

    /// The redefinition that a text is.
    pub fn of(text: &str) -> Option<Redefinition> {
        let mut parts = text.split(SEPARATOR);
        let (table, sql) = named(parts.next()?.strip_prefix("ALTER TABLE ")?)?;
        let (rewrites, sql) = match sql.strip_prefix(REWRITES_MARK) {
            Some(rest) => (true, rest),
            None => (false, sql),
        };
        Definition::parse(sql)?;
        let index = |part: &str| {
            let (old, sql) = named(part.strip_prefix("INDEX ")?)?;
            Some((old, index_name(sql)?, sql.to_owned()))
        };
        let indexes = parts.map(index).collect::<Option<_>>()?;
        Some(Redefinition { table, sql: sql.to_owned(), indexes, rewrites })
    }

    /// The text of a redefinition of `before` as `after`, and of indexes by their names. `None` where a name or a
    /// constant in it contains U+001E.
    pub fn text(before: &Definition, after: &Definition, indexes: &[(String, String)]) -> Option<String> {
        let defaults = |d: &Definition| d.columns.iter().map(|c| c.default().map(str::to_owned)).collect::<Vec<_>>();
        let mark = if defaults(before) == defaults(after) { "" } else { REWRITES_MARK };
        let mut parts = vec![format!("ALTER TABLE {} AS {mark}{}", quote(&before.name), after.sql())];
        parts.extend(indexes.iter().map(|(name, sql)| format!("INDEX {} AS {sql}", quote(name))));
        let clean = parts.iter().all(|part| !part.contains(SEPARATOR));
        clean.then(|| parts.join(&SEPARATOR.to_string()))
    }

    /// A stored column to be set to itself in every row before, so that each row is as long as the table.
    pub fn rewritten_column(&self) -> Option<String> {
        let definition = Definition::parse(&self.sql).filter(|_| self.rewrites)?;
        let plain = |kind: &ClauseKind| !matches!(kind, ClauseKind::Generated | ClauseKind::PrimaryKey(_));
        let keys: Vec<String> = definition.foreign_keys().flat_map(|(.., columns)| columns).collect();
        let stored = definition.columns.iter().filter(|c| c.clauses.iter().all(|clause| plain(&clause.kind)));
        let (mut free, bound): (Vec<_>, Vec<_>) = stored.partition(|c| !keys.contains(&c.name));
        free.extend(bound);
        free.first().map(|c| c.name.clone())
    }

    /// The changes of `sqlite_schema`, as statements with their parameters.
    pub fn updates(&self) -> Vec<(&'static str, Vec<String>)> {
        let table = "UPDATE main.sqlite_schema SET sql = ?1 WHERE type = 'table' AND name = ?2";
        let index = "UPDATE main.sqlite_schema SET name = ?1, sql = ?2 WHERE type = 'index' AND name = ?3";
        let mut updates = vec![(table, vec![self.sql.clone(), self.table.clone()])];
        updates.extend(self.indexes.iter().map(|(old, new, sql)| (index, vec![new.clone(), sql.clone(), old.clone()])));
        updates
    }

    /// Whether both definitions have the same columns in the same order.
    pub fn keeps_columns(&self, stored: &str) -> bool {
        let (Some(before), Some(after)) = (Definition::parse(stored), Definition::parse(&self.sql)) else {
            return false;
        };
        let same = |(a, b): (&super::ColumnText, &super::ColumnText)| a.name.eq_ignore_ascii_case(&b.name);
        before.columns.len() == after.columns.len()
            && before.columns.iter().zip(&after.columns).all(same)
            && before.options == after.options
            && after.name.eq_ignore_ascii_case(&self.table)
    }
}

/// The name that a CREATE INDEX gives.
fn index_name(sql: &str) -> Option<String> {
    let words = tokens(sql);
    let mut words = words.iter().skip_while(|t| !t.is(sql, "index"));
    words.next()?;
    words.next()?.name(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redefinition_is_read_as_it_was_written() {
        let before = Definition::parse("CREATE TABLE \"it's\" (\"a\" text, \"b\" integer DEFAULT 1)").unwrap();
        let mut after = before.clone();
        after.columns[1].clauses.clear();
        let index = ("i".to_owned(), "CREATE UNIQUE INDEX \"j\" ON \"it's\" (\"a\")".to_owned());
        let text = Redefinition::text(&before, &after, &[index]).unwrap();
        let read = Redefinition::of(&text).unwrap();
        assert_eq!((read.table.as_str(), read.indexes[0].1.as_str(), read.rewrites), ("it's", "j", true));
        assert_eq!(read.rewritten_column().as_deref(), Some("a"));
        assert!(read.keeps_columns(&before.sql()));
        for other in [
            "ALTER TABLE \"t\" RENAME TO \"u\"",
            "alter table t as create table t(a)",
            "ALTER TABLE \"t\" AS SELECT 1",
            "",
        ] {
            assert_eq!(Redefinition::of(other), None, "{other}");
        }
    }
}
