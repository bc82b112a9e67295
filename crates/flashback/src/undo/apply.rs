//! Runs an inverse in one transaction of the server.
//!
//! Statements run in groups, each under a savepoint. A group in which a statement fails or changes no row is taken back and
//! run one by one. A statement that violates a constraint, or finds no row, is tried again after the others: foreign
//! keys and unique keys may need another order. When a whole round changes nothing more, everything is rolled back. Before
//! COMMIT the server shows what was changed, and if that is not the plan, everything is rolled back as well.
//!
//! Failure: nothing is changed. Rows that were changed between the look into the trail and the transaction are named
//! with the later transaction, where the trail has it by then.

use super::Plan;
use super::later::{commit_of, later};
use super::made::Made;
use super::nets::Nets;
use super::statements::Statement;
use crate::error::FlashbackError;
use crate::server::{Connect, Session};
use crate::source::Source;
use holdfast_types::Lsn;
use holdfast_types::quoting::quote;
use serde::Serialize;

/// Statements under one savepoint, and in one message.
const GROUP: usize = 64;
const GROUP_BYTES: usize = 1 << 20;
const SAVEPOINT: &str = "holdfast_undo";

/// An inverse that was committed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Applied {
    pub rows: u64,
    /// Rows that triggers have changed, where they were allowed to run.
    pub by_triggers: Vec<String>,
    /// The transaction that did it, and its place, where the trail at hand has it.
    pub transaction: Option<u64>,
    pub lsn: Option<u64>,
}

/// Runs the inverse. Triggers of its tables run only if that is allowed.
pub fn apply(source: &Source, connect: &Connect, plan: &Plan, run_triggers: bool) -> Result<Applied, FlashbackError> {
    let id = plan.transaction;
    if !plan.conflicts.is_empty() {
        return Err(FlashbackError::Conflicts { id, conflicts: plan.conflicts.clone() });
    }
    if !plan.triggers.is_empty() && !run_triggers {
        let tables = plan.triggers.join(", ");
        let why = format!(
            "these tables have triggers, which would run again: {tables}. What the triggers changed is in the inverse \
             already. Drop them, or let them run with --run-triggers"
        );
        return Err(FlashbackError::Refused { id, why });
    }
    let Some(first) = plan.statements.first() else { return Ok(Applied::default()) };
    let session = Session::open(connect, &first.database)?;
    session.run("BEGIN", "BEGIN")?;
    let mut run = Run { session: &session, database: first.database.clone(), rows: 0 };
    let mut pending: Vec<(&Statement, String)> = plan.statements.iter().map(|s| (s, String::new())).collect();
    while !pending.is_empty() {
        let before = pending.len();
        let round: Vec<&Statement> = pending.iter().map(|(statement, _)| *statement).collect();
        pending = run.round(&round)?;
        if pending.len() == before {
            session.run("ROLLBACK", "ROLLBACK")?;
            let (conflicts, ..) = later(source, &plan.than, &plan.rows)?;
            if !conflicts.is_empty() {
                return Err(FlashbackError::Conflicts { id, conflicts });
            }
            let miss = |(s, why): &(&Statement, String)| format!("{}: {} {}: {why}", s.database, s.table, s.key);
            return Err(FlashbackError::Missed { id, misses: pending.iter().map(miss).collect() });
        }
    }
    let rows = run.rows;
    let by_triggers = match Made::new(connect, plan).check(&session, run_triggers) {
        Ok(by_triggers) => by_triggers,
        Err(error) => {
            // The end of the session rolls back as well.
            drop(session.run("ROLLBACK", "ROLLBACK"));
            return Err(error);
        }
    };
    session.run("COMMIT", "COMMIT")?;
    // Only to name it: the undo is done.
    let planned = plan.nets.inverse();
    let is_own = |nets: &Nets| planned.are(nets) || (!by_triggers.is_empty() && planned.are_among(nets));
    let own = commit_of(source, Lsn(plan.read.last_lsn), &plan.than, &plan.rows, &is_own).ok().flatten();
    let (transaction, lsn) = own.unzip();
    Ok(Applied { rows, by_triggers, transaction, lsn })
}

/// The statements in groups of at most [`GROUP`] and about [`GROUP_BYTES`].
fn groups<'g, 's>(mut statements: &'g [&'s Statement]) -> impl Iterator<Item = &'g [&'s Statement]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |statement: &&&Statement| {
            let is_first = bytes == 0;
            bytes += statement.sql.len();
            is_first || bytes <= GROUP_BYTES
        };
        let count = statements.iter().take(GROUP).take_while(fits).count();
        let (group, rest) = statements.split_at(count);
        statements = rest;
        (count > 0).then_some(group)
    })
}

struct Run<'a> {
    session: &'a Session,
    /// Where statements go by now.
    database: String,
    rows: u64,
}

impl Run<'_> {
    /// Runs statements; those that could not run, and why.
    fn round<'s>(&mut self, statements: &[&'s Statement]) -> Result<Vec<(&'s Statement, String)>, FlashbackError> {
        let mut pending = Vec::new();
        for of_database in statements.chunk_by(|a, b| a.database == b.database) {
            self.enter(&of_database[0].database)?;
            for group in groups(of_database) {
                if self.try_all(group)?.is_ok() {
                    self.rows += group.len() as u64;
                    continue;
                }
                for statement in group {
                    match self.try_all(&[statement])? {
                        Ok(()) => self.rows += 1,
                        Err(_) if self.is_done(statement)? => {}
                        Err(why) => pending.push((*statement, why)),
                    }
                }
            }
        }
        Ok(pending)
    }

    fn enter(&mut self, database: &str) -> Result<(), FlashbackError> {
        if self.database != database {
            self.session.run("USE", &format!("USE {}", quote(database)))?;
            self.database = database.to_owned();
        }
        Ok(())
    }

    fn is_done(&self, statement: &Statement) -> Result<bool, FlashbackError> {
        Ok(!self.session.rows("a row", &statement.is_done)?.is_empty())
    }

    /// Runs all of them or none. An error is the reason of the first that did not change its row.
    fn try_all(&self, statements: &[&Statement]) -> Result<Result<(), String>, FlashbackError> {
        let texts: Vec<&str> = statements.iter().map(|statement| &*statement.sql).collect();
        let sql = format!("SAVEPOINT {SAVEPOINT}; {}", texts.join("; "));
        let outcome = match self.session.run("a statement of the inverse", &sql) {
            Ok(answers) if answers.iter().skip(1).map(|answer| answer.count).eq(statements.iter().map(|_| 1)) => Ok(()),
            Ok(_) => Err("the row is not as the transaction left it, or other rows refer to it".to_owned()),
            // A constraint.
            Err(FlashbackError::Statement(error)) if error.is("23") => Err(error.message),
            Err(other) => return Err(other),
        };
        let end = match outcome {
            Ok(()) => format!("RELEASE SAVEPOINT {SAVEPOINT}"),
            Err(_) => format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}"),
        };
        self.session.run("a savepoint", &end)?;
        Ok(outcome)
    }
}
