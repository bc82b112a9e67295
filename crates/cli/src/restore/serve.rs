//! `holdfast restore --serve`: a moment of the past for reading, before its pages have been fetched.
//!
//! The server is a standby without a master, on a disk that fetches pages when they are read. Its scratch directory is removed
//! at the end.

use super::scratch::Scratch;
use super::target;
use crate::dump::Bar;
use crate::logs;
use holdfast_dump::restore::{RestoreOptions, Step, look};
use holdfast_dump::{Repository, show_moment};
use holdfast_node::Config;
use holdfast_node::config::{Listen, RestoredDisk};
use indicatif::BinaryBytes;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(arguments: &super::Arguments, listen: &Listen, repository: Repository) -> anyhow::Result<ExitCode> {
    // The server ends in order at Ctrl-C, and then the directory is removed.
    let scratch = Scratch::make(arguments.into.scratch.as_deref(), false)?;
    let dir = scratch.dir.join("data");
    let options = RestoreOptions {
        dir: &dir,
        target: target(arguments)?,
        archive: arguments.archive.as_deref(),
        dump: arguments.dump.as_deref(),
        trail: arguments.trail.as_deref(),
        threads: arguments.threads.count(),
    };
    let trail = Bar::new("applying the trail")?;
    let look = look(&Arc::new(repository), &options, &|step| match step {
        Step::Pages { .. } => {}
        Step::Trail { from, lsn, end, unix_ms } => {
            trail.show(lsn.saturating_sub(from), end - from, &format!("up to {}", show_moment(unix_ms)))
        }
    });
    trail.end();
    let look = look?;
    let config = Config {
        listen: listen.clone(),
        restored: Some(RestoredDisk(look.disk.clone())),
        log: "warn".to_owned(),
        ..Config::default()
    };
    logs::start(false, Some((&dir, &config)))?;
    let ready = |address| {
        look.disk.fetch_ahead();
        println!("holdfast: ready on {address}");
        println!(
            "holdfast: for reading, as of LSN {}, last commit {}: {} databases, {} from {}, {} of trail, in {:.1} s",
            look.lsn,
            show_moment(look.clock_unix_ms),
            look.databases,
            BinaryBytes(look.bytes),
            look.dump,
            BinaryBytes(look.trail_bytes),
            look.seconds
        );
    };
    let served = holdfast_node::serve(&dir, config, None, &ready);
    look.disk.stop();
    served?;
    Ok(ExitCode::SUCCESS)
}
