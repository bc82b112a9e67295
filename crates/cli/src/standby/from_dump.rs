//! `holdfast standby create --from-dump` and `holdfast mirror create`: a follower whose databases come from a dump.

use super::serve_command;
use crate::dump::Bar;
use holdfast_dump::restore::{FollowerMade, NewFollower, NewStandby, RestoreOptions, Step, Target, follower_from_dump};
use holdfast_dump::{Repository, show_moment};
use indicatif::BinaryBytes;
use std::path::Path;
use std::process::ExitCode;

/// At most; more than processors gain nothing.
const THREADS_MAX: usize = 8;

/// Makes a standby's directory.
pub fn make(
    repository: &Repository,
    data: &Path,
    archive: Option<&str>,
    trail: Option<&str>,
    standby: NewStandby<'_>,
) -> anyhow::Result<ExitCode> {
    let (from, name) = (standby.from, standby.name);
    let made = make_follower(repository, data, archive, trail, &NewFollower::Standby(standby))?;
    report(&made, "a standby's", from);
    println!("holdfast: start it as the standby {name} with: {}", serve_command(data)?);
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory, with progress bars.
pub fn make_follower(
    repository: &Repository,
    data: &Path,
    archive: Option<&str>,
    trail: Option<&str>,
    follower: &NewFollower<'_>,
) -> anyhow::Result<FollowerMade> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX));
    let options = RestoreOptions { dir: data, target: Target::End, archive, dump: None, trail, threads };
    let (pages, applied) = (Bar::new("copying the dump")?, Bar::new("applying the trail")?);
    let made = follower_from_dump(repository, &options, follower, &|step| match step {
        Step::Pages { done_bytes, total_bytes } => pages.show(done_bytes, total_bytes, ""),
        Step::Trail { from, lsn, end, unix_ms } => {
            let (done, total) = (lsn.saturating_sub(from), end.saturating_sub(from));
            applied.show(done, total, &format!("up to {}", show_moment(unix_ms)));
        }
    });
    pages.end();
    applied.end();
    Ok(made?)
}

/// Prints what was made: `whose` directory, and where nothing came from.
pub fn report(made: &FollowerMade, whose: &str, master: &str) {
    println!(
        "holdfast: {} is {whose} directory, made of {} and {} of the archive's trail in {:.1} s; nothing came from {master}",
        made.dir,
        made.dump,
        BinaryBytes(made.trail_bytes),
        made.seconds,
    );
    println!("  it has everything up to LSN {}, last commit {}", made.lsn, show_moment(made.clock_unix_ms));
}
