//! UPS daemons: apcupsd and NUT's upsmon. Installed, configured, running, and whether a shutdown on battery was ever
//! seen to happen.
//!
//! Evidence of a shutdown: apcupsd's own event log, and what upsmon writes to the system log. A journal kept by systemd
//! is binary and not read here; then nothing is known.

use crate::root::Root;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Power {
    pub daemons: Vec<Daemon>,
    /// A laptop's own battery.
    pub has_battery: bool,
    /// There is a system log in text to look for evidence in.
    pub has_text_log: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Daemon {
    pub name: &'static str,
    /// What its configuration says it watches; nothing when it is as it came.
    pub watches: Option<String>,
    /// It says how to stop the machine.
    pub stops_machine: bool,
    pub runs: bool,
    /// The last line that reports a shutdown on battery, and its file.
    pub shutdown_seen: Option<(String, String)>,
}

const SYSTEM_LOGS: &[&str] = &["/var/log/syslog", "/var/log/syslog.1", "/var/log/messages", "/var/log/messages.1"];

pub fn look(root: &Root) -> Power {
    let supplies = root.list("/sys/class/power_supply");
    let is_battery = |name: &String| {
        let attribute = |file: &str| root.read(&format!("/sys/class/power_supply/{name}/{file}"));
        attribute("type").as_deref() == Some("Battery") && attribute("scope").as_deref() != Some("Device")
    };
    Power {
        daemons: [apcupsd(root), nut(root)].into_iter().flatten().collect(),
        has_battery: supplies.iter().any(is_battery),
        has_text_log: SYSTEM_LOGS.iter().any(|file| root.exists(file)),
    }
}

fn apcupsd(root: &Root) -> Option<Daemon> {
    let text = root.read("/etc/apcupsd/apcupsd.conf")?;
    let value = |name: &str| {
        let mut lines = settings(&text).filter_map(|line| line.split_once(char::is_whitespace));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned())
    };
    let cable = value("UPSTYPE").map(|kind| match value("DEVICE") {
        Some(device) => format!("{kind} on {device}"),
        None => format!("{kind} by USB"),
    });
    // Debian's file is not in force before /etc/default/apcupsd says so.
    let in_force = root.read("/etc/default/apcupsd").is_none_or(|text| !text.contains("ISCONFIGURED=no"));
    Some(Daemon {
        name: "apcupsd",
        watches: cable.filter(|_| in_force),
        stops_machine: true,
        runs: runs(root, "apcupsd"),
        shutdown_seen: last_line(root, &["/var/log/apcupsd.events"], &["Initiating system shutdown"]),
    })
}

fn nut(root: &Root) -> Option<Daemon> {
    let text = root.read("/etc/nut/upsmon.conf").or_else(|| root.read("/etc/ups/upsmon.conf"))?;
    let starting =
        |word: &str| settings(&text).find_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned());
    let monitor = starting("MONITOR ").and_then(|rest| rest.split_whitespace().next().map(str::to_owned));
    Some(Daemon {
        name: "NUT upsmon",
        watches: monitor,
        stops_machine: starting("SHUTDOWNCMD ").is_some(),
        runs: runs(root, "upsmon"),
        shutdown_seen: last_line(
            root,
            SYSTEM_LOGS,
            &["Executing automatic power-fail shutdown", "Auto logout and shutdown proceeding"],
        ),
    })
}

/// The lines that are no comments.
fn settings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn runs(root: &Root, program: &str) -> bool {
    let is_process = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    root.list("/proc")
        .iter()
        .filter(|name| is_process(name))
        .any(|id| root.read(&format!("/proc/{id}/comm")).as_deref() == Some(program))
}

fn last_line(root: &Root, files: &[&str], phrases: &[&str]) -> Option<(String, String)> {
    files.iter().find_map(|file| {
        let text = root.read(file)?;
        let line = text.lines().rev().find(|line| phrases.iter().any(|phrase| line.contains(phrase)))?;
        Some((line.trim().to_owned(), (*file).to_owned()))
    })
}
