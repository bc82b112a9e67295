//! What the control thread of a node does: as Raft's leader it deposes a silent master, as the successor it is promoted, as a
//! master without a page it hands over. A few lines of the planner, as far as leases need it.

use holdfast_types::Epoch;

use super::Sabotage;
use super::node::Node;
use super::raft::{Letter, Payload, Role as RaftRole};
use super::world::Ns;
use crate::grant::{Page, Stage};
use crate::id::NodeId;
use crate::record::{Command, Mastership, Record, Role};

const MS: Ns = 1_000_000;
const REPEAT: Ns = 50 * MS;
/// A successor that is not promoted after this time is replaced.
const SUCCESSOR_TIME: Ns = 2_000 * MS;

impl Node {
    /// Called in each turn, after the messages. `now` is real time: it decides only how often something is repeated.
    pub fn control(&mut self, now: Ns, page: &mut Option<Page>, draw: u64) {
        let patience = self.patience(draw);
        self.raft.tick(now, patience, &self.log);
        self.keep_leadership_off_the_master(now);
        let Some(record) = self.record.clone() else { return };
        self.lead(now, &record);
        let command = self.as_successor(&record, draw).or_else(|| self.as_master(&record, page));
        if let Some(command) = command.filter(|_| now >= self.asked_at + REPEAT) {
            self.asked_at = now;
            self.propose(command);
        }
    }

    fn patience(&self, draw: u64) -> Ns {
        let own = self.me as u64 * 70 + draw % 80;
        (if self.is_master() { 2_000 } else { 600 + own }) * MS
    }

    fn keep_leadership_off_the_master(&mut self, now: Ns) {
        let leads_and_is_master = self.raft.leader.is_some() && self.raft.leader == self.view().applied.master;
        let long = now >= self.raft.led_since + (900 + 50 * self.me as Ns) * MS;
        if leads_and_is_master && !self.is_master() && long && self.raft.role == RaftRole::Follows {
            self.raft.elect(now, &self.log);
        }
    }

    pub fn propose(&mut self, command: Command) {
        match self.raft.leader {
            Some(leader) if leader == self.me => self.raft.propose(Payload::Command(command), &self.log),
            Some(leader) => self.raft.out.push((leader, None, Letter::Propose(command))),
            None => {}
        }
    }

    fn slot_name(&self, slot: usize) -> NodeId {
        self.roster.names()[slot]
    }

    /// A node that can be promoted, not `except`.
    fn successor(&self, record: &Record, except: Option<usize>) -> Option<usize> {
        let heard = self.beat.seen().heard;
        let all = (0..self.roster.names().len()).filter(|slot| Some(*slot) != except && heard.contains(*slot));
        let fit = |slot: &usize| {
            let name = self.slot_name(*slot);
            let in_set = record.master.is_none() || record.sync_set.contains(name);
            record.members.get(&name) == Some(&Role::Data) && in_set && self.is_good(*slot)
        };
        all.into_iter().find(fit)
    }

    fn is_good(&self, slot: usize) -> bool {
        self.sabotage.compares_no_clocks() || !self.beat.seen().clock_off.contains(slot)
    }

    /// Deposes a master of which a majority counts silence, and replaces a successor that is not promoted.
    fn lead(&mut self, now: Ns, record: &Record) {
        if self.raft.role != RaftRole::Leads || self.raft.commit < self.raft.memory.log.len() as u64 {
            return;
        }
        let seen = self.beat.seen();
        let majority = seen.is_silent && seen.epoch == record.epoch;
        let named = match record.mastership {
            Mastership::Serving { .. } if majority => None,
            Mastership::Serving { .. } => return,
            Mastership::Free { successor } => successor,
            Mastership::Deposed { successor, .. } => Some(successor),
        };
        if let Some(named) = named {
            let slot = self.roster.slot(named);
            let since = self.named_since(record, now);
            let lost = slot.is_some_and(|slot| slot != self.me && !seen.heard.contains(slot));
            if !(lost && since >= 600 * MS || since >= SUCCESSOR_TIME) {
                return;
            }
        }
        let is_first = record.master.is_none();
        let except = if is_first { None } else { named.or(record.master).and_then(|node| self.roster.slot(node)) };
        let Some(successor) = self.successor(record, except) else { return };
        let (expected_epoch, successor) = (record.epoch, self.slot_name(successor));
        let depose = Command::Depose { expected_epoch, successor, accept_loss: false, seen: None };
        self.raft.propose(Payload::Command(depose), &self.log);
        self.named_at = Some((record.revision, now));
    }

    fn named_since(&mut self, record: &Record, now: Ns) -> Ns {
        if self.named_at.is_none_or(|(revision, _)| revision != record.revision) {
            self.named_at = Some((record.revision, now));
        }
        self.named_at.map_or(0, |(_, at)| now - at)
    }

    fn as_successor(&mut self, record: &Record, draw: u64) -> Option<Command> {
        let me = self.slot_name(self.me);
        let waited_ms = match record.mastership {
            Mastership::Free { successor } if successor == Some(me) => 0,
            Mastership::Deposed { successor, .. } if successor == me => self.waited_ms(record)?,
            _ => return None,
        };
        if !self.beat.is_clock_good() {
            return None;
        }
        if self.attempted != Some((record.epoch, record.revision)) {
            self.attempted = Some((record.epoch, record.revision));
            self.attempt = draw | 1;
        }
        Some(Command::Promote {
            node: me,
            expected_epoch: record.epoch,
            epoch_at_least: Epoch(0),
            waited_ms,
            accept_loss: false,
            attempt: self.attempt,
            compared: Default::default(),
            becomes: None,
        })
    }

    /// `None`: the old lease may not be out.
    fn waited_ms(&self, record: &Record) -> Option<u64> {
        if self.sabotage == Sabotage::SilenceIsDeath {
            return Some(record.lease.wait_out_ms());
        }
        let waited_ms = self.beat.waited_ns()? / MS;
        (waited_ms >= record.lease.wait_out_ms()).then_some(waited_ms)
    }

    fn as_master(&mut self, record: &Record, page: &mut Option<Page>) -> Option<Command> {
        let applied = self.view().applied;
        if !self.is_master() || applied.stage == Stage::Free || record.epoch != applied.epoch {
            return None;
        }
        let (epoch, by) = (record.epoch, self.slot_name(self.me));
        let open = page.is_some_and(|page| page.epoch == epoch && !page.closed);
        let off = self.beat.is_clock_off();
        if !open || off || self.hands_over == Some(epoch) {
            if self.closed != Some(epoch) {
                self.closed = Some(epoch);
                self.close(page);
            }
            let successor = self.successor(record, Some(self.me)).unwrap_or(self.me);
            return Some(Command::HandOver { epoch, by, successor: self.slot_name(successor) });
        }
        if applied.stage != Stage::Serving {
            return None;
        }
        let heard = self.beat.seen().heard;
        let standby =
            |slot: &usize| *slot != self.me && record.members.get(&self.slot_name(*slot)) == Some(&Role::Data);
        let change = record.sync_change + 1;
        for slot in (0..self.roster.names().len()).filter(standby) {
            let node = self.slot_name(slot);
            if heard.contains(slot) && !record.sync_set.contains(node) {
                return Some(Command::GrowSyncSet { epoch, by, node, change });
            }
        }
        None
    }
}
