//! Commands about the session, the transaction or the server.

use super::changes::{CHANGES, SCHEMA_EPOCH, changes_as_rows};
use super::node_session::NodeSession;
use super::state::{Phase, State};
use super::values::{DATABASE_PARAMETER, ROLE_PARAMETER, SESSION_PARAMETER};
use crate::cancel::{Target, with_reason};
use crate::plan::{Extra, Plan};
use crate::settings;
use holdfast_engine::{Collect, Step as EngineStep};
use holdfast_sql::{Entry, Kind, Translated};
use holdfast_types::access::DatabaseAccess;
use holdfast_types::{
    ParameterChange, Row, Sink, SqlError, SqlResult, SqlState, StatementDesc, TableLockMode, Tag, Value, ValueRef,
};
use holdfast_wire::{Client, Failure, Session};
use std::path::PathBuf;
use std::sync::Arc;

/// A row made by the server itself.
struct Made<'a>(&'a [Value]);

impl Row for Made<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, i: usize) -> ValueRef<'_> {
        self.0.get(i).map_or(ValueRef::Null, Value::as_ref)
    }
}

pub(super) fn answer(
    client: &mut Client,
    number: usize,
    desc: &Arc<StatementDesc>,
    rows: impl IntoIterator<Item = Vec<Value>>,
    verb: &'static str,
) -> SqlResult<()> {
    let reply = client.reply();
    reply.start_at(number);
    reply.begin(0, desc);
    rows.into_iter().try_for_each(|row| reply.row(&Made(&row)))?;
    reply.end(&Tag { verb, rows: None });
    Ok(())
}

impl NodeSession {
    /// Runs a command that neither reads nor changes data.
    pub(super) async fn command(
        &mut self,
        number: usize,
        translated: &Translated,
        client: &mut Client,
    ) -> SqlResult<()> {
        let mut verb = translated.verb;
        match &translated.kind {
            Kind::Begin(modes) => {
                client.reply().script_until(number);
                self.begin(*modes, client)?;
            }
            Kind::SetTransaction(modes) => {
                if self.state.is_idle() {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    client.reply().script_until(number);
                    let warning = SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message);
                    client.reply().notice("WARNING", &warning);
                }
                self.set_modes(*modes)?;
            }
            Kind::PrepareTransaction(gid) => verb = self.prepare_transaction(number, gid, client).await?,
            Kind::CommitPrepared(gid) => self.finish_prepared(gid, true).await?,
            Kind::RollbackPrepared(gid) => self.finish_prepared(gid, false).await?,
            Kind::CloseCursor(name) => self.cursors.close(name.as_deref())?,
            Kind::Savepoint(name) => self.savepoint(name).await?,
            Kind::Release(name) => self.release(name).await?,
            Kind::RollbackTo(name) => self.rollback_to(name).await?,
            Kind::Set { name, value, .. } if name == DATABASE_PARAMETER => self.use_database(value.as_deref()).await?,
            Kind::Reset(Some(name)) if name == DATABASE_PARAMETER => self.use_database(None).await?,
            Kind::Set { name, value, local } if name == ROLE_PARAMETER || name == SESSION_PARAMETER => {
                match *local && self.state.is_idle() {
                    true => self.set(number, name, value.as_deref(), *local, client)?,
                    false => self.set_role(name, value.as_deref(), *local)?,
                }
            }
            Kind::Reset(Some(name)) if name == ROLE_PARAMETER || name == SESSION_PARAMETER => {
                self.set_role(name, None, false)?;
            }
            Kind::Set { name, value, local } => self.set(number, name, value.as_deref(), *local, client)?,
            Kind::Reset(Some(name)) => self.set(number, name, None, false, client)?,
            Kind::Reset(None) => {
                let undo = self.settings.reset_all();
                self.state.block().into_iter().for_each(|block| block.undo.extend(undo.clone()));
                self.use_database(None).await?;
            }
            Kind::Show(name) if name == CHANGES => {
                let changes = self.transaction_changes().await?;
                return answer(client, number, &translated.desc, changes_as_rows(&changes), "SHOW");
            }
            Kind::Show(name) if name == SCHEMA_EPOCH => {
                let schema = self.schema();
                let epoch = Value::Text(schema.permanent.unwrap_or(schema.epoch).to_string());
                return answer(client, number, &translated.desc, [vec![epoch]], "SHOW");
            }
            Kind::Show(name) => return self.show(number, name, translated, client),
            Kind::CreateDatabase { name, dialect, if_not_exists, owner, connection_limit } => {
                let access = crate::roles::new_database(&self.scope(), owner.as_ref(), *connection_limit)?;
                self.create_database(name, *dialect, *if_not_exists, access).await?
            }
            Kind::DropDatabase { name, if_exists } => self.drop_database(number, name, *if_exists, client).await?,
            Kind::AlterParameters { database, change } => {
                self.alter_parameters(verb, database.as_deref(), change).await?
            }
            Kind::Role(statement) => self.role_statement(number, statement, verb, client).await?,
            Kind::Vacuum { tables: _, into: Some(file) } => {
                self.superuser_only(|| "must be superuser to write a file on the server".to_owned())?;
                self.vacuum_into(file).await?;
            }
            Kind::Vacuum { tables, into: None } => self.vacuum(number, tables, translated, client).await?,
            Kind::LockTable { tables, mode, no_wait } => self.lock_table(tables, *mode, *no_wait).await?,
            Kind::Prepare { name, statement, param_types } => self.prepare_sql(name, statement, param_types).await?,
            Kind::Deallocate(name) => self.deallocate(name.as_deref(), client)?,
            Kind::Discard(what) => self.discard(what, client).await?,
            Kind::NoOp if verb == "CHECKPOINT" => {
                self.superuser_only(|| {
                    "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT".into()
                })?;
            }
            Kind::NoOp => {}
            other => return Err(SqlError::internal(format!("no command runs {other:?}"))),
        }
        client.reply().complete(number, &Tag { verb, rows: None });
        Ok(())
    }

    fn set(
        &mut self,
        number: usize,
        name: &str,
        value: Option<&str>,
        local: bool,
        client: &mut Client,
    ) -> SqlResult<()> {
        if local && self.state.is_idle() {
            client.reply().script_until(number);
            let message = "SET LOCAL can only be used in transaction blocks";
            client.reply().notice("WARNING", &SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
            return Ok(());
        }
        if settings::is_superusers(name) {
            self.superuser_only(|| format!("permission denied to set parameter \"{name}\""))?;
        }
        let undo = self.settings.set(name, value, local)?;
        if let Some(block) = self.state.block() {
            block.undo.push(undo);
        }
        Ok(())
    }

    fn show(&mut self, number: usize, name: &str, translated: &Translated, client: &mut Client) -> SqlResult<()> {
        let values = self.values();
        let text = |t: &str| Value::Text(t.to_owned());
        let rows: Vec<Vec<Value>> = if name.eq_ignore_ascii_case("all") {
            let one = |(n, v): (&str, &str)| vec![text(n), text(&values.setting(n).unwrap_or(v.into())), text("")];
            self.settings.all().filter(|(name, _)| values.may_see(name)).map(one).collect()
        } else {
            vec![vec![text(&values.setting(name)?)]]
        };
        answer(client, number, &translated.desc, rows, "SHOW")
    }

    async fn create_database(
        &mut self,
        name: &str,
        dialect: holdfast_types::schema::Dialect,
        if_not_exists: bool,
        access: DatabaseAccess,
    ) -> SqlResult<()> {
        let (databases, name, level) = (self.databases.clone(), name.to_owned(), self.settings.level());
        self.outside_transactions("CREATE DATABASE", move || match databases.create(&name, dialect, access, level) {
            Err(e) if if_not_exists && e.state() == SqlState::DUPLICATE_DATABASE => Ok(()),
            outcome => outcome,
        })
        .await
    }

    async fn drop_database(
        &mut self,
        number: usize,
        name: &str,
        if_exists: bool,
        client: &mut Client,
    ) -> SqlResult<()> {
        if let Some(database) = self.databases.listed().into_iter().find(|d| d.name == name) {
            let current = self.identity.current_role;
            crate::roles::check_database_owner(&self.roles(), current, database.oid, name)?;
        } else if if_exists {
            client.reply().script_until(number);
            let message = format!("database \"{name}\" does not exist, skipping");
            client.reply().notice("NOTICE", &SqlError::new(SqlState("00000"), message));
        }
        if name == self.home || name == self.identity.database {
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, "cannot drop the currently open database"));
        }
        let (databases, feeds) = (self.databases.clone(), self.feeds.clone());
        let (name, level) = (name.to_owned(), self.settings.level());
        self.outside_transactions("DROP DATABASE", move || {
            if if_exists && !databases.exists(&name) {
                return Ok(());
            }
            feeds.refuse_to_drop(&name)?;
            databases.drop_database(&name, level)
        })
        .await
    }

    /// `database`: `None` is of all roles.
    async fn alter_parameters(
        &mut self,
        verb: &'static str,
        database: Option<&str>,
        change: &ParameterChange,
    ) -> SqlResult<()> {
        let Some(database) = database else {
            self.superuser_only(|| "must be superuser to alter settings globally".to_owned())?;
            let change = checked(change, false)?;
            let (databases, level) = (self.databases.clone(), self.settings.level());
            let work = move || databases.change_parameters_of_all(change, level);
            return self.outside_transactions("ALTER ROLE ALL", work).await;
        };
        let listed = self.databases.listed().into_iter().find(|d| d.name == database);
        if let Some(listed) = listed {
            crate::roles::check_database_owner(&self.roles(), self.identity.current_role, listed.oid, database)?;
        }
        if let ParameterChange::Set { name, .. } | ParameterChange::Reset(name) = change
            && settings::is_superusers(name)
        {
            self.superuser_only(|| format!("permission denied to set parameter \"{name}\""))?;
        }
        let change = checked(change, true)?;
        let (databases, level, name) = (self.databases.clone(), self.settings.level(), database.to_owned());
        // Unlike in PostgreSQL it is not part of a transaction, and is not undone with one.
        let work = move || databases.change_parameters(&name, change, level);
        let command = if verb == "ALTER ROLE" { "ALTER ROLE ALL" } else { "ALTER DATABASE" };
        self.outside_transactions(command, work).await
    }

    /// VACUUM INTO: a copy of the newest visible snapshot, as a reader sees it.
    async fn vacuum_into(&mut self, file: &str) -> SqlResult<()> {
        let (db, file) = (self.served.db.clone(), PathBuf::from(file));
        self.outside_transactions("VACUUM", move || db.vacuum_into(&file)).await
    }

    async fn vacuum(
        &mut self,
        number: usize,
        tables: &[String],
        translated: &Translated,
        client: &mut Client,
    ) -> SqlResult<()> {
        let schema = self.schema();
        let is_there = |name: &str| {
            let in_catalogue = holdfast_sql::catalogue::tables().any(|table| table.name == name);
            in_catalogue || schema.tables.iter().any(|table| table.name.eq_ignore_ascii_case(name))
        };
        if let Some(name) = tables.iter().find(|name| !is_there(name)) {
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")));
        }
        let db = self.served.db.clone();
        let (name, current) = (db.name().to_owned(), self.identity.current_role);
        if crate::roles::check_database_owner(&self.roles(), current, db.oid(), &name).is_err() {
            // It rewrites the whole database, whatever table is named.
            client.reply().script_until(number);
            let all = [name];
            for name in if tables.is_empty() { &all } else { tables } {
                let message = format!("permission denied to vacuum \"{name}\", skipping it");
                client.reply().notice("WARNING", &SqlError::new(SqlState("01000"), message));
            }
            return Ok(());
        }
        self.outside_transactions("VACUUM", move || db.vacuum()).await?;
        if translated.steps.is_empty() {
            return Ok(());
        }
        self.begin_implicit();
        self.become_writer(true).await?;
        for step in &translated.steps {
            self.run_helper(&step.sql).await?;
        }
        Ok(())
    }

    async fn lock_table(&mut self, tables: &[String], mode: TableLockMode, no_wait: bool) -> SqlResult<()> {
        if !matches!(&self.state, State::Block(b) if b.explicit) {
            let message = "LOCK TABLE can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        self.become_writer(false).await?;
        let timeouts = self.settings.timeouts();
        let (db, canceller) = (self.served.db.clone(), self.canceller.clone());
        let txn = self.writer()?;
        txn.set_lock_timeout(timeouts.lock);
        for table in tables {
            let target = Target::Writer(db.clone(), txn.id());
            let locked = txn.lock_table(table, mode, no_wait);
            let (locked, timed_out) = canceller.during(target, timeouts.statement, locked).await;
            locked.map_err(|e| with_reason(e, timed_out))?;
        }
        Ok(())
    }

    async fn prepare_sql(&mut self, name: &str, statement: &str, param_types: &[u32]) -> SqlResult<()> {
        self.statements.check_new(name)?;
        let plan = self.prepare(statement, param_types).await?;
        self.statements.insert(name, plan)
    }

    /// For EXECUTE: the prepared statement, and its parameters converted to their types.
    pub(super) fn execute_args(&self, name: &str, args: &[Value]) -> SqlResult<(Arc<Plan>, Vec<Value>)> {
        let plan = self.statements.get(name).ok_or_else(|| no_statement(name))?.clone();
        let types = &plan.desc.params;
        if types.len() != args.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .with_detail(format!("Expected {} parameters but got {}.", types.len(), args.len())));
        }
        let convert = |(value, type_oid): (&Value, &u32)| match value {
            Value::Text(text) => Self::input(*type_oid, text),
            other => Ok(other.clone()),
        };
        let values = args.iter().zip(types).map(convert).collect::<SqlResult<_>>()?;
        Ok((plan, values))
    }

    fn deallocate(&mut self, name: Option<&str>, client: &mut Client) -> SqlResult<()> {
        match name {
            None => {
                self.statements.clear();
                client.deallocate_all();
                Ok(())
            }
            Some(name) if self.statements.remove(name) || client.deallocate(name) => Ok(()),
            Some(name) => Err(no_statement(name)),
        }
    }

    async fn discard(&mut self, what: &str, client: &mut Client) -> SqlResult<()> {
        if what == "TEMP" {
            return self.discard_temporary().await;
        }
        if what != "ALL" {
            return Ok(());
        }
        if !self.state.is_idle() {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        self.settings.reset_all();
        self.set_role(SESSION_PARAMETER, None, false)?;
        self.use_database(None).await?;
        self.cursors.close(None)?;
        self.locks.unlock_all();
        self.discard_temporary().await?;
        self.last_id = None;
        self.deallocate(None, client)
    }

    /// Runs EXPLAIN: SQLite's plan, one row for each line, indented by depth.
    pub(super) async fn explain(
        &mut self,
        number: usize,
        entry: &Entry<Extra>,
        params: Vec<Value>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let Some(stmt) = entry.extra.clone() else { return Err(at(SqlError::internal("EXPLAIN was not prepared"))) };
        let lines = Collect::new();
        let step = EngineStep { stmt, params };
        let writing = matches!(&self.state, State::Block(b) if matches!(b.phase, Phase::Writing(_)));
        let temporary = self.read_temporary_into(&step.stmt, &step.params, lines.clone()).await.map_err(at)?;
        if temporary.is_ok() {
            // Its lines are collected already.
        } else if writing {
            let ran = self.execute(step, Box::new(lines.clone())).await;
            ran.map_err(|error| Failure { step: None, error, fatal: true })?.0.map_err(at)?;
        } else {
            let mut reader = self.served.db.reader().map_err(at)?;
            reader.run(&self.context(), 0, &step, &mut lines.clone()).map_err(at)?;
        }
        let rows = lines.outcomes().pop().map(|o| o.rows).unwrap_or_default();
        answer(client, number, &entry.translated.desc, plan_tree(&rows), "EXPLAIN").map_err(at)
    }
}

/// Formats rows of EXPLAIN QUERY PLAN (id, parent, unused, detail) as indented lines.
fn plan_tree(rows: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let mut depths: Vec<(i64, usize)> = Vec::new();
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let [Value::Int(id), Value::Int(parent), _, Value::Text(detail)] = row.as_slice() else { continue };
        let depth = depths.iter().find(|(i, _)| i == parent).map_or(0, |(_, d)| d + 1);
        depths.push((*id, depth));
        lines.push(vec![Value::Text(format!("{}{detail}", "  ".repeat(depth)))]);
    }
    lines
}

fn no_statement(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}

/// A change of what later sessions start with, with the parameter's own spelling and a value that it takes.
fn checked(change: &ParameterChange, for_database: bool) -> SqlResult<ParameterChange> {
    Ok(match change {
        ParameterChange::ResetAll => ParameterChange::ResetAll,
        ParameterChange::Reset(name) => ParameterChange::Reset(settings::known(name)?.to_owned()),
        ParameterChange::Set { name, value } => {
            let (name, value) = settings::check_stored(name, value, for_database)?;
            ParameterChange::Set { name: name.to_owned(), value }
        }
    })
}
