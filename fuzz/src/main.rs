//! Drives the targets with seeded mutations for a while: `cargo xtask fuzz`.

use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_fuzz::{TARGETS, mutate};
use holdfast_seams::testing::Seeded;

/// An input that takes longer is reported.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    #[arg(long)]
    target: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let Arguments { minutes, target, seed } = Arguments::parse();
    let chosen: Vec<_> = TARGETS.iter().filter(|t| target.as_ref().is_none_or(|name| name == t.name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no such target; there are {:?}", TARGETS.map(|t| t.name));
    let each = Duration::from_secs_f64(minutes * 60.0 / chosen.len() as f64);
    let mut failed = 0;
    for target in chosen {
        let (corpus, mut random, begun) = (mutate::corpus(target.name), Seeded::new(seed), Instant::now());
        let (mut inputs, mut panics) = (0u64, 0);
        while begun.elapsed() < each {
            let (input, started) = (mutate::mutated(&corpus, &mut random), Instant::now());
            let panicked = std::panic::catch_unwind(|| (target.run)(&input)).is_err();
            if panicked || started.elapsed() > INPUT_TIME_MAX {
                panics += 1;
                let path = format!("fuzz-{}-{seed}-{inputs}", target.name);
                std::fs::write(&path, &input)?;
                eprintln!("{}: input {inputs} of seed {seed} is kept in {path}", target.name);
            }
            inputs += 1;
        }
        println!("{}: seed {seed}, {inputs} inputs, {panics} that panicked or hung", target.name);
        failed += panics;
    }
    anyhow::ensure!(failed == 0, "{failed} inputs failed");
    Ok(())
}
