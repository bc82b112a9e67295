//! Prints a comparison of the governor's laws: `cargo run -p holdfast-standby --example governor`.

use comfy_table::Table;
use holdfast_standby::governor::law::Law;
use holdfast_standby::governor::simulation::{Outcome, Setup, run};

const SEEDS: u64 = 8;

fn main() {
    let plain = Setup::default();
    println!(
        "The load is {} times what the standby applies, for {} s; W = {} MiB, {SEEDS} seeds: mean (worst).",
        plain.load,
        plain.seconds,
        plain.lag_bytes_max >> 20,
    );
    let setups = [
        ("checkpoint pauses of 0.3 s", plain),
        ("checkpoint pauses of 1 s", Setup { pause_us: 1_000_000, ..plain }),
        ("after half of the time the standby is half as fast", Setup { capacity_later: 0.5, ..plain }),
        ("after half of the time the standby is a fifth as fast", Setup { capacity_later: 0.2, ..plain }),
    ];
    for (what, setup) in setups {
        println!("\n{what}:");
        println!("{}", table(setup));
    }
}

fn table(setup: Setup) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "law",
        "variation of the 1 s rate",
        "slowest second / mean",
        "applied / capacity",
        "most lag / W",
        "stops at W",
    ]);
    for law in Law::ALL {
        let outcomes: Vec<_> = (1..=SEEDS).map(|seed| run(law, Setup { seed, ..setup })).collect();
        let lag = |outcome: &Outcome| outcome.lag_bytes_max as f64 / setup.lag_bytes_max as f64;
        table.add_row([
            law.name().to_owned(),
            figure(&outcomes, f64::max, Outcome::variation),
            figure(&outcomes, f64::min, Outcome::slowest_share),
            figure(&outcomes, f64::min, Outcome::throughput_share),
            figure(&outcomes, f64::max, lag),
            outcomes.iter().map(|outcome| outcome.stops).sum::<u64>().to_string(),
        ]);
    }
    table
}

/// The mean and the worst of one figure.
fn figure(outcomes: &[Outcome], worse: fn(f64, f64) -> f64, of: impl Fn(&Outcome) -> f64) -> String {
    let values: Vec<f64> = outcomes.iter().map(of).collect();
    let worst = values.iter().copied().reduce(worse).unwrap_or(f64::NAN);
    format!("{:.3} ({worst:.3})", values.iter().sum::<f64>() / values.len() as f64)
}
