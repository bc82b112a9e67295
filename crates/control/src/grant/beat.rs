//! A turn of the pulse loop: the state machines of this module, joined. A supervisor's pulse thread and the simulation run it; the
//! caller brings readings of the clocks and messages, and sends what comes out.
//!
//! A message counts only if it belongs to the present run of its sender. A copy of an old one, sent again by another program, must
//! not make a node that is lost look alive:
//!
//! | a message | then |
//! |---|---|
//! | an answer to a pulse of this run, of the run that is known of its sender | counts; that its sender is alive it shows only if no newer pulse was answered before |
//! | the same, of another run, to a newer pulse than the known run has answered | that run is known from now on; counts |
//! | a pulse of the known run, newer than those before | counts, and is judged and answered |
//! | a pulse of another run | is answered without a grant, which lets its sender prove itself to this node, and counts for nothing |
//! | any message of a run after which that node's directory was started again ([`EndedRuns`]) | nothing |
//! | anything else: of another group, of this node itself, late, repeated | nothing |
//!
//! Failure: none; what does not arrive in time makes a lease shorter or a wait longer.

use std::sync::Arc;

use holdfast_types::Epoch;

use super::clocks::{ClockVerdict, PeerClocks};
use super::ended_runs::EndedRuns;
use super::holder::Holder;
use super::log::{LogView, Stage, VoterLog};
use super::pulse::{Answers, PULSE_EVERY_MS, Pulse, Report};
use super::seen::Seen;
use super::sent::SentPulses;
use super::silence::Heard;
use super::time::{Moment, Reading, Watch};
use super::voter::Voter;
use super::voters::{NODES_MAX, NodeSet, Roster};
use super::wait::Wait;
use crate::lease::LeaseTerms;
use crate::record::RECORD_VERSION_GRANTS;
#[cfg(test)]
use crate::simulation::grants::Sabotage;

const MS: u64 = 1_000_000;
/// Pulses that are due at once are sent this far apart: the newest 256 are remembered, and must cover a lease.
const URGENT_EVERY_NS: u64 = 5 * MS;

/// The lease page of a mastership, as the pulse loop sees it. It outlives the supervisor, and not the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    pub epoch: Epoch,
    pub end: Reading,
    /// For good.
    pub closed: bool,
}

/// To whom a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Node(usize),
    Others,
}

/// What a node says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Own {
    pub server_ready: bool,
    /// No sync of its trail has been under way for the time of a lease.
    pub disk_moves: bool,
}

/// The run of another node.
#[derive(Clone, Copy, Default, Debug)]
struct Run {
    incarnation: u64,
    /// The newest pulse of it.
    newest: u64,
    /// The newest pulse of this node that it has answered.
    answered: u64,
}

/// The newest words of another node.
#[derive(Clone, Copy, Default, Debug)]
struct Said {
    server_ready: bool,
    disk_moves: bool,
    clock_off: bool,
}

/// The pulse loop of one run of a supervisor.
pub struct Beat {
    me: usize,
    roster: Roster,
    log: Arc<VoterLog>,
    ended: Arc<EndedRuns>,
    pub(crate) watch: Watch,
    pub(crate) voter: Voter,
    holder: Option<Holder>,
    wait: Option<Wait>,
    heard: Heard,
    clocks: PeerClocks,
    sent: SentPulses,
    runs: [Run; NODES_MAX],
    said: [Said; NODES_MAX],
    pulsed: Moment,
    is_urgent: bool,
    /// The page of this node's mastership; the caller closes it, and shows its end to the server.
    pub page: Option<Page>,
    pub own: Own,
    #[cfg(test)]
    pub(crate) sabotage: Sabotage,
    #[cfg(test)]
    believed: super::beat_sabotaged::Believed,
}

impl Beat {
    /// Begins a run, after the lock of the control directory was taken and its log was read. `incarnation`: random, not 0.
    pub fn new(
        me: usize,
        roster: Roster,
        log: Arc<VoterLog>,
        ended: Arc<EndedRuns>,
        reading: Reading,
        incarnation: u64,
    ) -> Beat {
        let watch = Watch::new(reading);
        Beat {
            me,
            roster,
            log,
            ended,
            voter: Voter::new(me, roster, watch.now()),
            watch,
            holder: None,
            wait: None,
            heard: Heard::default(),
            clocks: PeerClocks::new(roster.names().len() - 1),
            sent: SentPulses::new(incarnation),
            runs: Default::default(),
            said: Default::default(),
            pulsed: Moment::default(),
            is_urgent: true,
            page: None,
            own: Own::default(),
            #[cfg(test)]
            sabotage: Sabotage::None,
            #[cfg(test)]
            believed: Default::default(),
        }
    }

    /// What the log said at the last turn.
    pub fn view(&self) -> &LogView {
        &self.voter.view
    }

    pub fn is_master(&self) -> bool {
        self.view().applied.master == Some(self.me)
    }

    /// One turn. `reading` is from after all queued messages were read into `inbox`; each has the slot of its sender.
    pub fn turn(&mut self, reading: Reading, inbox: &[(usize, Pulse)], out: &mut dyn FnMut(To, &Pulse)) {
        #[cfg(test)]
        let reading = self.sabotage.read(reading);
        let now = self.watch.turn(reading);
        self.look(now);
        self.hold();
        for (from, message) in inbox {
            self.take(*from, message, reading, now, out);
        }
        let since_ns = now.since(self.pulsed);
        let is_first = self.sent.newest() == 0;
        if is_first || since_ns >= PULSE_EVERY_MS * MS || self.is_urgent && since_ns >= URGENT_EVERY_NS {
            self.is_urgent = false;
            self.pulsed = now;
            self.pulse(reading, now, out);
        }
        self.show();
    }

    /// When the next turn is due at the latest, in nanoseconds of watched time from the last one.
    pub fn due_ns(&self) -> u64 {
        let every_ns = if self.is_urgent { URGENT_EVERY_NS } else { PULSE_EVERY_MS * MS };
        every_ns.saturating_sub(self.watch.now().since(self.pulsed))
    }

    fn look(&mut self, now: Moment) {
        #[cfg(test)]
        let before = (self.voter.granted, self.voter.view.voters.at);
        self.voter.look(&self.log, now);
        #[cfg(test)]
        self.sabotage.look(&mut self.voter, before);
        let (committed, applied) = (self.view().committed_ending, self.view().applied);
        let is_successor = applied.stage == Stage::Deposed && applied.successor == Some(self.me);
        if !is_successor {
            self.wait = None;
        } else if self.wait.as_ref().is_none_or(|wait| wait.ending() != committed) {
            let terms = LeaseTerms::by_grants(applied.lease_ms);
            let next = self.sent.newest() + 1;
            let wait = Wait::new(committed, &terms, self.sent.incarnation(), next, now);
            #[cfg(test)]
            let wait = self.believed.apply(wait, self.sabotage, now);
            self.wait = Some(wait);
            self.is_urgent = true;
        }
    }

    /// Takes the lease up: of a mastership that this run has begun, or of the page that an earlier run has left.
    fn hold(&mut self) {
        let (applied, voters) = (self.view().applied, self.view().voters);
        if let (Some(holder), Some(page)) = (&mut self.holder, &self.page)
            && page.epoch == holder.epoch()
            && page.closed
        {
            holder.close();
        }
        if !self.is_master() || applied.stage != Stage::Serving {
            return;
        }
        let open = self.page.filter(|page| page.epoch == applied.epoch && !page.closed);
        if let (Some(page), true) = (open, self.holder.as_ref().is_none_or(|holder| holder.epoch() != applied.epoch)) {
            self.holder = Some(Holder::new(applied.epoch, applied.lease_ms, page.end));
            self.is_urgent = true;
        }
        if let Some(holder) = &mut self.holder {
            holder.set_voters(voters, &self.sent);
        }
    }

    /// Writes the end of the lease into the page. A page that was closed stays so.
    fn show(&mut self) {
        if let (Some(holder), Some(page)) = (&self.holder, &mut self.page)
            && page.epoch == holder.epoch()
        {
            #[cfg(test)]
            let was_closed = page.closed && self.sabotage != Sabotage::LateGrantReopens;
            #[cfg(not(test))]
            let was_closed = page.closed;
            (page.end, page.closed) = (holder.end(), was_closed || holder.is_closed());
        }
    }

    /// Closes the page for good, before HandOver is proposed.
    pub fn close(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.close();
        }
        if let Some(page) = &mut self.page {
            (page.end, page.closed) = (Reading::default(), true);
        }
    }

    fn take(&mut self, from: usize, message: &Pulse, reading: Reading, now: Moment, out: &mut dyn FnMut(To, &Pulse)) {
        let cluster = self.view().applied.cluster;
        let is_foreign = cluster != 0 && message.cluster != 0 && message.cluster != cluster;
        if from == self.me || from >= NODES_MAX || is_foreign || self.ended.has_ended(from, message.incarnation) {
            return;
        }
        match message.answers {
            None if self.runs[from].incarnation != message.incarnation => {
                self.is_urgent = true;
                self.answer(from, message, false, reading, now, out);
            }
            None if message.sequence <= self.runs[from].newest => {}
            None => {
                self.runs[from].newest = message.sequence;
                self.hear(from, message, reading, now, None);
                let granted = self.judge(message, now);
                self.answer(from, message, granted, reading, now, out);
            }
            Some(answers) => {
                let Some(sent) = self.sent.at(answers.incarnation, answers.sequence) else { return };
                let Some(is_newer) = self.note_answer(from, message.incarnation, answers.sequence) else { return };
                if is_newer {
                    self.hear(from, message, reading, now, Some(sent));
                }
                self.take_answer(from, message, now);
            }
        }
    }

    /// By the table of the module; `sequence`: of the pulse of this node that is answered. Whether it is newer than all that were
    /// answered before; `None`: it is of a run that has ended.
    fn note_answer(&mut self, from: usize, incarnation: u64, sequence: u64) -> Option<bool> {
        let run = &mut self.runs[from];
        let is_newer = sequence > run.answered;
        if run.incarnation != incarnation {
            *run = is_newer.then_some(Run { incarnation, ..Run::default() })?;
        }
        run.answered = run.answered.max(sequence);
        Some(is_newer)
    }

    fn answer(
        &self,
        to: usize,
        pulse: &Pulse,
        granted: bool,
        reading: Reading,
        now: Moment,
        out: &mut dyn FnMut(To, &Pulse),
    ) {
        let answers = Answers { incarnation: pulse.incarnation, sequence: pulse.sequence, granted };
        #[allow(unused_mut)]
        let mut answer = self.message(Some(answers), reading, now);
        #[cfg(test)]
        if granted && self.sabotage == Sabotage::EmptyDiskGrants {
            answer.epoch = pulse.epoch;
        }
        out(To::Node(to), &answer);
    }

    /// What any message shows. `sent`: when the pulse was sent that it answers.
    fn hear(&mut self, from: usize, message: &Pulse, reading: Reading, now: Moment, sent: Option<Reading>) {
        let stood = self.clocks.take(from, message, reading, sent);
        #[cfg(test)]
        let stood = stood && self.sabotage != Sabotage::Thaw && !self.sabotage.compares_no_clocks();
        if stood {
            if let Some(holder) = &mut self.holder {
                holder.stood_still(&self.sent);
            }
            self.is_urgent = true;
        }
        self.is_urgent |= self.heard.take(from, message, now);
        let Pulse { server_ready, disk_moves, clock_off, .. } = *message;
        self.said[from] = Said { server_ready, disk_moves, clock_off };
        #[cfg(test)]
        self.believed.note(from, message.report, self.sabotage, now);
    }

    fn take_answer(&mut self, from: usize, answer: &Pulse, now: Moment) {
        if let Some(holder) = &mut self.holder {
            #[cfg(test)]
            if self.sabotage == Sabotage::LateGrantReopens {
                holder.reopen();
            }
            holder.answered(from, answer, &self.sent);
        }
        if let Some(wait) = &mut self.wait {
            wait.answered(from, answer, now);
        }
    }

    fn judge(&mut self, pulse: &Pulse, now: Moment) -> bool {
        #[cfg(test)]
        if self.sabotage.judges_otherwise() {
            return self.judge_otherwise(pulse, now);
        }
        self.voter.ask(pulse, &self.log, now).is_ok()
    }

    fn pulse(&mut self, reading: Reading, now: Moment, out: &mut dyn FnMut(To, &Pulse)) {
        let sequence = self.sent.next(reading);
        let mut pulse = Pulse { sequence, ..self.message(None, reading, now) };
        let holds =
            self.holder.as_ref().is_some_and(|holder| holder.epoch() == self.voter.epoch() && !holder.is_closed());
        pulse.asks = holds && !self.is_clock_off() && self.is_master() && self.view().applied.stage == Stage::Serving;
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
        out(To::Others, &pulse);
    }

    fn report(&self, now: Moment) -> Option<Report> {
        let report = self.voter.report(now);
        #[cfg(test)]
        let report = self.believed.report(report, self.sabotage, &self.voter, now);
        report
    }

    fn message(&self, answers: Option<Answers>, reading: Reading, now: Moment) -> Pulse {
        let is_open = |page: &Page| page.epoch == self.voter.epoch() && !page.closed;
        let end = self.page.filter(is_open).map_or(Reading::default(), |page| page.end);
        Pulse {
            cluster: self.view().applied.cluster,
            node: self.roster.names()[self.me],
            incarnation: self.sent.incarnation(),
            epoch: self.voter.epoch(),
            lease_left_ms: u32::try_from(end.shortest_since(&reading).div_ceil(MS)).unwrap_or(u32::MAX),
            heard: self.heard.nodes(now),
            record_version: RECORD_VERSION_GRANTS as u8,
            silent: self.voter.is_silent(now),
            server_ready: self.own.server_ready,
            disk_moves: self.own.disk_moves,
            clock_off: !self.is_clock_good(),
            clock: reading,
            voters_at: self.view().voters.at,
            report: self.report(now),
            answers,
            ..Pulse::default()
        }
    }

    /// Whether this node's clock differs from those of all others, so that it may not be master.
    pub fn is_clock_off(&self) -> bool {
        let is_off = self.clocks.verdict() == ClockVerdict::Off;
        #[cfg(test)]
        let is_off = is_off && !self.sabotage.compares_no_clocks();
        is_off
    }

    /// Whether it runs as that of another node, so that this node may be a successor.
    pub fn is_clock_good(&self) -> bool {
        let is_good = self.clocks.verdict() == ClockVerdict::Good;
        #[cfg(test)]
        let is_good = is_good || self.sabotage.compares_no_clocks();
        is_good
    }

    /// Whether each of a majority counts silence of the master of the applied epoch.
    pub fn is_master_silent(&self) -> bool {
        let (now, voters) = (self.watch.now(), &self.view().voters);
        let own = self.voter.is_silent(now);
        #[cfg(test)]
        if self.sabotage == Sabotage::OneSidedView {
            return own;
        }
        self.heard.majority_is_silent(self.voter.epoch(), self.me, own, voters, now)
    }

    /// How long this node has waited for the old lease, in nanoseconds; `None`: it is not named as its successor.
    pub fn waited_ns(&self) -> Option<u64> {
        self.wait.as_ref().map(|wait| wait.waited_ns(&self.view().voters, self.watch.now()))
    }

    /// What was seen, for other threads.
    pub fn seen(&self) -> Seen {
        let now = self.watch.now();
        let heard = self.heard.nodes(now).with(self.me);
        let saying = |says: fn(&Said) -> bool| NodeSet::of((0..NODES_MAX).filter(|slot| says(&self.said[*slot])));
        let of_me = |set: NodeSet, is_so: bool| if is_so { set.with(self.me) } else { set };
        let quiet_ms =
            |slot: usize| self.heard.quiet_ns(slot, now).map(|ns| u32::try_from(ns / MS).unwrap_or(u32::MAX));
        Seen {
            epoch: self.voter.epoch(),
            is_silent: self.is_master_silent(),
            heard,
            server_ready: of_me(saying(|said| said.server_ready), self.own.server_ready),
            disk_moves: of_me(saying(|said| said.disk_moves), self.own.disk_moves),
            clock_off: of_me(saying(|said| said.clock_off), !self.is_clock_good()),
            is_own_clock_off: self.is_clock_off(),
            waited_ms: self.waited_ns().map(|ns| u32::try_from(ns / MS).unwrap_or(u32::MAX)),
            quiet_ms: std::array::from_fn(quiet_ms),
        }
    }
}

/// What the simulation leaves out.
#[cfg(test)]
impl Beat {
    pub fn believe_appended(&mut self, ending: Option<super::voters::LogPosition>) {
        self.believed.appended = ending;
    }

    fn judge_otherwise(&mut self, pulse: &Pulse, now: Moment) -> bool {
        let (kept, mut pulse) = (self.voter.view, *pulse);
        self.sabotage.believe(&mut self.voter.view, &mut pulse, self.me, &self.roster);
        let granted = self.voter.ask(&pulse, &self.log, now).is_ok();
        self.voter.view = kept;
        self.believed.granted_once |= granted;
        granted
    }
}

#[cfg(test)]
#[path = "beat_tests.rs"]
mod tests;
