//! The cuts, one after the other.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use holdfast_unsafe_disk::Random;

use super::Plan;
use super::bed::Bed;
use super::peer::{Peer, Start};
use super::table::{Totals, shown};
use crate::recorder::Verdict;

/// Even a disk that is set to fail at an operation that never comes fails after so long.
const LOAD_MAX: Duration = Duration::from_secs(5);
/// The power fails at random moments up to this after the load is up.
const MOMENT_MS_MAX: u64 = 400;
/// ... and at random operations up to two to the power of this; small numbers are as likely as large ones.
const OPERATION_DOUBLINGS_MAX: u64 = 12;
/// Doublings for operations on certain files, which are fewer.
const FILE_OPERATION_DOUBLINGS_MAX: u64 = 8;
/// Acknowledgements to wait for before a random moment begins.
const ACKNOWLEDGED_MIN: u64 = 20;
const SLOW_US_MAX: u64 = 8_000;
/// Backing directories kept in one run: a broken server damages at nearly every cut.
const KEPT_MAX: usize = 5;

struct Run<'a> {
    peer: &'a mut dyn Peer,
    plan: &'a Plan,
    bed: Bed,
    random: Random,
    totals: Totals,
    fresh: u32,
    /// The present directory has tables, so that something can be lost.
    has_tables: bool,
    /// Acknowledged and found in the present directory, already in the totals.
    counted: u64,
    found: u64,
    show: bool,
}

/// When the power fails in this round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    /// In the middle of an operation on certain files, counted from before the start of the server. A checkpoint's files
    /// see few operations: such a cut falls between its steps.
    Operation { after: u64, files: &'static str },
    /// In the load.
    Moment(Duration),
}

/// Runs all cuts; an error means that the test itself could not go on.
pub fn run(name: &str, peer: &mut dyn Peer, plan: &Plan) -> anyhow::Result<Totals> {
    println!(
        "  {name}: {} cuts, {} clients, a barrier takes {} us, seed {}",
        plan.cuts, plan.clients, plan.sync_us, plan.seed
    );
    let started = Instant::now();
    let (bed, random) = (Bed::new(plan)?, Random::new(plan.seed));
    let totals = Totals { seed: plan.seed, ..Totals::default() };
    let show = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut run = Run { peer, plan, bed, random, totals, fresh: 0, has_tables: false, counted: 0, found: 0, show };
    let outcome = run.all();
    // Also after an error: nothing may go on using the disk when it is unmounted.
    let killed = run.peer.kill();
    run.totals.took = started.elapsed();
    if show {
        println!();
    }
    outcome.with_context(|| format!("cut {}, seed {}", run.totals.cuts, plan.seed))?;
    killed?;
    Ok(run.totals)
}

impl Run<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        self.renew()?;
        while self.totals.cuts < self.plan.cuts {
            if self.totals.cuts.is_multiple_of(self.plan.fresh_every) && self.totals.cuts > 0 && self.has_tables {
                self.end_of_directory()?;
                self.renew()?;
            }
            self.round()?;
            self.progress();
        }
        self.end_of_directory()
    }

    /// An empty disk and a new directory, whose first start may be cut like any other.
    fn renew(&mut self) -> anyhow::Result<()> {
        if self.fresh > 0 {
            self.bed.disk().restore()?;
        }
        self.bed.clear()?;
        self.peer.fresh(self.bed.mount(), self.fresh)?;
        self.bed.disk().sync_all().context("syncing the new directory")?;
        (self.fresh, self.has_tables) = (self.fresh + 1, false);
        (self.counted, self.found) = (0, 0);
        Ok(())
    }

    /// The last look at a directory: a start without any cut, and a clean stop.
    fn end_of_directory(&mut self) -> anyhow::Result<()> {
        self.bed.arm(self.plan.seed, &[], false)?;
        match self.peer.start(&|| false)? {
            Start::Ready if !self.has_tables || self.is_whole()? => self.peer.stop(),
            Start::Ready => Ok(()),
            Start::Ended(why) => self.refused(&why),
            Start::PowerFailed => bail!("the power failed although nobody cut it"),
        }
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let when = self.draw_when();
        let mut rules = self.draw_slowness(when);
        if let When::Operation { after, files } = when {
            rules.push(format!("cut {files} after={after}"));
        }
        let seed = self.random.draw();
        self.bed.arm(seed, &rules, self.plan.lie)?;
        let bed = &self.bed;
        match self.peer.start(&|| bed.power_is_off())? {
            Start::Ended(why) => return self.refused(&why),
            Start::PowerFailed => self.totals.cuts_in_start += 1,
            Start::Ready if !self.has_tables => {
                self.make_tables()?;
                self.bed.arm(seed, &rules, self.plan.lie)?;
                self.load(when)?;
            }
            Start::Ready if !self.is_whole()? => return Ok(()),
            Start::Ready => self.load(when)?,
        }
        self.cut()
    }

    /// The tables are the ground of everything that is looked for; they are made in peace.
    fn make_tables(&mut self) -> anyhow::Result<()> {
        self.bed.arm(self.plan.seed, &[], false)?;
        if self.bed.power_is_off() {
            return Ok(());
        }
        self.peer.create_tables()?;
        if self.plan.settled {
            self.bed.disk().sync_all().context("syncing the tables")?;
        }
        self.has_tables = true;
        Ok(())
    }

    fn draw_when(&mut self) -> When {
        if self.random.percent(40) {
            return When::Moment(Duration::from_millis(self.random.below(MOMENT_MS_MAX)));
        }
        let (files, doublings) = match self.random.percent(40) {
            true => ("*", OPERATION_DOUBLINGS_MAX),
            false => (self.draw_files("*"), FILE_OPERATION_DOUBLINGS_MAX),
        };
        let most = 1 << (1 + self.random.below(doublings));
        When::Operation { after: self.random.below(most), files }
    }

    /// One of the patterns but that one.
    fn draw_files(&mut self, but: &str) -> &'static str {
        let others: Vec<&str> = self.peer.file_patterns().iter().copied().filter(|files| *files != but).collect();
        others[self.random.below(others.len() as u64) as usize]
    }

    /// In three of four rounds syncs of some files take long, so that others overtake them: above all those on which the
    /// power fails.
    fn draw_slowness(&mut self, when: When) -> Vec<String> {
        if self.random.percent(25) {
            return Vec::new();
        }
        let files = match when {
            When::Operation { files, .. } => self.draw_files(files),
            When::Moment(_) => self.draw_files(""),
        };
        vec![format!("slow sync {files} us={}", 200 + self.random.below(SLOW_US_MAX))]
    }

    /// Writes until the power fails.
    fn load(&mut self, when: When) -> anyhow::Result<()> {
        match self.peer.begin_load(self.plan.clients) {
            Err(_) if self.bed.power_is_off() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.wait_for_the_end(when),
        }
    }

    fn wait_for_the_end(&mut self, when: When) -> anyhow::Result<()> {
        let goal = self.peer.acknowledged() + ACKNOWLEDGED_MIN;
        let started = Instant::now();
        let mut moment = None;
        while !self.bed.power_is_off() && started.elapsed() < LOAD_MAX {
            if let Some(error) = self.peer.client_ended() {
                // The power may have failed between the two looks.
                return if self.bed.power_is_off() { Ok(()) } else { bail!("a client failed before the cut: {error}") };
            }
            if let When::Moment(after) = when
                && self.peer.acknowledged() >= goal
                && moment.get_or_insert_with(Instant::now).elapsed() >= after
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.bed.disk().cut();
        Ok(())
    }

    /// The power has failed or fails now: kill, keep what is left, power back, check.
    fn cut(&mut self) -> anyhow::Result<()> {
        self.bed.disk().cut();
        self.peer.kill()?;
        self.totals.cuts += 1;
        let status = self.bed.disk().status();
        if let Some(cut) = status.last_cut {
            let torn = cut.torn;
            let sums = &mut self.totals.sectors;
            for (sum, more) in sums.iter_mut().zip([torn.kept_sectors, torn.dropped_sectors, torn.garbage_sectors]) {
                *sum += more;
            }
            self.totals.lost_names += cut.lost_names;
        }
        let slow = status.faults.iter().filter(|fault| fault.rule.starts_with("slow"));
        self.totals.slow_rules_fired += slow.map(|fault| fault.fired).sum::<u64>();
        self.totals.acknowledged += self.peer.acknowledged() - self.counted;
        self.counted = self.peer.acknowledged();
        self.bed.keep()?;
        self.bed.disk().restore().context("switching the power on again")?;
        self.bed.arm(self.plan.seed, &[], false)?;
        match self.peer.check()? {
            None => Ok(()),
            Some(why) => self.unsound(&why),
        }
    }

    /// The database's own check complains: what does the server make of it? Then there is a new directory.
    fn unsound(&mut self, why: &str) -> anyhow::Result<()> {
        self.totals.unsound += 1;
        self.damaged(format!("unsound: {why}"))?;
        match self.peer.start(&|| false)? {
            Start::Ready if !self.has_tables || self.is_whole()? => {
                self.peer.kill()?;
                self.renew()
            }
            Start::Ready => Ok(()),
            Start::Ended(why) => self.refused(&why),
            Start::PowerFailed => bail!("the power failed although nobody cut it"),
        }
    }

    /// Compares what is there with what was acknowledged. After damage there is a new directory, and false.
    fn is_whole(&mut self) -> anyhow::Result<bool> {
        let found = match self.peer.verify() {
            // It will be looked at after the next start.
            Err(_) if self.bed.power_is_off() => return Ok(true),
            Err(error) => {
                self.totals.lost += self.peer.acknowledged();
                return self.give_up(format!("nothing can be read back: {error:#}"));
            }
            Ok(found) => found,
        };
        let Verdict { found: rows, missing, broken, accounts, .. } = &found;
        self.totals.recovered += (*rows as u64).saturating_sub(self.found);
        self.found = *rows as u64;
        if missing.is_empty() && broken.is_empty() && *accounts == 0 {
            return Ok(true);
        }
        self.totals.lost += missing.len() as u64;
        self.totals.half += broken.len() as u64;
        self.totals.wrong_sums += u32::from(*accounts != 0);
        let first = |ids: &[i64]| ids[..ids.len().min(5)].to_vec();
        self.give_up(format!(
            "{} acknowledged are lost (first {:?}), {} are half there (first {:?}), the accounts add up to {accounts}",
            missing.len(),
            first(missing),
            broken.len(),
            first(broken)
        ))
    }

    /// The directory is damaged while its server runs.
    fn give_up(&mut self, what: String) -> anyhow::Result<bool> {
        self.peer.kill()?;
        self.damaged(what)?;
        self.renew()?;
        Ok(false)
    }

    fn refused(&mut self, why: &str) -> anyhow::Result<()> {
        self.peer.kill()?;
        self.totals.refused += 1;
        self.totals.lost += self.peer.acknowledged();
        self.totals.lost_loudly += self.peer.acknowledged();
        self.damaged(format!("refused to start: {why}"))?;
        self.renew()
    }

    fn damaged(&mut self, what: String) -> anyhow::Result<()> {
        let (cut, what) = (self.totals.cuts, shown(&what));
        if self.show {
            println!();
        }
        println!("  cut {cut}: {what}");
        let few = self.totals.damage.iter().filter(|(_, _, kept)| kept.is_some()).count() < KEPT_MAX;
        let kept = if few { self.bed.preserve(self.plan.seed, cut)? } else { None };
        self.totals.damage.push((cut, what, kept));
        Ok(())
    }

    fn progress(&self) {
        let t = &self.totals;
        let line = format!(
            "  cut {} of {}: {} acknowledged, {} lost, {} half, {} refused, {} unsound",
            t.cuts, self.plan.cuts, t.acknowledged, t.lost, t.half, t.refused, t.unsound
        );
        if self.show {
            print!("\r{line}\x1b[K");
            // Only the picture suffers when it cannot be written.
            let _ = std::io::stdout().flush();
        } else if t.cuts.is_multiple_of(20) {
            println!("{line}");
        }
    }
}
