//! Applies the trail's batches to one volume: after a crash, and continuously on a standby.
//!
//! Whole batches in order, each exactly once, many to one store transaction; a batch at or below the volume's number
//! is skipped. What [`Redo::commit`] publishes is not durable for readers before the caller confirms it.
//!
//! Failure: a batch that does not follow the one before, and rows that differ from what the trail requires, are
//! refused. The open store transaction is then dropped, so that nothing incomplete is ever published.

use crate::state::error::OpenError;
use crate::state::fragments::is_dead;
use holdfast_store::apply::{Applier, ApplyError};
use holdfast_store::position::PositionWriter;
use holdfast_store::schema_map::{TableMap, read_map};
use holdfast_store::sqlite::Conn;
use holdfast_store::volume::Volume;
use holdfast_types::record::{Batch, Op, Ops, Transaction};
use holdfast_types::{Epoch, Lsn, TxnId};
use std::sync::Arc;

/// The redo of one volume.
pub struct Redo {
    name: String,
    volume: Arc<Volume>,
    /// The users of the volume's connection; renewed after a schema change.
    on: Connection,
    /// Last batch applied or found in the file.
    number: u64,
    epoch: Epoch,
    open_transaction: bool,
    /// Batches since the last store commit.
    pending: u32,
}

struct Connection {
    conn: Conn,
    applier: Applier,
    writer: PositionWriter,
    /// The schema of the last commit.
    map: Arc<TableMap>,
}

/// The outcome of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The volume had it already.
    Skipped,
    /// Applied, with this many bytes of operations.
    Applied { bytes: u64 },
}

impl Connection {
    fn open(volume: &Volume, name: &str) -> Result<Connection, OpenError> {
        let mut conn = volume.open_redo()?;
        let sqlite = |source| OpenError::Sqlite { name: name.to_owned(), source };
        let schema = |source| OpenError::Schema { name: name.to_owned(), source };
        let map = Arc::new(read_map(&mut conn).map_err(schema)?);
        let applier = Applier::begin(&mut conn, map.clone()).map_err(sqlite)?;
        let writer = PositionWriter::prepare(&mut conn).map_err(sqlite)?;
        Ok(Connection { conn, applier, writer, map })
    }
}

impl Redo {
    /// Begins on a volume whose store is at batch `number`.
    pub fn begin(volume: Arc<Volume>, name: &str, number: u64, epoch: Epoch) -> Result<Redo, OpenError> {
        let mut on = Connection::open(&volume, name)?;
        on.applier.put_fragments(volume.fragments());
        Ok(Redo { name: name.to_owned(), volume, on, number, epoch, open_transaction: false, pending: 0 })
    }

    /// Last batch applied or found in the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Batches since the last commit.
    pub fn pending(&self) -> u32 {
        self.pending
    }

    pub fn refuse(&self, message: String) -> OpenError {
        OpenError::Redo { name: self.name.clone(), message }
    }

    /// Keeps a fragment until its transaction arrives.
    pub fn fragment(&mut self, txn: TxnId, ops: Ops<'_>) -> Result<(), OpenError> {
        let added = self.on.applier.add_fragment(txn, ops.bytes());
        added.map_err(|e| self.refuse(e.to_string()))
    }

    /// Drops fragments of masters that are gone in epoch `now`.
    pub fn drop_dead_fragments(&mut self, now: Epoch) {
        self.on.applier.retain_fragments(|txn| !is_dead(txn, now));
    }

    pub fn drop_fragments(&mut self, txn: TxnId) {
        self.on.applier.drop_fragments(txn);
    }

    /// The batch of this volume at `lsn`.
    pub fn batch(&mut self, lsn: Lsn, batch: &Batch<'_>) -> Result<Done, OpenError> {
        if batch.number <= self.number {
            return self.skip(lsn, batch);
        }
        if batch.number != self.number + 1 {
            return Err(self.refuse(format!(
                "the trail continues with change {} at LSN {lsn}, but the last one applied is {}",
                batch.number, self.number
            )));
        }
        if !self.open_transaction {
            self.exec("begin immediate")?;
            self.open_transaction = true;
        }
        let mut bytes = 0;
        for transaction in batch.transactions() {
            let transaction = transaction.map_err(|source| OpenError::Record { lsn, source })?;
            bytes += transaction.ops.bytes().len() as u64;
            let applied = self.on.applier.apply(&mut self.on.conn, transaction.ops);
            applied.map_err(|e: ApplyError| self.refuse(format!("change {} at LSN {lsn}: {e}", batch.number)))?;
        }
        self.number = batch.number;
        self.pending += 1;
        Ok(Done::Applied { bytes })
    }

    /// The file has this batch; the fragments that it refers to are not needed.
    fn skip(&mut self, lsn: Lsn, batch: &Batch<'_>) -> Result<Done, OpenError> {
        for txn in fragments_of(lsn, batch) {
            self.drop_fragments(txn?);
        }
        Ok(Done::Skipped)
    }

    /// Lets SQLite keep this much in its own cache, apart from the page store.
    pub fn set_cache(&mut self, kib: u32) -> Result<(), OpenError> {
        self.exec(&format!("pragma cache_size=-{kib}"))
    }

    fn exec(&mut self, sql: &str) -> Result<(), OpenError> {
        let name = &self.name;
        self.on.conn.exec(sql).map_err(|source| OpenError::Sqlite { name: name.clone(), source })
    }

    /// The tables after the last batch, if a batch since the last commit has changed the schema.
    pub fn changed_map(&self) -> Option<&Arc<TableMap>> {
        let map = self.on.applier.map();
        if Arc::ptr_eq(map, &self.on.map) { None } else { Some(map) }
    }

    /// Publishes what was applied. Returns the number of the last batch in it; `None` if there was nothing.
    pub fn commit(&mut self) -> Result<Option<u64>, OpenError> {
        if !self.open_transaction {
            return Ok(None);
        }
        let name = &self.name;
        self.on
            .writer
            .write(&mut self.on.conn, self.number, self.epoch)
            .map_err(|source| OpenError::Sqlite { name: name.clone(), source })?;
        self.volume.store().set_next(self.number);
        self.exec("commit")?;
        (self.open_transaction, self.pending) = (false, 0);
        Ok(Some(self.number))
    }

    /// After a commit that changed the schema: continues on a new connection, as one that has opened a virtual table must
    /// not get images of its shadow tables (RULE 19).
    pub fn renew(self) -> Result<Redo, OpenError> {
        let Redo { name, volume, on, number, epoch, .. } = self;
        let Connection { conn, mut applier, .. } = on;
        let fragments = applier.take_fragments();
        drop((applier, conn));
        let mut redo = Redo::begin(volume, &name, number, epoch)?;
        redo.on.applier.put_fragments(fragments);
        Ok(redo)
    }

    /// Ends the redo. Shadow tables were written as plain tables: the connection must not be used for anything else
    /// (RULE 19).
    pub fn end(self) -> Arc<Volume> {
        let Redo { volume, on, .. } = self;
        drop(on);
        volume
    }
}

/// The transactions whose fragments this batch uses.
pub fn fragments_of<'a>(lsn: Lsn, batch: &Batch<'a>) -> impl Iterator<Item = Result<TxnId, OpenError>> + use<'a> {
    let error = move |source| OpenError::Record { lsn, source };
    let of = move |transaction: Transaction<'a>| {
        transaction.ops.filter_map(move |op| match op {
            Ok(Op::Fragments { txn, .. }) => Some(Ok(txn)),
            Ok(_) => None,
            Err(source) => Some(Err(error(source))),
        })
    };
    batch.transactions().flat_map(move |transaction| {
        let (ops, failed) = match transaction {
            Ok(transaction) => (Some(of(transaction)), None),
            Err(source) => (None, Some(Err(error(source)))),
        };
        ops.into_iter().flatten().chain(failed)
    })
}
