//! Subscriptions: this server's databases as subscribers of publications elsewhere.
//!
//! The schema says what each database subscribes to; this keeps a worker for each subscription that is enabled, on a thread of its
//! own, and ends it when the subscription changes. A worker speaks PostgreSQL's replication protocol as a client, so its publisher is a
//! Holdfast or a PostgreSQL. Only a master has workers; a standby that is promoted continues where the positions in its databases are.
//!
//! Failure: a worker that fails tries again ([`worker`]); nothing here ends the server.

mod apply;
mod copy;
mod incoming;
mod positions;
mod progress;
pub mod publisher;
mod target;
mod worker;

pub use progress::Figures;

use holdfast_engine::{Database, Engine};
use holdfast_types::subscription::Subscription;
use holdfast_types::{Level, VolumeId};
use parking_lot::Mutex;
use progress::Progress;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use worker::Worker;

/// How often the schemas are looked at; a statement about subscriptions has it done at once.
const TURN_EVERY: Duration = Duration::from_secs(1);

type Key = (VolumeId, u32);

/// See the module.
pub struct Subscriptions {
    engine: Engine,
    level: Level,
    changed: Notify,
    progress: Mutex<BTreeMap<Key, Arc<Progress>>>,
}

/// A worker's thread.
struct Running {
    subscription: Subscription,
    stop: watch::Sender<bool>,
    /// Sent when it has ended.
    ended: oneshot::Receiver<()>,
}

impl Subscriptions {
    /// `level`: what its commits wait for.
    pub fn new(engine: Engine, level: Level) -> Arc<Subscriptions> {
        Arc::new(Subscriptions { engine, level, changed: Notify::new(), progress: Mutex::default() })
    }

    /// The subscriptions of a database have changed.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// The figures of a subscription, while it has a worker.
    pub fn figures(&self, volume: VolumeId, number: u32) -> Option<Figures> {
        self.progress.lock().get(&(volume, number)).map(|progress| progress.figures())
    }

    /// What there is to do, by database and number.
    fn wanted(&self) -> BTreeMap<Key, (Database, Subscription)> {
        let mut wanted = BTreeMap::new();
        for db in self.engine.opened() {
            let schema = db.schema();
            for subscription in schema.subscriptions.list.iter().filter(|s| s.options.enabled && s.slot.is_some()) {
                wanted.insert((db.volume(), subscription.number), (db.clone(), subscription.clone()));
            }
        }
        wanted
    }

    fn begin(&self, key: Key, db: Database, subscription: Subscription) -> std::io::Result<Running> {
        let progress = self.progress.lock().entry(key).or_default().clone();
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let worker = Worker { db, subscription: subscription.clone(), level: self.level, progress, stop: stopped };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("subscription".to_owned()).spawn(move || {
            // What made it give up was logged.
            drop(runtime.block_on(worker.run()));
            // Nothing waits for it when the server ends.
            drop(end.send(()));
        })?;
        Ok(Running { subscription, stop, ended })
    }
}

/// Keeps the workers until `stop`.
pub async fn keep(subscriptions: Arc<Subscriptions>, mut stop: watch::Receiver<bool>) {
    let engine = subscriptions.engine.clone();
    // Subscriptions are in the databases, which are opened when they are first used: now.
    let opened = tokio::task::spawn_blocking(move || open_all(&engine)).await;
    opened.unwrap_or_else(|error| tracing::warn!("the subscriptions were not looked for: {error}"));
    let mut running: BTreeMap<Key, Running> = BTreeMap::new();
    loop {
        let mut wanted = subscriptions.wanted();
        let is_over = |(key, one): (&Key, &Running)| {
            wanted.get(key).is_none_or(|(_, subscription)| *subscription != one.subscription).then_some(*key)
        };
        let over: Vec<Key> = running.iter().filter_map(is_over).collect();
        for key in over {
            end(running.remove(&key)).await;
            if !wanted.contains_key(&key) {
                subscriptions.progress.lock().remove(&key);
            }
        }
        wanted.retain(|key, _| !running.contains_key(key));
        for (key, (db, subscription)) in wanted {
            match subscriptions.begin(key, db, subscription) {
                Ok(one) => _ = running.insert(key, one),
                Err(error) => tracing::warn!("a subscription cannot begin: {error}"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(TURN_EVERY) => {}
            () = subscriptions.changed.notified() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    for (_, one) in running {
        end(Some(one)).await;
    }
}

fn open_all(engine: &Engine) {
    for database in engine.databases() {
        if let Err(error) = engine.database(&database.name) {
            tracing::warn!("database {} cannot be opened to look for subscriptions: {error}", database.name);
        }
    }
}

async fn end(running: Option<Running>) {
    let Some(running) = running else { return };
    running.stop.send_replace(true);
    // An error means that its thread is gone.
    drop(running.ended.await);
}
