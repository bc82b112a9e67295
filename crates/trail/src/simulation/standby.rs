//! A master and its standby on a disk each: random appends; shipping of random prefixes, also while the master is
//! writing; power cuts of either or both at any time; promotions; and forged boxcars in between.
//!
//! What must hold: what `receive` or an append acknowledged is there after any power cut, until the trail is cut back.
//! A standby never loses boxcars that it had and its master acknowledged. After pairing, its shipped bytes are the
//! master's. A forged, changed, reordered or older boxcar is refused and changes nothing. A power cut is never reported
//! as damage.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-trail standbys` replays one seed. `HOLDFAST_SEEDS=n` runs n seeds from
//! `HOLDFAST_SEED_FIRST` on. A seed that fails is named, and the others still run.

use std::path::Path;
use std::sync::Arc;

use holdfast_seams::testing::{FaultDisk, Fired, Seeded};
use holdfast_seams::{Disk, SyncMethod};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;

use super::{Bench, DIR, Follower, forged, options};
use crate::control::Control;
use crate::{Match, ReceiveError, Shipped, Tap, Trail, TrailError, TrailOptions};

const SEEDS: u64 = 150;
const ROUNDS: u64 = 10;

/// Why a round ended early.
enum End {
    /// The power of one of the two nodes is off.
    PowerCut,
    /// A condition that must hold does not.
    Broken(String),
}

impl From<TrailError> for End {
    fn from(error: TrailError) -> End {
        End::Broken(format!("refused: {error}"))
    }
}

/// Power cuts are not failures of the trail; all other errors are.
fn unless_off<T, E: Into<End>>(disk: &FaultDisk, result: Result<T, E>) -> Result<T, End> {
    result.map_err(|error| if disk.power_is_off() { End::PowerCut } else { error.into() })
}

impl From<ReceiveError> for End {
    fn from(error: ReceiveError) -> End {
        End::Broken(format!("not received: {error}"))
    }
}

#[derive(Default)]
struct Totals {
    rounds: u64,
    received: u64,
    while_written: u64,
    grouped: u64,
    forged: u64,
    forks: u64,
    forks_of_promotions: u64,
    promotions: u64,
    founded_again: u64,
    torn_tails: u64,
    recycled: u64,
    compared: u64,
}

/// One of the two nodes.
struct Node {
    disk: FaultDisk,
    method: SyncMethod,
    /// The last acknowledged position: it must still be there.
    kept: Option<(Lsn, u32)>,
}

impl Node {
    fn options(&self) -> TrailOptions {
        TrailOptions { sync_method: self.method, ..options() }
    }

    fn epoch(&self) -> Epoch {
        Control::read(&self.disk, Path::new(DIR)).ok().flatten().map_or(Epoch(0), |control| control.epoch)
    }

    /// Checks that what was acknowledged is still there.
    fn check(&self, trail: &Trail, who: &str) -> Result<(), End> {
        let Some((lsn, checksum)) = self.kept else { return Ok(()) };
        match unless_off(&self.disk, trail.ends_with(lsn, checksum))? {
            Match::Yes | Match::Gone => Ok(()),
            Match::No => Err(End::Broken(format!("the {who} lost what it acknowledged up to LSN {lsn}"))),
        }
    }
}

/// The standby's end of the connection; it also runs while the master writes.
struct Link {
    tap: Tap,
    follower: Follower,
    disk: FaultDisk,
    random: Seeded,
    arrived: Vec<Shipped>,
    /// The first violation found.
    end: Option<End>,
    kept: (Lsn, u32),
    totals: Totals,
}

impl Link {
    /// Takes some of the available boxcars and makes a random prefix of them durable.
    fn pump(&mut self, master_durable: Lsn) {
        if self.end.is_some() {
            return;
        }
        while self.arrived.len() < 8 && !self.random.one_in(6) {
            match self.tap.next() {
                Ok(Some(boxcar)) => self.arrived.push(boxcar),
                Ok(None) => break,
                Err(TrailError::Gone { .. }) => break,
                Err(error) => return self.fail(error.into()),
            }
        }
        if self.random.one_in(12)
            && let Err(end) = self.forge()
        {
            return self.fail(end);
        }
        let count = self.random.below(self.arrived.len() as u64 + 1) as usize;
        if count > 0 {
            self.receive(count, master_durable);
        }
    }

    fn receive(&mut self, count: usize, master_durable: Lsn) {
        let group: Vec<Shipped> = self.arrived.drain(..count).collect();
        if let Err(error) = self.follower.receive(&group) {
            let end = if self.disk.power_is_off() { End::PowerCut } else { error.into() };
            return self.fail(end);
        }
        self.kept = self.follower.trail.tip();
        self.totals.received += count as u64;
        self.totals.grouped += u64::from(count > 1);
        self.totals.while_written += u64::from(self.kept.0 > master_durable);
    }

    fn fail(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Sends a boxcar that the standby must refuse.
    fn forge(&mut self) -> Result<(), End> {
        let (end, last) = self.follower.trail.tip();
        let Some(next) = self.arrived.first().cloned() else { return Ok(()) };
        let bad = match self.random.below(6) {
            0 => {
                let mut bytes = next.bytes.to_vec();
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
                vec![Shipped { bytes: bytes.into(), ..next }]
            }
            1 if self.arrived.len() > 1 => self.arrived.iter().rev().cloned().collect(),
            2 if self.arrived.len() > 2 => vec![next, self.arrived[2].clone()],
            3 if last != 0 => vec![forged(&next, |bytes| bytes[12..16].fill(0))],
            4 if last != 0 => vec![forged(&next, |bytes| bytes[57] ^= 0x20)],
            _ => vec![forged(&next, |bytes| bytes[20] ^= 1)],
        };
        while self.follower.preparer.round() == crate::preparer::Round::Busy {}
        let before = self.disk.stats().writes;
        let result = self.follower.trail.receive(&bad);
        if self.disk.power_is_off() {
            return Err(End::PowerCut);
        }
        self.totals.forged += 1;
        let changed = self.disk.stats().writes != before || self.follower.trail.tip() != (end, last);
        match result {
            Ok(()) => Err(End::Broken("a forged boxcar was received".to_owned())),
            Err(error) if changed => Err(End::Broken(format!("a refused boxcar changed something: {error}"))),
            Err(_) => Ok(()),
        }
    }
}

/// The whole simulation of one seed.
struct World {
    master: Node,
    standby: Node,
    random: Seeded,
    next: u64,
    /// Whether no promotion happened since the two nodes were last paired.
    paired: bool,
    totals: Totals,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Seeded::new(seed);
        let methods = [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync, SyncMethod::OpenSync, SyncMethod::Fsync];
        let mut node =
            |seed| Node { disk: FaultDisk::new(seed), method: methods[random.below(4) as usize], kept: None };
        let (master, standby) = (node(seed), node(!seed));
        World { master, standby, random, next: 0, paired: false, totals: Totals::default() }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            if !self.random.one_in(4) {
                self.master.disk.cut_power_after(1 + self.random.below(90));
            }
            if self.random.one_in(2) {
                self.standby.disk.cut_power_after(1 + self.random.below(90));
            }
            if let Err(End::Broken(what)) = self.round() {
                return Err(what);
            }
            for node in [&self.master, &self.standby] {
                // A process may also just be killed: then the machine continues with its cache.
                if node.disk.power_is_off() || self.random.one_in(2) {
                    node.disk.restore_power();
                }
                node.disk.do_not_cut();
            }
            self.totals.rounds += 1;
            if self.random.one_in(4) && self.standby.kept.is_some() {
                std::mem::swap(&mut self.master, &mut self.standby);
                self.paired = false;
                self.totals.promotions += 1;
            }
        }
        Ok(())
    }

    /// Opens and pairs both nodes, lets them work for a time, and ends them in a random way.
    fn round(&mut self) -> Result<(), End> {
        let known = self.master.epoch().max(self.standby.epoch());
        let options = TrailOptions { epoch_min: known, ..self.master.options() };
        let mut bench = unless_off(&self.master.disk, Bench::open_with(&self.master.disk, options))?;
        if bench.recovered.epoch <= known {
            return Err(End::Broken(format!("opened in epoch {}, {known} was known", bench.recovered.epoch)));
        }
        self.totals.torn_tails += u64::from(bench.recovered.cut.is_some());
        self.master.check(&bench.trail, "master")?;
        let acknowledged = self.master.kept.filter(|_| self.paired);
        self.master.kept = Some(bench.trail.tip());
        let follower = self.pair(&bench, acknowledged)?;
        self.paired = true;
        self.work(&mut bench, follower)
    }

    /// Opens the standby, cut back to the point where the two trails are equal, or founded again.
    fn pair(&mut self, bench: &Bench, acknowledged: Option<(Lsn, u32)>) -> Result<Follower, End> {
        let disk = self.standby.disk.clone();
        let mut follower = match Follower::open_with(&disk, self.standby.options()) {
            Err(TrailError::NothingToFollow { .. }) => {
                return unless_off(&disk, Follower::new(&disk, &bench.trail));
            }
            opened => unless_off(&disk, opened)?,
        };
        self.totals.torn_tails += u64::from(follower.recovered.cut.is_some());
        self.standby.check(&follower.trail, "standby")?;
        let point = self.common_point(bench, &follower)?;
        match point {
            Some(point) if point == follower.trail.durable() => {}
            Some(point) => {
                let had = follower.trail.durable();
                if let Some((lsn, _)) = acknowledged
                    && point < lsn.min(had)
                {
                    return Err(End::Broken(format!("cut back to LSN {point}, the master acknowledged LSN {lsn}")));
                }
                drop(follower);
                self.standby.kept = None;
                unless_off(&disk, Trail::cut_back(&disk, Path::new(DIR), point))?;
                follower = unless_off(&disk, Follower::open_with(&disk, self.standby.options()))?;
                if follower.trail.durable() != point {
                    return Err(End::Broken(format!("cut back to {point}, ends at {}", follower.trail.durable())));
                }
                self.totals.forks += 1;
                self.totals.forks_of_promotions += u64::from(acknowledged.is_none());
            }
            None => {
                drop(follower);
                self.standby.kept = None;
                self.standby.disk = FaultDisk::new(self.random.draw());
                self.totals.founded_again += 1;
                return unless_off(&self.standby.disk, Follower::new(&self.standby.disk, &bench.trail));
            }
        }
        self.compare(bench, &follower)?;
        Ok(follower)
    }

    /// The last position up to which both have the same boxcars.
    fn common_point(&self, bench: &Bench, follower: &Follower) -> Result<Option<Lsn>, End> {
        let (end, checksum) = follower.trail.tip();
        let own = unless_off(&self.standby.disk, all(&follower.trail))?;
        let ends = own.iter().rev().map(|boxcar| (boxcar.lsn, boxcar.previous_checksum));
        for (lsn, checksum) in std::iter::once((end, checksum)).chain(ends) {
            match unless_off(&self.master.disk, bench.trail.ends_with(lsn, checksum))? {
                Match::Yes => return Ok(Some(lsn)),
                Match::No => {}
                Match::Gone => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Checks that everything that both have is equal.
    fn compare(&mut self, bench: &Bench, follower: &Follower) -> Result<(), End> {
        let (theirs, own) = (all(&bench.trail)?, unless_off(&self.standby.disk, all(&follower.trail))?);
        let from = bench.trail.first().max(follower.trail.first());
        let theirs = theirs.iter().filter(|boxcar| boxcar.lsn >= from);
        let own: Vec<_> = own.iter().filter(|boxcar| boxcar.lsn >= from).collect();
        let count = own.len();
        if !own.into_iter().eq(theirs.take(count)) {
            return Err(End::Broken("the shipped bytes of the two trails differ".to_owned()));
        }
        self.totals.compared += count as u64;
        Ok(())
    }

    fn work(&mut self, bench: &mut Bench, follower: Follower) -> Result<(), End> {
        let tap = bench.trail.tap(follower.trail.durable());
        let tap = match tap {
            Err(TrailError::Gone { .. }) => return Ok(()),
            tap => tap?,
        };
        let (kept, disk) = (follower.trail.tip(), self.standby.disk.clone());
        let (random, arrived) = (Seeded::new(self.random.draw()), Vec::new());
        let totals = Totals::default();
        let link = Link { tap, follower, disk, random, arrived, end: None, kept, totals };
        let link = Arc::new(Mutex::new(Some(link)));
        let (of_hook, shared) = (link.clone(), Arc::downgrade(bench.trail.shared()));
        // The hook runs in the middle of the master's writes.
        let hooked = Arc::new(move || {
            if let Some(link) = of_hook.lock().as_mut()
                && link.random.one_in(2)
            {
                link.pump(shared.upgrade().map_or(Lsn(0), |shared| shared.durable()));
            }
        });
        bench.trail.on_progress(hooked);
        self.drive(bench, &link);
        // Otherwise the hook would keep the trail alive, and the trail the hook.
        let Some(link) = link.lock().take() else { return Ok(()) };
        self.standby.kept = Some(link.kept);
        self.totals.add(&link.totals);
        self.totals.recycled += link.follower.trail.stats().segments_recycled;
        match link.end {
            Some(End::Broken(what)) => Err(End::Broken(what)),
            _ if self.master.disk.power_is_off() => Err(End::PowerCut),
            Some(End::PowerCut) => Err(End::PowerCut),
            None => self.compare(bench, &link.follower),
        }
    }

    /// Appends, proves and recycles, with what the hook makes of that, until the master's power fails or the round is
    /// long enough.
    fn drive(&mut self, bench: &mut Bench, link: &Mutex<Option<Link>>) {
        for _ in 0..self.random.below(40) {
            for _ in 0..self.random.below(4) {
                let bytes = if self.random.one_in(8) { 12_000 } else { 12 + self.random.below(3000) };
                bench.queue(self.next, bytes as usize);
                self.next += 1;
            }
            if !bench.write(self.random.one_in(3)) {
                return;
            }
            self.master.kept = Some(bench.trail.tip());
            let mut link = link.lock();
            let Some(link) = link.as_mut() else { return };
            if self.random.one_in(6) {
                // A slot retains what the standby has not received; at random there is no slot.
                let from = if self.random.one_in(10) { bench.end() } else { link.kept.0 };
                bench.trail.retain_from(from);
                link.follower.trail.retain_from(link.kept.0);
            }
            if self.random.one_in(2) {
                link.pump(bench.end());
            }
            if matches!(link.end, Some(End::Broken(_))) {
                return;
            }
        }
    }
}

/// All durable boxcars of a trail in shipped form.
fn all(trail: &Trail) -> Result<Vec<Shipped>, TrailError> {
    let mut tap = trail.tap(trail.first())?;
    std::iter::from_fn(|| tap.next().transpose()).collect()
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.received += other.received;
        self.while_written += other.while_written;
        self.grouped += other.grouped;
        self.forged += other.forged;
    }
}

#[test]
fn standbys() {
    let seeds = super::seeds(SEEDS);
    let (mut each, mut fired, mut failed) = ([0u64; 12], Fired::default(), Vec::new());
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(what)) => failed.push(format!("seed {seed}: {what}")),
            Err(_) => failed.push(format!("seed {seed}: panicked")),
        }
        fired.add(&world.master.disk.fired());
        fired.add(&world.standby.disk.fired());
        let t = &world.totals;
        let counts = [
            t.rounds,
            t.received,
            t.while_written,
            t.grouped,
            t.forged,
            t.forks,
            t.forks_of_promotions,
            t.promotions,
            t.torn_tails,
            t.recycled,
            t.compared,
            t.founded_again,
        ];
        each.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!(
        "seeds {seeds:?}: rounds, received, while written, groups, forged, forks, of promotions, promotions, torn tails, \
         recycled, compared, founded again: {each:?}, {} failed",
        failed.len()
    );
    println!("{fired:?}");
    assert!(failed.is_empty(), "repeat with HOLDFAST_SEED: {failed:#?}");
    if seeds.end - seeds.start >= SEEDS {
        assert!(each.iter().all(|count| *count > 20), "something never happened: {each:?}");
        assert!(fired.power_cuts > 1000 && fired.dropped_sectors > 10, "{fired:?}");
    }
}
