//! What every study does around its measuring: a directory for its databases that is gone at its end, also on errors
//! and on Ctrl-C, and the files it writes.

use crate::study_results::StudyResults;
use crate::{Study, interrupt};
use anyhow::Context;
use serde::Serialize;
use std::path::Path;

/// Checks the options, makes the directories and runs `measure` with one that is removed afterwards.
pub fn in_scratch<T>(study: &Study, measure: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
    study.check()?;
    interrupt::catch();
    std::fs::create_dir_all(&study.out).with_context(|| format!("making {}", study.out.display()))?;
    std::fs::create_dir_all(&study.data_dir).with_context(|| format!("making {}", study.data_dir.display()))?;
    let scratch = tempfile::Builder::new()
        .prefix("holdfast-lab-")
        .tempdir_in(&study.data_dir)
        .with_context(|| format!("making a directory in {}", study.data_dir.display()))?;
    let results = measure(scratch.path())?;
    scratch.close().context("removing the temporary databases")?;
    Ok(results)
}

/// Runs a study and writes its files.
pub fn run<R: StudyResults>(
    study: &Study,
    measure: impl FnOnce(&Study, &Path) -> anyhow::Result<R>,
) -> anyhow::Result<()> {
    let mut results = in_scratch(study, |scratch| measure(study, scratch))?;
    results.conclude();
    write(study, &results, &results.html(), &results.summary())?;
    all_measured(results.failures())
}

/// Writes `results.json` and `report.html`, and prints the one or the summary.
pub fn write(study: &Study, results: &impl Serialize, html: &str, summary: &str) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(results)? + "\n";
    let save = |name: &str, content: &str| {
        let path = study.out.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    save("results.json", &json)?;
    let path = save("report.html", html)?;
    if study.json {
        print!("{json}");
    } else {
        print!("{summary}");
        println!("\n{}", path.display());
    }
    Ok(())
}

/// Fails when something could not be measured, naming it.
pub fn all_measured(failures: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(
        failures.is_empty(),
        "some of it could not be measured; the report has the rest\n{}",
        failures.join("\n")
    );
    Ok(())
}
