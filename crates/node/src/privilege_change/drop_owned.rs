//! DROP OWNED, and the list of what depends on a role.

use super::grant::Wanted;
use super::{Draft, Key};
use holdfast_sql::privilege_statement::RoleName;
use holdfast_types::access::acl::{Change, best_grantor, changed};
use holdfast_types::access::check::word_of;
use holdfast_types::access::grants::DefaultGrants;
use holdfast_types::access::predefined::BOOTSTRAP_OID;
use holdfast_types::access::{Acl, DatabaseAccess, Privileges};
use holdfast_types::schema::{Schema, Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// 2BP01.
const DEPENDENT: SqlState = SqlState("2BP01");

impl Draft<'_> {
    pub(super) fn drop_owned(&mut self, roles: &[RoleName], cascade: bool) -> SqlResult<()> {
        let roles = roles.iter().map(|name| self.role_named(name)).collect::<SqlResult<Vec<u32>>>()?;
        if roles.iter().any(|role| !self.checker.roles.has_privileges_of(self.role, *role)) {
            let message = "permission denied to drop objects";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        if roles.contains(&BOOTSTRAP_OID) {
            let name = self.checker.roles.name_of(BOOTSTRAP_OID);
            let message =
                format!("cannot drop objects owned by role {name} because they are required by the database system");
            return Err(SqlError::new(DEPENDENT, message));
        }
        self.drop_objects(&roles, cascade)?;
        for role in roles {
            self.revoke_everything(role)?;
        }
        Ok(())
    }

    fn drop_objects(&mut self, roles: &[u32], cascade: bool) -> SqlResult<()> {
        self.publications.list.retain(|p| !roles.contains(&p.owner));
        let schema = self.checker.schema;
        let is_owned = |t: &&Arc<Table>| !t.temp && roles.contains(&schema.grants.owner(t.oid));
        let mut owned: Vec<&Arc<Table>> = schema.tables.iter().filter(is_owned).collect();
        let goes = |name: &str| owned.iter().any(|t| t.name.eq_ignore_ascii_case(name));
        let refers = |t: &&Arc<Table>| !is_owned(t) && t.foreign_keys.iter().any(|k| goes(&k.parent));
        if let Some(child) = schema.tables.iter().find(refers) {
            if cascade {
                return Err(SqlError::unsupported("DROP OWNED ... CASCADE of a table that a foreign key refers to")
                    .with_hint(format!("Drop table {} as well.", child.name)));
            }
            let message = "cannot drop desired object(s) because other objects depend on them";
            return Err(
                SqlError::new(DEPENDENT, message).with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
            );
        }
        // Views first, then the tables that refer to others.
        owned.sort_by_key(|t| {
            let referred = owned_children(schema, &t.name);
            (t.kind != TableKind::View, referred)
        });
        for table in owned {
            let verb = if table.kind == TableKind::View { "DROP VIEW" } else { "DROP TABLE" };
            self.before.push(format!("{verb} main.\"{}\"", table.name.replace('"', "\"\"")));
            self.changed.retain(
                |key| !matches!(key, Key::Table(oid) | Key::Column(oid, _) | Key::Sequence(oid) if *oid == table.oid),
            );
        }
        Ok(())
    }

    /// Revokes what was granted to a role on the objects that remain, and forgets its default privileges. As in
    /// PostgreSQL it is a REVOKE by the current role: what that role may not revoke stays.
    fn revoke_everything(&mut self, role: u32) -> SqlResult<()> {
        let schema = self.checker.schema;
        let change = Change { grant: false, option: false, cascade: true, grantees: vec![role] };
        let holds = |acl: &Acl| acl.iter().any(|item| item.grantee == role);
        for table in schema.tables.iter().filter(|t| !t.temp && schema.grants.owner(t.oid) != role) {
            let Some(of) = schema.grants.of(table.oid) else { continue };
            if of.acl.as_ref().is_some_and(holds) || of.columns.values().any(holds) {
                self.grant_table(table, &Wanted::all(Privileges::OF_TABLE), &change)?;
            }
            if of.sequence.as_ref().is_some_and(holds) {
                self.grant_sequence(table, &Wanted::all(Privileges::OF_SEQUENCE), &change)?;
            }
        }
        if schema.grants.schema.owner != role && schema.grants.schema.acl.as_ref().is_some_and(holds) {
            self.grant_schema(&Wanted::all(Privileges::OF_SCHEMA), &change)?;
        }
        for publication in schema.publications.list.iter().filter(|p| p.owner != role) {
            let granted = schema.grants.publications.get(&publication.number).is_some_and(holds);
            if granted && self.publications.list.iter().any(|p| p.number == publication.number) {
                self.grant_publication(publication, &Wanted::all(Privileges::OF_PUBLICATION), &change)?;
            }
        }
        // Databases are never dropped, and an owner keeps its privileges.
        let granted = |access: &DatabaseAccess| access.owner != role && access.acl.as_ref().is_some_and(holds);
        for (oid, before) in self.checker.roles.databases().filter(|(_, access)| granted(access)) {
            let acl = before.grants();
            let (grantor, may) =
                best_grantor(self.checker.roles, self.role, Privileges::OF_DATABASE, &acl, before.owner);
            let after =
                DatabaseAccess { acl: Some(changed(&acl, &change, may, grantor, before.owner)?), ..before.clone() };
            self.on_databases.set_database(oid, before.clone(), after);
        }
        for entry in std::mem::take(&mut self.grants.defaults) {
            let key = Key::Default { role: entry.role, in_schema: entry.in_schema, object: entry.object };
            if entry.role == role {
                self.changed.insert(key);
                continue;
            }
            let acl = changed(&entry.acl, &change, Privileges(u16::MAX), entry.role, entry.role)?;
            if acl != entry.acl {
                self.changed.insert(key);
            }
            self.grants.defaults.push(DefaultGrants { acl, ..entry });
        }
        Ok(())
    }
}

/// The number of foreign keys that refer to a table.
fn owned_children(schema: &Schema, name: &str) -> usize {
    schema.tables.iter().flat_map(|t| &t.foreign_keys).filter(|k| k.parent.eq_ignore_ascii_case(name)).count()
}

/// What in a database depends on a role, in PostgreSQL's words, for DROP ROLE: `owner of table t`, `privileges for table t`.
pub fn dependents(schema: &Schema, role: u32) -> Vec<String> {
    let grants = &schema.grants;
    let in_acl = |acl: &Acl| acl.iter().any(|i| i.grantee == role || i.grantor == role);
    let mut found = Vec::new();
    for table in schema.tables.iter().filter(|t| !t.temp) {
        let Some(of) = grants.of(table.oid) else { continue };
        let (word, name) = (word_of(table).word(), &table.name);
        if of.owner == role {
            found.push(format!("owner of {word} {name}"));
        } else if of.acl.as_ref().is_some_and(in_acl) {
            found.push(format!("privileges for {word} {name}"));
        }
        for (column, _) in of.columns.iter().filter(|(_, acl)| of.owner != role && in_acl(acl)) {
            found.push(format!("privileges for column {column} of {word} {name}"));
        }
        if of.owner != role && of.sequence.as_ref().is_some_and(in_acl) {
            let sequence = holdfast_types::access::check::sequence_name(table).unwrap_or_default();
            found.push(format!("privileges for sequence {sequence}"));
        }
    }
    let owned = schema.publications.list.iter().filter(|p| p.owner == role);
    found.extend(owned.map(|p| format!("owner of publication {}", p.name)));
    for publication in schema.publications.list.iter().filter(|p| p.owner != role) {
        if grants.publications.get(&publication.number).is_some_and(in_acl) {
            found.push(format!("privileges for publication {}", publication.name));
        }
    }
    let owned = schema.subscriptions.list.iter().filter(|s| s.owner == role);
    found.extend(owned.map(|s| format!("owner of subscription {}", s.name)));
    if grants.schema.owner == role {
        found.push("owner of schema public".to_owned());
    } else if grants.schema.acl.as_ref().is_some_and(in_acl) {
        found.push("privileges for schema public".to_owned());
    }
    for entry in &grants.defaults {
        let what = match entry.object {
            'r' => "relations",
            'S' => "sequences",
            'n' => "schemas",
            'T' => "types",
            _ => "functions",
        };
        let place = if entry.in_schema { " in schema public" } else { "" };
        if entry.role == role {
            found.push(format!("owner of default privileges on new {what}{place}"));
        } else if in_acl(&entry.acl) {
            found.push(format!("privileges for default privileges on new {what}{place}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::access::{AclItem, Grants};

    #[test]
    fn what_depends_on_a_role_is_listed_as_postgresql_lists_it() {
        let table = |oid, name: &str| {
            Arc::new(Table {
                oid,
                name: name.into(),
                kind: TableKind::Table,
                without_rowid: false,
                sql: String::new(),
                columns: Vec::new(),
                indexes: Vec::new(),
                foreign_keys: Vec::new(),
                triggers: Vec::new(),
                temp: false,
                key_name: String::new(),
            })
        };
        let mut grants = Grants::default();
        grants.of_mut(16384).owner = 20000;
        let item = AclItem { grantee: 20000, grantor: 10, granted: Privileges::SELECT, grantable: Privileges::NONE };
        grants.of_mut(16385).acl = Some(vec![item]);
        grants.of_mut(16385).columns.insert("a".into(), vec![item]);
        let tables = vec![table(16384, "t"), table(16385, "u")];
        let schema = Schema { tables, grants: Arc::new(grants), ..Schema::default() };
        let found = dependents(&schema, 20000);
        assert_eq!(found, ["owner of table t", "privileges for table u", "privileges for column a of table u"]);
        assert!(dependents(&schema, 20001).is_empty());
    }
}
