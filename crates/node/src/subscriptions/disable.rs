//! Disables a subscription whose changes cannot be applied, as ALTER SUBSCRIPTION ... DISABLE does.
//!
//! Failure: it stays enabled, and its worker tries again.

use holdfast_engine::{Collect, Database, Report, Step, WriteOptions};
use holdfast_store::schema_read::FIRST_OID;
use holdfast_store::subscriptions::steps;
use holdfast_types::{Level, SqlError, SqlResult};

/// How often it is tried again because the schema has changed meanwhile.
const TRIES_MAX: usize = 10;

/// Disables the subscription of this number, if it is there.
pub async fn disable(db: &Database, number: u32, level: Level) -> SqlResult<()> {
    let mut tries = 1;
    loop {
        match try_to(db, number, level).await {
            Err(error) if error.is_schema_changed() && tries < TRIES_MAX => tries += 1,
            done => return done,
        }
    }
}

async fn try_to(db: &Database, number: u32, level: Level) -> SqlResult<()> {
    let mut txn = db.begin_write(WriteOptions { level, ..WriteOptions::default() }).await?;
    let schema = txn.schema();
    let mut after = (*schema.subscriptions).clone();
    after.list.iter_mut().filter(|s| s.number == number).for_each(|s| s.options.enabled = false);
    let mut epoch = Some(schema.epoch);
    for sql in steps(&schema.subscriptions, &after, |oid| oid - FIRST_OID) {
        let report = Report { epoch: epoch.take(), ddl: true, internal: true, ..Report::default() };
        let stmt = txn.prepare(&sql, report).await?;
        txn.execute(Step { stmt, params: Vec::new() }, Box::new(Collect::new())).await?.result?;
    }
    txn.commit(Box::new(Collect::new()))?.await.ok_or_else(SqlError::shutting_down)?.result
}
