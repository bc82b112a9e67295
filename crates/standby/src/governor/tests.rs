//! Which standbys slow the master, and for how long.

use super::*;

const W: u64 = 100_000_000;

fn governor() -> Governor {
    let options = GovernorOptions { lag_bytes_max: W, ..GovernorOptions::default() };
    Governor::new(options)
}

/// Sends acks every 20 ms while 1 byte per microsecond is applied and the lag is `lag`. Returns the applied position.
async fn apply(governor: &Governor, name: &str, from: u64, lag: u64, steps: u64) -> u64 {
    let mut applied = from;
    for _ in 0..steps {
        tokio::time::advance(Duration::from_millis(20)).await;
        applied += 20_000;
        governor.applied(name, Lsn(applied + lag), Lsn(applied));
    }
    applied
}

#[tokio::test(start_paused = true)]
async fn delays_grow_with_the_lag_and_only_above_the_free_share() {
    let governor = governor();
    assert_eq!(governor.charge(Lsn(W * 10), 1000), Duration::ZERO, "nobody is connected");
    governor.connected("a", Lsn(0), Lsn(0));
    let applied = apply(&governor, "a", 0, W / 10, 500).await;
    let mut delays = Vec::new();
    for tenth in [1, 2, 3, 5, 7, 9] {
        tokio::time::advance(Duration::from_millis(15)).await;
        governor.applied("a", Lsn(applied), Lsn(applied));
        delays.push(governor.charge(Lsn(applied + W / 10 * tenth), 1_000_000));
    }
    assert_eq!(delays[..3], [Duration::ZERO; 3]);
    assert!(delays[3..].is_sorted() && delays[3] > Duration::ZERO, "{delays:?}");
    assert!(governor.charge(Lsn(applied + W), 1) > Duration::ZERO, "all stops at W");
    assert!(governor.charge(Lsn(applied + W), 0) > Duration::ZERO, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn one_that_catches_up_or_has_gone_slows_nothing() {
    let governor = governor();
    governor.connected("a", Lsn(W * 50), Lsn(0));
    assert_eq!(governor.charge(Lsn(W * 50), 1000), Duration::ZERO);
    assert_eq!(governor.report(Lsn(W * 50))[0].state, GovernorState::CatchingUp);
    // It has caught up, and counts from now on.
    governor.applied("a", Lsn(W * 50), Lsn(W * 50 - W / 5));
    assert_eq!(governor.report(Lsn(W * 50))[0].state, GovernorState::Governed);
    assert!(governor.charge(Lsn(W * 51), 1000) > Duration::ZERO);
    governor.disconnected("a");
    assert_eq!(governor.charge(Lsn(W * 51), 1000), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_not_waited_for_for_ever() {
    let governor = governor();
    governor.connected("a", Lsn(0), Lsn(0));
    let full = Lsn(2 * W);
    assert!(governor.charge(full, 1000) > Duration::ZERO);
    tokio::time::advance(Duration::from_secs(9)).await;
    governor.applied("a", full, Lsn(0));
    assert!(governor.charge(full, 0) > Duration::ZERO);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(governor.charge(full, 0), Duration::ZERO);
    assert_eq!(governor.report(full)[0].state, GovernorState::Stalled);
    governor.applied("a", full, full);
    assert_eq!(governor.report(full)[0].state, GovernorState::Governed);
    assert!(governor.charge(Lsn(4 * W), 0) > Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_idle_standby_does_not_stall() {
    let governor = governor();
    governor.connected("a", Lsn(500), Lsn(500));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(governor.charge(Lsn(500), 1000), Duration::ZERO);
    governor.applied("a", Lsn(1500), Lsn(500));
    governor.charge(Lsn(1500), 1000);
    assert_eq!(governor.report(Lsn(1500))[0].state, GovernorState::Governed);
}

#[tokio::test(start_paused = true)]
async fn the_slowest_counts() {
    let governor = governor();
    for name in ["fast", "slow"] {
        governor.connected(name, Lsn(0), Lsn(0));
    }
    apply(&governor, "slow", 0, W / 2, 100).await;
    governor.applied("fast", Lsn(W / 2), Lsn(W / 2));
    // The first one counts from long ago, the second from the first.
    assert_eq!(governor.charge(Lsn(2_000_000 + W / 2), 1_000_000), Duration::ZERO);
    let both = governor.charge(Lsn(2_000_000 + W / 2), 1_000_000);
    governor.disconnected("slow");
    assert!(both > Duration::ZERO);
    assert_eq!(governor.charge(Lsn(W / 2), 1_000_000), Duration::ZERO);
}
