//! What the figures say of distances, of nodes on cores of their own and of several masters to one node, compared with the goals.
//!
//! Failure: what was not measured is left out; a goal that is counted from something that was not measured is none.

use super::findings::{Goal, shown, times};
use super::pair::Level;
use super::results::{Distance, OwnCores, Results, SharedNode};
use super::summary_nodes::latency;
use crate::ratios::quotient;
use crate::study_results::Finding;
use crate::text;

/// What warm may add to a round trip, in microseconds.
const WARM_MORE_US: f64 = 100.0;
/// The rate at local against none with each node on its own core: it falls by at most 3 %.
const OWN_CORES_SHARE_MIN: f64 = 0.97;

/// Everything about this server.
pub fn findings(results: &Results, server: &str) -> Vec<Finding> {
    let one_client = results.distances.iter().filter(|d| d.server == server && d.clients == 1);
    let mut list: Vec<Finding> = one_client.filter_map(|d| distance(results, d)).collect();
    list.extend(own_cores(results, server));
    list.extend(shared_node(results, server));
    list
}

/// What a level adds to the latency of one client's commits.
fn distance(results: &Results, d: &Distance) -> Option<Finding> {
    let added = d.added_us?;
    let far = if d.round_trip_ms > 0.0 { format!("{} ms", d.round_trip_ms) } else { "no distance".into() };
    let round_trips = d.added_round_trips.map(|n| format!(", {} round trips", text::times(n))).unwrap_or_default();
    let what = format!("{far}, {}: latency added to one client's commits against local{round_trips}", d.level);
    let goal = added_us_max(results, d).map(Goal::AtMost);
    Some(shown(&d.server, &what, added, latency(added), goal, latency))
}

/// One round trip and: at warm 100 µs; at hot one sync; at commit that sync and one boxcar's apply.
fn added_us_max(results: &Results, d: &Distance) -> Option<f64> {
    match d.level.as_str() {
        "warm" => Some(d.link_us + WARM_MORE_US),
        "hot" => Some(d.link_us + d.sync_us),
        // Where it delays nothing the apply is counted from this very figure.
        "commit" if d.round_trip_ms > 0.0 => Some(d.link_us + d.sync_us + results.apply_us(&d.server)?),
        _ => None,
    }
}

impl Results {
    /// One boxcar's apply: what commit adds to hot for one client where the link delays nothing.
    pub fn apply_us(&self, server: &str) -> Option<f64> {
        let p50 = |level: Level| {
            let is = |d: &&Distance| {
                (d.server.as_str(), d.level.as_str(), d.clients) == (server, level.name(), 1) && d.round_trip_ms == 0.0
            };
            self.distances.iter().find(is).map(|d| d.p50_us)
        };
        Some((p50(Level::Commit)? - p50(Level::Hot)?).max(0.0))
    }
}

fn own_cores(results: &Results, server: &str) -> Option<Finding> {
    let of = |level: Level| {
        let is = |c: &&OwnCores| (c.rate.server.as_str(), c.rate.level.as_str()) == (server, level.name());
        results.own_cores.iter().find(is).map(|c| c.rate.tps)
    };
    let value = quotient(of(Level::Local)?, of(Level::None)?)?;
    let what = "rate with a standby at local against none, each node on its own core";
    Some(times(server, what, value, Some(Goal::AtLeast(OWN_CORES_SHARE_MIN)), true))
}

fn shared_node(results: &Results, server: &str) -> Vec<Finding> {
    let list: Vec<&SharedNode> = results.shared_node.iter().filter(|s| s.server == server).collect();
    let Some(several) = list.iter().find(|s| s.masters > 1) else { return Vec::new() };
    let ratio = |one: &&SharedNode| {
        let same =
            if one.offered_rate > several.offered_rate { "with the load of all" } else { "with the load of one" };
        let what =
            format!("processor time a transaction of {} standbys on one node against one {same}", several.masters);
        quotient(several.standby_cpu_us, one.standby_cpu_us).map(|value| times(server, &what, value, None, false))
    };
    list.iter().filter(|s| s.masters == 1).filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn goals_of_distances_count_with_the_link_as_it_is() {
        let results = sample::results();
        assert_eq!(results.apply_us("holdfast"), Some(1000.0));
        let list = super::findings(&results, "holdfast");
        let of = |what: &str| {
            let found = list.iter().find(|f| f.what.contains(what)).unwrap_or_else(|| panic!("{what}"));
            (found.shown.as_str(), found.goal.as_deref(), found.met)
        };
        assert_eq!(of("10 ms, warm"), ("10.15 ms", Some("at most 10.20 ms"), Some(true)));
        assert_eq!(of("2 ms, hot"), ("2.50 ms", Some("at most 3.00 ms"), Some(true)));
        assert_eq!(of("against local, 1.19 round trips"), of("2 ms, hot"));
        assert_eq!(of("2 ms, commit").2, Some(true));
        assert_eq!(of("10 ms, commit"), ("13.60 ms", Some("at most 12.00 ms"), Some(false)));
        assert_eq!(of("no distance, warm"), ("150 µs", Some("at most 200 µs"), Some(true)));
        assert_eq!(of("no distance, commit"), ("1.50 ms", None, None));
        assert_eq!(of("each node on its own core"), ("0.98×", Some("at least 0.97×"), Some(true)));
        assert_eq!(of("against one with the load of all"), ("1.2×", None, None));
        let theirs = super::findings(&results, "postgres");
        assert!(theirs.len() == list.len() && theirs.iter().all(|f| f.goal.is_none()));
    }

    #[test]
    fn without_a_link_that_delays_nothing_commit_has_no_goal() {
        let mut results = sample::results();
        results.distances.retain(|d| d.round_trip_ms > 0.0);
        let list = super::findings(&results, "holdfast");
        assert!(list.iter().any(|f| f.what.contains("2 ms, commit") && f.goal.is_none()));
        assert!(list.iter().any(|f| f.what.contains("2 ms, hot") && f.goal.is_some()));
    }
}
