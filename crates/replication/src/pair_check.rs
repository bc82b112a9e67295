//! `holdfast standby check`: whether this directory may follow that server, and what is missing. It starts nothing, and changes
//! only what the standby's next start would change (it cuts off a torn end of the trail).
//!
//! Each check says what was found and, where something is missing, what to do. A failed check may hide later ones: a master
//! that cannot be reached reveals nothing about its trail.

use crate::base_copy::CopyTo;
use crate::certificates::Certificates;
use crate::node_client::{NodeClient, NodeClientError};
use crate::rejoin::{RejoinError, find};
use crate::settings::SettingsFile;
use crate::standby_file::StandbyFile;
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::message::Answer;
use holdfast_standby::pairing::Finding;
use holdfast_trail::TrailError;
use serde_json::Value;
use std::path::Path;

/// The result of one check.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PairCheck {
    pub check: &'static str,
    pub ok: bool,
    pub found: String,
    /// Empty when there is nothing to do.
    pub advice: String,
}

impl PairCheck {
    fn ok(check: &'static str, found: impl Into<String>) -> PairCheck {
        PairCheck { check, ok: true, found: found.into(), advice: String::new() }
    }

    fn missing(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> PairCheck {
        PairCheck { check, ok: false, found: found.into(), advice: advice.into() }
    }
}

/// Checks the server at `from` and the directory.
pub fn check_pair(
    from: &str,
    to: CopyTo<'_>,
    certificates: Option<Certificates>,
    settings: &dyn SettingsFile,
) -> Vec<PairCheck> {
    let mut checks = vec![name(to.name)];
    let certificates = match certificates.map_or_else(|| Certificates::of(to.dir), |given| Ok(Some(given))) {
        Ok(certificates) => certificates,
        Err(error) => {
            checks.push(PairCheck::missing("certificates", error.to_string(), "See above"));
            return checks;
        }
    };
    let with = if certificates.is_some() { "present; links are encrypted" } else { "none; links stay on this machine" };
    checks.push(PairCheck::ok("certificates", with));
    let status = match (NodeClient { at: from.to_owned(), certificates }).status().map(|s| serde_json::from_str(&s)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            checks.push(PairCheck::missing("master", format!("its status is not understood: {error}"), UPGRADE));
            return checks;
        }
        Err(error) => {
            checks.push(unreachable(from, &error));
            return checks;
        }
    };
    checks.push(master(from, &status));
    checks.push(name_is_free(to.name, &status));
    checks.extend(directory(from, to, &status, settings));
    checks
}

const UPGRADE: &str = "The versions of the two programs may be too far apart; upgrade the older one";

fn name(name: &str) -> PairCheck {
    match holdfast_standby::link::check_name(name) {
        Ok(()) => PairCheck::ok("name", name),
        Err(refusal) => PairCheck::missing("name", refusal.message, refusal.advice),
    }
}

fn unreachable(from: &str, error: &NodeClientError) -> PairCheck {
    let advice = format!(
        "Is the server running, and is {from} its port for nodes (node_listen) or, on this machine, for clients? Off this \
         machine certificates are needed: holdfast cert"
    );
    PairCheck::missing("master", error.to_string(), advice)
}

fn text<'a>(status: &'a Value, key: &str) -> &'a str {
    status[key].as_str().unwrap_or("?")
}

fn master(from: &str, status: &Value) -> PairCheck {
    let (name, role, epoch) = (text(status, "name"), text(status, "role"), &status["epoch"]);
    PairCheck::ok("master", format!("{name} at {from} is a {role}, epoch {epoch}"))
}

fn name_is_free(name: &str, status: &Value) -> PairCheck {
    let standbys = status["standbys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let follows = |s: &&Value| s["name"] == name && s["connected"] == true;
    if text(status, "name") == name {
        return PairCheck::missing("name at the master", "the master itself has this name", "Choose another --name");
    }
    match standbys.iter().find(follows) {
        None => PairCheck::ok("name at the master", "free"),
        Some(_) => PairCheck::missing(
            "name at the master",
            format!("a standby named {name} follows already"),
            "Choose another --name. If the standby is this directory, its server is running: see holdfast standby status",
        ),
    }
}

fn directory(from: &str, to: CopyTo<'_>, status: &Value, settings: &dyn SettingsFile) -> Vec<PairCheck> {
    let missing = |found: String, advice: &str| vec![PairCheck::missing("directory", found, advice)];
    if !to.dir.join("trail").join("control").exists() {
        return new_copy(to.dir, status);
    }
    match StandbyFile::read(to.dir) {
        Err(error) => return missing(error.to_string(), "See above"),
        Ok(None) => {
            let advice = format!("Stop its server and make it a standby: holdfast rejoin --from {from} --data DIR");
            return missing("it is a master's data directory".to_owned(), &advice);
        }
        Ok(Some(file)) if file.name != to.name => {
            return missing(format!("it belongs to the standby {}", file.name), "Pass that name with --name");
        }
        Ok(Some(_)) => {}
    }
    match find(from, to, settings) {
        Ok(found) => vec![common(found.finding)],
        Err(RejoinError::Trail(error @ TrailError::InUse { .. })) => {
            missing(error.to_string(), "Its server is running: see holdfast standby status, or stop it first")
        }
        Err(error) => missing(error.to_string(), "See above"),
    }
}

/// Checks for a directory without a copy: whether there is room for one.
fn new_copy(dir: &Path, status: &Value) -> Vec<PairCheck> {
    let mut checks = Vec::new();
    if text(status, "role") == "standby" {
        let master = status["link"]["master"].as_str().unwrap_or("its master");
        let advice = format!(
            "Take the base copy from {master}; the standby may follow this server afterwards (standby configure)"
        );
        checks.push(PairCheck::missing("base copy", "a standby sends no base copies", advice));
    }
    let needed = status["databases_bytes"].as_u64().unwrap_or_default();
    let there = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    checks.push(match RealDisk::new().free_bytes(there) {
        Ok(free) if free > needed => {
            PairCheck::ok("directory", format!("empty; a base copy of {needed} bytes is needed, {free} bytes are free"))
        }
        Ok(free) => PairCheck::missing(
            "directory",
            format!("a base copy takes {needed} bytes and its trail, {free} bytes are free"),
            "Free space, or choose another disk",
        ),
        Err(error) => {
            PairCheck::missing("directory", error.to_string(), "Choose a directory that the server may write to")
        }
    });
    checks
}

/// Checks how much of their history master and standby share.
fn common(finding: Finding) -> PairCheck {
    const COPY: &str = "Take a new base copy into an empty directory: holdfast standby create";
    match finding {
        Finding::Continues => {
            PairCheck::ok("common history", "the master has all of its trail; it would continue from its end")
        }
        Finding::Copied { answer: Answer::Yes, .. } => {
            PairCheck::ok("common history", "the base copy belongs to the master's present history")
        }
        Finding::Copied { answer: Answer::No, .. } => PairCheck::missing(
            "common history",
            "the base copy belongs to a history that the master does not have",
            COPY,
        ),
        Finding::Gone | Finding::Copied { answer: Answer::Gone, .. } => {
            PairCheck::missing("common history", "the master has recycled what comes next", COPY)
        }
        Finding::Forked { common: Some(tip) } => PairCheck::missing(
            "common history",
            format!("the two trails agree up to LSN {} and diverge there", tip.lsn),
            "If what this one has beyond that was never applied, its next start cuts it off; otherwise run holdfast rejoin, which saves it first",
        ),
        Finding::Forked { common: None } => {
            PairCheck::missing("common history", "none: they are not copies of each other", COPY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_said_with_the_way_out() {
        let status = |role: &str| {
            json!({ "name": "a", "role": role, "epoch": 1, "databases_bytes": 1u64 << 62,
            "standbys": [{ "name": "b", "connected": true }], "link": { "master": "h:1" } })
        };
        assert!(!name_is_free("b", &status("master")).ok && !name_is_free("a", &status("master")).ok);
        assert!(name_is_free("c", &status("master")).ok);
        let dir = tempfile::tempdir().unwrap();
        let checks = new_copy(&dir.path().join("not/yet"), &status("standby"));
        assert_eq!(
            checks.iter().map(|c| (c.check, c.ok)).collect::<Vec<_>>(),
            [("base copy", false), ("directory", false)]
        );
        assert!(checks[0].advice.contains("h:1") && checks[1].found.contains("free"));
        assert!(!common(Finding::Gone).ok && common(Finding::Continues).ok);
        assert!(!name("a/b").ok);
    }
}
