//! The wait-for graph, searched when an owner is about to wait: a cycle can only come into being then.

use super::manager::State;
use super::mode::{LockId, LockMode, OwnerId};
use std::collections::HashSet;

/// One wait of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub waiter: OwnerId,
    pub id: LockId,
    pub mode: LockMode,
    pub blocker: OwnerId,
}

/// The cycle that `owner` would close by waiting, from its own wait on.
pub fn find(state: &State, owner: OwnerId) -> Option<Vec<Edge>> {
    let mut path = Vec::new();
    let mut seen = HashSet::new();
    visit(state, owner, owner, &mut seen, &mut path).then_some(path)
}

fn visit(state: &State, at: OwnerId, goal: OwnerId, seen: &mut HashSet<OwnerId>, path: &mut Vec<Edge>) -> bool {
    if !seen.insert(at) {
        return false;
    }
    for (waiter, id, mode) in state.waits_of(at) {
        for blocker in state.blockers(waiter, id, mode) {
            path.push(Edge { waiter, id, mode, blocker });
            if state.same_client(blocker, goal) || visit(state, blocker, goal, seen, path) {
                return true;
            }
            path.pop();
        }
    }
    false
}
