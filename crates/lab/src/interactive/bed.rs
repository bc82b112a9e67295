//! The servers under measurement, started and filled, and what the cases share.
//!
//! All servers stand side by side and take turns, case by case, so that what changes on the machine meanwhile meets
//! each of them alike; one that waits for its turn does nothing.

use super::case::{Case, Sizes};
use super::results::Results;
use crate::progress::Progress;
use crate::server::{Kind, Peer};
use crate::study_results::ServerSettings;
use crate::{Study, interrupt};
use anyhow::Context;
use std::path::Path;
use tempfile::TempDir;

/// A server and its files; it stops before they go.
pub struct Stand {
    pub peer: Peer,
    pub dir: TempDir,
}

/// See the module's description.
pub struct Bed<'a> {
    pub study: &'a Study,
    pub sizes: &'a Sizes,
    pub scratch: &'a Path,
    pub progress: &'a Progress,
    pub stands: Vec<Stand>,
}

/// The servers a run compares.
pub fn kinds(study: &Study) -> Vec<Kind> {
    if study.peer.is_some() { vec![Kind::Holdfast, Kind::Postgres] } else { vec![Kind::Holdfast] }
}

impl Stand {
    /// Starts a server of its own files below `scratch`.
    pub fn start(kind: Kind, program: &Path, scratch: &Path) -> anyhow::Result<Stand> {
        let dir = tempfile::Builder::new().prefix(kind.name()).tempdir_in(scratch)?;
        let peer = Peer::start(kind, program, dir.path()).with_context(|| format!("cannot start {}", kind.name()))?;
        Ok(Stand { peer, dir })
    }

    pub fn name(&self) -> &'static str {
        self.peer.kind.name()
    }
}

impl<'a> Bed<'a> {
    /// Starts the servers, with the study's files in them where a case needs those.
    pub fn make(
        study: &'a Study,
        sizes: &'a Sizes,
        scratch: &'a Path,
        progress: &'a Progress,
        results: &mut Results,
    ) -> anyhow::Result<Bed<'a>> {
        let mut bed = Bed { study, sizes, scratch, progress, stands: Vec::new() };
        for kind in kinds(study) {
            match bed.start(kind) {
                Ok(stand) => {
                    let (server, settings) = (kind.name().to_string(), stand.peer.settings.clone());
                    results.servers.push(ServerSettings { server, settings });
                    bed.stands.push(stand);
                }
                Err(e) => results.failures.push(format!("{:#}", interrupt::unless(e)?)),
            }
        }
        Ok(bed)
    }

    fn start(&self, kind: Kind) -> anyhow::Result<Stand> {
        self.progress.part(&format!("starting {}", kind.name()));
        let stand = Stand::start(kind, &self.study.program, self.scratch)?;
        if Case::ALL.into_iter().any(|c| c.needs_authorizations() && self.study.wants_case(c)) {
            stand.peer.load(self.sizes.log_rows, &|rows| {
                self.progress.now(format!("filling {}: {rows} of {} log rows", kind.name(), self.sizes.log_rows));
            })?;
        }
        Ok(stand)
    }

    /// Runs `measure` at each server; where it fails, the failure is recorded and the rest continues.
    pub fn each(
        &self,
        results: &mut Results,
        what: &str,
        measure: impl Fn(&Stand, &mut Results) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for stand in &self.stands {
            interrupt::check()?;
            self.progress.part(&format!("{what} at {}", stand.name()));
            if let Err(e) = measure(stand, results) {
                let e = interrupt::unless(e)?;
                results.failures.push(format!("{what} at {}: {e:#}", stand.name()));
            }
        }
        Ok(())
    }
}
