//! What the figures say, compared with the product's goals. Only figures of the same run are compared.
//!
//! Failure: what was not measured is left out.

use super::findings_nodes as nodes;
use super::findings_standing as standing;
use super::results::{CatchUp, Governed, LargeTransaction, LevelRate, Reporting, Results};
use crate::ratios::quotient;
use crate::server::server_name;
use crate::study_results::Finding;
use crate::text;
use crate::verdict::{Verdict, not_measured};

const OURS: &str = "holdfast";
const THEIRS: &str = "postgres";
/// Processor time and syncs of the master with a standby at local, against none.
const COLD_COST_MAX: f64 = 1.05;
/// Rate at hot against local.
const HOT_SHARE_MIN: f64 = 0.85;
/// Clients of that goal.
const HOT_CLIENTS: usize = 80;
/// Catch-up against the load's own rate.
const CATCH_UP_MIN: f64 = 4.0;
/// Bytes over the link for each byte that was missing.
const LINK_BYTES_MAX: f64 = 1.05;
/// A load of less than this multiple of the standby's capacity is the one that the goals were set for.
const FAR_OVER: f64 = 2.0;
/// Variation of the rate of one second past the standby's capacity, and what is applied of that capacity.
const VARIATION_MAX: f64 = 0.1;
const APPLIED_MIN: f64 = 0.95;

/// Limit of a figure.
#[derive(Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Above nothing at all.
    NotZero,
}

impl Results {
    /// A load at a level as fast as it goes.
    pub fn level(&self, server: &str, level: &str, clients: usize) -> Option<&LevelRate> {
        let is = |r: &&LevelRate| {
            (r.server.as_str(), r.level.as_str(), r.clients) == (server, level, clients) && r.offered_rate.is_none()
        };
        self.levels.iter().find(is)
    }

    /// The load at the equal rate.
    pub fn equal(&self, server: &str, level: &str) -> Option<&LevelRate> {
        let is = |r: &&LevelRate| (r.server.as_str(), r.level.as_str()) == (server, level) && r.offered_rate.is_some();
        self.levels.iter().find(is)
    }

    /// The numbers of clients, rising.
    pub fn clients(&self) -> Vec<usize> {
        let mut clients: Vec<usize> = self.levels.iter().map(|r| r.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

/// Everything the results allow to say.
pub fn findings(results: &Results) -> Vec<Finding> {
    let mut list = Vec::new();
    for server in [OURS, THEIRS] {
        list.extend(cold_cost(results, server));
        list.extend(results.clients().into_iter().filter_map(|clients| cold_rate(results, server, clients)));
        list.extend(results.clients().into_iter().filter_map(|clients| hot_rate(results, server, clients)));
        let of = |name: &String| name == server;
        list.extend(results.catch_ups.iter().filter(|c| of(&c.server)).flat_map(catch_up));
        list.extend(results.large.iter().filter(|l| of(&l.server)).flat_map(large));
        list.extend(results.reporting.iter().filter(|r| of(&r.server)).filter_map(reporting));
        list.extend(results.governed.iter().filter(|g| of(&g.server)).flat_map(governed));
        list.extend(nodes::findings(results, server));
    }
    list.extend(not_measured(&standing::GOALS, &list));
    list
}

/// The goals are Holdfast's; a peer's figures have none.
pub fn times(server: &str, what: &str, value: f64, goal: Option<Goal>, headline: bool) -> Finding {
    shown(server, what, value, format!("{}×", text::times(value)), goal, |limit| format!("{}×", text::times(limit)))
        .headline(headline)
}

/// A figure as it is shown, and its goal as `show` writes it.
pub fn shown(
    server: &str,
    what: &str,
    value: f64,
    shown: String,
    goal: Option<Goal>,
    show: impl Fn(f64) -> String,
) -> Finding {
    let (goal, met) = match goal.filter(|_| server == OURS) {
        Some(Goal::AtLeast(limit)) => (Some(format!("at least {}", show(limit))), Some(value >= limit)),
        Some(Goal::AtMost(limit)) => (Some(format!("at most {}", show(limit))), Some(value <= limit)),
        Some(Goal::NotZero) => (Some("never 0".into()), Some(value > 0.0)),
        None => (None, None),
    };
    let (what, verdict) = (format!("{}: {what}", server_name(server)), met.map(Verdict::of));
    Finding { what, value: Some(value), shown, goal, met, verdict, headline: false }
}

impl Finding {
    fn headline(mut self, headline: bool) -> Finding {
        self.headline = headline && self.goal.is_some();
        self
    }
}

fn cold_cost(results: &Results, server: &str) -> Vec<Finding> {
    let pair = results.equal(server, "none").zip(results.equal(server, "local"));
    let ratio = |of: fn(&LevelRate) -> Option<f64>| pair.and_then(|(none, local)| quotient(of(local)?, of(none)?));
    let finding = |what: &str, value: f64| {
        let what = format!("{what} a transaction of the master with a standby at local against none, at an equal rate");
        times(server, &what, value, Some(Goal::AtMost(COLD_COST_MAX)), true)
    };
    let cpu = ratio(|r| r.master_cpu_us).map(|value| finding("processor time", value));
    let syncs = ratio(|r| r.syncs_per_transaction).map(|value| finding("syncs", value));
    cpu.into_iter().chain(syncs).collect()
}

fn ratio_of_rates(results: &Results, server: &str, clients: usize, level: &str, to: &str) -> Option<f64> {
    quotient(results.level(server, level, clients)?.tps, results.level(server, to, clients)?.tps)
}

fn cold_rate(results: &Results, server: &str, clients: usize) -> Option<Finding> {
    let value = ratio_of_rates(results, server, clients, "local", "none")?;
    let what =
        format!("rate with a standby at local against none, {}, all on these processors", text::clients(clients));
    Some(times(server, &what, value, None, false))
}

fn hot_rate(results: &Results, server: &str, clients: usize) -> Option<Finding> {
    let value = ratio_of_rates(results, server, clients, "hot", "local")?;
    let goal = (clients == HOT_CLIENTS).then_some(Goal::AtLeast(HOT_SHARE_MIN));
    Some(times(server, &format!("rate at hot against local, {}", text::clients(clients)), value, goal, true))
}

fn catch_up(c: &CatchUp) -> Vec<Finding> {
    let ratio = quotient(c.catch_up_bytes_rate, c.load_bytes_rate);
    if c.load_goes_on {
        let what = "applied while catching up against the load that continues, all on these processors";
        return ratio.map(|value| times(&c.server, what, value, None, false)).into_iter().collect();
    }
    let rate = ratio.map(|value| {
        let what = "catch-up against the rate of the load that was missed";
        times(&c.server, what, value, Some(Goal::AtLeast(CATCH_UP_MIN)), true)
    });
    let bytes = c.link_bytes.and_then(|bytes| quotient(bytes as f64, c.missing_bytes as f64)).map(|value| {
        let what = "bytes over the link for each byte that was missing";
        times(&c.server, what, value, Some(Goal::AtMost(LINK_BYTES_MAX)), false)
    });
    let core = c.standby_cpu_us.and_then(|us| quotient(1e6, us)).map(|value| {
        let what = "transactions caught up with in a second of the standby's processor time";
        shown(&c.server, what, value, text::number(value), None, |_| String::new())
    });
    [rate, core, bytes].into_iter().flatten().collect()
}

fn large(l: &LargeTransaction) -> Vec<Finding> {
    let meanwhile = l.tps_meanwhile.zip(l.tps_before).and_then(|(with, before)| quotient(with, before)).map(|value| {
        let what = format!("the others' rate while {} are written in one transaction", text::bytes(l.row_bytes));
        times(&l.server, &what, value, None, false)
    });
    let slowest = l.tps_slowest.map(|value| {
        let what = "the others' slowest second from its begin until it is shown at the standby, transactions";
        shown(&l.server, what, value, text::number(value), Some(Goal::NotZero), text::number)
    });
    let memory = l.standby_memory_most_bytes.zip(l.standby_memory_before_bytes).map(|(most, before)| {
        let more = most.saturating_sub(before) as f64;
        shown(&l.server, "memory that the standby takes more for it", more, text::bytes(more as u64), None, |_| {
            String::new()
        })
    });
    meanwhile.into_iter().chain(slowest).chain(memory).collect()
}

fn reporting(r: &Reporting) -> Option<Finding> {
    let value = quotient(r.tps_with, r.tps_without)?;
    Some(times(&r.server, "the master's rate with reports on the standby, all on these processors", value, None, false))
}

fn governed(g: &Governed) -> Vec<Finding> {
    let governor = match g.governor.as_str() {
        "on" => "governor on",
        "off" => "governor off",
        _ => "no governor",
    };
    let ours = |goal: Goal| (g.governor == "on").then_some(goal);
    let plain = |value: f64| format!("{value:.3}");
    let what =
        |what: &str| format!("{governor}, load {} times the standby's capacity: {what}", text::times(g.load_factor));
    let variation = g.variation.map(|v| {
        let what = what("variation of the rate of one second");
        shown(&g.server, &what, v, plain(v), ours(Goal::AtMost(VARIATION_MAX)), plain)
            .headline(g.load_factor < FAR_OVER)
    });
    let behind = g.behind_share.map(|v| {
        let what = what("seconds in which it was too much for the standby, which was behind");
        shown(&g.server, &what, v, format!("{:.0} %", v * 100.0), None, plain)
    });
    let variation_behind =
        g.variation_behind.map(|v| shown(&g.server, &what("variation in those"), v, plain(v), None, plain));
    let slowest = g
        .slowest_share
        .map(|v| shown(&g.server, &what("slowest second against the mean"), v, plain(v), ours(Goal::NotZero), plain));
    let applied = g.applied_share.map(|v| {
        let goal = ours(Goal::AtLeast(APPLIED_MIN));
        shown(&g.server, &what("applied of that capacity"), v, plain(v), goal, plain)
    });
    let lag = g.lag_most_bytes.map(|bytes| {
        let (value, goal) = (bytes as f64, ours(Goal::AtMost(g.lag_bytes_max as f64)));
        let show = |v: f64| text::bytes(v as u64);
        shown(&g.server, &what("most lag"), value, show(value), goal, show)
    });
    [variation, behind, variation_behind, slowest, applied, lag].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use crate::verdict::Verdict;

    #[test]
    fn goals_without_a_figure_are_listed_as_not_measured() {
        let verdict = |results: &super::Results, what: &str| {
            let list = super::findings(results);
            let found: Vec<_> = list.iter().filter(|f| f.what.contains(what)).map(|f| f.verdict).collect();
            found
        };
        let mut results = sample::results();
        let hot = "Holdfast: rate at hot against local, 80 clients";
        assert_eq!(verdict(&results, hot), [Some(Verdict::Met)]);
        results.levels.clear();
        assert_eq!(verdict(&results, hot), [Some(Verdict::NotMeasured)]);
    }

    #[test]
    fn goals_are_set_beside_the_figures() {
        let list = super::findings(&sample::results());
        let of = |what: &str| list.iter().find(|f| f.what.contains(what)).unwrap_or_else(|| panic!("{what}"));
        let cpu = of("Holdfast: processor time");
        assert_eq!((cpu.shown.as_str(), cpu.goal.as_deref(), cpu.met), ("1.1×", Some("at most 1.05×"), Some(false)));
        assert_eq!(of("Holdfast: syncs a transaction").met, Some(true));
        assert_eq!(of("PostgreSQL: processor time").met, None);
        assert_eq!(of("Holdfast: rate at hot against local, 80").met, Some(true));
        assert_eq!(of("Holdfast: rate at hot against local, 40").goal, None);
        let caught_up = of("Holdfast: catch-up");
        assert_eq!((caught_up.shown.as_str(), caught_up.met), ("5×", Some(true)));
        assert_eq!(of("Holdfast: bytes over the link").met, Some(true));
        let variation = of("Holdfast: governor on, load 1.3 times the standby's capacity: variation");
        assert_eq!((variation.shown.as_str(), variation.met, variation.headline), ("0.083", Some(true), true));
        assert_eq!(of("Holdfast: governor on, load 1.3 times the standby's capacity: most lag").met, Some(true));
        assert_eq!(of("Holdfast: governor off, load 1.3 times the standby's capacity: most lag").goal, None);
        let far = of("Holdfast: governor on, load 2 times the standby's capacity: variation");
        assert_eq!((far.met, far.headline), (Some(true), false));
        assert_eq!(of("Holdfast: the others' slowest second").met, Some(true));
    }
}
