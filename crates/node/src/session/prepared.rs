//! The statements that a session has prepared by SQL's PREPARE. Their number and their bytes are bounded.

use crate::plan::Plan;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::{Kept, SessionMemory};
use std::collections::HashMap;
use std::sync::Arc;

/// Statements prepared by PREPARE of one session.
const STATEMENTS_MAX: usize = 10_000;

/// Statements by name.
pub(super) struct PreparedStatements {
    by_name: HashMap<String, Arc<Plan>>,
    kept: Kept,
}

impl PreparedStatements {
    pub fn new(memory: &Arc<SessionMemory>) -> PreparedStatements {
        PreparedStatements { by_name: HashMap::new(), kept: Kept::new(memory) }
    }

    /// 42P05 if the name is taken; 54000 if there are too many statements.
    pub fn check_new(&self, name: &str) -> SqlResult<()> {
        if self.by_name.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        if self.by_name.len() >= STATEMENTS_MAX {
            let message = format!("prepared_statements_max ({STATEMENTS_MAX}) reached");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// Keeps a statement under a new name. 53200 if the session's memory does not permit that.
    pub fn insert(&mut self, name: &str, plan: Arc<Plan>) -> SqlResult<()> {
        self.kept.add(plan.bytes())?;
        self.by_name.insert(name.to_owned(), plan);
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Plan>> {
        self.by_name.get(name)
    }

    /// Forgets a statement; `false` if no statement has this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.by_name.remove(name);
        self.kept.remove(removed.as_ref().map_or(0, |plan| plan.bytes()));
        removed.is_some()
    }

    pub fn clear(&mut self) {
        let names: Vec<String> = self.by_name.keys().cloned().collect();
        names.iter().for_each(|name| _ = self.remove(name));
    }
}
