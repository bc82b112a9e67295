//! The fields of a session, and what follows from them alone.

use super::automatic::AutomaticTransaction;
use super::cursor::set::Cursors;
use super::cursor::spool::Scratch;
use super::prepared::PreparedStatements;
use super::state::{Phase, State};
use super::temporary::TemporaryTables;
use super::values::{Identity, Values};
use crate::activity::{Done, Listed};
use crate::admission::Places;
use crate::cancel::Canceller;
use crate::database::{Databases, InUse};
use crate::feeds::Feeds;
use crate::settings::{Settings, StatementSettings};
use crate::subscriptions::Subscriptions;
use holdfast_engine::Completion;
use holdfast_sql::Isolation;
use holdfast_types::access::Roles;
use holdfast_types::schema::Schema;
use holdfast_types::{SessionContext, SessionSettings};
use holdfast_wire::Keepalives;
use holdfast_wire::completions::Mailbox;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinguishes the roles that a block sees from those that all sessions see.
const OF_A_BLOCK: u64 = 1 << 63;

pub struct NodeSession {
    pub(super) databases: Arc<Databases>,
    pub(super) served: InUse,
    pub(super) identity: Identity,
    /// The database of the connection; USE can leave it.
    pub(super) home: String,
    pub(super) settings: Settings,
    /// The session's row in `pg_stat_activity`.
    pub(super) activity: Listed,
    /// The number of the settings' change that it shows.
    pub(super) shown_settings: u32,
    /// The parameters that the client knows by ParameterStatus, and the number of the settings' change at that time.
    pub(super) reported: Vec<(String, String)>,
    pub(super) reported_at: u32,
    /// What the connection's socket was set to, and the number of the settings' change at that time.
    pub(super) keepalives: Keepalives,
    pub(super) kept_alive_at: u32,
    pub(super) state: State,
    /// Open only while the state is idle.
    pub(super) automatic: AutomaticTransaction,
    /// Statements prepared by SQL's PREPARE.
    pub(super) statements: PreparedStatements,
    /// Cursors declared by SQL's DECLARE.
    pub(super) cursors: Cursors,
    pub(super) scratch: Arc<Scratch>,
    pub(super) temporary: TemporaryTables,
    pub(super) canceller: Arc<Canceller>,
    pub(super) mailbox: Rc<Mailbox<Completion>>,
    /// Owns the session's advisory locks.
    pub(super) locks: Arc<holdfast_engine::AdvisoryOwner>,
    pub(super) transaction_us: i64,
    pub(super) statement_us: i64,
    pub(super) last_id: Option<i64>,
    /// What the present message has done so far.
    pub(super) done: Done,
    /// The parameters for the present statement, if it reads or sets some.
    pub(super) statement_settings: Option<Arc<StatementSettings>>,
    /// The last counted statement's number; 0: none.
    pub(super) last_query_id: i64,
    /// The last SERIALIZABLE transaction that wanted to write failed, because the database had changed since it had begun to read.
    pub(super) failed_serializable: bool,
    /// The server is a standby.
    pub(super) standby: bool,
    /// It takes replication commands.
    pub(super) replication: bool,
    pub(super) feeds: Arc<Feeds>,
    pub(super) subscriptions: Arc<Subscriptions>,
    /// The session's places among those of its role, database and address.
    pub(super) _places: Places,
}

impl NodeSession {
    pub(super) fn values(&self) -> Values<'_> {
        let transaction = match &self.state {
            State::Block(b) => (isolation_name(b.isolation), b.read_only || self.standby),
            State::Idle => (isolation_name(self.default_isolation()), self.default_read_only() || self.standby),
        };
        Values {
            identity: &self.identity,
            settings: &self.settings,
            databases: &self.databases,
            role_changes: self.state.block_ref().map(|block| &block.role_changes),
            transaction_us: self.transaction_us,
            statement_us: self.statement_us,
            last_id: self.last_id,
            transaction,
            requires_transaction: self.served.requires_transaction(),
        }
    }

    /// All roles as the session's next statement sees them: with the changes of its open transaction.
    pub(super) fn roles(&self) -> Arc<Roles> {
        let changes = match &self.state {
            State::Block(block) if !block.role_changes.is_empty() => &block.role_changes,
            _ => return self.databases.roles(),
        };
        let mut seen = Roles::clone(&self.databases.roles());
        changes.apply_to(&mut seen);
        seen.version = self.roles_version();
        Arc::new(seen)
    }

    /// All roles as the session sees them, where its open transaction has changed some.
    pub(super) fn own_roles(&self) -> Option<Arc<Roles>> {
        let block = self.state.block_ref()?;
        (!block.role_changes.is_empty()).then(|| self.roles())
    }

    /// What the present statement knows of the session.
    pub(super) fn context(&self) -> SessionContext {
        let settings = self.statement_settings.clone();
        SessionContext {
            viewer: Some(self.identity.current_role),
            own_roles: self.own_roles(),
            settings: settings.map(|settings| settings as Arc<dyn SessionSettings>),
        }
    }

    /// The version of [`NodeSession::roles`]; a new one each time while the open transaction has changed roles.
    pub(super) fn roles_version(&self) -> u64 {
        static OF_BLOCKS: AtomicU64 = AtomicU64::new(0);
        match &self.state {
            State::Block(block) if !block.role_changes.is_empty() => {
                OF_A_BLOCK | OF_BLOCKS.fetch_add(1, Ordering::Relaxed)
            }
            _ => self.databases.roles_version(),
        }
    }

    pub(super) fn default_isolation(&self) -> Isolation {
        match self.settings.get("default_transaction_isolation") {
            Ok((_, "serializable")) => Isolation::Serializable,
            Ok((_, "repeatable read")) => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        }
    }

    pub(super) fn default_read_only(&self) -> bool {
        matches!(self.settings.get("default_transaction_read_only"), Ok((_, "on")))
    }

    /// The schema that the next statement sees.
    pub(super) fn schema(&self) -> Arc<Schema> {
        let permanent = match &self.state {
            State::Block(b) => match &b.phase {
                Phase::Writing(txn) => txn.schema(),
                _ => self.served.db.schema(),
            },
            State::Idle => self.served.db.schema(),
        };
        if self.temporary.any() { self.temporary.schema(self.served.db.oid(), permanent) } else { permanent }
    }
}

fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}
