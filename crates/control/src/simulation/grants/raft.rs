//! A small Raft: terms, votes, a log that is written by one sync at a time, truncation, joint changes of voters. What it sends
//! because of a write is sent after the sync, as openraft does.

use super::world::Ns;
use crate::grant::{LogPosition, Meaning, NODES_MAX, NodeSet, Roster, VoterLog, Voters};
use crate::record::Command;

const MS: Ns = 1_000_000;
const HEARTBEAT: Ns = 25 * MS;

/// Who votes, and the disk that each node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Members {
    pub sets: [NodeSet; 2],
    pub disks: [u64; NODES_MAX],
}

#[derive(Clone, Debug)]
pub enum Payload {
    Blank,
    Command(Command),
    Members(Members),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub term: u64,
    pub leader: usize,
    pub payload: Payload,
}

impl Entry {
    pub fn meaning(&self) -> Meaning {
        match &self.payload {
            Payload::Command(command) => command.ends().map_or(Meaning::Other, Meaning::Ends),
            Payload::Members(members) => Meaning::Voters(members.sets),
            Payload::Blank => Meaning::Other,
        }
    }

    pub fn position(&self, index: u64, roster: &Roster) -> LogPosition {
        LogPosition { term: self.term, leader: roster.names()[self.leader], index }
    }
}

/// What a disk holds.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub term: u64,
    pub voted: Option<usize>,
    pub log: Vec<Entry>,
    /// How far it was committed: a hint for the next start.
    pub commit: u64,
}

#[derive(Clone, Debug)]
pub enum Letter {
    Vote {
        term: u64,
        last: (u64, u64),
    },
    Voted {
        term: u64,
        granted: bool,
    },
    Append {
        term: u64,
        prev: (u64, u64),
        entries: Vec<Entry>,
        commit: u64,
    },
    Appended {
        term: u64,
        ok: bool,
        index: u64,
    },
    /// The node has another disk than the sender's log says.
    OtherDisk(u64),
    Propose(Command),
}

/// To which node, for which disk of it (`None`: any), and what.
pub type Outgoing = (usize, Option<u64>, Letter);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Follows,
    Elects,
    Leads,
}

pub struct Raft {
    me: usize,
    pub disk: u64,
    roster: Roster,
    pub memory: Saved,
    pub saved: Saved,
    pub writing: Option<Saved>,
    after_write: Vec<Outgoing>,
    queued: Vec<Outgoing>,
    changed: bool,
    pub role: Role,
    pub leader: Option<usize>,
    pub commit: u64,
    votes: NodeSet,
    next: [u64; NODES_MAX],
    matched: [u64; NODES_MAX],
    known_disks: [Option<u64>; NODES_MAX],
    pub heard_leader: Ns,
    pub led_since: Ns,
    beat: Ns,
    pub out: Vec<Outgoing>,
}

impl Raft {
    /// Starts with what the disk holds.
    pub fn start(me: usize, disk: u64, saved: Saved, roster: Roster, log: &VoterLog, now: Ns) -> Raft {
        for (at, entry) in saved.log.iter().enumerate() {
            log.appended(entry.position(at as u64 + 1, &roster), entry.meaning());
        }
        log.durable(saved.log.len() as u64);
        let commit = saved.commit;
        Raft {
            me,
            disk,
            roster,
            memory: saved.clone(),
            saved,
            writing: None,
            after_write: Vec::new(),
            queued: Vec::new(),
            changed: false,
            role: Role::Follows,
            leader: None,
            commit,
            votes: NodeSet::default(),
            next: [1; NODES_MAX],
            matched: [0; NODES_MAX],
            known_disks: [None; NODES_MAX],
            heard_leader: now,
            led_since: now,
            beat: 0,
            out: Vec::new(),
        }
    }

    pub fn last(&self) -> (u64, u64) {
        (self.memory.log.last().map_or(0, |entry| entry.term), self.memory.log.len() as u64)
    }

    fn term_at(&self, index: u64) -> u64 {
        if index == 0 { 0 } else { self.memory.log.get(index as usize - 1).map_or(u64::MAX, |entry| entry.term) }
    }

    /// The newest membership in the log, and where it is.
    pub fn members(&self) -> Option<(u64, Members)> {
        self.memory.log.iter().enumerate().rev().find_map(|(at, entry)| match entry.payload {
            Payload::Members(members) => Some((at as u64 + 1, members)),
            _ => None,
        })
    }

    fn voters(&self) -> Voters {
        Voters { at: LogPosition::default(), sets: self.members().map_or([NodeSet::default(); 2], |(_, now)| now.sets) }
    }

    fn is_voter(&self) -> bool {
        self.members().is_some_and(|(_, now)| now.disks[self.me] == self.disk) && self.voters().contains(self.me)
    }

    fn send(&mut self, to: usize, letter: Letter) {
        let disk = self.members().map(|(_, now)| now.disks[to]);
        self.out.push((to, disk, letter));
    }

    /// Sends it when everything so far is durable.
    fn send_synced(&mut self, to: usize, letter: Letter) {
        if self.changed || self.writing.is_some() {
            self.queued.push((to, None, letter));
        } else {
            self.out.push((to, None, letter));
        }
    }

    /// What is to be written now, if a write is due and none is under way.
    pub fn begin_write(&mut self) -> bool {
        if self.writing.is_some() || !self.changed && self.queued.is_empty() {
            return false;
        }
        self.changed = false;
        self.memory.commit = self.commit;
        self.writing = Some(self.memory.clone());
        self.after_write = std::mem::take(&mut self.queued);
        true
    }

    /// The sync is done.
    pub fn written(&mut self, log: &VoterLog) {
        let Some(written) = self.writing.take() else { return };
        self.saved = written;
        let durable = self.durable_len();
        log.durable(durable);
        self.out.append(&mut self.after_write);
        self.matched[self.me] = durable;
        self.advance();
    }

    /// How much of the log in memory is on the disk.
    fn durable_len(&self) -> u64 {
        let pairs = self.saved.log.iter().zip(&self.memory.log);
        pairs.take_while(|(saved, now)| saved.term == now.term).count() as u64
    }

    fn adopt_term(&mut self, term: u64) {
        if term > self.memory.term {
            (self.memory.term, self.memory.voted) = (term, None);
            (self.role, self.leader) = (Role::Follows, None);
            self.changed = true;
        }
    }

    fn push(&mut self, entry: Entry, log: &VoterLog) {
        let index = self.memory.log.len() as u64 + 1;
        log.appended(entry.position(index, &self.roster), entry.meaning());
        self.memory.log.push(entry);
        self.changed = true;
    }

    /// Puts something into the log, as the leader.
    pub fn propose(&mut self, payload: Payload, log: &VoterLog) {
        if self.role == Role::Leads {
            let (term, leader) = (self.memory.term, self.me);
            self.push(Entry { term, leader, payload }, log);
            self.beat = 0;
        }
    }

    pub fn elect(&mut self, now: Ns, log: &VoterLog) {
        if !self.is_voter() {
            return;
        }
        self.memory.term += 1;
        self.memory.voted = Some(self.me);
        (self.role, self.leader, self.heard_leader) = (Role::Elects, None, now);
        self.votes = NodeSet::of([self.me]);
        self.changed = true;
        let (term, last) = (self.memory.term, self.last());
        for to in self.others() {
            let disk = self.members().map(|(_, members)| members.disks[to]);
            // Its own vote is durable first.
            self.queued.push((to, disk, Letter::Vote { term, last }));
        }
        self.count_votes(now, log);
    }

    fn count_votes(&mut self, now: Ns, log: &VoterLog) {
        if self.role == Role::Elects && self.voters().is_majority(self.votes) {
            (self.role, self.leader, self.led_since) = (Role::Leads, Some(self.me), now);
            self.next = [self.memory.log.len() as u64 + 1; NODES_MAX];
            self.matched = [0; NODES_MAX];
            self.matched[self.me] = self.durable_len();
            self.propose(Payload::Blank, log);
        }
    }

    /// Heartbeats, elections, changes of voters. `patience`: how long without a leader until this node elects.
    pub fn tick(&mut self, now: Ns, patience: Ns, log: &VoterLog) {
        if self.role == Role::Leads {
            self.change_members(log);
            if now >= self.beat + HEARTBEAT {
                self.beat = now;
                for to in self.others() {
                    self.append_to(to);
                }
            }
        } else if now >= self.heard_leader + patience {
            self.elect(now, log);
        }
    }

    fn others(&self) -> Vec<usize> {
        (0..self.roster.names().len()).filter(|to| *to != self.me).collect()
    }

    fn append_to(&mut self, to: usize) {
        let from = self.next[to].min(self.memory.log.len() as u64 + 1);
        let prev = (from - 1, self.term_at(from - 1));
        let entries = self.memory.log[from as usize - 1..].to_vec();
        let (term, commit) = (self.memory.term, self.commit);
        self.send(to, Letter::Append { term, prev, entries, commit });
    }

    pub fn take(&mut self, from: usize, to_disk: Option<u64>, letter: Letter, now: Ns, log: &VoterLog) {
        if to_disk.is_some_and(|disk| disk != self.disk) {
            self.out.push((from, None, Letter::OtherDisk(self.disk)));
            return;
        }
        match letter {
            Letter::Vote { term, last } => {
                self.adopt_term(term);
                let is_free = self.memory.voted.is_none_or(|voted| voted == from);
                let granted = term == self.memory.term && is_free && last >= self.last() && self.role == Role::Follows;
                if granted {
                    self.memory.voted = Some(from);
                    self.changed = true;
                    self.heard_leader = now;
                }
                let term = self.memory.term;
                self.send_synced(from, Letter::Voted { term, granted });
            }
            Letter::Voted { term, granted } => {
                self.adopt_term(term);
                if granted && term == self.memory.term && self.role == Role::Elects {
                    self.votes = self.votes.with(from);
                    self.count_votes(now, log);
                }
            }
            Letter::Append { term, prev, entries, commit } => {
                self.adopt_term(term);
                if term < self.memory.term {
                    let term = self.memory.term;
                    self.send_synced(from, Letter::Appended { term, ok: false, index: 0 });
                    return;
                }
                if self.leader != Some(from) {
                    self.led_since = now;
                }
                (self.role, self.leader, self.heard_leader) = (Role::Follows, Some(from), now);
                self.take_entries(from, prev, entries, commit, log);
            }
            Letter::Appended { term, ok, index } => {
                self.adopt_term(term);
                if term != self.memory.term || self.role != Role::Leads {
                    return;
                }
                if ok {
                    self.matched[from] = self.matched[from].max(index);
                    self.next[from] = self.next[from].max(index + 1);
                    self.advance();
                } else {
                    self.next[from] = (index + 1).min(self.next[from]).max(1);
                    self.append_to(from);
                }
            }
            // Disks are numbered in the order of time: this letter may be an old one.
            Letter::OtherDisk(disk) => self.known_disks[from] = self.known_disks[from].max(Some(disk)),
            Letter::Propose(command) => self.propose(Payload::Command(command), log),
        }
    }

    fn take_entries(&mut self, from: usize, prev: (u64, u64), entries: Vec<Entry>, commit: u64, log: &VoterLog) {
        let term = self.memory.term;
        if self.term_at(prev.0) != prev.1 {
            let index = (prev.0.saturating_sub(1)).min(self.memory.log.len() as u64);
            self.send_synced(from, Letter::Appended { term, ok: false, index });
            return;
        }
        let end = prev.0 + entries.len() as u64;
        for (at, entry) in (prev.0 + 1..).zip(entries) {
            if self.term_at(at) == entry.term {
                continue;
            }
            if at <= self.memory.log.len() as u64 {
                log.truncated(at);
                self.memory.log.truncate(at as usize - 1);
            }
            self.push(entry, log);
        }
        self.commit = self.commit.max(commit.min(end));
        self.send_synced(from, Letter::Appended { term, ok: true, index: end });
    }

    fn advance(&mut self) {
        let reached = self.voters().majority_reached(&self.matched).unwrap_or(0);
        if self.role == Role::Leads && reached > self.commit && self.term_at(reached) == self.memory.term {
            self.commit = reached;
            self.beat = 0;
        }
    }

    /// A node that has come back with another disk leaves, and is taken in again when it has caught up.
    fn change_members(&mut self, log: &VoterLog) {
        let Some((at, now)) = self.members() else { return };
        if at > self.commit || self.term_at(self.commit) != self.memory.term {
            return;
        }
        if !now.sets[1].is_empty() {
            self.propose(Payload::Members(Members { sets: [now.sets[1], NodeSet::default()], ..now }), log);
            return;
        }
        for slot in 0..self.roster.names().len() {
            let Some(disk) = self.known_disks[slot].filter(|disk| *disk > now.disks[slot]) else { continue };
            if now.sets[0].contains(slot) {
                let without = NodeSet(now.sets[0].0 & !NodeSet::of([slot]).0);
                self.propose(Payload::Members(Members { sets: [now.sets[0], without], ..now }), log);
            } else {
                let mut disks = now.disks;
                disks[slot] = disk;
                (self.next[slot], self.matched[slot]) = (1, 0);
                self.propose(Payload::Members(Members { disks, ..now }), log);
            }
            return;
        }
        let behind = |slot: &usize| self.matched[*slot] + 3 >= self.memory.log.len() as u64;
        let is_known = |slot: &usize| self.known_disks[*slot].is_some();
        let all = 0..self.roster.names().len();
        let back = all.filter(|slot| !now.sets[0].contains(*slot)).filter(is_known).find(behind);
        if let Some(slot) = back {
            self.propose(Payload::Members(Members { sets: [now.sets[0], now.sets[0].with(slot)], ..now }), log);
        }
    }
}
