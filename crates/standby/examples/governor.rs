//! Prints how the governor's laws compare: `cargo run -p holdfast-standby --example governor`.

use comfy_table::Table;
use holdfast_standby::governor::law::Law;
use holdfast_standby::governor::simulation::{Setup, run};

fn main() {
    let setup = Setup::default();
    println!(
        "load {} times what the standby applies, {} s, W = {} MiB, seed {}",
        setup.load,
        setup.seconds,
        setup.lag_bytes_max >> 20,
        setup.seed
    );
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["law", "variation of the 1 s rate", "slowest second", "throughput / capacity", "most lag / W"]);
    for law in Law::ALL {
        let outcome = run(law, setup);
        table.add_row([
            law.name().to_owned(),
            format!("{:.3}", outcome.variation()),
            format!("{:.2}", outcome.slowest_share()),
            format!("{:.3}", outcome.throughput_share()),
            format!("{:.2}", outcome.lag_bytes_max as f64 / setup.lag_bytes_max as f64),
        ]);
    }
    println!("{table}");
}
