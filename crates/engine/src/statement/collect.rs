//! Sinks that keep rows, for programs that use the library and for tests, and one that drops results.

use holdfast_types::{Row, Sink, SqlError, SqlResult, StatementDesc, Tag, Value};
use std::sync::{Arc, Mutex};

/// A sink that drops results.
pub(crate) struct Ignore;

impl Sink for Ignore {
    fn begin(&mut self, _: usize, _: &Arc<StatementDesc>) {}
    fn row(&mut self, _: &dyn Row) -> SqlResult<()> {
        Ok(())
    }
    fn end(&mut self, _: &Tag) {}
    fn keep(&mut self) {}
    fn reset(&mut self) {}
}

/// What one statement returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub rows: Vec<Vec<Value>>,
    /// Rows changed or returned, where the command tag says so.
    pub count: u64,
}

/// Collects the rows of a batch; clones share what was collected.
#[derive(Clone, Default)]
pub struct Collect(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    outcomes: Vec<Outcome>,
    /// This many of them stay whatever comes.
    stand: usize,
}

impl Collect {
    pub fn new() -> Collect {
        Collect::default()
    }

    /// One outcome for each statement that has begun.
    pub fn outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.lock()).outcomes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Sink for Collect {
    fn begin(&mut self, _step: usize, _desc: &Arc<StatementDesc>) {
        self.lock().outcomes.push(Outcome::default());
    }

    fn row(&mut self, row: &dyn Row) -> Result<(), SqlError> {
        let values = (0..row.len()).map(|i| row.get(i).to_value()).collect();
        if let Some(last) = self.lock().outcomes.last_mut() {
            last.rows.push(values);
        }
        Ok(())
    }

    fn end(&mut self, tag: &Tag) {
        if let Some(last) = self.lock().outcomes.last_mut() {
            last.count = tag.rows.unwrap_or(last.rows.len() as u64);
        }
    }

    fn keep(&mut self) {
        let mut kept = self.lock();
        kept.stand = kept.outcomes.len();
    }

    fn reset(&mut self) {
        let mut kept = self.lock();
        let stand = kept.stand;
        kept.outcomes.truncate(stand);
    }
}
