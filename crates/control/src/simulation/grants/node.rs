//! One run of a supervisor: its pulse loop ([`crate::grant::Beat`]), its Raft, and the record that it has applied.

use std::sync::Arc;

use holdfast_types::Epoch;

use super::Sabotage;
use super::raft::{Entry, Members, Payload, Raft};
use super::world::Ns;
use crate::grant::{Applied, Beat, LogView, Meaning, Own, Page, Pulse, Reading, Roster, To, VoterLog};
use crate::record::{Command, Record, apply};

/// A pulse in the socket's buffer: from which slot, and when it was sent.
pub type Received = (usize, Ns, Pulse);

pub struct Node {
    pub me: usize,
    pub roster: Roster,
    pub sabotage: Sabotage,
    pub raft: Raft,
    pub record: Option<Record>,
    pub members: Option<Members>,
    pub applied: u64,
    pub log: Arc<VoterLog>,
    pub beat: Beat,
    pub out: Vec<(usize, Pulse)>,
    /// Where the newest message was sent that this node has read.
    pub newest_read: Ns,
    /// The attempt of the last promotion that this run proposed.
    pub attempt: u64,
    /// The mastership that this node gives away.
    pub hands_over: Option<Epoch>,
    pub asked_at: Ns,
    /// Since when this leader knows the successor of that revision.
    pub named_at: Option<(u64, Ns)>,
    pub attempted: Option<(Epoch, u64)>,
    pub closed: Option<Epoch>,
    pub deposes: u64,
}

impl Node {
    pub fn start(me: usize, roster: Roster, raft: Raft, log: VoterLog, reading: Reading, incarnation: u64) -> Node {
        let log = Arc::new(log);
        let mut beat = Beat::new(me, roster, log.clone(), Arc::default(), reading, incarnation);
        beat.own = Own { server_ready: true, disk_moves: true };
        Node {
            me,
            roster,
            sabotage: Sabotage::None,
            raft,
            record: None,
            members: None,
            applied: 0,
            log,
            beat,
            out: Vec::new(),
            newest_read: 0,
            attempt: 0,
            hands_over: None,
            asked_at: 0,
            named_at: None,
            attempted: None,
            closed: None,
            deposes: 0,
        }
    }

    pub fn view(&self) -> &LogView {
        self.beat.view()
    }

    pub fn is_master(&self) -> bool {
        self.beat.is_master()
    }

    /// One turn of the pulse loop. `reading` is from after `inbox` was read.
    pub fn turn(&mut self, reading: Reading, inbox: Vec<Received>, page: &mut Option<Page>) {
        self.newest_read = inbox.iter().fold(self.newest_read, |newest, (_, sent_at, _)| newest.max(*sent_at));
        let inbox: Vec<(usize, Pulse)> = inbox.into_iter().map(|(from, _, message)| (from, message)).collect();
        self.begin_page(page);
        if self.sabotage == Sabotage::EarlyReport {
            self.beat.believe_appended(self.appended_ending());
        }
        self.beat.page = *page;
        let (me, nodes, out) = (self.me, self.roster.names().len(), &mut self.out);
        self.beat.turn(reading, &inbox, &mut |to, pulse| match to {
            To::Node(to) => out.push((to, *pulse)),
            To::Others => out.extend((0..nodes).filter(|to| *to != me).map(|to| (to, *pulse))),
        });
        *page = self.beat.page;
    }

    /// The page of a mastership that this run has begun.
    fn begin_page(&self, page: &mut Option<Page>) {
        let Some(record) = &self.record else { return };
        let mine = record.attempt == self.attempt && self.attempt != 0;
        let serves = record.is_served_by(self.roster.names()[self.me], record.epoch);
        if mine && serves && page.is_none_or(|page| page.epoch < record.epoch) {
            *page = Some(Page { epoch: record.epoch, end: Reading::default(), closed: false });
        }
    }

    fn appended_ending(&self) -> Option<crate::grant::LogPosition> {
        let entries = self.raft.memory.log.iter().enumerate().rev();
        let mut endings = entries.filter(|(_, entry): &(usize, &Entry)| matches!(entry.meaning(), Meaning::Ends(_)));
        endings.next().map(|(at, entry)| entry.position(at as u64 + 1, &self.roster))
    }

    /// Closes the page for good, before HandOver is proposed.
    pub fn close(&mut self, page: &mut Option<Page>) {
        self.beat.page = *page;
        self.beat.close();
        *page = self.beat.page;
    }

    /// Applies what is committed; returns the new records.
    pub fn apply(&mut self) -> Vec<(u64, Option<Record>)> {
        let mut records = Vec::new();
        while self.applied < self.raft.commit.min(self.raft.memory.log.len() as u64) {
            let entry = self.raft.memory.log[self.applied as usize].clone();
            self.applied += 1;
            let refused = match &entry.payload {
                Payload::Command(command) => apply(&mut self.record, command).is_err(),
                Payload::Members(members) => {
                    self.members = Some(*members);
                    false
                }
                Payload::Blank => false,
            };
            let votes = self.members.is_some_and(|now| {
                now.disks[self.me] == self.raft.disk && now.sets.iter().any(|set| set.contains(self.me))
            });
            let position = entry.position(self.applied, &self.roster);
            let applied = Applied::of(self.record.as_ref(), &self.roster, votes);
            self.log.applied(position, entry.meaning(), refused, applied);
            if matches!(&entry.payload, Payload::Command(Command::Depose { .. })) && !refused {
                self.deposes += 1;
            }
            records.push((self.applied, self.record.clone()));
        }
        records
    }
}
