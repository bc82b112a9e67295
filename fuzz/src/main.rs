//! Drives the targets with seeded mutations for a while: `cargo xtask fuzz`.
//!
//! The input that runs stands in a file, `fuzz-TARGET-SEED-running`, so that it is there whatever becomes of the process.
//!
//! | the input | what happens |
//! |---|---|
//! | returns | the next one comes |
//! | panics, or takes too long and returns | it is kept in `fuzz-TARGET-SEED-NUMBER`, the next one comes |
//! | aborts the process | it stays where it is; the exit code is that of the abort |
//! | does not return | the watchdog says so and ends the process with exit code 1; it stays where it is |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::fs::File;
use std::io::{Seek, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_fuzz::{TARGETS, Target, mutate};
use holdfast_seams::testing::Seeded;

/// An input that takes longer is reported.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// One that has not returned by then is not waited for any longer.
const HANG_TIME: Duration = Duration::from_secs(60);
const WATCH_EVERY: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    #[arg(long)]
    target: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The input that runs: since when, and the file that it stands in.
type Running = Arc<Mutex<Option<(Instant, String)>>>;

fn main() -> anyhow::Result<()> {
    let Arguments { minutes, target, seed } = Arguments::parse();
    let chosen: Vec<_> = TARGETS.iter().filter(|t| target.as_ref().is_none_or(|name| name == t.name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no such target; there are {:?}", TARGETS.map(|t| t.name));
    let each = Duration::from_secs_f64(minutes * 60.0 / chosen.len() as f64);
    let running = Running::default();
    let watched = running.clone();
    std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&watched))?;
    let mut failed = 0;
    for target in chosen {
        failed += drive(target, seed, each, &running)?;
    }
    anyhow::ensure!(failed == 0, "{failed} inputs failed");
    Ok(())
}

/// Runs one target for a while; returns how many inputs failed.
fn drive(target: &Target, seed: u64, time: Duration, running: &Running) -> anyhow::Result<u64> {
    let (corpus, mut random, begun) = (mutate::corpus(target.name), Seeded::new(seed), Instant::now());
    let path = format!("fuzz-{}-{seed}-running", target.name);
    let mut file = File::create(&path)?;
    let (mut inputs, mut failed) = (0u64, 0);
    while begun.elapsed() < time {
        let input = mutate::mutated(&corpus, &mut random);
        file.rewind()?;
        file.write_all(&input)?;
        file.set_len(input.len() as u64)?;
        let started = Instant::now();
        *running.lock().unwrap_or_else(PoisonError::into_inner) = Some((started, path.clone()));
        let panicked = std::panic::catch_unwind(|| (target.run)(&input)).is_err();
        *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if panicked || started.elapsed() > INPUT_TIME_MAX {
            failed += 1;
            let path = format!("fuzz-{}-{seed}-{inputs}", target.name);
            std::fs::write(&path, &input)?;
            eprintln!("{}: input {inputs} of seed {seed} is kept in {path}", target.name);
        }
        inputs += 1;
    }
    drop(file);
    std::fs::remove_file(&path)?;
    println!("{}: seed {seed}, {inputs} inputs, {failed} that panicked or hung", target.name);
    Ok(failed)
}

/// Ends the process when an input does not return.
fn watch(running: &Running) {
    loop {
        std::thread::sleep(WATCH_EVERY);
        let running = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((started, path)) = running
            && started.elapsed() > HANG_TIME
        {
            eprintln!("an input has not returned for {HANG_TIME:?}; it is kept in {path}");
            std::process::exit(1);
        }
    }
}
