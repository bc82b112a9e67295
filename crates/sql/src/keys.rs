//! A table's keys, as its schema shows them: the primary key, and the names that indexes have in PostgreSQL's terms.

pub use holdfast_types::definition::PRIMARY_MARK;
use holdfast_types::schema::{Index, Table};

/// Marks an index as a constraint. It follows the index's name, where SQLite keeps the comment.
pub const CONSTRAINT_MARK: &str = "/*constraint*/";

/// In a table's definition: its serial column was declared as an identity column.
pub const IDENTITY_MARK: &str = "/*identity*/";

/// Whether the table's ids are those of an identity column, not of a serial one.
pub fn is_identity(table: &Table) -> bool {
    table.sql.contains(IDENTITY_MARK)
}

/// An index that PostgreSQL would show as the primary key: SQLite's own, or the unique index made by ALTER TABLE
/// ADD PRIMARY KEY, which is known by its name.
pub fn is_primary_index(table: &Table, index: &Index) -> bool {
    let by_name = || index.unique && index.name == format!("{}_pkey", table.name);
    index.primary || index.sql.as_deref().is_some_and(|sql| sql.contains(PRIMARY_MARK) || by_name())
}

/// Names of the columns of the primary key: they may not be NULL.
pub fn primary_key(table: &Table) -> Vec<String> {
    let mut declared: Vec<_> = table.columns.iter().filter(|c| c.pk > 0).collect();
    declared.sort_by_key(|c| c.pk);
    if !declared.is_empty() {
        return declared.iter().map(|c| c.name.clone()).collect();
    }
    let added = table.indexes.iter().find(|i| is_primary_index(table, i));
    added.map(|i| i.columns.iter().flatten().cloned().collect()).unwrap_or_default()
}

/// The name of an index in PostgreSQL's terms. SQLite's automatic indexes get the name that PostgreSQL would choose.
pub fn index_name(table: &Table, index: &Index) -> String {
    if index.sql.is_some() {
        return index.name.clone();
    }
    if index.primary {
        return table.key_name.clone();
    }
    let columns: Vec<&str> = index.columns.iter().map(|c| c.as_deref().unwrap_or("expr")).collect();
    format!("{}_{}_key", table.name, columns.join("_"))
}
