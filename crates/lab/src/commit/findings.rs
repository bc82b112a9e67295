//! What the figures say, compared with the product's goals and the paper's figures. Only figures of the same run are compared.

use super::results::{Rate, Results};
use crate::study_results::Finding;
use crate::text;
use crate::verdict::{StandingGoal, Verdict, not_measured};

/// 80 clients against one on the paper's disk; the paper's own is 600 / 76.
const GROWTH_MIN: f64 = 50.0;
/// One client against the disk's syncs.
const SINGLE_MIN: f64 = 0.9;
/// The automatic delay against the best fixed one, and against none.
const BEST_MIN: f64 = 0.95;
const NONE_MIN: f64 = 0.97;
const OURS: &str = "holdfast";
const THEIRS: &str = "postgres";
const AUTO: &str = "auto";
pub(super) const DEFAULT_METHOD: &str = "open_direct_dsync";
const DISKS: [(&str, &str); 2] = [("paper", "the paper's disk"), ("real", "the real disk")];

impl Results {
    /// The point with these settings and the server's usual sync method.
    pub fn rate(&self, server: &str, disk: &str, safe: (bool, bool), delay: &str, clients: usize) -> Option<&Rate> {
        let method = if server == OURS { DEFAULT_METHOD } else { "fdatasync" };
        let is = |r: &&Rate| {
            (r.server.as_str(), r.disk.as_str(), r.delay.as_str()) == (server, disk, delay)
                && ((r.cache, r.barrier), r.clients, r.method.as_str()) == (safe, clients, method)
        };
        self.rates.iter().find(is)
    }

    /// The numbers of clients, rising.
    pub fn clients(&self) -> Vec<usize> {
        let mut clients: Vec<usize> = self.rates.iter().map(|r| r.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// The best of a server's delays with cache and barrier on; `fixed`: among those that are not automatic.
    pub fn best(&self, server: &str, disk: &str, clients: usize, fixed: bool) -> Option<&Rate> {
        let method = if server == OURS { DEFAULT_METHOD } else { "fdatasync" };
        let is = |r: &&Rate| {
            (r.server.as_str(), r.disk.as_str(), r.method.as_str()) == (server, disk, method)
                && (r.clients, r.cache, r.barrier) == (clients, true, true)
                && !(fixed && r.delay == AUTO)
        };
        self.rates.iter().filter(is).max_by(|a, b| a.tps.total_cmp(&b.tps))
    }
}

/// The goals of every run, as they are listed when a run has no figure for them.
const STANDING: [StandingGoal; 4] = [
    StandingGoal {
        found_by: &["80 clients against one"],
        what: "80 clients against one on the paper's disk, automatic delay",
        goal: "at least 50×",
    },
    StandingGoal {
        found_by: &["one client against the syncs"],
        what: "one client against the syncs of the paper's disk by the same method",
        goal: "at least 0.9×",
    },
    StandingGoal {
        found_by: &["against the best fixed one"],
        what: "automatic delay against the best fixed one",
        goal: "at least 0.95×",
    },
    StandingGoal { found_by: &["delay against none"], what: "automatic delay against none", goal: "at least 0.97×" },
];

/// Everything the results allow to say.
pub fn findings(results: &Results) -> Vec<Finding> {
    let mut list = Vec::new();
    list.extend(growth(results));
    for (disk, title) in DISKS {
        list.extend(single(results, disk, title));
        for clients in results.clients() {
            list.extend(automatic(results, disk, title, clients));
        }
        list.extend(results.clients().into_iter().filter_map(|clients| peer(results, disk, title, clients)));
    }
    list.extend(protected(results));
    list.extend(not_measured(&STANDING, &list));
    list
}

fn finding(what: String, value: f64, least: Option<f64>, headline: bool) -> Finding {
    Finding {
        what,
        value: Some(value),
        shown: format!("{}×", text::times(value)),
        goal: least.map(|least| format!("at least {}×", text::times(least))),
        met: least.map(|least| value >= least),
        verdict: least.map(|least| Verdict::of(value >= least)),
        headline,
    }
}

fn tps(rate: Option<&Rate>) -> Option<f64> {
    rate.map(|r| r.tps).filter(|tps| *tps > 0.0)
}

fn growth(results: &Results) -> Option<Finding> {
    let of = |clients| tps(results.rate(OURS, "paper", (true, true), AUTO, clients));
    let what = "80 clients against one on the paper's disk, automatic delay (the paper's own: 7.4 to 7.9×)";
    Some(finding(what.into(), of(80)? / of(1)?, Some(GROWTH_MIN), true))
}

fn single(results: &Results, disk: &str, title: &str) -> Option<Finding> {
    let one = tps(results.rate(OURS, disk, (true, true), AUTO, 1))?;
    let method = results.sync_methods.iter().find(|s| s.disk == disk && s.method == DEFAULT_METHOD)?;
    let what = format!("one client against the syncs of {title} by the same method");
    // A real disk is faster than a client's two ways through the kernel: the goal is about the paper's.
    let least = (disk == "paper").then_some(SINGLE_MIN);
    Some(finding(what, one / method.syncs_rate, least, disk == "paper"))
}

fn automatic(results: &Results, disk: &str, title: &str, clients: usize) -> Vec<Finding> {
    let Some(auto) = tps(results.rate(OURS, disk, (true, true), AUTO, clients)) else { return Vec::new() };
    let best = results.best(OURS, disk, clients, true);
    let none = tps(results.rate(OURS, disk, (true, true), "0", clients));
    let against_best = best.map(|best| {
        let what = format!(
            "automatic delay against the best fixed one ({} µs), {}, {title}",
            best.delay,
            text::clients(clients)
        );
        finding(what, auto / best.tps, Some(BEST_MIN), false)
    });
    let against_none = none.map(|none| {
        finding(
            format!("automatic delay against none, {}, {title}", text::clients(clients)),
            auto / none,
            Some(NONE_MIN),
            false,
        )
    });
    against_best.into_iter().chain(against_none).collect()
}

fn peer(results: &Results, disk: &str, title: &str, clients: usize) -> Option<Finding> {
    let ours = tps(results.rate(OURS, disk, (true, true), AUTO, clients))?;
    let theirs = results.best(THEIRS, disk, clients, true)?;
    let what = format!(
        "Holdfast's default against PostgreSQL with its best commit_delay ({} µs), {}, {title}",
        theirs.delay,
        text::clients(clients)
    );
    Some(finding(what, ours / theirs.tps, None, clients == 80))
}

/// What protected power allows.
fn protected(results: &Results) -> Option<Finding> {
    let of = |barrier| tps(results.rate(OURS, "paper", (true, barrier), AUTO, 80));
    let what = "no barrier (safe with protected power only) against the barrier, 80 clients, the paper's disk (the \
                paper's own: 6.8×)";
    Some(finding(what.into(), of(false)? / of(true)?, None, false))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn goals_without_a_figure_are_listed_as_not_measured() {
        let mut results = sample::results();
        results.rates.clear();
        let list = findings(&results);
        assert_eq!(list.len(), STANDING.len());
        assert!(list.iter().all(|f| f.verdict == Some(Verdict::NotMeasured) && f.value.is_none()));
    }

    #[test]
    fn goals_are_judged_by_figures_of_the_run() {
        let found = findings(&sample::results());
        let of = |part: &str| found.iter().find(|f| f.what.contains(part)).unwrap();
        let growth = of("80 clients against one");
        assert_eq!((growth.shown.as_str(), growth.met), ("60×", Some(true)));
        assert_eq!(of("against the syncs of the paper's disk").met, Some(true));
        let best = of("best fixed one (1000 µs), 80 clients, the paper's disk");
        assert_eq!((best.shown.as_str(), best.met), ("0.9×", Some(false)));
        assert_eq!(of("against none, 1 client, the paper's disk").met, Some(true));
        assert_eq!(of("best commit_delay (1000 µs), 80 clients").shown, "1.5×");
        assert!(found.iter().all(|f| !f.what.contains("the real disk")), "nothing was measured there");
    }
}
