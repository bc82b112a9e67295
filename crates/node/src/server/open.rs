//! Opens a data directory in its role: the engine, the mirror, the links, the archive, what sessions need.

use super::context::ServerContext;
use super::master_tasks::{set_delay, spawn_master_tasks};
use super::{ActiveRole, NodeError, open_archive};
use crate::activity::{Activities, EngineSlot, FeedsSlot, SubscriptionsSlot, Watcher};
use crate::admission::{Admission, HBA_FILE, IDENT_FILE, share_rules, take_rules};
use crate::automatic_stats::AutomaticStats;
use crate::backup::{self, Backups};
use crate::config::Config;
use crate::connect;
use crate::database::Databases;
use crate::feeds::{self, Feeds};
use crate::replication_settings::{link_options, mirror_settings};
use crate::session::{Factory, Scratch};
use crate::settings::Settings;
use crate::subscriptions::{self, Subscriptions};
use holdfast_archive::{History, Store, TimedStore};
use holdfast_engine::{Engine, scratch_dir};
use holdfast_mirror::Mirror;
use holdfast_replication::{
    Acknowledged, ArchiveSource, Archiver, Control, ControlSetupError, Following, IdentityFile, InSync, KeptCopies,
    Masterships, NodeService, Notify, OldMaster, OldMasterWatch, Promoting, Promotion, Replaced, ReplicationStatus,
    RoleEvent, StandbyFile, TrailComparison, follow_master, follow_record, notify_standby_dropped, promote_when_named,
};
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::{Governor, Hub, SyncSet, draw_instance};
use holdfast_trail::Closed;
use holdfast_types::Epoch;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// How the directory is opened.
pub(super) struct Opening<'a> {
    pub context: &'a ServerContext,
    /// The runtime of links.
    pub links: &'a Handle,
    pub promotion: Option<&'a Promotion>,
    /// Where the role before this one has closed the trail.
    pub closed: Option<Closed>,
    /// What the control plane has agreed on, where this server is to be the master.
    pub epoch: Option<Epoch>,
    /// Where events go that end the role.
    pub events: mpsc::UnboundedSender<RoleEvent>,
}

/// What sessions and views see of the server.
struct Views {
    admission: Arc<Admission>,
    backups: Arc<Backups>,
    stats: Arc<AutomaticStats>,
    activities: Arc<Activities>,
    slot: EngineSlot,
    feeds: FeedsSlot,
    subscriptions: SubscriptionsSlot,
    status: Arc<ReplicationStatus>,
}

/// The parts of a server's links.
struct Links {
    hub: Arc<Hub>,
    following: Option<Arc<Following>>,
    archiver: Option<Arc<Archiver>>,
    in_sync: Arc<InSync>,
    notify: Notify,
    copies: Arc<KeptCopies>,
    service: Arc<NodeService>,
}

impl Opening<'_> {
    /// Opens the directory. A promotion has removed `standby.toml` when this returns.
    pub fn open(self) -> Result<ActiveRole, NodeError> {
        let ServerContext { dir, config, name, control, listener, .. } = self.context;
        let file = StandbyFile::read(dir)?;
        let standby = file.filter(|_| self.promotion.is_none());
        let is_master = standby.is_none();
        holdfast_mirror::check(dir, config.has_mirror().then_some(&*config.mirror), is_master)?;
        let views = Views {
            admission: self.context.admission.clone(),
            backups: self.context.backups.clone(),
            stats: Arc::default(),
            activities: Arc::default(),
            slot: EngineSlot::default(),
            feeds: FeedsSlot::default(),
            subscriptions: SubscriptionsSlot::default(),
            status: Arc::default(),
        };
        let engine = self.open_engine(!is_master, views.watcher())?;
        if is_master && let Err(error) = take_rules(&engine, &self.context.admission) {
            tracing::error!("the rules of access in the trail cannot be used, those of this node stay: {error}");
        }
        if let (Some(control), Some(epoch)) = (control, self.epoch) {
            // Its readers see all of its trail from now on. Standbys that have all of it are added to the set again at once.
            self.links.block_on(control.shrink_to_this(epoch)).map_err(ControlSetupError::from)?;
        }
        if is_master && control.is_some() {
            Acknowledged::begin(&engine, dir)?;
        }
        *views.slot.write() = Some(engine.clone());
        let notify = Notify::new(config.notify_command.clone());
        let mirror = holdfast_mirror::keep(name, dir, &engine, mirror_settings(config), is_master, &notify)?;
        let links = self.connect_links(&engine, standby, notify, &views.status)?;
        let Links { hub, following, archiver, .. } = &links;
        views.status.set(name, &engine, hub, following.clone(), control.clone(), archiver.clone());
        mirror.iter().for_each(|mirror| views.status.set_mirror(mirror.status()));
        let compared = TrailComparison {
            engine: engine.clone(),
            following: following.clone(),
            hub: Arc::downgrade(hub),
            name: name.clone(),
        };
        control.iter().for_each(|control| control.set_trail(&compared));
        if let (Some(control), Some(epoch)) = (control, self.epoch) {
            let positions = self.links.block_on(control.tell_positions(epoch));
            positions.inspect_err(|_| control.clear_trail()).map_err(ControlSetupError::from)?;
        }
        let (hub, copies) = (hub.clone(), links.copies.clone());
        let archive = links.service.archive.clone().map(|source| feeds::Archive::new(source, self.links.clone()));
        let (stop, stopping) = watch::channel(false);
        let old_master =
            (is_master && control.is_none()).then(|| self.watch_old_master(&engine, &links, &views.status));
        let mut tasks = self.spawn_tasks(&engine, links, mirror.as_ref(), stopping.clone());
        let sharing = share_rules(engine.clone(), self.context.admission.clone(), !is_master, stopping.clone());
        tasks.push(self.links.spawn(sharing));
        let stopping_feeds = stopping.clone();
        tasks.extend(old_master.flatten().map(|watch| self.links.spawn(watch.run(stopping))));
        listener.set_hub(Some(hub.clone()));
        let waits_for_standbys = control.is_some() || config.names_standbys();
        let feeds = Feeds::new(engine.clone(), hub.clone(), waits_for_standbys, archive);
        *views.feeds.write() = Some(feeds.clone());
        tasks.push(self.links.spawn(feeds::keep(feeds.clone(), stopping_feeds)));
        let subscriptions = Subscriptions::new(engine.clone(), Settings::new(&config.parameters()).level());
        *views.subscriptions.write() = Some(subscriptions.clone());
        let following = is_master.then(|| {
            let (stop, stopping) = watch::channel(false);
            (stop, self.links.spawn(subscriptions::keep(subscriptions.clone(), stopping)))
        });
        let factory = views.factory(self.context, &engine, feeds, subscriptions, !is_master);
        let (control, listener, workers) = (control.clone(), listener.clone(), workers(config));
        self.context.standing.opened(views.watcher(), control.clone());
        let Views { slot, status, .. } = views;
        Ok(ActiveRole {
            engine,
            hub,
            listener,
            factory,
            slot,
            status,
            workers,
            control,
            mirror,
            copies,
            stop,
            tasks,
            subscriptions: following,
        })
    }

    fn connect_links(
        &self,
        engine: &Engine,
        standby: Option<StandbyFile>,
        notify: Notify,
        status: &Arc<ReplicationStatus>,
    ) -> Result<Links, NodeError> {
        let ServerContext { dir, config, name, control, certificates, .. } = self.context;
        let identity_file = identity_file(self.context, standby.as_ref());
        let masterships = self.masterships(standby.is_none())?;
        let following = standby.map(|file| {
            let (notify, certificates) = (notify.clone(), certificates.clone());
            let control = control.clone();
            let agreed_epoch = Arc::new(move || control.as_ref().map_or(Epoch(0), |control| control.epoch()));
            let followed = self.context.followed.clone();
            let following =
                Following::new(engine.clone(), masterships.clone(), file, notify, certificates, agreed_epoch, followed);
            // A moment of the past has no master.
            following.pause(config.restored.is_some());
            following
        });
        let in_sync = Arc::new(InSync::default());
        let copies = Arc::<KeptCopies>::default();
        let store = open_archive(config, name, engine, self.links)?;
        let service = NodeService {
            name: name.clone(),
            engine: engine.clone(),
            status: status.clone(),
            events: self.events.clone(),
            notify: notify.clone(),
            following: following.clone(),
            control: control.clone(),
            in_sync: in_sync.clone(),
            archive: store.as_ref().map(|store| archive_source(store, engine)),
            dir: dir.clone(),
            masterships,
            identity_file,
            copies: copies.clone(),
            begin_dump: holdfast_dump::begin_dump,
            promoting: Promoting::default(),
        };
        let service = Arc::new(service);
        service.keep_identity();
        let governor = GovernorOptions { lag_bytes_max: config.standby_lag_bytes_max, ..GovernorOptions::default() };
        let sync_set = sync_set(config, control.as_deref())?;
        let hub = Hub::new(service.clone(), link_options(config), sync_set, Governor::new(governor));
        following.iter().for_each(|following| following.set_hub(&hub));
        let keep_bytes_max = config.archive_keep_bytes_max;
        let timeout = Duration::from_millis(config.archive_timeout_ms);
        let archiver = store.map(|store| Archiver::new(engine.clone(), store, notify.clone(), keep_bytes_max, timeout));
        Ok(Links { hub, following, archiver, in_sync, notify, copies, service })
    }

    /// The masterships of the directory's history, with the one that begins now.
    fn masterships(&self, is_master: bool) -> io::Result<Arc<Masterships>> {
        let ServerContext { dir, config, name, .. } = self.context;
        let masterships = Masterships::read(dir)?;
        if is_master {
            let accepted = match self.promotion {
                Some(promotion) => promotion.accepted_loss.is_some(),
                None => config.accept_divergence,
            };
            masterships.begin(name, draw_instance(), accepted)?;
        }
        Ok(Arc::new(masterships))
    }

    /// Starts the tasks of the role; they end when `stopping` becomes true.
    fn spawn_tasks(
        &self,
        engine: &Engine,
        links: Links,
        mirror: Option<&Mirror>,
        stopping: watch::Receiver<bool>,
    ) -> Vec<JoinHandle<()>> {
        let Links { hub, following, archiver, in_sync, notify, service, .. } = links;
        let backing_up = self.spawn_backups(engine, &notify, &stopping);
        let archiving = archiver.map(|archiver| self.links.spawn(archiver.run(stopping.clone())));
        let mut tasks = match following {
            Some(following) => {
                let options = link_options(&self.context.config);
                let record = self.context.control.clone();
                let record = record.map(|control| follow_record(control, following.clone(), stopping.clone()));
                let named = promote_when_named(service, stopping.clone());
                let task = follow_master(following, options, draw_instance(), stopping, self.events.clone());
                let mut tasks = vec![self.links.spawn(task), self.links.spawn(named)];
                tasks.extend(record.map(|task| self.links.spawn(task)));
                tasks
            }
            None => {
                set_delay(engine, &hub, mirror);
                spawn_master_tasks(self, engine, &hub, in_sync, notify, &stopping)
            }
        };
        tasks.extend(archiving);
        tasks.extend(backing_up);
        tasks
    }

    /// Starts the schedule of dumps and drills, if there is one.
    fn spawn_backups(
        &self,
        engine: &Engine,
        notify: &Notify,
        stopping: &watch::Receiver<bool>,
    ) -> Option<JoinHandle<()>> {
        let (backups, standing) = (self.context.backups.clone(), self.context.standing.clone());
        let role = backup::Role {
            engine: engine.clone(),
            notify: notify.clone(),
            stopping: stopping.clone(),
            serves: Box::new(move || standing.serves()),
        };
        backups.is_on().then(|| self.links.spawn_blocking(move || backups.run(&role)))
    }

    /// The watch of the master that this one replaced by a promotion without a control plane, if it did.
    fn watch_old_master(
        &self,
        engine: &Engine,
        links: &Links,
        status: &Arc<ReplicationStatus>,
    ) -> Option<OldMasterWatch> {
        let ServerContext { dir, config, name, certificates, .. } = self.context;
        let replaced = Replaced::read(dir)?;
        let known = Arc::<OldMaster>::default();
        status.set_old_master(known.clone());
        Some(OldMasterWatch {
            dir: dir.clone(),
            replaced,
            name: name.clone(),
            engine: engine.clone(),
            masterships: links.service.masterships.clone(),
            certificates: certificates.clone(),
            options: link_options(config),
            notify: links.notify.clone(),
            known,
        })
    }

    /// Opens the engine. A promotion has removed `standby.toml` when this returns.
    fn open_engine(&self, standby: bool, watcher: Watcher) -> Result<Engine, NodeError> {
        let ServerContext { dir, config, control, .. } = self.context;
        let mut options = config.options();
        options.connect = Some(connect::hook(watcher));
        (options.standby, options.closed) = (standby, self.closed);
        if let Some(restored) = &config.restored {
            (options.disk, options.restoring) = (restored.0.clone(), true);
        }
        let notify = Notify::new(config.notify_command.clone());
        options.on_given_up = notify_standby_dropped(notify, config.standby_keep_bytes_max);
        // The engine's epoch is one higher than this, or than the last one.
        let lowest = Epoch(u32::from(self.promotion.is_some()));
        options.epoch_min = self.epoch.map_or(lowest, |epoch| Epoch(epoch.0 - 1));
        let engine = Engine::open(dir, options)?;
        if let Some(ignored) = config.segment_bytes_ignored(dir, engine.trail().segment_bytes()) {
            tracing::warn!("{ignored}");
        }
        if let Some(control) = control.as_ref().filter(|_| self.epoch.is_some()) {
            control.bind(&engine);
        }
        if let Some(promotion) = self.promotion {
            promotion.replaced.iter().for_each(|replaced| replaced.write(dir));
            StandbyFile::remove(dir)?;
        }
        let recovered = engine.recovered();
        tracing::info!(dir = %dir.display(), end = %recovered.end, cut = recovered.cut.is_some(), standby, "data directory opened");
        Ok(engine)
    }
}

impl Views {
    fn watcher(&self) -> Watcher {
        Watcher {
            activities: self.activities.clone(),
            engine: self.slot.clone(),
            feeds: self.feeds.clone(),
            subscriptions: self.subscriptions.clone(),
            automatic: self.stats.clone(),
            replication: self.status.clone(),
            admission: self.admission.clone(),
            backups: self.backups.clone(),
        }
    }

    fn factory(
        &self,
        context: &ServerContext,
        engine: &Engine,
        feeds: Arc<Feeds>,
        subscriptions: Arc<Subscriptions>,
        standby: bool,
    ) -> Factory {
        let ServerContext { dir, config, parameters, tls, listener, .. } = context;
        self.activities.statements.set_max(config.statements_kept);
        let file = |name| dir.join(name).display().to_string();
        let files = vec![("hba_file", file(HBA_FILE)), ("ident_file", file(IDENT_FILE))];
        Factory {
            databases: Arc::new(Databases::new(engine.clone())),
            configured: [config.parameters(), parameters.clone(), files].concat(),
            tls: tls.clone(),
            scratch: Arc::new(Scratch { dir: scratch_dir(dir), bytes_max: config.scratch_bytes_max }),
            stats: self.stats.clone(),
            activities: self.activities.clone(),
            listener: listener.clone(),
            admission: self.admission.clone(),
            feeds,
            subscriptions,
            standby,
        }
    }
}

/// What stays next to the data directory, so that a start without it makes no empty server in its place.
fn identity_file(ServerContext { config, name, .. }: &ServerContext, standby: Option<&StandbyFile>) -> IdentityFile {
    IdentityFile {
        name: name.clone(),
        standby_of: standby.map(|file| file.from.clone()).unwrap_or_default(),
        control_members: config.control_members.trim().to_owned(),
        ..IdentityFile::default()
    }
}

/// What reads from the archive: feeds, and standbys. A request that is not answered ends.
fn archive_source(store: &Arc<dyn Store>, engine: &Engine) -> Arc<ArchiveSource> {
    let store: Arc<dyn Store> = Arc::new(TimedStore::new(store.clone()));
    let history = History::new(store.clone(), engine.trail().clone());
    Arc::new(ArchiveSource { history, store, engine: engine.clone() })
}

/// The standbys that commits wait for. Without a list: any one standby, or with a control plane all that may be promoted.
fn sync_set(config: &Config, control: Option<&Control>) -> Result<SyncSet, NodeError> {
    let names = match config.synchronous_standby_names.trim() {
        "" => control.map_or_else(|| "ANY 1 (*)".to_owned(), Control::default_sync_set),
        names => names.to_owned(),
    };
    let set = SyncSet::parse(&names)
        .map_err(|error| NodeError::Start(io::Error::other(format!("synchronous_standby_names: {error}"))))?;
    control.map_or(Ok(()), |control| control.check_sync_set(&names, &set))?;
    Ok(set)
}

fn workers(config: &Config) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}
