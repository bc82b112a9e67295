//! File descriptors: each connection takes one; without a free one the trail would fail as well as a client.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for databases, trail segments, scratch files, threads.
const RESERVED: u64 = 500;

/// The least that is left of `half_open_max`.
const HALF_OPEN_LEAST: u64 = 20;

/// Raises the soft limit to what `connections_max` and `half_open_max` need, as far as allowed. Returns what fits of them.
pub fn raise(connections_max: usize, half_open_max: usize) -> (usize, usize) {
    let (sessions, half_open) = (connections_max as u64, half_open_max as u64);
    let wanted = sessions + half_open + RESERVED;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return (connections_max, half_open_max);
    }
    let reachable = limit.maximum.map_or(wanted, |max| max.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum: limit.maximum });
    let have = if raised.is_ok() { reachable } else { current };
    let (fit, open) = share(have.saturating_sub(RESERVED), sessions, half_open);
    if fit < sessions {
        tracing::warn!(
            connections_max = fit,
            "the limit of open files is {have}: it allows {fit} connections, connections_max asks for {sessions}. \
             Raise it with `ulimit -n` or LimitNOFILE"
        );
    }
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (number(fit), number(open))
}

/// How many sessions and connections without one fit into `room`.
fn share(room: u64, sessions: u64, half_open: u64) -> (u64, u64) {
    let open = room.saturating_sub(sessions).clamp(HALF_OPEN_LEAST.min(half_open), half_open);
    (room.saturating_sub(open).clamp(1, sessions), open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_come_before_connections_without_one() {
        assert_eq!(share(5_000, 2_500, 1_000), (2_500, 1_000));
        assert_eq!(share(3_000, 2_500, 1_000), (2_500, 500));
        assert_eq!(share(524, 2_500, 1_000), (504, 20));
        assert_eq!(share(0, 2_500, 1_000), (1, 20));
        assert_eq!(share(0, 10, 10), (1, 10));
    }
}
