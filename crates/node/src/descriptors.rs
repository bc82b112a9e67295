//! File descriptors: each connection takes one; without a free one the trail would fail as well as a client.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for databases, trail segments, scratch files, threads.
const RESERVED: u64 = 500;

/// Raises the soft limit to what `connections_max` needs, as far as allowed. Returns how many connections fit.
pub fn raise(connections_max: usize) -> usize {
    let wanted = connections_max as u64 + RESERVED;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return connections_max;
    }
    let reachable = limit.maximum.map_or(wanted, |max| max.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum: limit.maximum });
    let have = if raised.is_ok() { reachable } else { current };
    let room = usize::try_from(have.saturating_sub(RESERVED)).unwrap_or(connections_max).max(1);
    if room < connections_max {
        tracing::warn!(
            connections_max = room,
            "the limit of open files is {have}: it allows {room} connections, connections_max asks for {connections_max}. \
             Raise it with `ulimit -n` or LimitNOFILE"
        );
    }
    room.min(connections_max)
}
