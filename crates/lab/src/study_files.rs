//! What every study does around its measuring: a directory for its databases that is gone at its end, also on errors
//! and on Ctrl-C, and the files it writes.

use crate::machine_load::MachineLoad;
use crate::results::Fact;
use crate::study_results::StudyResults;
use crate::{Study, interrupt, verdict};
use anyhow::Context;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

/// Checks the options, makes the report's directory and runs `measure` with one that is removed afterwards.
pub fn in_scratch<T>(study: &Study, measure: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
    study.check()?;
    interrupt::catch();
    std::fs::create_dir_all(&study.out).with_context(|| format!("cannot create {}", study.out.display()))?;
    let scratch = tempfile::Builder::new()
        .prefix("holdfast-lab-")
        .tempdir_in(&study.data_dir)
        .with_context(|| format!("cannot create a directory in {}", study.data_dir.display()))?;
    let results = measure(scratch.path())?;
    scratch.close().context("cannot remove the temporary databases")?;
    Ok(results)
}

/// Runs a study and writes its files.
pub fn run<R: StudyResults>(
    study: &Study,
    measure: impl FnOnce(&Study, &Path) -> anyhow::Result<R>,
) -> anyhow::Result<()> {
    let mut results = in_scratch(study, |scratch| measured(study, scratch, measure))?;
    results.conclude();
    let machine = results.machine_and_notes().0.clone();
    write(study, &results, &results.html(), &results.summary(), &machine)?;
    all_measured(results.failures())
}

/// Measures, and adds what else the machine did meanwhile.
fn measured<R: StudyResults>(
    study: &Study,
    scratch: &Path,
    measure: impl FnOnce(&Study, &Path) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let load = MachineLoad::before();
    let mut results = measure(study, scratch)?;
    let (machine, notes) = results.machine_and_notes();
    machine.extend(load.facts());
    notes.extend(load.warning());
    Ok(results)
}

/// Writes `results.json` and `report.html`, and prints the one or the summary.
fn write(study: &Study, results: &impl Serialize, html: &str, summary: &str, machine: &[Fact]) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(results)? + "\n";
    let save = |name: &str, content: &str| {
        let path = study.out.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    save("results.json", &json)?;
    let path = save("report.html", html)?;
    if study.json {
        print!("{json}");
    } else {
        println!("{}\n", study.name.paper());
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print!("{}", if colours { verdict::coloured(summary) } else { summary.to_string() });
        for fact in machine {
            println!("{}: {}", fact.name, fact.value);
        }
        println!("\n{}", path.display());
    }
    Ok(())
}

/// Fails when something could not be measured, naming it.
fn all_measured(failures: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(
        failures.is_empty(),
        "some parts could not be measured; the report has the others\n{}",
        failures.join("\n")
    );
    Ok(())
}
