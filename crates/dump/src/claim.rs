//! Which server's schedule dumps to a place.
//!
//! Two servers with the same settings, such as one restored from the other, would remove each other's dumps by their rules of
//! retention. So a server whose schedule dumps puts an object `servers/TRAIL-EPOCH-NODE.json`, and looks for others:
//!
//! | there is | then |
//! |---|---|
//! | one of another trail | refused, with the name of that server |
//! | one of this trail and a later epoch | refused: that node has become the master since |
//! | one of this trail and epoch, and another node | refused: two nodes are set to dump. A master that was restarted is of a later epoch |
//! | this node's own, or one of an earlier epoch | taken over: the earlier ones are removed |
//!
//! Dumps that operators make by hand claim nothing: those of several servers may lie in one place.
//!
//! Failure: what cannot be put or listed is an error of the dump.

use crate::error::DumpError;
use crate::repository::Repository;
use crate::running::now_unix_ms;
use crate::send::DumpPlan;
use holdfast_trail::TrailId;
use serde::Serialize;

const DIRECTORY: &str = "servers";

/// The server that dumps to a place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    trail: String,
    epoch: u32,
    node: String,
}

#[derive(Serialize)]
struct Content<'a> {
    trail: &'a str,
    epoch: u32,
    node: &'a str,
    since_unix_ms: u64,
}

impl Claim {
    fn name(&self) -> String {
        format!("{DIRECTORY}/{}-{:08x}-{}.json", self.trail, self.epoch, self.node)
    }

    fn parse(name: &str) -> Option<Claim> {
        let rest = name.strip_prefix(DIRECTORY)?.strip_prefix('/')?.strip_suffix(".json")?;
        let (trail, rest) = rest.split_once('-')?;
        let (epoch, node) = rest.split_once('-')?;
        let epoch = u32::from_str_radix(epoch, 16).ok().filter(|_| !name.contains(char::is_control))?;
        Some(Claim { trail: trail.to_owned(), epoch, node: node.to_owned() })
    }

    /// Why this server may not dump next to another.
    fn conflict(&self, other: &Claim) -> Option<String> {
        if other.trail != self.trail {
            return Some(format!("server {} with the trail {} dumps there", other.node, other.trail));
        }
        if other.epoch > self.epoch {
            return Some(format!(
                "node {} dumps there and is of epoch {}, {} is of {}",
                other.node, other.epoch, self.node, self.epoch
            ));
        }
        (other.epoch == self.epoch && other.node != self.node).then(|| {
            format!(
                "node {} of the same epoch {} dumps there; set dump.node to one of the two",
                other.node, other.epoch
            )
        })
    }
}

/// Takes the place for the server of a plan, or says which other server has it.
pub fn take(repository: &Repository, plan: &DumpPlan) -> Result<(), DumpError> {
    let trail = TrailId(plan.plan.trail_id).to_string();
    let own = Claim { trail, epoch: plan.trail_epoch.max(plan.plan.epoch), node: plan.node.clone() };
    let others = claims(repository)?;
    if let Some((name, why)) = others.iter().find_map(|(name, other)| Some((name, own.conflict(other)?))) {
        return Err(DumpError::Claimed { place: repository.place().to_owned(), why, name: name.clone() });
    }
    let name = own.name();
    if others.iter().all(|(there, _)| *there != name) {
        let content = Content { trail: &own.trail, epoch: own.epoch, node: &own.node, since_unix_ms: now_unix_ms() };
        let content = serde_json::to_vec(&content).map_err(|e| DumpError::Encode(e.to_string()))?;
        repository.put(&name, content.into())?;
        // Another server may have put its own meanwhile: each sees the other's now, and of the two the later name yields.
        let rival = claims(repository)?.into_iter().find_map(|(other, claim)| Some((own.conflict(&claim)?, other)));
        if let Some((why, other)) = rival.filter(|(_, other)| *other < name) {
            repository.remove(&name)?;
            return Err(DumpError::Claimed { place: repository.place().to_owned(), why, name: other });
        }
    }
    others.iter().filter(|(there, _)| *there != name).try_for_each(|(there, _)| repository.remove(there))
}

fn claims(repository: &Repository) -> Result<Vec<(String, Claim)>, DumpError> {
    let listed = repository.list(DIRECTORY)?;
    Ok(listed.into_iter().filter_map(|object| Some((object.name.clone(), Claim::parse(&object.name)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::CopyPlan;
    use std::collections::BTreeMap;

    fn claim(trail: &str, epoch: u32, node: &str) -> Claim {
        Claim { trail: trail.to_owned(), epoch, node: node.to_owned() }
    }

    fn plan(trail: u8, epoch: u32, node: &str) -> DumpPlan {
        let plan = CopyPlan {
            trail_id: [trail; 16],
            segment_bytes: 1 << 20,
            first_segment: 1,
            epoch,
            manifest: String::new(),
            listed_to: 0,
            whole_from: 0,
            volumes: Vec::new(),
            shown: 0,
            clock: 0,
        };
        DumpPlan { node: node.to_owned(), plan, shown_checksum: 0, files: BTreeMap::new(), trail_epoch: 0 }
    }

    #[test]
    fn a_place_has_the_claim_of_one_server_and_a_later_epoch_takes_it_over() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::open(dir.path().to_str().unwrap()).unwrap();
        let claimed = || claims(&repository).unwrap().into_iter().map(|(_, claim)| claim.node).collect::<Vec<_>>();
        take(&repository, &plan(1, 1, "a")).unwrap();
        take(&repository, &plan(1, 1, "a")).unwrap();
        assert_eq!(claimed(), ["a"]);
        assert!(matches!(take(&repository, &plan(1, 1, "b")), Err(DumpError::Claimed { .. })), "of the same epoch");
        assert!(matches!(take(&repository, &plan(2, 9, "c")), Err(DumpError::Claimed { .. })), "of another history");
        assert_eq!(claimed(), ["a"], "what was refused leaves no claim");
        take(&repository, &plan(1, 2, "b")).unwrap();
        assert_eq!(claimed(), ["b"], "the claim of the epoch before is removed");
        assert!(matches!(take(&repository, &plan(1, 1, "a")), Err(DumpError::Claimed { .. })), "a deposed master");
    }

    #[test]
    fn names_go_there_and_back_and_the_newest_epoch_has_the_place() {
        let own = claim("ab", 7, "node-1.x");
        assert_eq!(own.name(), "servers/ab-00000007-node-1.x.json");
        assert_eq!(Claim::parse(&own.name()), Some(own.clone()));
        assert_eq!(Claim::parse("servers/x.json"), None);
        assert_eq!((own.conflict(&own), own.conflict(&claim("ab", 6, "b"))), (None, None));
        assert!(own.conflict(&claim("ab", 8, "node-1.x")).is_some_and(|why| why.contains("epoch 8")));
        assert!(own.conflict(&claim("ab", 7, "b")).is_some_and(|why| why.contains("node b")));
        assert!(own.conflict(&claim("cd", 1, "b")).is_some_and(|why| why.contains("server b")));
    }
}
