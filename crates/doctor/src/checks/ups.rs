//! Is there a UPS, does its daemon stop the machine in time, and was that ever tried?
//!
//! Acknowledged commits do not need a UPS where every cache is flushed; where barriers are off, the UPS is all there is.
//!
//! | found | verdict |
//! |---|---|
//! | configured, running, a shutdown on battery in the log | good |
//! | configured and running, never exercised | warn; cannot know where no log in text could tell |
//! | configured and not running, or running without saying how to stop | warn |
//! | installed, not configured | warn |
//! | none, in a virtual machine or a container, or on a file system without a disk | cannot know: the host has it |
//! | none | good where barriers are on, else warn |

use super::{Case, barrier};
use crate::look::Daemon;
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const NAME: &str = "UPS";

pub fn check(case: &Case) -> Finding {
    let power = &case.survey.power;
    match power.daemons.iter().find(|daemon| daemon.runs).or(power.daemons.first()) {
        Some(daemon) => judge(case, daemon),
        None => none(case),
    }
}

fn judge(case: &Case, daemon: &Daemon) -> Finding {
    let name = daemon.name;
    let Some(watches) = &daemon.watches else {
        return Finding::new(NAME, Warn, format!("{name} is installed, not configured"), "It watches no UPS.")
            .with_advice("Configure it, or remove it.");
    };
    let found = format!("{name} watches {watches}");
    if !daemon.runs {
        return Finding::new(
            NAME,
            Warn,
            format!("{found}, and does not run"),
            "Nobody would stop the machine in time.",
        )
        .with_advice("Start it, and have it started at boot.");
    }
    if !daemon.stops_machine {
        return Finding::new(NAME, Warn, found, "Its configuration does not say how to stop the machine.")
            .with_advice("Set SHUTDOWNCMD in upsmon.conf.");
    }
    match &daemon.shutdown_seen {
        Some((line, file)) => {
            Finding::new(NAME, Good, format!("{found}; {file}: {line}"), "A shutdown on battery has happened.")
        }
        None => {
            let advice = "Pull the UPS's plug once, and see the server's log say that it stopped cleanly.";
            let (verdict, why) = if name == "apcupsd" || case.survey.power.has_text_log {
                (Warn, "The logs tell of no shutdown on battery: that it works is a hope.")
            } else {
                (CannotKnow, "There is no log in text that could tell whether a shutdown on battery was ever tried.")
            };
            Finding::new(NAME, verdict, found, why).with_advice(advice)
        }
    }
}

fn none(case: &Case) -> Finding {
    let machine = &case.survey.machine;
    let found = if case.survey.power.has_battery { "no daemon; the machine has a battery" } else { "no daemon found" };
    if machine.hypervisor.is_some() || machine.container {
        return Finding::new(NAME, CannotKnow, found, "The host's power supply cannot be seen from here.");
    }
    if case.survey.disks().is_empty() {
        return Finding::new(NAME, CannotKnow, found, "There is no disk to be seen that it would be about.");
    }
    if barrier::check(case).verdict == Bad {
        return Finding::new(
            NAME,
            Warn,
            found,
            "With barriers off only a UPS stands between a power cut and lost commits.",
        )
        .with_advice("Turn barriers on.");
    }
    Finding::new(NAME, Good, found, "Where every cache is flushed, a power cut costs a restart and no commit.")
}
