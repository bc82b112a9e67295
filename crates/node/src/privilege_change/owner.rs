//! ALTER ... OWNER TO and REASSIGN OWNED.

use super::grant::{is_view, known_schema};
use super::{Draft, Found, Key, refused};
use holdfast_sql::privilege_statement::{Owned, RoleName};
use holdfast_sql::subscriptions::check_may_own;
use holdfast_types::access::acl::with_new_owner;
use holdfast_types::access::check::{denied, not_owner, sequence_name, word_of};
use holdfast_types::access::predefined::BOOTSTRAP_OID;
use holdfast_types::access::{DatabaseAccess, Privileges};
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState};

impl Draft<'_> {
    pub(super) fn owner(&mut self, of: &Owned, if_exists: bool, to: &RoleName) -> SqlResult<()> {
        let (name, what) = match of {
            Owned::Schema(name) => return known_schema(name).and_then(|()| self.schema_owner(to)),
            Owned::Table(name) => (name, "table"),
            Owned::View(name) => (name, "view"),
            Owned::Sequence(name) => (name, "sequence"),
        };
        let found = match self.find(name) {
            Err(e) if if_exists && e.state() == SqlState::UNDEFINED_TABLE => {
                let message = format!("relation \"{}\" does not exist, skipping", name.name);
                self.notice("NOTICE", SqlState("00000"), message);
                return Ok(());
            }
            found => found?,
        };
        let (Found::Table(table) | Found::Sequence(table)) = found;
        if matches!(found, Found::Sequence(_)) {
            let sequence = sequence_name(table).unwrap_or_default();
            let owner = self.grants.owner(table.oid);
            if !self.owns(owner) {
                return Err(not_owner("sequence", &sequence));
            }
            if self.role_named(to)? == owner {
                return Ok(());
            }
            return Err(refused(format!("cannot change owner of sequence \"{sequence}\""))
                .with_detail(format!("Sequence \"{sequence}\" is linked to table \"{}\".", table.name)));
        }
        // ALTER TABLE also takes views.
        if what == "sequence" || (what == "view" && !is_view(table)) {
            let message = format!("\"{}\" is not a {what}", table.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let owner = self.grants.owner(table.oid);
        if !self.owns(owner) {
            return Err(not_owner(word_of(table).word(), &table.name));
        }
        let new = self.role_named(to)?;
        if new == owner {
            return Ok(());
        }
        self.may_give_to(new)?;
        let acting = self.acting(new);
        if !self.checker.roles.is_superuser(self.role) && !self.checker.on_schema(&acting).contains(Privileges::CREATE)
        {
            return Err(denied("schema", "public"));
        }
        self.give(table, new);
        Ok(())
    }

    fn schema_owner(&mut self, to: &RoleName) -> SqlResult<()> {
        let owner = self.grants.schema.owner;
        let new = self.role_named(to)?;
        if new == owner {
            return Ok(());
        }
        if !self.owns(owner) {
            return Err(not_owner("schema", "public"));
        }
        self.may_give_to(new)?;
        let superuser = self.checker.roles.is_superuser(self.role);
        if !superuser && !self.checker.on_database.contains(Privileges::CREATE) {
            let message = "permission denied for this database";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        self.give_schema(new);
        Ok(())
    }

    /// 42501 unless the role is a member of the new owner.
    fn may_give_to(&self, new: u32) -> SqlResult<()> {
        if self.checker.roles.is_member_of(self.role, new) {
            return Ok(());
        }
        let message = format!("must be member of role \"{}\"", self.checker.roles.name_of(new));
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    }

    fn give(&mut self, table: &Table, new: u32) {
        let grants = self.grants.of_mut(table.oid);
        let old = std::mem::replace(&mut grants.owner, new);
        self.changed.insert(Key::Table(table.oid));
        if let Some(acl) = &mut grants.acl {
            *acl = with_new_owner(acl, old, new);
        }
        if let Some(acl) = &mut grants.sequence {
            *acl = with_new_owner(acl, old, new);
            self.changed.insert(Key::Sequence(table.oid));
        }
        for (name, acl) in &mut grants.columns {
            *acl = with_new_owner(acl, old, new);
            self.changed.insert(Key::Column(table.oid, name.clone()));
        }
    }

    fn give_schema(&mut self, new: u32) {
        let old = std::mem::replace(&mut self.grants.schema.owner, new);
        if let Some(acl) = &mut self.grants.schema.acl {
            *acl = with_new_owner(acl, old, new);
        }
        self.changed.insert(Key::Schema);
    }

    pub(super) fn reassign(&mut self, from: &[RoleName], to: &RoleName) -> SqlResult<()> {
        let refused = || SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to reassign objects");
        let from = from.iter().map(|name| self.role_named(name)).collect::<SqlResult<Vec<u32>>>()?;
        if from.iter().any(|role| !self.checker.roles.has_privileges_of(self.role, *role)) {
            return Err(refused());
        }
        let to = self.role_named(to)?;
        if !self.checker.roles.has_privileges_of(self.role, to) {
            return Err(refused());
        }
        if from.contains(&BOOTSTRAP_OID) {
            let name = self.checker.roles.name_of(BOOTSTRAP_OID);
            let message = format!(
                "cannot reassign ownership of objects owned by role {name} because they are required by the database system"
            );
            return Err(SqlError::new(SqlState("2BP01"), message));
        }
        let schema = self.checker.schema;
        for table in schema.tables.iter().filter(|t| !t.temp && from.contains(&schema.grants.owner(t.oid))) {
            self.give(table, to);
        }
        for publication in self.publications.list.iter_mut().filter(|p| from.contains(&p.owner)) {
            let old = std::mem::replace(&mut publication.owner, to);
            if let Some(acl) = self.grants.publications.get_mut(&publication.number) {
                *acl = with_new_owner(acl, old, to);
                self.changed.insert(Key::Publication(publication.number));
            }
        }
        let superuser = self.checker.roles.is_superuser(to);
        for subscription in self.subscriptions.list.iter_mut().filter(|s| from.contains(&s.owner) && s.owner != to) {
            check_may_own(&subscription.name, superuser)?;
            subscription.owner = to;
        }
        // As in PostgreSQL also the databases, which are not this database's objects.
        for (oid, before) in self.checker.roles.databases().filter(|(_, access)| from.contains(&access.owner)) {
            let acl = before.acl.as_ref().map(|acl| with_new_owner(acl, before.owner, to));
            let after = DatabaseAccess { owner: to, acl, ..before.clone() };
            self.on_databases.set_database(oid, before.clone(), after);
        }
        if from.contains(&self.grants.schema.owner) {
            self.give_schema(to);
        }
        Ok(())
    }
}
