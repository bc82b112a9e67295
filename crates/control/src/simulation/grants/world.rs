//! The machines, the network between them, what can be done to them, and what must hold after every event.
//!
//! - A lease page that is valid is the only one, and no later epoch's master has been promoted.
//! - What is committed is never changed: the small Raft is checked as well.
//!
//! A machine that stood still is exempt until its node has read a message that shows it: that hole is known (docs/grants.md).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use holdfast_seams::testing::Seeded;
use holdfast_types::Epoch;

use super::Sabotage;
use super::clock::Clocks;
use super::node::{Node, Received};
use super::raft::{Entry, Letter, Members, Payload, Raft, Saved};
use crate::grant::{NODES_MAX, NodeSet, Page, Pulse, Reading, Roster, VoterLog};
use crate::id::NodeId;
use crate::lease::LeaseTerms;
use crate::record::{Command, Mastership, Record, Role};

/// Real time in nanoseconds, which no node sees.
pub type Ns = u64;
pub const MS: Ns = 1_000_000;

const TURN_EVERY: Ns = 5 * MS;
/// What a socket holds for a machine that does not run.
const INBOX_MAX: usize = 64;
/// How far a message has to be behind the beginning of a standstill to show it.
const SHOWS_STANDSTILL: Ns = 120 * MS;

enum Mail {
    Pulse(Pulse),
    Letter(Option<u64>, Letter),
}

enum Event {
    Turn { slot: usize, run: u64, again: bool },
    Arrive { from: usize, to: usize, sent_at: Ns, mail: Box<Mail> },
    Written { slot: usize, run: u64 },
}

/// One direction between two machines.
#[derive(Clone, Copy, Default)]
pub struct Link {
    pub cut: bool,
    /// Only answers to pulses are lost.
    pub answers_lost: bool,
    /// Only pulses and answers are lost.
    pub pulses_lost: bool,
    /// Only Raft's letters are lost.
    pub letters_lost: bool,
    pub delay: Ns,
}

pub struct Machine {
    pub clocks: Clocks,
    pub disk: u64,
    pub saved: Saved,
    pub page: Option<Page>,
    pub node: Option<Node>,
    pub run: u64,
    pub paused: bool,
    /// Since when it stands still, clocks and all.
    pub frozen: Option<Ns>,
    /// When its last standstill began, until its node has noticed.
    thawed: Option<Ns>,
    inbox: Vec<Received>,
    letters: Vec<(usize, Option<u64>, Letter)>,
    held: Vec<Event>,
    late_until: Ns,
    /// How long each sync takes at the most.
    pub sync_max: Ns,
}

pub struct World {
    pub now: Ns,
    pub machines: Vec<Machine>,
    pub links: Vec<Vec<Link>>,
    pub roster: Roster,
    pub sabotage: Sabotage,
    pub random: Seeded,
    /// Nothing is lost, late or copied.
    pub calm: bool,
    /// Threads wake up late now and then, by up to 61 ms.
    pub wakes_late: bool,
    events: BinaryHeap<Reverse<(Ns, u64)>>,
    waiting: BTreeMap<u64, Event>,
    numbered: u64,
    disks: u64,
    committed: Vec<(u64, Option<Record>)>,
    pub raised: Epoch,
    /// Steps at which a lease was held, at which a machine had one that it should not have noticed yet, and leases that ended early.
    pub held: u64,
    pub hole: u64,
}

pub fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

impl World {
    /// Two data nodes and a witness, all voters.
    pub fn new(seed: u64, sabotage: Sabotage) -> World {
        World::of(&["a", "b", "w"], 3, seed, sabotage)
    }

    /// The first `voters` of these are voters. Names that begin with "w" are witnesses.
    pub fn of(names: &[&str], voters: usize, seed: u64, sabotage: Sabotage) -> World {
        let roster = Roster::new(names.iter().map(|name| node(name))).unwrap();
        let members = roster.names().iter().map(|name| {
            let role = if name.as_str().starts_with('w') { Role::Witness } else { Role::Data };
            (*name, role)
        });
        let found = Command::Found {
            version: 2,
            group: 7,
            members: members.collect(),
            lease: LeaseTerms::by_grants(600),
            pulse_key: None,
        };
        let mut disks = [0; NODES_MAX];
        (0..names.len()).for_each(|slot| disks[slot] = slot as u64 + 1);
        let sets = [NodeSet::of(0..voters), NodeSet::default()];
        let first = [Payload::Members(Members { sets, disks }), Payload::Command(found)];
        let log = first.map(|payload| Entry { term: 1, leader: 0, payload }).to_vec();
        let machines = (0..names.len()).map(|slot| Machine {
            clocks: Clocks::new((slot as u64 + 1) * 1_000_000 * MS),
            disk: slot as u64 + 1,
            saved: Saved { term: 1, voted: None, log: log.clone(), commit: 2 },
            page: None,
            node: None,
            run: 0,
            paused: false,
            frozen: None,
            thawed: None,
            inbox: Vec::new(),
            letters: Vec::new(),
            held: Vec::new(),
            late_until: 0,
            sync_max: 3 * MS,
        });
        let mut world = World {
            now: 0,
            machines: machines.collect(),
            links: vec![vec![Link::default(); names.len()]; names.len()],
            roster,
            sabotage,
            random: Seeded::new(seed),
            calm: false,
            wakes_late: true,
            events: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            numbered: 0,
            disks: 100,
            committed: Vec::new(),
            raised: Epoch(0),
            held: 0,
            hole: 0,
        };
        (0..names.len()).for_each(|slot| world.start(slot));
        world
    }

    fn at(&mut self, when: Ns, event: Event) {
        self.numbered += 1;
        self.waiting.insert(self.numbered, event);
        self.events.push(Reverse((when, self.numbered)));
    }

    /// Lets that much real time pass.
    pub fn run_ms(&mut self, ms: u64) -> Result<(), String> {
        let until = self.now + ms * MS;
        while let Some(Reverse((when, number))) = self.events.peek().copied().filter(|next| next.0.0 <= until) {
            self.events.pop();
            self.now = when;
            if let Some(event) = self.waiting.remove(&number) {
                self.happen(event);
                self.check().map_err(|what| format!("at {} ms: {what}", self.now / MS))?;
            }
        }
        self.now = until;
        Ok(())
    }

    /// Lets time pass until something is so; how long that took, in milliseconds.
    pub fn until(&mut self, what: &str, at_most_ms: u64, is_so: impl Fn(&World) -> bool) -> Result<u64, String> {
        let begun = self.now;
        while !is_so(self) {
            if self.now > begun + at_most_ms * MS {
                return Err(format!("not within {at_most_ms} ms: {what}"));
            }
            self.run_ms(1)?;
        }
        Ok((self.now - begun) / MS)
    }

    fn happen(&mut self, event: Event) {
        let (slot, run) = match &event {
            Event::Turn { slot, run, .. } | Event::Written { slot, run } => (*slot, *run),
            Event::Arrive { from, to, sent_at, mail } => return self.arrive(*from, *to, *sent_at, mail),
        };
        let machine = &mut self.machines[slot];
        if machine.run != run || machine.node.is_none() {
            return;
        }
        if machine.paused || machine.frozen.is_some() {
            machine.held.push(event);
            return;
        }
        match event {
            Event::Written { .. } => {
                if let Some(node) = &mut machine.node {
                    node.raft.written(&node.log);
                    machine.saved = node.raft.saved.clone();
                }
                self.flush(slot);
                self.at(self.now, Event::Turn { slot, run, again: false });
            }
            _ if self.now < machine.late_until => self.at(self.machines[slot].late_until, event),
            Event::Turn { again, .. } => self.turn(slot, again),
            Event::Arrive { .. } => {}
        }
    }

    fn arrive(&mut self, from: usize, to: usize, sent_at: Ns, mail: &Mail) {
        let machine = &mut self.machines[to];
        if machine.node.is_none() {
            return;
        }
        match mail {
            Mail::Pulse(pulse) if machine.inbox.len() < INBOX_MAX => machine.inbox.push((from, sent_at, *pulse)),
            Mail::Pulse(_) => {}
            Mail::Letter(disk, letter) => machine.letters.push((from, *disk, letter.clone())),
        }
        let run = machine.run;
        self.at(self.now + MS / 50, Event::Turn { slot: to, run, again: false });
    }

    /// `again`: of the chain of turns that a run has without messages.
    fn turn(&mut self, slot: usize, again: bool) {
        let (now, draw, letters_first) = (self.now, self.random.below(u64::MAX), self.random.one_in(2));
        if self.wakes_late && self.random.one_in(4_000) {
            self.machines[slot].late_until = now + self.random.below(61 * MS);
        }
        let machine = &mut self.machines[slot];
        let Some(node) = &mut machine.node else { return };
        let mut letters = std::mem::take(&mut machine.letters);
        let mut take_letters = |node: &mut Node| {
            for (from, disk, letter) in letters.drain(..) {
                node.raft.take(from, disk, letter, now, &node.log);
            }
            node.apply()
        };
        let mut records = Vec::new();
        if letters_first {
            records.extend(take_letters(node));
        }
        node.turn(machine.clocks.read(now), std::mem::take(&mut machine.inbox), &mut machine.page);
        records.extend(take_letters(node));
        node.control(now, &mut machine.page, draw);
        let run = machine.run;
        if again {
            self.at(now + TURN_EVERY, Event::Turn { slot, run, again });
        }
        if !records.is_empty() {
            self.at(now + MS / 20, Event::Turn { slot, run, again: false });
        }
        for (index, record) in records {
            self.note(slot, index, record);
        }
        self.flush(slot);
    }

    fn note(&mut self, slot: usize, index: u64, record: Option<Record>) {
        let raised = record.as_ref().filter(|record| matches!(record.mastership, Mastership::Serving { .. }));
        if let Some(record) = raised.filter(|record| record.master == Some(self.roster.names()[slot])) {
            self.raised = self.raised.max(record.epoch);
        }
        match self.committed.get(index as usize - 1) {
            Some(known) => assert_eq!(known.1, record, "two records at index {index}"),
            None => self.committed.push((index, record)),
        }
    }

    /// Sends what a node has to send, and begins its write.
    fn flush(&mut self, slot: usize) {
        let Some(node) = &mut self.machines[slot].node else { return };
        let pulses = std::mem::take(&mut node.out);
        let letters = std::mem::take(&mut node.raft.out);
        let writes = node.raft.begin_write();
        for (to, pulse) in pulses {
            self.send(slot, to, Mail::Pulse(pulse));
        }
        for (to, disk, letter) in letters {
            self.send(slot, to, Mail::Letter(disk, letter));
        }
        if writes {
            let (run, most) = (self.machines[slot].run, self.machines[slot].sync_max);
            let takes = MS / 5 + self.random.below(most);
            self.at(self.now + takes, Event::Written { slot, run });
        }
    }

    fn send(&mut self, from: usize, to: usize, mail: Mail) {
        let link = self.links[from][to];
        let is_lost = match &mail {
            Mail::Pulse(pulse) => {
                let told = link.pulses_lost || link.answers_lost && pulse.answers.is_some();
                told || !self.calm && self.random.one_in(200)
            }
            Mail::Letter(..) => link.letters_lost,
        };
        if link.cut || is_lost {
            return;
        }
        let sent_at = self.now;
        let spike = if !self.calm && self.random.one_in(100) { self.random.below(60 * MS) } else { 0 };
        let delay = link.delay + MS / 10 + self.random.below(MS / 3) + spike;
        if let (Mail::Pulse(pulse), true) = (&mail, !self.calm && self.random.one_in(100)) {
            let (mail, again) = (Box::new(Mail::Pulse(*pulse)), delay + self.random.below(900 * MS));
            self.at(self.now + again, Event::Arrive { from, to, sent_at, mail });
        }
        self.at(self.now + delay, Event::Arrive { from, to, sent_at, mail: Box::new(mail) });
    }

    pub fn reading(&self, slot: usize) -> Reading {
        let reading = self.machines[slot].clocks.read(self.now);
        let one_clock = self.sabotage == Sabotage::SlewedClock;
        if one_clock { Reading { raw_ns: reading.boot_ns, ..reading } } else { reading }
    }

    /// Whether the server on that machine may answer.
    pub fn answers(&self, slot: usize) -> bool {
        let machine = &self.machines[slot];
        let page = machine.page.filter(|page| !page.closed && machine.frozen.is_none());
        page.is_some_and(|page| self.reading(slot).is_before(&page.end))
    }

    /// How long the page of that machine is valid.
    pub fn left_ms(&self, slot: usize) -> u32 {
        let end = self.machines[slot].page.map(|page| page.end).unwrap_or_default();
        (end.shortest_since(&self.reading(slot)) / MS) as u32
    }

    /// The node that may answer, and in which epoch.
    pub fn master(&self) -> Option<(usize, Epoch)> {
        let slot = (0..self.machines.len()).find(|slot| self.answers(*slot))?;
        self.machines[slot].page.map(|page| (slot, page.epoch))
    }

    fn check(&mut self) -> Result<(), String> {
        let mut valid = Vec::new();
        for slot in 0..self.machines.len() {
            let machine = &mut self.machines[slot];
            let read = machine.node.as_ref().map_or(0, |node| node.newest_read);
            machine.thawed = machine.thawed.filter(|since| read < since + SHOWS_STANDSTILL);
            let exempt = machine.thawed.is_some();
            if let (true, Some(page)) = (self.answers(slot), self.machines[slot].page) {
                self.hole += u64::from(exempt && page.epoch < self.raised);
                if !exempt {
                    valid.push((self.roster.names()[slot], page.epoch));
                }
            }
        }
        self.held += u64::from(!valid.is_empty());
        if let Some((name, epoch)) = valid.iter().find(|(_, epoch)| *epoch < self.raised) {
            return Err(format!("{name} holds a lease of epoch {epoch} though epoch {} has begun", self.raised));
        }
        if valid.len() > 1 { Err(format!("two leases at one moment: {valid:?}")) } else { Ok(()) }
    }

    /// How many Depose entries have ended a mastership.
    pub fn deposes(&self) -> u64 {
        let deposed = |record: &Option<Record>| {
            record.as_ref().is_some_and(|record| matches!(record.mastership, Mastership::Deposed { .. }))
        };
        self.committed.windows(2).filter(|two| !deposed(&two[0].1) && deposed(&two[1].1)).count() as u64
    }

    pub fn record(&self) -> Option<&Record> {
        self.committed.last().and_then(|(_, record)| record.as_ref())
    }

    pub fn leader(&self) -> Option<usize> {
        let term = |slot: &usize| {
            let node = self.machines[*slot].node.as_ref()?;
            (node.raft.role == super::raft::Role::Leads).then_some(node.raft.memory.term)
        };
        (0..self.machines.len()).filter(|slot| term(slot).is_some()).max_by_key(term)
    }
}

/// What can be done to a machine.
impl World {
    pub fn start(&mut self, slot: usize) {
        let (now, roster, sabotage) = (self.now, self.roster, self.sabotage);
        let incarnation = self.random.below(u64::MAX) | 1;
        let machine = &mut self.machines[slot];
        machine.run += 1;
        machine.inbox.clear();
        machine.letters.clear();
        let log = VoterLog::default();
        let raft = Raft::start(slot, machine.disk, machine.saved.clone(), roster, &log, now);
        let mut node = Node::start(slot, roster, raft, log, machine.clocks.read(now), incarnation);
        node.sabotage = sabotage;
        node.beat.sabotage = sabotage;
        node.beat.watch.trusts_jumps = matches!(sabotage, Sabotage::JumpCounts | Sabotage::BothVotersFrozen);
        machine.node = Some(node);
        let run = machine.run;
        self.at(now, Event::Turn { slot, run, again: true });
    }

    /// The supervisor dies; what it wrote stays in the page cache, and the server lives on with its page.
    pub fn kill(&mut self, slot: usize) {
        let machine = &mut self.machines[slot];
        if let Some(node) = machine.node.take() {
            machine.saved = node.raft.writing.unwrap_or(node.raft.saved);
        }
        machine.held.clear();
        machine.paused = false;
    }

    /// The machine loses power: what was not synced is lost, and so is the page.
    pub fn power_cut(&mut self, slot: usize) {
        let machine = &mut self.machines[slot];
        if let Some(node) = machine.node.take() {
            machine.saved = node.raft.saved;
        }
        machine.held.clear();
        (machine.paused, machine.page) = (false, None);
    }

    /// With the next start its disk is empty.
    pub fn lose_disk(&mut self, slot: usize) {
        self.power_cut(slot);
        self.disks += 1;
        let machine = &mut self.machines[slot];
        (machine.disk, machine.saved) = (self.disks, Saved::default());
    }

    pub fn pause(&mut self, slot: usize) {
        self.machines[slot].paused = true;
    }

    pub fn resume(&mut self, slot: usize) {
        self.machines[slot].paused = false;
        self.go_on(slot);
    }

    /// The virtual machine stands still, its clocks too.
    pub fn freeze(&mut self, slot: usize) {
        let now = self.now;
        let machine = &mut self.machines[slot];
        machine.frozen = Some(now);
        machine.clocks.change(now, |clocks| clocks.stands = true);
    }

    pub fn thaw(&mut self, slot: usize) {
        let now = self.now;
        let machine = &mut self.machines[slot];
        machine.thawed = machine.frozen.take();
        machine.clocks.change(now, |clocks| clocks.stands = false);
        self.go_on(slot);
    }

    pub fn is_thawing(&self, slot: usize) -> bool {
        self.machines[slot].thawed.is_some()
    }

    fn go_on(&mut self, slot: usize) {
        let held = std::mem::take(&mut self.machines[slot].held);
        for event in held {
            self.at(self.now, event);
        }
    }

    /// Nothing gets from one to the other.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.links[from][to].cut = true;
    }

    pub fn cut_both(&mut self, one: usize, other: usize) {
        self.cut(one, other);
        self.cut(other, one);
    }

    pub fn isolate(&mut self, slot: usize) {
        (0..self.machines.len()).filter(|other| *other != slot).for_each(|other| self.cut_both(slot, other));
    }

    pub fn heal(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| *link = Link::default());
    }

    /// An operator deposes the master, whatever its state.
    pub fn depose(&mut self, successor: usize) {
        let Some(record) = self.record() else { return };
        let (expected_epoch, successor) = (record.epoch, self.roster.names()[successor]);
        let depose = Command::Depose { expected_epoch, successor, accept_loss: false, seen: None };
        if let Some(node) = self.leader().and_then(|slot| self.machines[slot].node.as_mut()) {
            node.raft.propose(Payload::Command(depose), &node.log);
        }
    }

    /// The master gives its lease away.
    pub fn hand_over(&mut self, slot: usize) {
        let Some(epoch) = self.record().map(|record| record.epoch) else { return };
        if let Some(node) = &mut self.machines[slot].node {
            node.hands_over = Some(epoch);
        }
    }

    /// Lets that node lead Raft.
    pub fn lead(&mut self, slot: usize) -> Result<(), String> {
        let now = self.now;
        if let Some(node) = self.machines[slot].node.as_mut().filter(|node| node.raft.role != super::raft::Role::Leads)
        {
            node.raft.elect(now, &node.log);
            let run = self.machines[slot].run;
            self.at(now, Event::Turn { slot, run, again: false });
        }
        self.until("it leads", 400, |world| {
            let raft = world.machines[slot].node.as_ref().map(|node| &node.raft);
            world.leader() == Some(slot) && raft.is_some_and(|raft| raft.commit == raft.memory.log.len() as u64)
        })?;
        Ok(())
    }

    /// The length of the log of a node: in memory, and on its disk.
    pub fn log_len(&self, slot: usize) -> (usize, usize) {
        let machine = &self.machines[slot];
        (machine.node.as_ref().map_or(0, |node| node.raft.memory.log.len()), machine.saved.log.len())
    }

    /// A group in which a holds its lease and b can be promoted.
    pub fn with_master(mut self) -> Result<World, String> {
        let b = self.roster.names()[1];
        self.until("a is master and b in the sync set", 15_000, |world| {
            let in_set = world.record().is_some_and(|record| record.sync_set.contains(b));
            world.master().is_some_and(|(slot, _)| slot == 0) && in_set && world.leader().is_some_and(|slot| slot != 0)
        })?;
        self.run_ms(1_500)?;
        Ok(self)
    }
}
