//! Whether a role has what a statement needs.
//!
//! Failure: 42501 in PostgreSQL's words; 55000 for a change of a published table without a primary key, 42P10 where subscribers do
//! not get the key; 25006 for a change of a table that a subscription writes.

use super::acl::granted_to;
use super::grants::{ObjectGrants, default_acl};
use super::needs::{Need, ObjectWord, TableNeed};
use super::predefined::{DATABASE_OWNER_OID, READ_ALL_DATA_OID, WRITE_ALL_DATA_OID};
use super::privilege::Privileges;
use super::role::Roles;
use crate::publication::Publication;
use crate::schema::{Schema, Table, TableKind};
use crate::{SqlError, SqlResult, SqlState};

/// The state that privileges are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Checker<'a> {
    pub schema: &'a Schema,
    pub roles: &'a Roles,
    pub database_owner: u32,
    /// What the current role may do with the database itself.
    pub on_database: Privileges,
}

/// A role with all whose privileges it has.
#[derive(Clone, Debug)]
pub struct Acting {
    pub role: u32,
    pub superuser: bool,
    pub with: Vec<u32>,
}

/// 42501 for an object.
pub fn denied(word: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {word} {name}"))
}

/// 42501 for what only the owner may do.
pub fn not_owner(word: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {word} {name}"))
}

/// 55000 for a change that subscribers could not find the row of.
fn no_replica_identity(table: &str, update: bool) -> SqlError {
    let (verb, kind) = if update { ("update", "updates") } else { ("delete from", "deletes") };
    let message =
        format!("cannot {verb} table \"{table}\" because it does not have a replica identity and publishes {kind}");
    let hint = format!(
        "Add a primary key (ALTER TABLE ... ADD PRIMARY KEY), or publish no {kind} of it (ALTER PUBLICATION ...)."
    );
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(hint)
}

/// 42P10 for a change whose row subscribers could not find by the columns that they have.
fn identity_left_out(table: &str, update: bool) -> SqlError {
    let verb = if update { "update" } else { "delete from" };
    SqlError::new(SqlState("42P10"), format!("cannot {verb} table \"{table}\""))
        .with_detail("Column list used by the publication does not cover the replica identity.")
}

/// 25006 for a change of a table that a subscription writes.
fn subscribed(table: &str, subscription: &str) -> SqlError {
    let message = format!("cannot change table \"{table}\": subscription \"{subscription}\" writes it");
    let hint = format!("Read the table, or end the subscription: DROP SUBSCRIPTION {subscription}.");
    SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).with_hint(hint)
}

/// The word for a table or view.
pub fn word_of(table: &Table) -> ObjectWord {
    if table.kind == TableKind::View { ObjectWord::View } else { ObjectWord::Table }
}

impl<'a> Checker<'a> {
    pub fn acting(&self, role: u32) -> Acting {
        let mut with = self.roles.privileges_from(role);
        if with.contains(&self.database_owner) {
            with.push(DATABASE_OWNER_OID);
        }
        Acting { role, superuser: self.roles.is_superuser(role), with }
    }

    /// 42501 unless `role` has all of `needs`.
    pub fn check<'n>(&self, role: u32, needs: impl IntoIterator<Item = &'n Need>) -> SqlResult<()> {
        let acting = self.acting(role);
        needs.into_iter().try_for_each(|need| self.check_one(&acting, need))
    }

    fn check_one(&self, acting: &Acting, need: &Need) -> SqlResult<()> {
        self.check_usage(acting, need)?;
        match need {
            Need::Table(need) => match need.owner_of {
                None => self.check_table(acting, need),
                Some(of) => self.check_table(&self.acting(self.schema.grants.owner(of)), need),
            },
            Need::Superuser { message, owner_of } => {
                let superuser = match owner_of {
                    None => acting.superuser,
                    Some(of) => self.roles.is_superuser(self.schema.grants.owner(*of)),
                };
                match superuser {
                    true => Ok(()),
                    false => Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message.as_str())),
                }
            }
            Need::ReplicaIdentity { table, update, listed: false } => Err(no_replica_identity(table, *update)),
            Need::ReplicaIdentity { table, update, listed: true } => Err(identity_left_out(table, *update)),
            Need::NotSubscribed { table, subscription } => Err(subscribed(table, subscription)),
            _ if acting.superuser => Ok(()),
            Need::Sequence { table, privileges } => {
                let Some(of) = self.schema.by_oid(*table) else { return Ok(()) };
                match (self.on_sequence(acting, *table) & *privileges).is_empty() {
                    true => Err(denied("sequence", &sequence_name(of).unwrap_or_default())),
                    false => Ok(()),
                }
            }
            Need::Owner { table, word, name, or_schema } => {
                let owns = self.owns(acting, self.schema.grants.owner(*table))
                    || (*or_schema && self.owns(acting, self.schema.grants.schema.owner));
                if owns { Ok(()) } else { Err(not_owner(word.word(), name)) }
            }
            Need::CreateInSchema => match self.on_schema(acting).contains(Privileges::CREATE) {
                true => Ok(()),
                false => Err(denied("schema", "public")),
            },
            Need::Temporary => match self.on_database.contains(Privileges::TEMPORARY) {
                true => Ok(()),
                false => Err(SqlError::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "permission denied to create temporary tables in this database",
                )),
            },
        }
    }

    /// USAGE on schema public, for what a statement itself names. As in PostgreSQL, a name without a schema is not found.
    fn check_usage(&self, acting: &Acting, need: &Need) -> SqlResult<()> {
        let (table, without_schema) = match need {
            Need::Table(need) if need.owner_of.is_none() => (need.table, need.without_schema),
            Need::Sequence { table, .. } | Need::Owner { table, .. } => (*table, false),
            _ => return Ok(()),
        };
        let Some(table) = self.schema.by_oid(table).filter(|t| !t.temp) else { return Ok(()) };
        if self.on_schema(acting).contains(Privileges::USAGE) {
            return Ok(());
        }
        match without_schema {
            true => {
                let message = format!("relation \"{}\" does not exist", table.name);
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
            }
            false => Err(denied("schema", "public")),
        }
    }

    /// Whether a role has the privileges of an owner.
    pub fn owns(&self, acting: &Acting, owner: u32) -> bool {
        acting.superuser || acting.with.contains(&owner)
    }

    /// What a role may do with a whole table or view.
    pub fn on_table(&self, acting: &Acting, table: u32) -> Privileges {
        if acting.superuser {
            return Privileges::OF_TABLE;
        }
        let default = ObjectGrants::default();
        let grants = self.schema.grants.of(table).unwrap_or(&default);
        let mut may = match &grants.acl {
            Some(acl) => granted_to(acl, &acting.with),
            None => granted_to(&default_acl(Privileges::OF_TABLE, grants.owner), &acting.with),
        };
        if acting.with.contains(&READ_ALL_DATA_OID) {
            may |= Privileges::SELECT;
        }
        if acting.with.contains(&WRITE_ALL_DATA_OID) {
            may |= Privileges::INSERT | Privileges::UPDATE | Privileges::DELETE;
        }
        may
    }

    /// What a role may do with a column by the column's own grants.
    pub fn on_column(&self, acting: &Acting, table: &Table, column: i16) -> Privileges {
        let name = usize::try_from(column - 1).ok().and_then(|at| table.columns.get(at)).map(|c| &c.name);
        let grants = self.schema.grants.of(table.oid);
        match name.and_then(|name| grants?.columns.get(name)) {
            Some(acl) => granted_to(acl, &acting.with),
            None => Privileges::NONE,
        }
    }

    /// What a role may do with the implied sequence of a table.
    pub fn on_sequence(&self, acting: &Acting, table: u32) -> Privileges {
        if acting.superuser {
            return Privileges::OF_SEQUENCE;
        }
        let default = ObjectGrants::default();
        let grants = self.schema.grants.of(table).unwrap_or(&default);
        let mut may = match &grants.sequence {
            Some(acl) => granted_to(acl, &acting.with),
            None => granted_to(&default_acl(Privileges::OF_SEQUENCE, grants.owner), &acting.with),
        };
        if acting.with.contains(&READ_ALL_DATA_OID) {
            may |= Privileges::SELECT;
        }
        if acting.with.contains(&WRITE_ALL_DATA_OID) {
            may |= Privileges::UPDATE;
        }
        may
    }

    /// What a role may do with a publication.
    pub fn on_publication(&self, acting: &Acting, publication: &Publication) -> Privileges {
        if self.owns(acting, publication.owner) {
            return Privileges::OF_PUBLICATION;
        }
        let acl = self.schema.grants.publications.get(&publication.number);
        acl.map_or(Privileges::NONE, |acl| granted_to(acl, &acting.with))
    }

    /// What a role may do with schema public.
    pub fn on_schema(&self, acting: &Acting) -> Privileges {
        if acting.superuser {
            return Privileges::OF_SCHEMA;
        }
        let schema = &self.schema.grants.schema;
        let mut may = match &schema.acl {
            Some(acl) => granted_to(acl, &acting.with),
            None => granted_to(&default_acl(Privileges::OF_SCHEMA, schema.owner), &acting.with),
        };
        if acting.with.contains(&READ_ALL_DATA_OID) || acting.with.contains(&WRITE_ALL_DATA_OID) {
            may |= Privileges::USAGE;
        }
        may
    }

    fn check_table(&self, acting: &Acting, need: &TableNeed) -> SqlResult<()> {
        let Some(table) = self.schema.by_oid(need.table).filter(|t| !t.temp && !acting.superuser) else {
            return Ok(());
        };
        let has = self.on_table(acting, need.table);
        let missing = need.privileges & !has;
        let enough = match need.any {
            true => !(need.privileges & has).is_empty(),
            false => missing.is_empty() || self.columns_suffice(acting, table, need, missing),
        };
        if enough { Ok(()) } else { Err(denied(word_of(table).word(), &table.name)) }
    }

    /// Whether grants on columns replace those of the table that are missing.
    fn columns_suffice(&self, acting: &Acting, table: &Table, need: &TableNeed, missing: Privileges) -> bool {
        let by_column = Privileges::OF_COLUMN;
        if !by_column.contains(missing) {
            return false;
        }
        let of = [
            (Privileges::SELECT, &need.select),
            (Privileges::INSERT, &need.insert),
            (Privileges::UPDATE, &need.update),
            (Privileges::REFERENCES, &need.select),
        ];
        of.into_iter().filter(|(privilege, _)| missing.contains(*privilege)).all(|(privilege, columns)| {
            let has = |column: i16| self.on_column(acting, table, column).contains(privilege);
            match columns.is_empty() {
                true => (1..=table.columns.len() as i16).any(has),
                false => columns.iter().all(|column| has(*column)),
            }
        })
    }

    /// Whether a role may see values of these columns of a table in an error message.
    pub fn may_see(&self, role: u32, table: &Table, columns: &[i16]) -> bool {
        let acting = self.acting(role);
        self.on_table(&acting, table.oid).contains(Privileges::SELECT)
            || columns.iter().all(|c| self.on_column(&acting, table, *c).contains(Privileges::SELECT))
    }

    /// Whether a role sees a table in `information_schema`: it owns it, or has any privilege on it or its columns.
    pub fn any_on_table(&self, acting: &Acting, table: &Table) -> bool {
        self.owns(acting, self.schema.grants.owner(table.oid))
            || !self.on_table(acting, table.oid).is_empty()
            || (1..=table.columns.len() as i16).any(|c| !self.on_column(acting, table, c).is_empty())
    }
}

/// The name of the sequence that a serial column of the table stands for.
pub fn sequence_name(table: &Table) -> Option<String> {
    let column = table.columns.iter().find(|c| c.rowid_alias)?;
    Some(format!("{}_{}_seq", table.name, column.name))
}
