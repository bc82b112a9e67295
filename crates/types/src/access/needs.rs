//! What a statement needs: its translation names the privileges, and the session checks them before each run.
//!
//! | need | checked as |
//! |---|---|
//! | of a table or view that the statement names | the session's current role |
//! | of what a view's query or a trigger's program touches | the owner of the view, or of the trigger's table |
//!
//! The rules are those of `ExecCheckRTEPerms` in PostgreSQL: a privilege of the table suffices; without it, SELECT, INSERT
//! and UPDATE may be granted for every column that is used, or for any column where none is.

use super::privilege::Privileges;
use std::collections::BTreeSet;

/// In the place of a column's number: no grant on a column suffices.
pub const WHOLE_TABLE: i16 = 0;

/// What is needed of one table or view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableNeed {
    pub table: u32,
    pub privileges: Privileges,
    /// Numbers of columns, from 1, or [`WHOLE_TABLE`].
    pub select: BTreeSet<i16>,
    pub insert: BTreeSet<i16>,
    pub update: BTreeSet<i16>,
    /// The view or the trigger's table whose owner must have the privileges; otherwise it is the current role.
    pub owner_of: Option<u32>,
    /// The text names the table without its schema: without USAGE on the schema, the table is not found.
    pub without_schema: bool,
    /// One of `privileges` suffices (LOCK TABLE).
    pub any: bool,
}

/// The word for an object in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectWord {
    Table,
    View,
    Index,
    Sequence,
    Schema,
}

impl ObjectWord {
    pub fn word(self) -> &'static str {
        match self {
            ObjectWord::Table => "table",
            ObjectWord::View => "view",
            ObjectWord::Index => "index",
            ObjectWord::Sequence => "sequence",
            ObjectWord::Schema => "schema",
        }
    }
}

/// A need in addition to those of tables, in the order in which PostgreSQL checks them.
#[derive(Clone, Debug, PartialEq)]
pub enum Need {
    Table(TableNeed),
    /// The implied sequence of a table's serial column: one of these privileges.
    Sequence {
        table: u32,
        privileges: Privileges,
    },
    /// To be its owner, or with `or_schema` the owner of schema public. `name` is the object's (an index is named itself).
    Owner {
        table: u32,
        word: ObjectWord,
        name: String,
        or_schema: bool,
    },
    /// CREATE on schema public.
    CreateInSchema,
    /// TEMPORARY on the database.
    Temporary,
    /// To be a superuser, or that the owner of a view or of a trigger's table is one; the message.
    Superuser {
        message: String,
        owner_of: Option<u32>,
    },
    /// A primary key that subscribers have, where a publication publishes the updates, or the deletes, of the table of this name,
    /// which has none, or (`listed`) whose key the publication's list of columns leaves out: the statement is refused. This is
    /// not a privilege; it is checked after the privileges of tables.
    ReplicaIdentity {
        table: String,
        update: bool,
        listed: bool,
    },
    /// That no subscription writes the table of this name: one does, so the statement is refused. This is not a privilege; it is
    /// checked after the privileges of tables.
    NotSubscribed {
        table: String,
        subscription: String,
    },
}

/// What a statement makes, for its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Creates {
    pub name: String,
    /// A serial column gives it a sequence.
    pub sequence: bool,
    /// The view that CREATE OR REPLACE VIEW replaces.
    pub replaces: Option<u32>,
}

/// What a translated statement needs and makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    pub needs: Vec<Need>,
    pub creates: Option<Creates>,
    /// The columns that an INSERT of SQLite's own text lists.
    pub inserts: Option<Vec<String>>,
    /// REPLACE, which also deletes.
    pub replaces: bool,
}

impl Access {
    pub fn of(needs: Vec<Need>) -> Access {
        Access { needs, ..Access::default() }
    }
}
