//! Which settings are measured, on which disks, in which order.
//!
//! By default all delays are compared where cache and barrier are on, several rounds of them; the other three forms of
//! the paper's disk get its 1 ms and the automatic delay, once. `--full` measures all of them in full.

use crate::Study;
use crate::server::Kind;
use holdfast_seams::SyncMethod;
use std::fmt;

/// Which disks a run is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskChoice {
    Paper,
    Real,
    Both,
}

/// A disk under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// The unsafe disk as slow as the paper's.
    Paper,
    /// The one the data directory lies on.
    Real,
}

/// A disk and how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub disk: DiskKind,
    pub cache: bool,
    pub barrier: bool,
}

/// A commit delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    Auto,
    Us(u32),
}

/// One server started with some settings on a disk, and the numbers of clients it is measured with.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub server: Kind,
    pub condition: Condition,
    pub delay: Delay,
    pub method: SyncMethod,
    pub clients: Vec<usize>,
}

/// See the module's description.
pub struct Plan {
    pub disks: Vec<DiskKind>,
    pub clients: Vec<usize>,
    pub rounds: usize,
    pub steps: Vec<Step>,
}

/// The paper's clients.
const CLIENTS: [usize; 5] = [1, 10, 20, 40, 80];
const CLIENTS_QUICK: [usize; 2] = [1, 4];
/// The most clients of the comparison of sync methods, where a run has as many.
const CLIENTS_METHODS_MOST: usize = 40;
const ROUNDS: usize = 3;
/// The paper's own delay.
const ONE_MS: Delay = Delay::Us(1000);
const DELAYS: [Delay; 5] = [Delay::Us(0), ONE_MS, Delay::Auto, Delay::Us(2000), Delay::Us(5000)];
/// All that make a write durable.
pub const METHODS: [SyncMethod; 4] =
    [SyncMethod::OpenDirectDsync, SyncMethod::OpenSync, SyncMethod::Fdatasync, SyncMethod::Fsync];

impl DiskKind {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::Paper => "paper",
            DiskKind::Real => "real",
        }
    }

    /// The name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            DiskKind::Paper => "the paper's disk",
            DiskKind::Real => "the real disk",
        }
    }
}

impl Condition {
    /// With cache and barrier, as disks come.
    pub fn safe(disk: DiskKind) -> Condition {
        Condition { disk, cache: true, barrier: true }
    }

    /// The other forms of the paper's disk, in the order of its table.
    const OTHERS: [Condition; 3] = [
        Condition { disk: DiskKind::Paper, cache: false, barrier: true },
        Condition { disk: DiskKind::Paper, cache: false, barrier: false },
        Condition { disk: DiskKind::Paper, cache: true, barrier: false },
    ];
}

impl Delay {
    /// The name in results: microseconds, or `auto`.
    pub fn name(self) -> String {
        match self {
            Delay::Auto => "auto".into(),
            Delay::Us(us) => us.to_string(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |on| if on { "on" } else { "off" };
        let Condition { disk, cache, barrier } = self.condition;
        write!(f, "{} on {}, cache {}, barrier {}, ", self.server.name(), disk.title(), on(cache), on(barrier))?;
        write!(f, "commit delay {}, {}", self.delay.name(), self.method.name())
    }
}

impl Plan {
    /// What the study asks for; `can_mount`: the paper's disk can be measured.
    pub fn of(study: &Study, can_mount: bool) -> Plan {
        let paper = study.disks != DiskChoice::Real && can_mount;
        let disks: Vec<DiskKind> = [(DiskKind::Paper, paper), (DiskKind::Real, study.disks != DiskChoice::Paper)]
            .into_iter()
            .filter_map(|(disk, wanted)| wanted.then_some(disk))
            .collect();
        let usual: &[usize] = if study.quick { &CLIENTS_QUICK } else { &CLIENTS };
        let mut clients = if study.clients.is_empty() { usual.to_vec() } else { study.clients.clone() };
        clients.sort_unstable();
        clients.dedup();
        let rounds = if study.quick { 1 } else { ROUNDS };
        let mut plan = Plan { disks, clients, rounds, steps: Vec::new() };
        plan.delays(study);
        plan.conditions(study);
        plan.methods(study);
        plan
    }

    fn delays(&mut self, study: &Study) {
        let delays: &[Delay] = if study.quick { &[Delay::Us(0), Delay::Auto] } else { &DELAYS };
        for disk in self.disks.clone() {
            for _ in 0..self.rounds {
                delays.iter().for_each(|delay| self.servers(study, Condition::safe(disk), *delay));
            }
        }
    }

    fn conditions(&mut self, study: &Study) {
        if !self.disks.contains(&DiskKind::Paper) {
            return;
        }
        let (delays, rounds): (&[Delay], usize) = match (study.full, study.quick) {
            (_, true) => (&[Delay::Auto], 1),
            (true, _) => (&DELAYS, self.rounds),
            (false, _) => (&[ONE_MS, Delay::Auto], 1),
        };
        for _ in 0..rounds {
            for condition in Condition::OTHERS {
                delays.iter().for_each(|delay| self.servers(study, condition, *delay));
            }
        }
    }

    /// Both servers with the same settings, one after the other.
    fn servers(&mut self, study: &Study, condition: Condition, delay: Delay) {
        let clients = self.clients.clone();
        let ours = Step { server: Kind::Holdfast, condition, delay, method: SyncMethod::default(), clients };
        if study.peer.is_some() && delay != Delay::Auto {
            self.steps.push(Step { server: Kind::Postgres, method: SyncMethod::Fdatasync, ..ours.clone() });
        }
        self.steps.push(ours);
    }

    /// The sync methods; the default one has been measured with these clients already.
    fn methods(&mut self, study: &Study) {
        if study.quick {
            return;
        }
        for disk in self.disks.clone() {
            for method in METHODS {
                let default = method == SyncMethod::default();
                if !default {
                    let (condition, clients) = (Condition::safe(disk), self.clients_of_methods());
                    self.steps.push(Step { server: Kind::Holdfast, condition, delay: Delay::Auto, method, clients });
                }
            }
        }
    }

    /// The fewest clients of the run and the most up to a limit.
    fn clients_of_methods(&self) -> Vec<usize> {
        let fewest = self.clients.first().copied();
        let most = self.clients.iter().copied().filter(|n| *n <= CLIENTS_METHODS_MOST).max();
        let mut clients: Vec<usize> = fewest.into_iter().chain(most).collect();
        clients.dedup();
        clients
    }

    /// Most clients of any step.
    pub fn clients_max(&self) -> usize {
        self.steps.iter().flat_map(|step| &step.clients).copied().max().unwrap_or(1)
    }
}
