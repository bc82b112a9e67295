//! The locks of schema changes on a branch.
//!
//! A change of the schema runs on the branch like any other statement, and its text is among the images; the writer runs it
//! again at COMMIT. One transaction of a database does that at a time, so that ids of new tables and the schema's epoch
//! come out the same in the writer; what comes out otherwise is refused there (40001). Writers on other tables run concurrently with it.
//!
//! | transaction | lock of the schema |
//! |---|---|
//! | changes it on a branch, or in one message | exclusive, and the tables it is about ([`locks_of`]) |
//! | a writer that keeps its snapshot (REPEATABLE READ) | shared: it could not continue under another schema |
//! | any other writer | none: a statement on an older schema is stale at its first change and begins again |
//!
//! What is not listed in [`locks_of`] needs the exclusive writer.

use crate::state::database::DatabaseState;
use crate::state::locks::{LockId, Target};
use crate::statement::model::Report;
use holdfast_store::schema_map::TableMap;
use holdfast_types::schema::{Schema, Table, TableKind};
use holdfast_types::{SchemaChange, StatementFacts, TableId, TableLockMode};
use std::sync::Arc;

/// The name of the schema's lock.
pub fn schema_lock(database: &DatabaseState) -> LockId {
    LockId { volume: database.id, target: Target::Schema }
}

/// Whether a statement can run on a branch, as far as its facts show; else its transaction should begin as the exclusive
/// writer.
pub fn runs_on_a_branch(database: &DatabaseState, facts: &StatementFacts) -> bool {
    let change = facts.schema_change.as_deref();
    change.is_none_or(|change| locks_of(change, &database.map(), &database.schema.read()).is_some())
}

/// The tables that a statement locks which changes the schema. `None`: it needs the exclusive writer.
pub fn locks_for(report: &Report, map: &TableMap, schema: &Schema) -> Option<Vec<(TableId, TableLockMode)>> {
    // The server's own statements that are schema changes write rows of internal tables, for owners and privileges, publications and
    // subscriptions.
    if report.internal {
        return Some(Vec::new());
    }
    locks_of(report.facts.schema_change.as_deref()?, map, schema)
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
fn locks_of(change: &SchemaChange, map: &TableMap, schema: &Schema) -> Option<Vec<(TableId, TableLockMode)>> {
    use TableLockMode::{AccessExclusive, Share, ShareRowExclusive};
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
    match change {
        SchemaChange::CreateTable { refers_to } => refers_to.iter().try_for_each(|p| add(p, ShareRowExclusive))?,
        SchemaChange::CreateView => {}
        SchemaChange::CreateIndex { table } => add(table, Share)?,
        _ if map.has_triggers => return None,
        SchemaChange::AlterTable { table, refers_to } => {
            add(table, AccessExclusive)?;
            refers_to.iter().try_for_each(|p| add(p, ShareRowExclusive))?;
        }
        SchemaChange::DropTable { table } => add(table, AccessExclusive)?,
        SchemaChange::DropView => {}
        SchemaChange::DropIndex { index } => {
            let of = |t: &&Arc<Table>| t.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(index));
            schema.tables.iter().find(of).map_or(Some(()), |t| add(&t.name, AccessExclusive))?;
        }
        SchemaChange::Other => return None,
    }
    Some(locks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::schema_map::create_internal_tables;
    use holdfast_store::schema_read::read_schema;
    use holdfast_store::sqlite::{Conn, OpenFlags};
    use holdfast_types::VolumeId;

    fn locks(change: SchemaChange) -> Option<Vec<(String, TableLockMode)>> {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec(
            "create table P(id integer primary key); create table \"o d\"\"d\"(a); create index oi on \"o d\"\"d\"(a)",
        )
        .unwrap();
        let map = create_internal_tables(&mut conn, VolumeId(1)).unwrap();
        let schema = read_schema(&mut conn, &map).unwrap();
        let name = |id| map.by_id(id).unwrap().name.clone();
        Some(locks_of(&change, &map, &schema)?.into_iter().map(|(id, mode)| (name(id), mode)).collect())
    }

    #[test]
    fn a_change_locks_what_it_is_about() {
        use SchemaChange::*;
        use TableLockMode::{AccessExclusive, Share, ShareRowExclusive};
        let p = |mode| Some(vec![("P".to_owned(), mode)]);
        let odd = |mode| Some(vec![("o d\"d".to_owned(), mode)]);
        let odd_name = || "o d\"d".to_owned();
        assert_eq!(locks(CreateTable { refers_to: vec![] }), Some(vec![]));
        assert_eq!(locks(CreateTable { refers_to: vec!["p".to_owned()] }), p(ShareRowExclusive));
        assert_eq!(locks(CreateView), Some(vec![]));
        assert_eq!(locks(CreateIndex { table: odd_name() }), odd(Share));
        assert_eq!(locks(AlterTable { table: odd_name(), refers_to: vec![] }), odd(AccessExclusive));
        assert_eq!(
            locks(AlterTable { table: odd_name(), refers_to: vec!["P".to_owned()] }),
            Some(vec![("o d\"d".to_owned(), AccessExclusive), ("P".to_owned(), ShareRowExclusive)])
        );
        assert_eq!(locks(DropTable { table: "p".to_owned() }), p(AccessExclusive));
        assert_eq!(locks(DropView), Some(vec![]));
        assert_eq!(locks(DropIndex { index: "OI".to_owned() }), odd(AccessExclusive));
        assert_eq!(locks(DropIndex { index: "nothing".to_owned() }), Some(vec![]));
        assert_eq!(locks(Other), None);
    }
}
