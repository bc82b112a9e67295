//! The same rules on every node: a standby that is promoted admits the clients that its master admitted.
//!
//! The master writes the rules in force (`pg_hba.conf`, `pg_ident.conf`) to the trail; a standby replaces its own files by them.
//! A node notes the checksum of its rules whenever they are equal to those in the trail (file `shared_rules`, 16 hexadecimal
//! digits). So it knows later whether its files were edited or are only older than the trail.
//!
//! | role | files and trail | edited since they were equal | what is done |
//! |---|---|---|---|
//! | any | equal | | it is noted |
//! | master | differ, or nothing in the trail | yes | the files' rules are written to the trail |
//! | master | differ | no | the files are replaced: this node has just been promoted, or its files were lost |
//! | master | nothing in the trail | no | nothing: the rules are those of the first start |
//! | standby | differ | | the files are replaced |
//! | standby | nothing in the trail | | nothing |
//!
//! Files without a note count as edited unless they are those of the first start.
//!
//! Failure: what cannot be written is logged and tried again; the rules in force stay.

use super::files::{RuleTexts, checksum};
use super::{Admission, RuleFiles, RulesError};
use holdfast_engine::Engine;
use holdfast_types::Level;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the rules are compared.
const INTERVAL: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Note,
    Publish,
    Take,
    Nothing,
}

/// Keeps the files and the trail equal until `stop`.
pub async fn share_rules(engine: Engine, admission: Arc<Admission>, standby: bool, mut stop: watch::Receiver<bool>) {
    let mut failed: Option<String> = None;
    loop {
        let (engine, admission) = (engine.clone(), admission.clone());
        // Each step may write to disk.
        let compared = tokio::task::spawn_blocking(move || compare(&engine, admission.files(), standby));
        let done = tokio::select! {
            done = compared => done,
            // What is written does not need this task.
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let error = done.map_err(|error| error.to_string()).and_then(|done| done).err();
        if let Some(error) = error.as_ref().filter(|error| failed.as_ref() != Some(error)) {
            tracing::warn!("the rules of access are not the same on every node: {error}");
        }
        failed = error;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Replaces the files of a node that opens as master by the rules in the trail where the files are only older.
pub fn take_rules(engine: &Engine, admission: &Admission) -> Result<(), RulesError> {
    let (files, shared) = (admission.files(), engine.server_parameters());
    match step(false, &files.in_force(), &shared, files.noted()) {
        Step::Take => files.take(&shared),
        _ => Ok(()),
    }
}

fn compare(engine: &Engine, files: &RuleFiles, standby: bool) -> Result<(), String> {
    let (own, shared) = (files.in_force(), engine.server_parameters());
    let noted = files.noted();
    match step(standby, &own, &shared, noted) {
        Step::Nothing => {}
        Step::Note if noted == Some(checksum(&own)) => {}
        Step::Note => files.note(checksum(&own)).map_err(|error| error.to_string())?,
        Step::Take => {
            files.take(&shared).map_err(|error| error.to_string())?;
            tracing::info!("the rules of access were replaced by the master's");
        }
        Step::Publish => {
            engine.set_server_parameters(own, Level::Local).map_err(|error| error.to_string())?;
            tracing::info!("the rules of access were written to the trail, for the standbys");
        }
    }
    Ok(())
}

fn step(standby: bool, own: &RuleTexts, shared: &RuleTexts, noted: Option<u64>) -> Step {
    let edited = noted.map_or_else(|| *own != RuleFiles::initial(), |noted| noted != checksum(own));
    match (standby, shared.is_empty()) {
        _ if own == shared => Step::Note,
        (true, true) => Step::Nothing,
        (true, false) => Step::Take,
        (false, _) if edited => Step::Publish,
        (false, true) => Step::Nothing,
        (false, false) => Step::Take,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(hba: &str) -> RuleTexts {
        vec![("pg_hba.conf".into(), hba.into()), ("pg_ident.conf".into(), String::new())]
    }

    #[test]
    fn every_row_of_the_table() {
        let (old, new) = (texts("local all all peer"), texts("local all all reject"));
        let (of_old, of_new) = (Some(checksum(&old)), Some(checksum(&new)));
        let nothing = RuleTexts::new();
        for (standby, own, shared, noted, expected) in [
            (false, &new, &new, None, Step::Note),
            (true, &new, &new, of_old, Step::Note),
            (false, &new, &old, of_old, Step::Publish),
            (false, &new, &nothing, None, Step::Publish),
            (false, &old, &new, of_old, Step::Take),
            (false, &old, &nothing, of_old, Step::Nothing),
            (true, &old, &new, of_old, Step::Take),
            (true, &old, &new, of_new, Step::Take),
            (true, &old, &nothing, None, Step::Nothing),
        ] {
            assert_eq!(step(standby, own, shared, noted), expected, "{standby} {own:?} {shared:?} {noted:?}");
        }
        let initial = RuleFiles::initial();
        assert_eq!(step(false, &initial, &nothing, None), Step::Nothing);
        assert_eq!(step(false, &initial, &new, None), Step::Take, "its files were lost");
    }
}
