//! The schema that readers use: that of the newest snapshot whose commits have all reached their levels.
//!
//! A change of the schema is published before its batch has reached its level, as any commit is: writers work under it, and
//! wait with their answers. Readers must not see it yet, and must not wait for it either (guarantee 2). So they keep the
//! schema before it until the batch has passed the gate, and get snapshot and schema together.
//!
//! | event | readers use |
//! |---|---|
//! | a schema is published by a batch that has passed | it |
//! | a schema is published by a batch that has not | what they used; the schema waits here |
//! | a batch passes | the newest schema of those that waited for it and for the batches before it |
//!
//! Failure: a batch that never passes leaves its schema here until the database is closed.

use holdfast_types::schema::Schema;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::sync::Arc;

/// The readers' schema, and the published ones that they must not use yet.
#[derive(Default)]
pub struct ReadableSchema {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    schema: Arc<Schema>,
    /// With the numbers of the batches that published them, oldest first.
    waiting: VecDeque<(u64, Arc<Schema>)>,
}

impl ReadableSchema {
    /// The schema that readers use.
    pub fn get(&self) -> Arc<Schema> {
        self.state.read().schema.clone()
    }

    /// Whether it is the newest published one.
    pub fn is_newest(&self) -> bool {
        self.state.read().waiting.is_empty()
    }

    /// Batch `number` has published `schema`. `passed`: the newest batch that has passed the gate.
    pub fn published(&self, schema: Arc<Schema>, number: u64, passed: impl FnOnce() -> u64) {
        let mut state = self.state.write();
        if passed() < number {
            state.waiting.push_back((number, schema));
        } else {
            *state = State { schema, waiting: VecDeque::new() };
        }
    }

    /// Batch `number` has passed the gate; `show` gives its snapshot to readers. No reader takes a schema in between: one
    /// whose statement fails because the schema has changed finds the new one here.
    pub fn passed(&self, number: u64, show: impl FnOnce()) {
        if self.is_newest() {
            return show();
        }
        let mut state = self.state.write();
        show();
        while let Some((_, schema)) = state.waiting.pop_front_if(|(by, _)| *by <= number) {
            state.schema = schema;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(epoch: u32) -> Arc<Schema> {
        Arc::new(Schema { epoch, ..Schema::default() })
    }

    #[test]
    fn readers_get_a_schema_when_its_batch_has_passed() {
        let readable = ReadableSchema::default();
        readable.published(schema(1), 3, || 3);
        assert_eq!((readable.get().epoch, readable.is_newest()), (1, true));
        readable.published(schema(2), 5, || 3);
        readable.published(schema(3), 7, || 3);
        readable.passed(4, || {});
        assert_eq!((readable.get().epoch, readable.is_newest()), (1, false));
        readable.passed(6, || {});
        assert_eq!((readable.get().epoch, readable.is_newest()), (2, false));
        readable.passed(7, || {});
        assert_eq!((readable.get().epoch, readable.is_newest()), (3, true));
    }

    #[test]
    fn a_batch_with_the_number_of_one_that_waits_replaces_its_schema() {
        let readable = ReadableSchema::default();
        readable.published(schema(2), 5, || 3);
        readable.published(schema(3), 5, || 3);
        readable.passed(5, || {});
        assert_eq!((readable.get().epoch, readable.is_newest()), (3, true));
    }
}
