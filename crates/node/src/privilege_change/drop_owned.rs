//! DROP OWNED, and the list of what depends on a role.

use super::{Draft, Key};
use holdfast_sql::privilege_statement::RoleName;
use holdfast_types::access::Acl;
use holdfast_types::access::acl::{Change, changed};
use holdfast_types::access::check::word_of;
use holdfast_types::access::predefined::BOOTSTRAP_OID;
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

    /// Revokes what was granted to a role on the objects that remain, and forgets its default privileges.
    fn revoke_everything(&mut self, role: u32) -> SqlResult<()> {
        let schema = self.checker.schema;
        let without = |acl: &Acl, owner: u32| -> SqlResult<Acl> {
            let mut acl = acl.clone();
            while let Some(item) = acl.iter().find(|item| item.grantee == role && role != owner).copied() {
                let change = Change { grant: false, option: false, cascade: true, grantees: vec![role] };
                acl = changed(&acl, &change, item.granted | item.grantable, item.grantor, owner)?;
            }
            Ok(acl)
        };
        let remains = |oid: u32| schema.by_oid(oid).is_some_and(|_| schema.grants.owner(oid) != role);
        let tables: Vec<u32> = self.grants.tables().map(|(oid, _)| oid).filter(|oid| remains(*oid)).collect();
        for oid in tables {
            let grants = self.grants.of_mut(oid);
            let owner = grants.owner;
            if let Some(acl) = &grants.acl
                && *acl != without(acl, owner)?
            {
                grants.acl = Some(without(acl, owner)?);
                self.changed.insert(Key::Table(oid));
            }
            if let Some(acl) = &grants.sequence
                && *acl != without(acl, owner)?
            {
                grants.sequence = Some(without(acl, owner)?);
                self.changed.insert(Key::Sequence(oid));
            }
            for (name, acl) in grants.columns.clone() {
                let left = without(&acl, owner)?;
                if left == acl {
                    continue;
                }
                match left.is_empty() {
                    true => grants.columns.remove(&name),
                    false => grants.columns.insert(name.clone(), left),
                };
                self.changed.insert(Key::Column(oid, name));
            }
        }
        if let Some(acl) = self.grants.schema.acl.clone() {
            let left = without(&acl, self.grants.schema.owner)?;
            if left != acl {
                self.grants.schema.acl = Some(left);
                self.changed.insert(Key::Schema);
            }
        }
        for entry in std::mem::take(&mut self.grants.defaults) {
            let key = Key::Default { role: entry.role, in_schema: entry.in_schema, object: entry.object };
            let left = without(&entry.acl, entry.role)?;
            if entry.role == role {
                self.changed.insert(key);
                continue;
            }
            if left != entry.acl {
                self.changed.insert(key);
            }
            self.grants.defaults.push(holdfast_types::access::grants::DefaultGrants { acl: left, ..entry });
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
    use holdfast_types::access::{AclItem, Grants, Privileges};

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
