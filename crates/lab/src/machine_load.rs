//! What else the machine did while a study ran: a figure measured next to a busy compiler is not the same figure.
//!
//! The processor time of other processes is what the machine's cores were busy with (`/proc/stat`) less what this process
//! and its ended descendants used. Servers count once they have been stopped, so `facts` is asked for after that.
//!
//! Failure: none; what `/proc` does not tell is left out.

use crate::results::Fact;
use std::collections::HashMap;
use std::time::Duration;

/// How long processes are watched for the ones that are busy at the start.
const LOOK: Duration = Duration::from_millis(300);
/// A process that uses less of one core is not named.
const NAMED_SHARE: f64 = 0.05;
/// As many are named at most.
const NAMED_MAX: usize = 5;
/// Above this share of all cores the report warns.
const DISTURBING_SHARE: f64 = 0.1;

/// The machine when a study began.
pub struct MachineLoad {
    load_before: Option<String>,
    busiest: Vec<(String, f64)>,
    ticks: Option<Ticks>,
}

/// Clock ticks so far: of all cores, of them busy, and of this process and its ended descendants.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    all: u64,
    busy: u64,
    own: u64,
}

impl MachineLoad {
    /// Looks at the machine before anything is measured.
    pub fn before() -> MachineLoad {
        MachineLoad { load_before: load_average(), busiest: busiest(), ticks: ticks() }
    }

    /// The load at the start and at the end, for the machine's facts.
    pub fn facts(&self) -> Vec<Fact> {
        let average = |name: &str, load: &Option<String>| {
            load.as_ref().map(|load| Fact::new(format!("Load average {name} (1, 5, 15 min)"), load))
        };
        let named: Vec<String> =
            self.busiest.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect();
        let named =
            if named.is_empty() { "none above 5 % of a core".to_string() } else { named.join(", ") + " of a core" };
        let others = self.others_share().map(|share| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Fact::new("Other processes during the run", format!("{} of {cores} cores", percent(share)))
        });
        [
            average("at the start", &self.load_before),
            average("at the end", &load_average()),
            Some(Fact::new("Busy processes at the start", named)),
            others,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What a reader must know where the machine was not free for the study.
    pub fn warning(&self) -> Option<String> {
        self.others_share().filter(|share| *share > DISTURBING_SHARE).map(|share| {
            format!(
                "Other processes took {} of this machine's processor time during the run: its rates are lower and vary more \
                 than on a machine that does nothing else.",
                percent(share)
            )
        })
    }

    /// The part of all cores' time since the start that other processes used.
    fn others_share(&self) -> Option<f64> {
        Some(others_share(self.ticks?, ticks()?))
    }
}

fn others_share(from: Ticks, to: Ticks) -> f64 {
    let since = |of: fn(Ticks) -> u64| of(to).saturating_sub(of(from));
    since(|t| t.busy).saturating_sub(since(|t| t.own)) as f64 / since(|t| t.all).max(1) as f64
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// How many processes wanted a processor on average of the last 1, 5 and 15 minutes.
fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split(' ').take(3).collect::<Vec<_>>().join(", "))
}

fn ticks() -> Option<Ticks> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let (all, busy) = all_cores(&stat)?;
    let own = process(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(Ticks { all, busy, own: own.ticks + own.ticks_of_ended })
}

/// The line `cpu user nice system idle iowait irq softirq steal` (proc(5)).
fn all_cores(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all = ticks.iter().sum::<u64>();
    Some((all, all - ticks.get(3)? - ticks.get(4)?))
}

/// A process: its name, its ticks, and those of its ended children.
struct Process {
    name: String,
    ticks: u64,
    ticks_of_ended: u64,
}

/// A line of /proc/PID/stat; the name is in brackets and may hold any character.
fn process(stat: &str) -> Option<Process> {
    let (name, rest) = (stat.split_once('(')?.1.rsplit_once(')')?.0, stat.rsplit_once(')')?.1);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    // Counted from the state, which is the third field: utime is the 14th.
    let sum = |i: usize| Some(number(i)? + number(i + 1)?);
    Some(Process { name: name.to_string(), ticks: sum(11)?, ticks_of_ended: sum(13)? })
}

fn processes() -> HashMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |pid: u32| Some((pid, process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
    pids.filter(|pid| *pid != std::process::id()).filter_map(of).collect()
}

/// The processes that use most, with their part of a core.
fn busiest() -> Vec<(String, f64)> {
    let before = processes();
    std::thread::sleep(LOOK);
    let ticks_a_look = LOOK.as_secs_f64() * rustix::param::clock_ticks_per_second() as f64;
    let share = |(pid, now): (u32, Process)| {
        let used = now.ticks.checked_sub(before.get(&pid)?.ticks)?;
        Some((now.name, used as f64 / ticks_a_look))
    };
    let mut list: Vec<(String, f64)> =
        processes().into_iter().filter_map(share).filter(|(_, share)| *share > NAMED_SHARE).collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1));
    list.truncate(NAMED_MAX);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read() {
        assert_eq!(all_cores("cpu  10 1 20 300 40 5 6 7 3 0\ncpu0 9 9 9 9\n"), Some((389, 49)));
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 3 4 20 0 1 0 5 6 7";
        let read = process(line).unwrap();
        assert_eq!((read.name.as_str(), read.ticks, read.ticks_of_ended), ("a) b", 33, 7));
    }

    #[test]
    fn other_processes_are_what_is_left_of_the_busy_time() {
        let from = Ticks { all: 1000, busy: 100, own: 50 };
        let to = Ticks { all: 1200, busy: 220, own: 130 };
        assert_eq!(others_share(from, to), 0.2);
        let mine_only = Ticks { all: 1200, busy: 100, own: 170 };
        assert_eq!(others_share(from, mine_only), 0.0);
    }

    #[test]
    fn the_load_is_stated_at_the_start_and_at_the_end() {
        let facts = MachineLoad::before().facts();
        for name in ["at the start (1, 5, 15 min)", "at the end (1, 5, 15 min)", "Busy processes", "Other processes"] {
            assert!(facts.iter().any(|fact| fact.name.contains(name)), "{name}: {facts:?}");
        }
    }
}
