//! What `holdfast cluster check` finds on this machine: whether the supervisor's promises about time can be kept here.
//!
//! | looked at | bad when |
//! |---|---|
//! | real-time priority, locked memory | not permitted |
//! | the latest of some wake-ups | the lease is shorter than 4 of the longest gaps between two pulses |
//! | clock source | a slow one, or one that the kernel found unstable |
//! | links of this node | on one network device, or not this machine's |
//! | runtime directory | not on tmpfs |
//!
//! Failure: what cannot be looked at is a note.

use crate::file::{Cluster, Node};
use crate::runtime_dir::{RuntimeDir, file_system};
use crate::scheduling;
use holdfast_control::{NodeId, Role};
use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The time between two pulses, and how many are watched.
const PULSE: Duration = Duration::from_millis(25);
const PULSES: usize = 40;
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// How much a finding counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The cluster would not do what it promises.
    Bad,
    Note,
}

/// What was found, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    pub what: String,
    pub next: String,
}

fn bad(what: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { severity: Severity::Bad, what: what.into(), next: next.into() }
}

fn note(what: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding { severity: Severity::Note, what: what.into(), next: next.into() }
}

/// Looks at this machine, as `node` of the cluster if that is known. Takes a second.
pub fn findings(cluster: &Cluster, node: Option<NodeId>) -> Vec<Finding> {
    let mut found = of_file(cluster);
    found.extend(of_time(cluster.lease_ms));
    found.extend(clock_source(std::fs::read_to_string(CLOCK_SOURCE).ok().as_deref().map(str::trim)));
    if let Some((node, of_node)) = node.and_then(|node| Some((node, cluster.nodes.get(&node)?))) {
        found.extend(links(of_node));
        let dir = RuntimeDir::of(&cluster.name, node.as_str());
        if let Ok(Some(kind)) = file_system(dir.path()) {
            let what = format!("the runtime directory {} is on {kind}", dir.path().display());
            found.push(bad(what, "set XDG_RUNTIME_DIR to a directory on tmpfs, or mount one at /run"));
        }
    }
    found
}

/// What this release does not do yet of what the file asks for, and what the file leaves to one fault.
fn of_file(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if !cluster.nodes.values().any(|node| node.role == Role::Witness) {
        found.push(note("no node is a witness", "three nodes with data vote as well; a witness costs less"));
    }
    for (name, node) in cluster.nodes.iter().filter(|(_, node)| node.links.len() == 1) {
        let what = format!("node.{name} has one link, {}", node.address());
        found.push(note(
            what,
            "this release uses the first link: put it on two networks by a bond, so that the loss of one is none",
        ));
    }
    if let Some(address) = &cluster.database.address {
        let what = format!("address = \"{address}\" is not taken by this release");
        found.push(note(
            what,
            "list both servers in the clients' connection strings (host=a,b target_session_attrs=read-write)",
        ));
    }
    for group in &cluster.groups {
        found.push(note(format!("group.{group} is not run by this release"), "run it by other means until then"));
    }
    found
}

/// Priority, memory and wake-ups, in a thread as the pulse has it.
fn of_time(lease_ms: u32) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = scheduling::memory_lock_flaw() {
        found.push(bad(why, "set LimitMEMLOCK=infinity in the unit (holdfast cluster unit), or run it as root"));
    }
    let watched = std::thread::spawn(|| (scheduling::real_time(), longest_gap())).join();
    let Ok((priority, gap)) = watched else {
        return vec![note("the thread that measures wake-ups failed", "try again")];
    };
    if let Err(error) = priority {
        let next = "set LimitRTPRIO=99 in the unit (holdfast cluster unit), and kernel.sched_rt_runtime_us = -1 where RT_GROUP_SCHED \
                    is on; without it a busy machine may lose its mastership";
        found.push(bad(format!("no real-time priority: {error}"), next));
    }
    found.extend(short_lease(lease_ms, gap));
    found
}

fn longest_gap() -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..PULSES {
        let before = Instant::now();
        std::thread::sleep(PULSE);
        longest = longest.max(before.elapsed());
    }
    longest
}

fn short_lease(lease_ms: u32, gap: Duration) -> Option<Finding> {
    let needed = 4 * gap;
    let is_short = Duration::from_millis(lease_ms.into()) < needed;
    is_short.then(|| {
        let (gap, needed) = (gap.as_millis(), needed.as_millis());
        let what = format!("lease_ms = {lease_ms} is less than 4 gaps between two pulses: the longest was {gap} ms");
        bad(what, format!("give the machine more processors, or write a lease_ms above {needed}"))
    })
}

fn clock_source(name: Option<&str>) -> Option<Finding> {
    match name {
        Some("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" | "timebase" | "stp") => None,
        Some(name) => Some(note(
            format!(
                "the clock source is {name}: reading a clock is slow, or the kernel does not trust the processor's"
            ),
            "use tsc where the kernel offers it (/sys/devices/system/clocksource)",
        )),
        None => Some(note("the clock source cannot be read", "look at /sys/devices/system/clocksource")),
    }
}

/// The network devices of this node's links.
fn links(node: &Node) -> Vec<Finding> {
    let devices = match nix::ifaddrs::getifaddrs() {
        Ok(found) => found
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
                let v6 = address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip()));
                Some((v4.or(v6)?, interface.interface_name))
            })
            .collect::<BTreeMap<_, _>>(),
        Err(error) => return vec![note(format!("the network devices cannot be listed: {error}"), "try again")],
    };
    let mut found = Vec::new();
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for link in &node.links {
        let ips =
            link.to_socket_addrs().map(|found| found.map(|found| found.ip()).collect::<Vec<_>>()).unwrap_or_default();
        match ips.iter().find_map(|ip| devices.get(ip)) {
            Some(device) => used.entry(device).or_default().push(link),
            None => found.push(bad(format!("{link} is not an address of this machine"), "correct links, or --node")),
        }
    }
    for (device, links) in used.iter().filter(|(_, links)| links.len() > 1) {
        let what = format!("{} are on one network device, {device}", links.join(" and "));
        found.push(bad(what, "put the links on two devices: one that fails must not take both"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_lease_needs_four_gaps() {
        assert_eq!(short_lease(600, Duration::from_millis(150)), None);
        let found = short_lease(600, Duration::from_millis(151)).unwrap();
        assert!(found.what.contains("151 ms") && found.next.contains("604"), "{found:?}");
    }

    #[test]
    fn links_on_one_device_and_foreign_ones_are_found() {
        let node = |links: &[&str]| {
            let links = links.iter().map(|link| (*link).to_owned()).collect();
            Node { links, data: PathBuf::from("/srv"), role: Role::Data, clients: None }
        };
        assert_eq!(super::links(&node(&["127.0.0.1:7433"])), []);
        let found = super::links(&node(&["127.0.0.1:7433", "127.0.0.1:7434", "192.0.2.1:7433"]));
        let texts: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert!(texts[0].contains("192.0.2.1:7433 is not an address"), "{texts:?}");
        assert!(texts[1].contains("127.0.0.1:7433 and 127.0.0.1:7434 are on one network device"), "{texts:?}");
    }

    #[test]
    fn slow_clocks_are_found() {
        assert_eq!(clock_source(Some("tsc")), None);
        assert!(clock_source(Some("hpet")).is_some() && clock_source(None).is_some());
    }
}
