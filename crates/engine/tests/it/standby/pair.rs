//! A master and its standby in one process, the bytes handed over by a plain loop.

use crate::support::client::query;
use crate::support::plain::dump;
use holdfast_engine::{BaseReceiver, CopyError, Database, Engine, Options, PageBytes};
use holdfast_seams::Disk;
use holdfast_trail::Shipped;
use holdfast_types::{Level, Lsn};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than anything here takes that ends at all.
pub const WAIT_MAX: Duration = Duration::from_secs(600);
const WAIT: Duration = Duration::from_millis(10);
/// Boxcars handed over at a time.
const AT_ONCE: usize = 40;
/// The name the standby is registered under.
const NAME: &str = "b";

/// Takes a base copy of a master that may be at work.
pub fn copy(master: &Engine, disk: Arc<dyn Disk>, dir: &Path) {
    try_copy(master, disk, dir).unwrap();
}

pub fn try_copy(master: &Engine, disk: Arc<dyn Disk>, dir: &Path) -> Result<(), CopyError> {
    let copy = master.base_copy().unwrap();
    let plan = copy.plan().clone();
    let mut receiver = BaseReceiver::begin(disk, dir, plan.clone())?;
    let mut bytes: PageBytes = [0; 4096];
    for (place, volume) in plan.volumes.iter().enumerate() {
        for page in 1..=volume.pages {
            copy.page(place, page, &mut bytes).unwrap();
            receiver.page(&bytes)?;
        }
    }
    receiver.finish()?;
    let first = u64::from(plan.first_segment) * plan.segment_bytes;
    master.register_slot(NAME, Lsn(first)).unwrap();
    Ok(())
}

pub fn open_standby(dir: &Path, options: &Options) -> Engine {
    Engine::open(dir, Options { standby: true, ..options.clone() }).unwrap()
}

/// Hands over until told to stop, then all that is left. False: the standby has stopped taking, as when its power is off.
pub fn hand_over(master: &Engine, standby: &Engine, stop: &AtomicBool) -> bool {
    let (trail_id, segment_bytes) = (master.trail().trail_id(), master.trail().segment_bytes());
    let mut tap = master.trail().tap(standby.trail().tip().0).unwrap();
    loop {
        let last_round = stop.load(Ordering::Acquire);
        let mut some = Vec::new();
        while let Some(boxcar) = tap.next().unwrap() {
            some.push(Shipped::parse(boxcar.bytes, trail_id, segment_bytes).unwrap());
            if some.len() == AT_ONCE {
                break;
            }
        }
        if !some.is_empty() && standby.receive(&some).is_err() {
            return false;
        }
        standby.allow_apply(master.trail().durable());
        let has = standby.trail().durable();
        master.reached(Level::Hot, has);
        master.reached(Level::Commit, standby.applied());
        master.hold_slot(NAME, has).unwrap();
        if some.is_empty() {
            if last_round {
                return true;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Hands over while `work` runs, and all of it.
pub fn with_standby<T>(master: &Engine, standby: &Engine, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let link = scope.spawn(|| hand_over(master, standby, &stop));
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Release);
        assert!(link.join().unwrap(), "the standby takes no more");
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What is in the master's trail now is applied.
pub fn catch_up(master: &Engine, standby: &Engine) {
    let end = master.trail().durable();
    let caught_up = with_standby(master, standby, || standby.wait_applied(end, WAIT_MAX));
    assert!(caught_up, "applied {} of {end}: {:?}", standby.applied(), standby.apply_failure());
}

/// What the master has and the standby has not.
pub fn missing(master: &Engine, standby: &Engine) -> Vec<Shipped> {
    let mut tap = master.trail().tap(standby.trail().tip().0).unwrap();
    std::iter::from_fn(|| tap.next().unwrap()).collect()
}

/// Hands over until all is applied, or applying has ended.
pub fn settle(master: &Engine, standby: &Engine) {
    let end = master.trail().durable();
    with_standby(master, standby, || while !standby.wait_applied(end, WAIT) && standby.apply_failure().is_none() {});
}

pub fn dump_of(db: &Database) -> String {
    dump(|sql| query(db, sql)).unwrap()
}

/// Checks that both have the same databases with the same content, hidden rowids included.
pub fn assert_same(master: &Engine, standby: &Engine, when: &str) {
    let list = |e: &Engine| e.databases().into_iter().map(|d| (d.name, d.oid, d.dialect)).collect::<Vec<_>>();
    assert_eq!(list(master), list(standby), "{when}");
    let roles = |e: &Engine| e.roles().list();
    assert_eq!(roles(master), roles(standby), "{when}");
    for info in master.databases() {
        let [a, b] = [master, standby].map(|e| dump_of(&e.database(&info.name).unwrap()));
        if a != b {
            let at = a.lines().zip(b.lines()).position(|(a, b)| a != b).unwrap_or_default();
            let line = |s: &str| s.lines().nth(at).unwrap_or("").chars().take(300).collect::<String>();
            panic!("{when}, database {}:\n master  {}\n standby {}", info.name, line(&a), line(&b));
        }
        assert_eq!(master.database_parameters(&info.name), standby.database_parameters(&info.name), "{when}");
        let [a, b] = [master, standby].map(|e| e.roles().database(info.oid));
        assert_eq!(a, b, "{when}, database {}", info.name);
    }
}

/// `holdfast check` has nothing to say against a directory that nobody serves.
pub fn assert_sound(dir: &Path, options: &Options) {
    let report = holdfast_engine::check::check(dir, options).unwrap();
    assert!(report.is_sound(), "{report:#?}");
}
