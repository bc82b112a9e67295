//! Subscriptions: this server's databases as subscribers of publications elsewhere.
//!
//! The schema says what each database subscribes to; this keeps a worker for each subscription that is enabled, on a thread of its
//! own, and ends it when the subscription changes. A worker speaks PostgreSQL's replication protocol as a client, so its publisher is a
//! Holdfast or a PostgreSQL. Only a master has workers; a standby that is promoted continues where the positions in its databases are.
//!
//! Failure: a worker that fails tries again ([`worker`]); nothing here ends the server.

mod apply;
mod copy;
mod disable;
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
use publisher::CopySlots;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use worker::Worker;

/// How often the schemas are looked at; a statement about subscriptions has it done at once.
const TURN_EVERY: Duration = Duration::from_millis(250);

/// A database and the number of a subscription in it.
type Key = (VolumeId, u32);

/// See the module.
pub struct Subscriptions {
    engine: Engine,
    level: Level,
    changed: Notify,
    /// Those that have no worker while something is done to them.
    held: Mutex<BTreeSet<Key>>,
    /// Those that have one.
    running: watch::Sender<BTreeSet<Key>>,
    progress: Mutex<BTreeMap<Key, Arc<Progress>>>,
}

/// A subscription without a worker, see [`Subscriptions::hold`].
pub struct Held {
    subscriptions: Arc<Subscriptions>,
    key: Key,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.subscriptions.held.lock().remove(&self.key);
        self.subscriptions.changed();
    }
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
        let (held, running) = (Mutex::default(), watch::Sender::default());
        Arc::new(Subscriptions { engine, level, changed: Notify::new(), held, running, progress: Mutex::default() })
    }

    /// Ends the worker of a subscription, and lets it have none while the result is kept.
    pub async fn hold(self: &Arc<Subscriptions>, volume: VolumeId, number: u32) -> Held {
        let key = (volume, number);
        self.held.lock().insert(key);
        let held = Held { subscriptions: self.clone(), key };
        self.changed();
        // An error would mean that there are no workers any more.
        drop(self.running.subscribe().wait_for(|running| !running.contains(&key)).await);
        held
    }

    /// The names of the slots of a subscription's copies.
    pub fn copy_slots(&self, db: &Database, number: u32) -> CopySlots {
        worker::copy_slots(&self.system(), db, number)
    }

    /// Part of the names of this server's slots at publishers.
    fn system(&self) -> String {
        let id = self.engine.trail().trail_id().0;
        id.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The subscriptions of a database have changed.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// The figures of a subscription, while it has a worker.
    pub fn figures(&self, volume: VolumeId, number: u32) -> Option<Figures> {
        self.progress.lock().get(&(volume, number)).map(|progress| progress.figures())
    }

    /// What there is to do, by database and number. From then on it counts as running, as `running` does.
    fn wanted(&self, running: &BTreeMap<Key, Running>) -> BTreeMap<Key, (Database, Subscription)> {
        let mut wanted = BTreeMap::new();
        // Locked to the end: what is held later finds here that it runs.
        let held = self.held.lock();
        for db in self.engine.opened() {
            let schema = db.schema();
            let is_wanted =
                |s: &&Subscription| s.options.enabled && s.slot.is_some() && !held.contains(&(db.volume(), s.number));
            for subscription in schema.subscriptions.list.iter().filter(is_wanted) {
                wanted.insert((db.volume(), subscription.number), (db.clone(), subscription.clone()));
            }
        }
        self.running.send_replace(running.keys().chain(wanted.keys()).copied().collect());
        wanted
    }

    /// The figures of a subscription that is disabled stay.
    fn forget_dropped(&self) {
        let opened = self.engine.opened();
        let is_there = |(volume, number): &Key| {
            let db = opened.iter().find(|db| db.volume() == *volume);
            db.is_some_and(|db| db.schema().subscriptions.list.iter().any(|s| s.number == *number))
        };
        self.progress.lock().retain(|key, _| is_there(key));
    }

    fn begin(&self, key: Key, db: Database, subscription: Subscription) -> std::io::Result<Running> {
        let progress = self.progress.lock().entry(key).or_default().clone();
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let (level, system) = (self.level, self.system());
        let worker = Worker { db, subscription: subscription.clone(), level, system, progress, stop: stopped };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("subscription".to_owned()).spawn(move || {
            runtime.block_on(worker.run());
            // Nothing waits for it when the server ends.
            let _ = end.send(());
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
        let mut wanted = subscriptions.wanted(&running);
        subscriptions.forget_dropped();
        let is_over = |(key, one): (&Key, &Running)| {
            wanted.get(key).is_none_or(|(_, subscription)| *subscription != one.subscription).then_some(*key)
        };
        let over: Vec<Key> = running.iter().filter_map(is_over).collect();
        for key in over {
            end(running.remove(&key)).await;
        }
        wanted.retain(|key, _| !running.contains_key(key));
        subscriptions.running.send_replace(running.keys().chain(wanted.keys()).copied().collect());
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
    subscriptions.running.send_replace(BTreeSet::new());
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
