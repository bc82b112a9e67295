//! Each node of the demo in a network of its own, so that the network between them can be cut.
//!
//! | namespace | devices |
//! |---|---|
//! | hfPID (PID: of this process) | the bridge `sw`, and one end of each cable: `a`, `b`, `w` |
//! | hfPIDa, hfPIDb, hfPIDw | `lo`, and the other end: `eth0` with 10.213.0.1, .2 or .3 |
//!
//! The network of this machine itself is not touched, and dropping [`Net`] removes everything. The demo's clients reach the servers
//! through their Unix sockets, also those of a node that is cut off.
//!
//! Failure: without root or without `ip` (iproute2) an error says so.

use super::bed::NAMES;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// The namespaces.
pub struct Net {
    name: String,
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("--netns needs the program ip (iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}; --netns needs root, leave it out without", arguments.join(" "), said.trim());
    }
    Ok(())
}

impl Net {
    pub fn make() -> anyhow::Result<Net> {
        let net = Net { name: format!("hf{}", std::process::id()) };
        let switch = net.name.as_str();
        ip(&["netns", "add", switch])?;
        ip(&["-n", switch, "link", "add", "sw", "type", "bridge"])?;
        ip(&["-n", switch, "link", "set", "sw", "up"])?;
        for (node, cable) in NAMES.into_iter().enumerate() {
            let of = net.of(node);
            ip(&["netns", "add", &of])?;
            ip(&["-n", switch, "link", "add", "name", cable, "type", "veth", "peer", "name", "eth0", "netns", &of])?;
            ip(&["-n", switch, "link", "set", "dev", cable, "master", "sw", "up"])?;
            ip(&["-n", &of, "address", "add", &format!("{}/24", Net::address(node)), "dev", "eth0"])?;
            ip(&["-n", &of, "link", "set", "eth0", "up"])?;
            ip(&["-n", &of, "link", "set", "lo", "up"])?;
        }
        Ok(net)
    }

    fn of(&self, node: usize) -> String {
        format!("{}{}", self.name, NAMES[node])
    }

    pub fn address(node: usize) -> String {
        format!("10.213.0.{}", node + 1)
    }

    /// A command that runs the program on a node.
    pub fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.of(node)]).arg(program);
        command
    }

    /// Pulls the node's cable, or puts it back.
    pub fn cut(&self, node: usize, is_cut: bool) -> anyhow::Result<()> {
        ip(&["-n", &self.name, "link", "set", "dev", NAMES[node], if is_cut { "down" } else { "up" }])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in (0..NAMES.len()).map(|node| self.of(node)).chain([self.name.clone()]) {
            // It is not there where making it has failed.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}
