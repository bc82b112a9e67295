//! What the results of the studies after the first one have in common, and what is made of them.
//!
//! Failure: the machine's facts cannot be read, see [`machine::facts`].

use crate::results::Fact;
pub use crate::verdict::Finding;
use crate::{Study, machine, text};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::SystemTime;

/// How `results.json` begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Name and version of the format.
    pub schema: String,
    /// The paper whose study this is.
    #[serde(default)]
    pub paper: String,
    pub product_version: String,
    /// UTC, `YYYY-MM-DD HH:MM`.
    pub started_at: String,
    /// The command line that repeats the run.
    pub command: String,
    /// What the run was asked to do.
    pub options: Vec<Fact>,
    pub machine: Vec<Fact>,
}

impl Head {
    /// Of a run that begins now, with its files in `scratch`.
    pub fn of(schema: &str, study: &Study, options: Vec<Fact>, scratch: &Path) -> anyhow::Result<Head> {
        Ok(Head {
            schema: schema.into(),
            paper: study.name.paper().into(),
            product_version: env!("CARGO_PKG_VERSION").into(),
            started_at: text::utc(SystemTime::now()),
            command: study.command.clone(),
            options,
            machine: machine::facts(scratch)?,
        })
    }
}

/// A server that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// `holdfast` or `postgres`.
    pub server: String,
    pub settings: Vec<Fact>,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub server: String,
    pub what: String,
    pub holds: bool,
    /// The figures compared.
    pub found: String,
}

/// What a study measures.
pub trait StudyResults: Serialize {
    /// The machine's facts, and what a reader must know to judge the figures.
    fn machine_and_notes(&mut self) -> (&mut Vec<Fact>, &mut Vec<String>);
    /// Compares the figures, with each other and with the goals.
    fn conclude(&mut self);
    /// `report.html`.
    fn html(&self) -> String;
    /// What the terminal shows.
    fn summary(&self) -> String;
    fn failures(&self) -> &[String];
}

/// Results with checks.
pub trait Checked {
    /// The checks and the failures so far.
    fn checks_and_failures(&mut self) -> (&mut Vec<Check>, &mut Vec<String>);

    /// Records whether something holds; what does not is a failure of the run.
    fn check(&mut self, server: &str, what: &str, holds: bool, found: String) {
        let (checks, failures) = self.checks_and_failures();
        if !holds {
            failures.push(format!("{server}: {what} does not hold: {found}"));
        }
        checks.push(Check { server: server.to_string(), what: what.to_string(), holds, found });
    }
}

/// What a reader must know to judge the figures, and whether they are those of a quick run.
pub fn notes(study: &Study, notes: &[&str]) -> Vec<String> {
    let quick = "A quick run: its sizes are too small for its figures to mean much.";
    study.quick.then_some(quick).into_iter().chain(notes.iter().copied()).map(String::from).collect()
}

/// Runs of the same point together, in the order in which each point came first.
pub fn groups<T>(runs: Vec<T>, same_point: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| same_point(&group[0], &run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}
