//! The goals that every run of the study has, as they are listed when a run has no figure for them.
//!
//! Failure: none.

use crate::verdict::StandingGoal;

const fn goal(found_by: &'static [&'static str], what: &'static str, goal: &'static str) -> StandingGoal {
    StandingGoal { found_by, what, goal }
}

/// In the order of the report.
pub const GOALS: [StandingGoal; 14] = [
    goal(
        &["processor time a transaction of the master"],
        "Holdfast: processor time a transaction of the master with a standby at local against none, at an equal rate",
        "at most 1.05×",
    ),
    goal(
        &["syncs a transaction of the master"],
        "Holdfast: syncs a transaction of the master with a standby at local against none, at an equal rate",
        "at most 1.05×",
    ),
    goal(&["rate at hot against local, 80"], "Holdfast: rate at hot against local, 80 clients", "at least 0.85×"),
    goal(&["catch-up against"], "Holdfast: catch-up against the rate of the load that was missed", "at least 4×"),
    goal(&["bytes over the link"], "Holdfast: bytes over the link for each byte that was missing", "at most 1.05×"),
    goal(
        &["slowest second from its begin"],
        "Holdfast: the others' slowest second while a large transaction runs, transactions",
        "never 0",
    ),
    goal(
        &["governor on", "variation of the rate"],
        "Holdfast: governor on, load past the standby's capacity: variation of the rate of one second",
        "at most 0.100",
    ),
    goal(
        &["governor on", "slowest second"],
        "Holdfast: governor on, load past the standby's capacity: slowest second against the mean",
        "never 0",
    ),
    goal(
        &["governor on", "applied of that capacity"],
        "Holdfast: governor on, load past the standby's capacity: applied of that capacity",
        "at least 0.950",
    ),
    goal(
        &["governor on", "most lag"],
        "Holdfast: governor on, load past the standby's capacity: most lag",
        "at most 3.4 s of the capacity",
    ),
    goal(
        &["warm: latency added"],
        "Holdfast: at a distance, warm: latency added to one client's commits against local",
        "at most a round trip and 100 µs",
    ),
    goal(
        &["hot: latency added"],
        "Holdfast: at a distance, hot: latency added to one client's commits against local",
        "at most a round trip and a sync",
    ),
    goal(
        &["commit: latency added"],
        "Holdfast: at a distance, commit: latency added to one client's commits against local",
        "at most a round trip, a sync and an apply",
    ),
    goal(
        &["each node on its own core"],
        "Holdfast: rate with a standby at local against none, each node on its own core",
        "at least 0.97×",
    ),
];
