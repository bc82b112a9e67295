//! One run of a supervisor: its pulse loop over the state machines of [`crate::grant`], and the record that it has applied.

use holdfast_types::Epoch;

use super::Sabotage;
use super::raft::{Members, Payload, Raft};
use super::world::Ns;
use crate::grant::{
    Answers, Applied, ClockVerdict, Heard, Holder, LogPosition, LogView, Moment, NODES_MAX, PULSE_EVERY_MS, PeerClocks,
    Pulse, Reading, Roster, SentPulses, Stage, Voter, VoterLog, Wait, Watch,
};
use crate::lease::LeaseTerms;
use crate::record::{Command, Record, apply};

const MS: u64 = 1_000_000;

/// The lease page of an epoch. It outlives the supervisor, and not the machine.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub epoch: Epoch,
    pub end: Reading,
    pub closed: bool,
}

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
    pub log: VoterLog,
    pub watch: Watch,
    pub voter: Voter,
    pub holder: Option<Holder>,
    pub wait: Option<Wait>,
    pub heard: Heard,
    pub clocks: PeerClocks,
    pub sent: SentPulses,
    /// A grant in this run, for a voter that forgets those before it.
    granted_once: bool,
    /// The last report of each node, of whatever entry, in this node's time.
    old_reports: [Option<(LogPosition, Moment)>; NODES_MAX],
    next_pulse: Moment,
    pub urgent: bool,
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
    off: [bool; NODES_MAX],
}

impl Node {
    pub fn start(me: usize, roster: Roster, raft: Raft, log: VoterLog, reading: Reading, incarnation: u64) -> Node {
        let watch = Watch::new(reading);
        Node {
            me,
            roster,
            sabotage: Sabotage::None,
            raft,
            record: None,
            members: None,
            applied: 0,
            log,
            voter: Voter::new(me, roster, watch.now()),
            watch,
            holder: None,
            wait: None,
            heard: Heard::default(),
            clocks: PeerClocks::new(roster.names().len() - 1),
            sent: SentPulses::new(incarnation),
            granted_once: false,
            old_reports: [None; NODES_MAX],
            next_pulse: Moment::default(),
            urgent: true,
            out: Vec::new(),
            newest_read: 0,
            attempt: 0,
            hands_over: None,
            asked_at: 0,
            named_at: None,
            attempted: None,
            closed: None,
            deposes: 0,
            off: [false; NODES_MAX],
        }
    }

    pub fn view(&self) -> &LogView {
        &self.voter.view
    }

    /// Whether that node says that its clock is wrong, or not compared yet.
    pub fn heard_off(&self, slot: usize) -> bool {
        self.off[slot]
    }

    pub fn is_master(&self) -> bool {
        self.view().applied.master == Some(self.me)
    }

    /// One turn of the pulse loop. `reading` is from after `inbox` was read.
    pub fn turn(&mut self, reading: Reading, inbox: Vec<Received>, page: &mut Option<Page>) {
        let reading = match self.sabotage {
            Sabotage::SlewedClock => Reading { raw_ns: reading.boot_ns, ..reading },
            _ => reading,
        };
        let now = self.watch.turn(reading);
        self.look(now);
        self.hold(page);
        for (from, sent_at, message) in inbox {
            self.newest_read = self.newest_read.max(sent_at);
            self.take(from, &message, reading, now, page);
        }
        if self.urgent || now >= self.next_pulse {
            self.urgent = false;
            self.next_pulse = Moment(now.0 + PULSE_EVERY_MS * MS);
            self.pulse(reading, now, page);
        }
        self.show(page);
    }

    fn look(&mut self, now: Moment) {
        let granted = self.voter.granted;
        let known = self.voter.view.voters.at;
        self.voter.look(&self.log, now);
        let view = &mut self.voter.view;
        match self.sabotage {
            Sabotage::GrantAfterAppend => view.ended = Epoch(0),
            Sabotage::ChangeHidesGrant if known != LogPosition::default() => self.voter.granted = granted,
            _ => {}
        }
        let committed = self.view().committed_ending;
        let applied = self.view().applied;
        let is_successor = applied.stage == Stage::Deposed && applied.successor == Some(self.me);
        if !is_successor {
            self.wait = None;
        } else if self.wait.as_ref().is_none_or(|wait| wait.ending() != committed) {
            let terms = LeaseTerms::by_grants(applied.lease_ms);
            let next = self.sent.newest() + 1;
            self.wait = Some(Wait::new(committed, &terms, self.sent.incarnation(), next, now));
            self.believe_old_reports(now);
            self.urgent = true;
        }
    }

    fn believe_old_reports(&mut self, now: Moment) {
        let Some(wait) = &mut self.wait else { return };
        let committed = wait.ending();
        for (slot, report) in self.old_reports.iter().enumerate() {
            let Some((ending, grant)) = report else { continue };
            let believed = self.sabotage == Sabotage::StaleReport
                || self.sabotage == Sabotage::EarlyReport && Some(*ending) == committed;
            if let (true, Some(ending)) = (believed, committed) {
                wait.reported(slot, Some(crate::grant::Report { ending, age_ns: now.since(*grant) }), now);
            }
        }
    }

    /// Takes the lease up: of a mastership that this run has begun, or of the page that an earlier run has left.
    fn hold(&mut self, page: &mut Option<Page>) {
        let applied = self.view().applied;
        if !self.is_master() || applied.stage != Stage::Serving {
            return;
        }
        let mine = self.record.as_ref().is_some_and(|record| record.attempt == self.attempt && self.attempt != 0);
        if mine && page.is_none_or(|page| page.epoch < applied.epoch) {
            *page = Some(Page { epoch: applied.epoch, end: Reading::default(), closed: false });
        }
        let open = page.filter(|page| page.epoch == applied.epoch && !page.closed);
        if let (Some(page), true) = (open, self.holder.as_ref().is_none_or(|holder| holder.epoch() != applied.epoch)) {
            self.holder = Some(Holder::new(applied.epoch, applied.lease_ms, page.end));
        }
        let voters = self.view().voters;
        if let Some(holder) = &mut self.holder {
            holder.set_voters(voters, &self.sent);
        }
    }

    fn show(&mut self, page: &mut Option<Page>) {
        let (Some(holder), Some(page)) = (&self.holder, page) else { return };
        if page.epoch == holder.epoch() {
            (page.end, page.closed) = (holder.end(), holder.is_closed());
        }
    }

    /// Closes the page for good, before HandOver is proposed.
    pub fn close(&mut self, page: &mut Option<Page>) {
        if let Some(holder) = &mut self.holder {
            holder.close();
        }
        if let Some(page) = page {
            (page.end, page.closed) = (Reading::default(), true);
        }
    }

    fn take(&mut self, from: usize, message: &Pulse, reading: Reading, now: Moment, page: &mut Option<Page>) {
        let known = message.answers.and_then(|answers| self.sent.at(answers.incarnation, answers.sequence));
        let stood = self.clocks.take(from, message, reading, known);
        if stood && self.sabotage != Sabotage::Thaw && !self.sabotage.compares_no_clocks() {
            if let Some(holder) = &mut self.holder {
                holder.stood_still(&self.sent);
            }
            self.urgent = true;
        }
        self.urgent |= self.heard.take(from, message, now);
        self.off[from] = message.clock_off;
        if let Some(report) = message.report {
            let told = now.back(report.age_ns);
            let early = self.sabotage == Sabotage::EarlyReport;
            let older = self.old_reports[from]
                .filter(|(of, at)| *of == report.ending && *at < told || early && of.index > report.ending.index);
            self.old_reports[from] = older.or(Some((report.ending, told)));
        }
        if message.answers.is_none() {
            let granted = self.judge(message, now);
            let answers = Answers { incarnation: message.incarnation, sequence: message.sequence, granted };
            let mut answer = self.message(Some(answers), reading, now, page);
            if granted && self.sabotage == Sabotage::EmptyDiskGrants {
                answer.epoch = message.epoch;
            }
            self.out.push((from, answer));
            return;
        }
        if let Some(holder) = &mut self.holder {
            if self.sabotage == Sabotage::LateGrantReopens {
                holder.reopen();
            }
            holder.answered(from, message, &self.sent);
        }
        if let Some(wait) = &mut self.wait {
            wait.answered(from, message, now);
        }
        self.show(page);
    }

    fn judge(&mut self, pulse: &Pulse, now: Moment) -> bool {
        let mut pulse = *pulse;
        let kept = self.voter.view;
        if self.sabotage == Sabotage::EmptyDiskGrants && !self.voter.view.applied.votes {
            let master = self.roster.slot(pulse.node);
            let (cluster, epoch) = (pulse.cluster, pulse.epoch);
            let applied = Applied {
                cluster,
                epoch,
                master,
                stage: Stage::Serving,
                record_version: 2,
                votes: true,
                ..kept.applied
            };
            self.voter.view.applied = applied;
            self.voter.view.voters.at = pulse.voters_at;
        }
        match self.sabotage {
            Sabotage::GrantUnheard => pulse.heard = pulse.heard.with(self.me),
            // It looks at what is applied only.
            Sabotage::GrantAfterAppend => self.voter.view.ended = Epoch(0),
            _ => {}
        }
        let granted = self.voter.ask(&pulse, &self.log, now).is_ok();
        self.voter.view = kept;
        self.granted_once |= granted;
        granted
    }

    fn pulse(&mut self, reading: Reading, now: Moment, page: &mut Option<Page>) {
        let sequence = self.sent.next(reading);
        let mut pulse = self.message(None, reading, now, page);
        pulse.sequence = sequence;
        let asks =
            self.holder.as_ref().is_some_and(|holder| holder.epoch() == self.voter.epoch() && !holder.is_closed());
        let is_right = self.clocks.verdict() != ClockVerdict::Off || self.sabotage.compares_no_clocks();
        pulse.asks = asks && is_right && self.is_master() && self.view().applied.stage == Stage::Serving;
        if pulse.asks && self.judge(&pulse, now) {
            let me = self.me;
            if let Some(holder) = &mut self.holder {
                holder.granted(me, sequence, &self.sent);
            }
        }
        let own = self.report(now);
        if let Some(wait) = &mut self.wait {
            wait.reported(self.me, own, now);
        }
        let others = (0..self.roster.names().len()).filter(|to| *to != self.me);
        self.out.extend(others.map(|to| (to, pulse)));
    }

    fn report(&self, now: Moment) -> Option<crate::grant::Report> {
        let mut report = self.voter.report(now);
        if self.sabotage == Sabotage::EarlyReport {
            let entries = self.raft.memory.log.iter().enumerate().rev();
            let ended = |entry: &super::raft::Entry| matches!(entry.meaning(), crate::grant::Meaning::Ends(_));
            let ending = entries
                .filter(|(_, entry)| ended(entry))
                .map(|(at, entry)| entry.position(at as u64 + 1, &self.roster));
            let age_ns = now.since(self.voter.granted);
            report = ending.take(1).next().map(|ending| crate::grant::Report { ending, age_ns });
        }
        if self.sabotage == Sabotage::AgeForgotten && !self.granted_once {
            report = report.map(|report| crate::grant::Report { age_ns: u64::MAX, ..report });
        }
        report
    }

    fn message(&self, answers: Option<Answers>, reading: Reading, now: Moment, page: &Option<Page>) -> Pulse {
        let end = page
            .filter(|page| page.epoch == self.voter.epoch() && !page.closed)
            .map_or(Reading::default(), |page| page.end);
        let good = self.clocks.verdict() == ClockVerdict::Good || self.sabotage.compares_no_clocks();
        Pulse {
            cluster: self.view().applied.cluster,
            node: self.roster.names()[self.me],
            incarnation: self.sent.incarnation(),
            epoch: self.voter.epoch(),
            lease_left_ms: (end.shortest_since(&reading).div_ceil(MS)) as u32,
            heard: self.heard.nodes(now),
            record_version: 2,
            silent: self.voter.is_silent(now),
            server_ready: true,
            disk_moves: true,
            clock_off: !good,
            clock: reading,
            voters_at: self.view().voters.at,
            report: self.report(now),
            answers,
            ..Pulse::default()
        }
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
