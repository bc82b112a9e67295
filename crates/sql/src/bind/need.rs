//! The privileges that a statement needs: one entry for each table or view that it names, in the order of PostgreSQL's
//! range table. Resolving a column adds it to the entry of its relation, as `markVarForSelectPriv` does in PostgreSQL.
//!
//! What a view's query touches is not recorded here: its owner needs those privileges, not the current role.

use super::Binder;
use super::scope::SYSTEM_ATTNUM;
use holdfast_types::access::needs::{Access, Need, TableNeed};
use holdfast_types::access::{Privileges, needs};
use holdfast_types::publication::PublicationOptions;
use holdfast_types::schema::{Dialect, Schema, Table};
use holdfast_types::{SqlError, SqlResult};
use sqlparser::ast::ObjectName;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Tables whose rows foreign keys delete, or update these columns of.
type Seen = BTreeSet<(u32, Option<Vec<String>>)>;

/// What is needed of one table; shared by the relations that mean it.
#[derive(Clone, Debug, Default)]
pub struct Used(Rc<RefCell<TableNeed>>);

impl Used {
    /// A column is read.
    pub fn selects(&self, column: usize) {
        let mut need = self.0.borrow_mut();
        need.privileges |= Privileges::SELECT;
        need.select.insert(column as i16 + 1);
    }

    /// A column is read that only a privilege on the whole table covers.
    pub fn selects_system_column(&self) {
        let mut need = self.0.borrow_mut();
        need.privileges |= Privileges::SELECT;
        need.select.insert(SYSTEM_ATTNUM);
    }

    /// A row is stored under a rowid that the statement names.
    pub fn inserts_system_column(&self) {
        let mut need = self.0.borrow_mut();
        need.privileges |= Privileges::INSERT;
        need.insert.insert(SYSTEM_ATTNUM);
    }

    /// A privilege on the table is needed, and on no column of its own.
    pub fn needs(&self, privileges: Privileges) {
        self.0.borrow_mut().privileges |= privileges;
    }

    /// These columns of the table, by name, are changed.
    pub fn changes<'n>(&self, table: &Table, privilege: Privileges, names: impl Iterator<Item = &'n str>) {
        let mut need = self.0.borrow_mut();
        need.privileges |= privilege;
        for name in names {
            let Some(at) = table.columns.iter().position(|c| c.name == name) else { continue };
            let columns = if privilege == Privileges::UPDATE { &mut need.update } else { &mut need.insert };
            columns.insert(at as i16 + 1);
        }
    }

    /// These columns of the table, by name, are read.
    pub fn reads<'n>(&self, table: &Table, names: impl Iterator<Item = &'n str>) {
        names.filter_map(|name| table.columns.iter().position(|c| c.name == name)).for_each(|at| self.selects(at));
    }
}

impl Binder<'_> {
    /// Adds a table that the statement names. A session owns its temporary tables.
    pub(super) fn uses(&mut self, table: &Table, name: &ObjectName, privileges: Privileges) -> Option<Used> {
        if table.temp {
            return None;
        }
        let used = Used::default();
        let without_schema = name.0.len() == 1;
        *used.0.borrow_mut() = TableNeed { table: table.oid, privileges, without_schema, ..TableNeed::default() };
        self.used.push(used.clone());
        Some(used)
    }

    /// A row gets its id from the implied sequence of a serial column. That of an identity column needs no privilege.
    pub(super) fn takes_id(&mut self, table: &Table) {
        if self.ctx.dialect == Dialect::Postgres && !table.temp && !crate::keys::is_identity(table) {
            self.sequences.insert(table.oid);
        }
    }

    /// What the statement needs, as far as it was bound.
    pub fn access(&self) -> Access {
        let tables = self.used.iter().map(|used| Need::Table(used.0.borrow().clone()));
        // PostgreSQL calls nextval() for the row, after it has checked the tables.
        let privileges = Privileges::USAGE | Privileges::UPDATE;
        let sequences = self.sequences.iter().map(|table| Need::Sequence { table: *table, privileges });
        let secret = |(word, name): &(&str, &str)| Need::Superuser {
            message: format!("permission denied for {word} {name}"),
            owner_of: None,
        };
        let secrets = self.secrets.iter().map(secret);
        Access::of(tables.chain(sequences).chain(secrets).chain(self.unidentified.clone()).collect())
    }

    /// The statement updates rows of a table, or deletes some. A row of a published table is found by its primary key at
    /// subscribers, so the statement is refused where they do not have it.
    pub(super) fn changes_rows(&mut self, table: &Table, update: bool) {
        if self.unidentified.is_none() {
            self.unidentified = lacks_identity(self.ctx.schema, table, update);
        }
    }

    /// What foreign keys change when rows of a table are deleted, or (`updated`) when these columns of them are.
    pub(super) fn changes_children(&mut self, table: &Table, updated: Option<&[String]>) {
        if !self.ctx.schema.publications.list.is_empty() && !table.temp {
            self.cascade(table, updated, &mut BTreeSet::new());
        }
    }

    fn cascade(&mut self, table: &Table, updated: Option<&[String]>, seen: &mut Seen) {
        let schema = self.ctx.schema;
        let children = schema.tables.iter().flat_map(|child| child.foreign_keys.iter().map(move |key| (child, key)));
        for (child, key) in children.filter(|(_, key)| key.parent.eq_ignore_ascii_case(&table.name)) {
            let is_set = |column: &String| updated.is_none_or(|updated| updated.contains(column));
            let primary = crate::keys::primary_key(table);
            let mut referenced = key.parent_columns.iter().zip(primary.iter().map(Some).chain(std::iter::repeat(None)));
            if !referenced.any(|(named, primary)| named.as_ref().or(primary).is_none_or(is_set)) {
                continue;
            }
            let action = if updated.is_some() { &key.on_update } else { &key.on_delete };
            let update = match action.to_ascii_uppercase().as_str() {
                "CASCADE" => updated.is_some(),
                "SET NULL" | "SET DEFAULT" => true,
                _ => continue,
            };
            if seen.insert((child.oid, update.then(|| key.columns.clone()))) {
                self.changes_rows(child, update);
                self.cascade(child, update.then_some(&key.columns[..]), seen);
            }
        }
    }
}

/// What a change of a table's rows lacks, where a publication publishes such changes.
pub fn lacks_identity(schema: &Schema, table: &Table, update: bool) -> Option<Need> {
    let publications = &schema.publications;
    let kind = |o: &PublicationOptions| if update { o.update } else { o.delete };
    if publications.list.is_empty() || table.temp || !publications.publishes(table.oid, kind) {
        return None;
    }
    let key = crate::keys::primary_key(table);
    let leaves_out = |columns: &Vec<String>| key.iter().any(|column| !columns.contains(column));
    let mut entries = publications.of_table(table.oid).filter(|(publication, _)| kind(&publication.options));
    let listed = !key.is_empty() && entries.any(|(_, entry)| entry.columns.as_ref().is_some_and(leaves_out));
    (key.is_empty() || listed).then(|| Need::ReplicaIdentity { table: table.name.clone(), update, listed })
}

/// Adds what a statement lacks that changes a table, or locks rows of it, which a subscription writes. Of a table in partition mode
/// it may change rows: which of them, is seen when they are captured.
pub fn add_not_subscribed(schema: &Schema, access: &mut Access) {
    let changing = Privileges::INSERT | Privileges::UPDATE | Privileges::DELETE | Privileges::TRUNCATE;
    // LOCK TABLE needs any of some privileges, and changes no row.
    let is_partition = |oid: &u32| schema.subscriptions.of_table(*oid).is_some_and(|s| s.conditions.contains_key(oid));
    let changed = access.needs.iter().filter_map(|need| match need {
        Need::Table(need) if !need.any && !(need.privileges & changing).is_empty() => Some(need.table),
        _ => None,
    });
    let changed = changed.filter(|oid| !is_partition(oid));
    let found = changed.filter_map(|oid| Some((schema.by_oid(oid)?, schema.subscriptions.of_table(oid)?))).next();
    if let Some((table, subscription)) = found {
        let (table, subscription) = (table.name.clone(), subscription.name.clone());
        access.needs.push(Need::NotSubscribed { table, subscription });
    }
}

/// 0A000 for a change of a table that a subscription writes by which something else would write its rows too.
pub fn refuse_where_subscribed(schema: &Schema, table: &Table, what: &str) -> SqlResult<()> {
    let Some(subscription) = schema.subscriptions.of_table(table.oid).filter(|_| !table.temp) else { return Ok(()) };
    let message = format!("{what} table \"{}\", which subscription \"{}\" writes,", table.name, subscription.name);
    Err(SqlError::unsupported(message)
        .with_hint(format!("DROP SUBSCRIPTION {} makes it an ordinary table.", subscription.name)))
}

/// A need of a whole table, or of some of its columns by name.
pub fn of_columns<'n>(table: &Table, privileges: Privileges, names: impl Iterator<Item = &'n str>) -> Vec<Need> {
    if table.temp {
        return Vec::new();
    }
    let numbers = names.filter_map(|name| table.columns.iter().position(|c| c.name == name)).map(|at| at as i16 + 1);
    vec![Need::Table(TableNeed { table: table.oid, privileges, select: numbers.collect(), ..TableNeed::default() })]
}

/// To be the owner of a table or view.
pub fn owner(table: &Table) -> Vec<Need> {
    if table.temp {
        return Vec::new();
    }
    let word = holdfast_types::access::check::word_of(table);
    vec![Need::Owner { table: table.oid, word, name: table.name.clone(), or_schema: false }]
}

/// To be the owner of an object that is dropped, or of its schema.
pub fn owner_to_drop(table: &Table, word: needs::ObjectWord, name: &str) -> Vec<Need> {
    if table.temp {
        return Vec::new();
    }
    vec![Need::Owner { table: table.oid, word, name: name.to_owned(), or_schema: true }]
}
