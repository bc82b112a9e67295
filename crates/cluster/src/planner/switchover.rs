//! The planned hand-over: which node a person may let take over from a master that serves.
//!
//! | the node | |
//! |---|---|
//! | is unknown, has no data, or is the master | refused |
//! | lacks what a successor needs (the planner's list) | refused, with what it lacks |
//! | has all but the last [`LAG_BYTES_MAX`] of the master's trail | it is named: it receives the rest before it is promoted |
//! | lacks more | refused: clients would wait for it |
//! | is not given | the fit one that has most, then the order of `database.nodes` |
//!
//! Out of a quorum the standbys compare themselves when the master has stopped, not here, where all trails grow.
//!
//! Failure: while the master does not answer it is refused, because how much the standby lacks is unknown.

use super::{View, lacks_now};
use crate::planner::explain::no_master;
use holdfast_control::{Mastership, NodeId, Position, Role};

/// How much of the master's trail a successor may still have to receive.
pub const LAG_BYTES_MAX: u64 = 1 << 20;

/// The node to name, or why none is. `tip`: where the master's trail ends.
pub fn switchover(view: &View, tip: Option<Position>, to: Option<&str>) -> Result<NodeId, String> {
    let record = view.record;
    let Some(master) = record.master else { return Err(no_master()) };
    if !matches!(record.mastership, Mastership::Serving { .. }) {
        return Err(match record.successor() {
            Some(named) => format!("{named} is being promoted in place of {master} already"),
            None => format!("{master} has given the mastership up already; see holdfast cluster explain"),
        });
    }
    let data = || record.members.iter().filter(|(_, role)| **role == Role::Data).map(|(node, _)| *node);
    let others: Vec<NodeId> = match to {
        None => data().filter(|node| *node != master).collect(),
        Some(to) => match record.members.iter().find(|(node, _)| node.as_str() == to) {
            None => {
                let known = data().map(|node| node.to_string()).collect::<Vec<_>>().join(", ");
                return Err(format!("{to} is not a node of the cluster; its nodes with data are {known}"));
            }
            Some((node, Role::Witness)) => return Err(format!("{node} is the witness: it has no data")),
            Some((node, _)) if *node == master => return Err(format!("{node} is the master already")),
            Some((node, _)) => vec![*node],
        },
    };
    let Some(tip) = tip else {
        return Err(format!("{master} does not answer, so that it is unknown how much another node lacks"));
    };
    let checked = others.iter().map(|node| (*node, flaws(view, *node, tip)));
    let checked: Vec<(NodeId, Vec<String>)> = checked.collect();
    let place = |node: NodeId| view.order.iter().position(|other| *other == node).unwrap_or(usize::MAX);
    let lsn = |node: NodeId| view.nodes.get(&node).and_then(|state| state.tip).map_or(0, |tip| tip.lsn);
    let fit = checked.iter().filter(|(_, flaws)| flaws.is_empty()).map(|(node, _)| *node);
    fit.max_by_key(|node| (lsn(*node), std::cmp::Reverse(place(*node)))).ok_or_else(|| {
        let one = |(node, flaws): &(NodeId, Vec<String>)| format!("{node} cannot take over: {}", flaws.join("; "));
        checked.iter().map(one).collect::<Vec<_>>().join(". ")
    })
}

fn flaws(view: &View, node: NodeId, master_tip: Position) -> Vec<String> {
    let mut flaws: Vec<String> = lacks_now(view, node).iter().map(ToString::to_string).collect();
    let tip = view.nodes.get(&node).and_then(|state| state.tip);
    if let Some(tip) = tip.filter(|_| flaws.is_empty()) {
        let behind = master_tip.lsn.saturating_sub(tip.lsn);
        if behind > LAG_BYTES_MAX {
            flaws.push(format!("it lacks the last {behind} bytes of the master's trail; the limit is {LAG_BYTES_MAX}"));
        }
    }
    flaws
}
