//! CREATE, ALTER, DROP and COMMENT ON PUBLICATION, as they were written.

use crate::privilege_statement::{RelationName, RoleName};

/// A statement about publications.
#[derive(Clone, Debug, PartialEq)]
pub enum PublicationStatement {
    Create {
        name: String,
        content: Content,
        options: WrittenOptions,
    },
    Alter {
        name: String,
        change: Alteration,
    },
    Drop {
        names: Vec<String>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// COMMENT ON PUBLICATION; comments are not kept.
    Comment(String),
}

/// What a publication publishes.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    AllTables,
    Tables(Vec<WrittenTable>),
}

/// What ALTER PUBLICATION does.
#[derive(Clone, Debug, PartialEq)]
pub enum Alteration {
    Add(Vec<WrittenTable>),
    Set(Vec<WrittenTable>),
    Drop(Vec<WrittenTable>),
    Options(WrittenOptions),
    Rename(String),
    Owner(RoleName),
}

/// A table of FOR TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenTable {
    pub relation: RelationName,
    /// The list of columns.
    pub columns: Option<Vec<String>>,
    /// The condition as a query `SELECT (condition)`; places in it are those in the statement.
    pub filter: Option<String>,
}

/// The options that WITH or SET names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WrittenOptions {
    /// The kinds of change: insert, update, delete, truncate.
    pub publish: Option<[bool; 4]>,
    pub via_root: Option<bool>,
}
