//! The replication commands of a session that was opened with `replication=database`. It runs SQL as any other session does.
//!
//! | command | who may |
//! |---|---|
//! | all | a role with REPLICATION, or a superuser |
//! | START_REPLICATION | with SELECT on each publication it names, as its owner has, or a superuser |
//!
//! Failure: PostgreSQL's errors; 0A000 for what is not offered: streaming, two-phase, binary, temporary slots.

use super::failure::fatal;
use super::node_session::NodeSession;
use super::state::Phase;
use crate::cancel::terminated_in_commit;
use crate::clock::now_us;
use crate::feeds::{Chunk, Reader, Reading, read};
use holdfast_engine::Database;
use holdfast_sites::command::{self, Command, Snapshot};
use holdfast_sites::link;
use holdfast_sites::slot::{CREATE, DELETE, INSERT, Slot, is_name};
use holdfast_types::desc::oid;
use holdfast_types::lsn::lsn_text;
use holdfast_types::schema::Dialect;
use holdfast_types::{ColumnDesc, Lsn, SqlError, SqlResult, SqlState, StatementDesc, Tag, Value};
use holdfast_wire::{Client, CopyBoth, Failure, Lost, Termination, copy_data};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A keepalive is sent after this time without another message, and asks for an answer after the next.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// A subscriber that has not answered for this long is taken to be gone (`wal_sender_timeout` in PostgreSQL).
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How often is looked whether the standbys have what a new slot's snapshot shows, or the row of a slot.
const LIMIT_LOOKED_AT_EVERY: Duration = Duration::from_millis(5);

/// Longest wait of DROP_REPLICATION_SLOT with WAIT for the session that reads the slot, and how often is looked. A subscriber whose
/// connection has just ended is still there for some milliseconds; one that stays is the error that it is without WAIT.
const READER_ENDS_MAX: Duration = Duration::from_secs(60);
const READER_LOOKED_AT_EVERY: Duration = Duration::from_millis(5);

/// The output plugin.
const PLUGIN: &str = "pgoutput";

/// A feed to this session's client.
struct Sending {
    reader: Reader,
    reading: Reading,
    /// What was sent and is not confirmed, oldest first.
    unconfirmed: VecDeque<crate::feeds::Reached>,
    /// Everything before was sent, or is not published.
    sent: u64,
    heard: Instant,
    spoke: Instant,
}

/// How a feed ends that was not ended by the connection's end.
enum Ended {
    ByClient,
    Failed(SqlError),
}

impl NodeSession {
    /// Whether a message is a replication command of this session.
    pub(super) fn is_replication(&self, text: &str) -> bool {
        self.replication && command::is_command(text)
    }

    pub(super) async fn replicate(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        let command = match command::parse(text) {
            Some(command) => command?,
            None => return Err(SqlError::internal("not a replication command").into()),
        };
        match command {
            Command::IdentifySystem => Ok(self.identify_system(client)?),
            Command::CreateSlot { name, temporary, plugin, snapshot, two_phase } => {
                let refused = match (temporary, two_phase) {
                    (true, _) => Some("temporary replication slots"),
                    (_, true) => Some("two-phase decoding"),
                    _ => None,
                };
                if let Some(what) = refused {
                    return Err(SqlError::unsupported(what).into());
                }
                self.check_snapshot(snapshot)?;
                self.create_slot(&name, &plugin, snapshot, client).await
            }
            Command::DropSlot { name, waits } => self.drop_slot(&name, waits, client).await,
            Command::Start { .. } if !self.state.is_idle() => Err(in_transaction("START_REPLICATION").into()),
            Command::Start { name, lsn, options } => {
                let publications = self.checked_options(&options)?;
                self.start(&name, lsn, publications, client).await
            }
        }
    }

    fn identify_system(&mut self, client: &mut Client) -> SqlResult<()> {
        let engine = self.feeds.engine();
        // As PostgreSQL's, a number of 64 bits in decimal.
        let id = engine.trail().trail_id().0;
        let system = u64::from_be_bytes([id[0] & 0x7f, id[1], id[2], id[3], id[4], id[5], id[6], id[7]]);
        let row = vec![
            text(&system.to_string()),
            Value::Int(engine.trail().epoch().0.into()),
            text(&lsn_text(self.feeds.limit().0)),
            text(self.served.db.name()),
        ];
        let columns = [("systemid", oid::TEXT), ("timeline", oid::INT4), ("xlogpos", oid::TEXT), ("dbname", oid::TEXT)];
        answer(client, &columns, row, "IDENTIFY_SYSTEM")
    }

    /// Whether the transaction is one that can take a slot's snapshot, or none is open where none is taken.
    fn check_snapshot(&mut self, snapshot: Snapshot) -> SqlResult<()> {
        let needs = |what: &str| {
            let message = format!("CREATE_REPLICATION_SLOT ... (SNAPSHOT 'use') must be called {what}");
            Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
        };
        match (snapshot, self.state.block()) {
            (Snapshot::Use, None) => needs("inside a transaction"),
            (Snapshot::Use, Some(block)) if !block.explicit => needs("inside a transaction"),
            (Snapshot::Use, Some(block)) if !block.keeps_snapshot() => {
                needs("in REPEATABLE READ isolation mode transaction")
            }
            (Snapshot::Use, Some(block)) if block.queried || !matches!(block.phase, Phase::Reading(None)) => {
                needs("before any query")
            }
            (Snapshot::Use, Some(block)) if !block.savepoints.is_empty() => needs("outside of savepoints"),
            (Snapshot::Use, Some(_)) | (_, None) => Ok(()),
            (Snapshot::Export | Snapshot::Nothing, Some(_)) => Err(in_transaction("CREATE_REPLICATION_SLOT")),
        }
    }

    async fn create_slot(
        &mut self,
        name: &str,
        plugin: &str,
        snapshot: Snapshot,
        client: &mut Client,
    ) -> Result<(), Failure> {
        self.check_publisher()?;
        if !is_name(name) {
            let message = format!("replication slot name \"{name}\" contains invalid character or is too long");
            let hint =
                "Replication slot names may only contain lower case letters, numbers, and the underscore character.";
            return Err(SqlError::new(SqlState("42602"), message).with_hint(hint).into());
        }
        if plugin != PLUGIN {
            let message = format!("could not access file \"{plugin}\": no such output plugin");
            return Err(SqlError::new(SqlState("58P01"), message).with_hint("The output plugin is pgoutput.").into());
        }
        let (db, of) = (self.served.db.clone(), self.served.db.clone());
        let (feeds, owned) = (self.feeds.clone(), (name.to_owned(), plugin.to_owned()));
        let creation = super::blocking::blocking(move || feeds.begin_slot(&of, &owned.0, &owned.1)).await?;
        let slot = creation.slot().clone();
        // Where another session has created them and its commit waits, this waits behind that one.
        if !db.shows_slots_table()? {
            self.create_slot_tables().await?;
        }
        self.write_slot(&db, INSERT, slot.row()).await?;
        let begins = slot.confirmed.boxcar;
        let begin = match snapshot {
            Snapshot::Use => self.take_snapshot_behind(begins).await?,
            Snapshot::Export | Snapshot::Nothing => begins,
        };
        creation.done(begin);
        let row = vec![text(name), text(&lsn_text(begin.0)), Value::Null, text(plugin)];
        let columns = [
            ("slot_name", oid::TEXT),
            ("consistent_point", oid::TEXT),
            ("snapshot_name", oid::TEXT),
            ("output_plugin", oid::TEXT),
        ];
        Ok(answer(client, &columns, row, "CREATE_REPLICATION_SLOT")?)
    }

    /// The open transaction sees what the trail has below the returned position, and nothing else. That is on the standbys that a
    /// feed waits for, too. `from`: everything below it is shown.
    async fn take_snapshot_behind(&mut self, from: Lsn) -> Result<Lsn, Failure> {
        let (db, pid) = (self.served.db.clone(), self.identity.pid);
        let (reader, place) = super::blocking::blocking(move || db.reader_at_a_place(from, pid)).await?;
        self.until_sendable(place).await?;
        if let Some(block) = self.state.block() {
            block.queried = true;
            block.phase = Phase::Reading(Some(Box::new(reader)));
        }
        Ok(place)
    }

    /// Waits until a feed may send what the trail has below `place`.
    async fn until_sendable(&self, place: Lsn) -> Result<(), Failure> {
        let reached = async {
            while self.feeds.limit() < place {
                tokio::time::sleep(LIMIT_LOOKED_AT_EVERY).await;
            }
        };
        Ok(self.canceller.wait(self.settings.timeouts().statement, reached).await?)
    }

    async fn drop_slot(&mut self, name: &str, waits: bool, client: &mut Client) -> Result<(), Failure> {
        if !self.state.is_idle() {
            return Err(in_transaction("DROP_REPLICATION_SLOT").into());
        }
        self.check_publisher()?;
        let db = self.served.db.clone();
        let within = if waits { READER_ENDS_MAX } else { Duration::ZERO };
        // Until it is gone no other session takes it.
        let _taken = self.canceller.wait(self.settings.timeouts().statement, self.take_slot(name, within)).await??;
        self.write_slot(&db, DELETE, vec![Value::Text(name.to_owned())]).await?;
        self.feeds.dropped(&db, name);
        client.reply().complete(0, &Tag { verb: "DROP_REPLICATION_SLOT", rows: None });
        Ok(())
    }

    /// Takes a slot, waiting for the session that has it.
    async fn take_slot(&self, name: &str, within: Duration) -> SqlResult<(Reader, Slot)> {
        let began = Instant::now();
        loop {
            let (feeds, of, owned) = (self.feeds.clone(), self.served.db.clone(), name.to_owned());
            let pid = self.identity.pid;
            match super::blocking::blocking(move || feeds.take(&of, &owned, pid)).await {
                Err(error) if error.state() == SqlState::OBJECT_IN_USE && began.elapsed() < within => {
                    tokio::time::sleep(READER_LOOKED_AT_EVERY).await;
                }
                taken => return taken,
            }
        }
    }

    /// Creates the tables that slots need, as a transaction of its own. The client's may be open.
    async fn create_slot_tables(&mut self) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.state);
        self.begin_implicit();
        let steps = CREATE.map(str::to_owned);
        // Two that do so at one time would otherwise wait for each other.
        let ran = match self.become_writer(true).await {
            Ok(_) => self.run_internal(&steps, None).await,
            Err(error) => Err(error),
        };
        let ended = match ran {
            Ok(()) => self.end_implicit().await,
            Err(error) => {
                self.fail_statement().await;
                Err(error.into())
            }
        };
        self.state = open;
        ended
    }

    /// Changes the row of a slot, which is no part of the client's transaction.
    async fn write_slot(&self, db: &Database, sql: &str, params: Vec<Value>) -> Result<(), Failure> {
        let level = self.settings.level();
        let written = self.activity.until_durable(level, self.feeds.write(db, sql, params, level));
        let written = self.canceller.until_committed(written).await;
        Ok(written.unwrap_or_else(|| Err(terminated_in_commit()))?)
    }

    /// Whether the role has still what let it open this session.
    fn check_role(&self) -> SqlResult<()> {
        match self.roles().by_oid(self.identity.session_role) {
            Some(role) if role.superuser || role.replication => Ok(()),
            _ => Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to use replication slots")
                .with_hint("The role must be a superuser or have REPLICATION.")),
        }
    }

    pub(super) fn check_publisher(&self) -> SqlResult<()> {
        self.check_role()?;
        if self.standby {
            return Err(SqlError::unsupported("logical decoding on a standby").with_hint("Connect to the master."));
        }
        if self.served.db.dialect() != Dialect::Postgres {
            return Err(SqlError::unsupported("logical replication of a database with SQLite's dialect"));
        }
        Ok(())
    }

    /// Checks the options of START_REPLICATION; returns the names of publications.
    fn checked_options(&self, options: &[(String, String)]) -> SqlResult<Vec<String>> {
        self.check_publisher()?;
        let (mut version, mut publications) = (None, None);
        let wants = |value: &str| !matches!(value.to_ascii_lowercase().as_str(), "off" | "false" | "0" | "no");
        for (option, value) in options {
            match option.as_str() {
                "proto_version" => version = Some(value.parse::<u32>().map_err(|_| invalid("invalid proto_version"))?),
                "publication_names" => publications = Some(names(value)?),
                "streaming" | "two_phase" | "binary" | "messages" if !wants(value) => {}
                "streaming" => return Err(SqlError::unsupported("streaming of transactions in progress")),
                "two_phase" => return Err(SqlError::unsupported("two-phase decoding")),
                "binary" => return Err(SqlError::unsupported("binary replication")),
                // There are none.
                "messages" => {}
                other => return Err(invalid(&format!("unrecognized pgoutput option: {other}"))),
            }
        }
        match version {
            None => return Err(invalid("proto_version option missing")),
            Some(1..=3) => {}
            Some(other) => {
                let message = format!("client sent proto_version={other} but server only supports protocol 3 or lower");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
        let publications = publications.ok_or_else(|| invalid("publication_names option missing"))?;
        self.check_may_follow(&publications)?;
        Ok(publications)
    }

    /// Whether the role may read a feed of these publications, as roles and publications are now.
    fn check_may_follow(&self, publications: &[String]) -> SqlResult<()> {
        self.check_role()?;
        let (schema, roles) = (self.schema(), self.roles());
        let checker = self.checker(&roles, &schema);
        let acting = checker.acting(self.identity.current_role);
        for name in publications {
            let missing =
                || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("publication \"{name}\" does not exist"));
            let publication = schema.publications.by_name(name).ok_or_else(missing)?;
            if checker.on_publication(&acting, publication).is_empty() {
                let message = format!("permission denied for publication {name}");
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                    .with_hint(format!("Its owner can run: GRANT SELECT ON PUBLICATION {name} TO ...")));
            }
        }
        Ok(())
    }

    async fn start(
        &mut self,
        name: &str,
        asked: u64,
        publications: Vec<String>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let db = self.served.db.clone();
        let (feeds, of, owned, pid) = (self.feeds.clone(), db.clone(), name.to_owned(), self.identity.pid);
        let taken = move || {
            let (reader, slot) = feeds.take(&of, &owned, pid)?;
            feeds.check_readable(&of, &slot).map(|()| (reader, slot))
        };
        let (reader, slot) = super::blocking::blocking(taken).await?;
        let end = self.feeds.engine().trail().durable().0;
        if asked > end {
            let message = format!(
                "requested starting point {} is ahead of the trail, which ends at {}",
                lsn_text(asked),
                lsn_text(end)
            );
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_detail("The subscriber has changes that this server does not have.")
                .with_hint("Copy the tables again.")
                .into());
        }
        let (feeds, of) = (self.feeds.clone(), slot.clone());
        super::blocking::blocking(move || feeds.check_epoch(&of, asked)).await?;
        let entered = self.feeds.enter_epoch(&db, &slot, &reader);
        let behind = self.canceller.until_committed(entered).await.unwrap_or_else(|| Err(terminated_in_commit()))?;
        self.until_sendable(behind).await?;
        // A slot never moves back.
        let from = asked.max(slot.confirmed.lsn().0);
        let reading = read(self.feeds.clone(), db, publications.clone(), (from, slot.restart));
        let reading = reading.map_err(|e| SqlError::new(SqlState("58000"), format!("no thread for the feed: {e}")))?;
        let now = Instant::now();
        let mut sending = Sending { reader, reading, unconfirmed: VecDeque::new(), sent: from, heard: now, spoke: now };
        client.begin_copy_both().await.map_err(lost)?;
        tracing::info!(slot = name, from, "a subscriber follows");
        let ended = sending.run(client, || self.check_may_follow(&publications)).await;
        tracing::info!(slot = name, sent = sending.sent, "a subscriber no longer follows");
        match ended? {
            Ended::ByClient => {
                client.end_copy_both();
                // As PostgreSQL's walsender: the copy and the command each have their own.
                let reply = client.reply();
                reply.complete(0, &Tag { verb: "COPY", rows: Some(0) });
                reply.complete(0, &Tag { verb: "START_REPLICATION", rows: None });
                Ok(())
            }
            Ended::Failed(error) => Err(error.into()),
        }
    }
}

impl Sending {
    /// Sends and receives until one side ends it. `may_follow` is asked before each piece is sent: a REVOKE ends a feed.
    async fn run(&mut self, client: &mut Client, may_follow: impl Fn() -> SqlResult<()>) -> Result<Ended, Failure> {
        self.keepalive(client, false).await?;
        loop {
            let wait = KEEPALIVE_EVERY.saturating_sub(self.spoke.elapsed());
            let event = tokio::select! {
                biased;
                event = client.copy_both(Some(wait)) => event.map_err(lost)?,
                chunk = self.reading.chunks.recv() => {
                    match chunk {
                        Some(Chunk::Data { framed, reached }) => match may_follow() {
                            Ok(()) => self.send(client, &framed, reached).await?,
                            Err(error) => return Ok(Ended::Failed(error)),
                        },
                        Some(Chunk::Failed(error)) => return Ok(Ended::Failed(error)),
                        None => return Ok(Ended::Failed(SqlError::internal("the feed's thread has ended"))),
                    }
                    continue;
                }
            };
            match event {
                CopyBoth::Data(bytes) => {
                    let malformed = |why: String| fatal(SqlError::new(SqlState::PROTOCOL_VIOLATION, why));
                    if let Some(status) = link::status(&bytes).map_err(malformed)? {
                        self.confirmed(&status)?;
                        if status.wants_answer {
                            self.keepalive(client, false).await?;
                        }
                    }
                }
                CopyBoth::Done => return Ok(Ended::ByClient),
                CopyBoth::Failed(why) => {
                    return Ok(Ended::Failed(SqlError::new(SqlState::QUERY_CANCELED, why)));
                }
                CopyBoth::Terminate => return Err(lost(Lost)),
                CopyBoth::Ending => return Err(fatal(Termination::error())),
                CopyBoth::TimedOut if self.heard.elapsed() > SILENCE_MAX => {
                    let message = "terminating walsender process due to replication timeout";
                    return Err(fatal(SqlError::new(SqlState("08006"), message)));
                }
                CopyBoth::TimedOut => self.keepalive(client, true).await?,
            }
        }
    }

    async fn send(
        &mut self,
        client: &mut Client,
        framed: &[u8],
        reached: Vec<crate::feeds::Reached>,
    ) -> Result<(), Failure> {
        self.spoke = Instant::now();
        if let Some(last) = reached.last() {
            self.sent = last.lsn;
        }
        self.unconfirmed.extend(reached);
        if framed.is_empty() {
            // Nothing of it is published; the subscriber learns how far the trail is.
            return self.keepalive(client, false).await;
        }
        client.send_copy_data(framed).await.map_err(lost)?;
        let sent = self.sent;
        self.reader.show(|of| of.sent = sent);
        Ok(())
    }

    async fn keepalive(&mut self, client: &mut Client, wants_answer: bool) -> Result<(), Failure> {
        self.spoke = Instant::now();
        let mut framed = Vec::new();
        copy_data(&mut framed, |out| link::keepalive(out, self.sent, now_us(), wants_answer));
        client.send_copy_data(&framed).await.map_err(lost)?;
        let sent = self.sent;
        self.reader.show(|of| of.sent = sent);
        Ok(())
    }

    /// The subscriber says what it has.
    fn confirmed(&mut self, status: &link::Status) -> Result<(), Failure> {
        self.heard = Instant::now();
        if status.flushed > self.sent {
            let message = format!(
                "the subscriber confirms {}, but was sent nothing behind {}",
                lsn_text(status.flushed),
                lsn_text(self.sent)
            );
            return Err(fatal(SqlError::new(SqlState::PROTOCOL_VIOLATION, message)));
        }
        let mut last = None;
        while let Some(reached) = self.unconfirmed.pop_front_if(|reached| reached.lsn <= status.flushed) {
            last = Some(reached);
        }
        if let Some(reached) = last {
            self.reader.confirm(reached.end, reached.restart);
        }
        self.reader.show(|of| (of.status, of.answered_us) = (*status, now_us()));
        Ok(())
    }
}

/// The names in `publication_names`: identifiers, between commas.
fn names(list: &str) -> SqlResult<Vec<String>> {
    let bad = || invalid("invalid publication_names syntax");
    let (mut names, mut rest) = (Vec::new(), list.trim());
    loop {
        let name;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut after = quoted;
            loop {
                let end = after.find('"').ok_or_else(bad)?;
                text.push_str(&after[..end]);
                after = &after[end + 1..];
                match after.strip_prefix('"') {
                    Some(more) => {
                        text.push('"');
                        after = more;
                    }
                    None => break,
                }
            }
            (name, rest) = (text, after.trim_start());
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (name, rest) = (rest[..end].trim().to_lowercase(), &rest[end..]);
        }
        if name.is_empty() {
            return Err(bad());
        }
        names.push(name);
        if rest.is_empty() {
            return Ok(names);
        }
        rest = rest.strip_prefix(',').ok_or_else(bad)?.trim_start();
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn answer(client: &mut Client, columns: &[(&str, u32)], row: Vec<Value>, verb: &'static str) -> SqlResult<()> {
    let columns = columns.iter().map(|(name, ty)| ColumnDesc::new(*name, *ty)).collect();
    let desc = Arc::new(StatementDesc { columns, ..StatementDesc::default() });
    super::command::answer(client, 0, &desc, [row], verb)
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn in_transaction(command: &str) -> SqlError {
    let message = format!("{command} cannot run inside a transaction block");
    SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message)
}

fn lost(_: Lost) -> Failure {
    let message = "the connection to the subscriber was lost";
    fatal(SqlError::new(SqlState::CONNECTION_DOES_NOT_EXIST, message))
}
