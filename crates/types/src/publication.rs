//! The publications of one database, as its internal table `holdfast_publications` holds them: which tables, columns, rows
//! and kinds of change other databases may subscribe to. No I/O and no SQL; `store` keeps them, `sql` reads statements about
//! them.
//!
//! Anchor: PostgreSQL 15, chapter 31 (Logical Replication), `pg_publication`, `pg_publication_rel`.
//!
//! Failure: an unknown letter among the options, or a list of columns that is not an array, is refused; the caller treats it as
//! damage.

use crate::array::Array;

/// The kinds of change that a publication publishes, and whether changes of partitions count as those of their root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationOptions {
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
    pub truncate: bool,
    pub via_root: bool,
}

impl Default for PublicationOptions {
    fn default() -> PublicationOptions {
        PublicationOptions { insert: true, update: true, delete: true, truncate: true, via_root: false }
    }
}

/// A table in a publication.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedTable {
    /// The table's OID.
    pub table: u32,
    /// Names in the table's order; `None`: all columns.
    pub columns: Option<Vec<String>>,
    /// The condition on a row in SQLite's SQL, in parentheses; `None`: all rows.
    pub filter: Option<String>,
}

/// A publication.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// Its number in the database.
    pub number: u32,
    pub name: String,
    /// OID of a role.
    pub owner: u32,
    /// FOR ALL TABLES; `tables` is empty then.
    pub all_tables: bool,
    pub options: PublicationOptions,
    /// In the order of their OIDs.
    pub tables: Vec<PublishedTable>,
}

/// All publications of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publications {
    /// The internal table exists.
    pub stored: bool,
    /// So does the one of shapes, which records what is published at each schema epoch.
    pub recorded: bool,
    /// In the order of their numbers.
    pub list: Vec<Publication>,
}

impl Publication {
    pub fn table(&self, oid: u32) -> Option<&PublishedTable> {
        self.tables.iter().find(|t| t.table == oid)
    }

    /// The letters of [`Publication::options`] and of FOR ALL TABLES, as the internal table holds them.
    pub fn option_letters(&self) -> String {
        let o = &self.options;
        let letters = [
            (self.all_tables, 'a'),
            (o.insert, 'i'),
            (o.update, 'u'),
            (o.delete, 'd'),
            (o.truncate, 't'),
            (o.via_root, 'r'),
        ];
        letters.into_iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect()
    }

    /// Reads [`Publication::option_letters`]: whether it is FOR ALL TABLES, and the options.
    pub fn parse_letters(text: &str) -> Option<(bool, PublicationOptions)> {
        let has = |letter| text.contains(letter);
        let options = PublicationOptions {
            insert: has('i'),
            update: has('u'),
            delete: has('d'),
            truncate: has('t'),
            via_root: has('r'),
        };
        text.chars().all(|c| "aiudtr".contains(c)).then_some((has('a'), options))
    }
}

impl PublishedTable {
    /// The names of columns as the internal table holds them: the text of an array.
    pub fn columns_text(&self) -> Option<String> {
        self.columns.as_ref().map(|names| Array::flat(names.iter().cloned().map(Some).collect()).to_text())
    }

    /// Reads [`PublishedTable::columns_text`].
    pub fn parse_columns(text: &str) -> Option<Vec<String>> {
        Array::parse_braces(text).ok()?.elements.into_iter().collect()
    }
}

impl Publications {
    pub fn by_name(&self, name: &str) -> Option<&Publication> {
        self.list.iter().find(|p| p.name == name)
    }

    /// The number of the next publication.
    pub fn next_number(&self) -> u32 {
        self.list.last().map_or(1, |p| p.number + 1)
    }

    /// Whether a publication that has the table publishes a kind of change.
    pub fn publishes(&self, oid: u32, kind: impl Fn(&PublicationOptions) -> bool) -> bool {
        self.list.iter().any(|p| kind(&p.options) && (p.all_tables || p.table(oid).is_some()))
    }

    /// The entries of a table in publications that list it, with those.
    pub fn of_table(&self, oid: u32) -> impl Iterator<Item = (&Publication, &PublishedTable)> {
        self.list.iter().filter_map(move |p| p.table(oid).map(|t| (p, t)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: what an earlier release has stored must be read by every later one.
    #[test]
    fn the_stored_texts() {
        let mut publication = Publication {
            number: 1,
            name: "p".into(),
            owner: 10,
            all_tables: true,
            options: PublicationOptions::default(),
            tables: Vec::new(),
        };
        assert_eq!(publication.option_letters(), "aiudt");
        assert_eq!(Publication::parse_letters("aiudt"), Some((true, PublicationOptions::default())));
        publication.all_tables = false;
        publication.options =
            PublicationOptions { insert: false, update: true, delete: false, truncate: false, via_root: true };
        assert_eq!(publication.option_letters(), "ur");
        assert_eq!(Publication::parse_letters("ur"), Some((false, publication.options)));
        assert_eq!(Publication::parse_letters("ix"), None);
        let columns = Some(vec!["id".to_owned(), "A, \"b\"".to_owned(), "NULL".to_owned()]);
        let table = PublishedTable { table: 16384, columns: columns.clone(), filter: None };
        assert_eq!(table.columns_text().as_deref(), Some("{id,\"A, \\\"b\\\"\",\"NULL\"}"));
        assert_eq!(PublishedTable::parse_columns("{id,\"A, \\\"b\\\"\",\"NULL\"}"), columns);
        assert_eq!(PublishedTable::parse_columns("id"), None);
        assert_eq!(PublishedTable::parse_columns("{NULL}"), None);
    }
}
