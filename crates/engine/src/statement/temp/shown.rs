//! The schema that the catalogue shows to the statement that runs on this thread: it includes the temporary tables of
//! its session, and what its own transaction has changed of the schema.

use holdfast_types::schema::Schema;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static SCHEMA: RefCell<Option<Arc<Schema>>> = const { RefCell::new(None) };
}

/// `None`: the newest published one.
pub fn session_schema() -> Option<Arc<Schema>> {
    SCHEMA.with(|schema| schema.borrow().clone())
}

/// Shows a schema for as long as the value lives.
pub struct Shown(());

impl Shown {
    pub fn new(schema: Arc<Schema>) -> Shown {
        SCHEMA.with(|shown| *shown.borrow_mut() = Some(schema));
        Shown(())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        SCHEMA.with(|shown| *shown.borrow_mut() = None);
    }
}
