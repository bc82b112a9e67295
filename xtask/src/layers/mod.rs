//! `cargo xtask layers`: imports go down the floors of a crate, and no import circle has more than five files.
//!
//! Every source file is parsed. A name that a file imports, or names by its path, leads through re-exports to the file
//! that defines it; that is an edge. A circle counts when it does not only lead from a module down to its own child
//! modules and back: those are read together anyway. Code under `#[cfg(test)]` and `tests/` is left out. `layers.toml` in the root of the
//! repository lists the floors of a crate from the top down, and what a crate must not depend on.
//!
//! No published tool does this: `cargo-modules` finds circles but has no floors, no limit and compiles rust-analyzer,
//! which takes minutes; the crates for architecture tests look at `use` lines and know neither re-exports nor circles.
//!
//! The reader does not expand macros and knows no types: a method call is no edge, and inside a macro's arguments
//! whatever looks like a path is taken for one.

mod check;
mod graph;
mod manifests;
mod mentions;
mod modules;
mod report;
mod resolve;
mod table;
#[cfg(test)]
mod tests;

pub use check::Report;

use crate::paths;

/// `cargo xtask layers`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask layers
  cargo xtask layers --crate engine --circles
  cargo xtask layers --from engine/src/gate.rs
  cargo xtask layers --json

Exit code 1 when an import goes up a floor, a circle is larger than allowed, or a crate depends on a forbidden one.
The floors, the limit and the exceptions are in layers.toml.")]
pub struct Arguments {
    /// Only this crate, by the name of its directory
    #[arg(long = "crate", value_name = "NAME")]
    only: Option<String>,
    /// Print every circle of more than one file with its edges, allowed or not
    #[arg(long)]
    circles: bool,
    /// Print what this file imports and which files import it
    #[arg(long, value_name = "CRATE/src/FILE")]
    from: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Checks every crate of this workspace.
pub fn check() -> anyhow::Result<Report> {
    let root = paths::root();
    check::workspace(&root, &table::Table::read(&root.join("layers.toml"))?, None)
}

/// `cargo xtask layers`. True when nothing is wrong.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    let root = paths::root();
    let table = table::Table::read(&root.join("layers.toml"))?;
    let report = check::workspace(&root, &table, arguments.only.as_deref())?;
    if arguments.json {
        println!("{}", report.json()?);
    } else if let Some(file) = &arguments.from {
        print!("{}", report.around(file)?);
    } else {
        print!("{}", report.text(arguments.circles));
    }
    Ok(report.is_clean())
}
