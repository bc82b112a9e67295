//! Whether the statement that runs on this thread is to end: asked by functions of which a single call may take long.
//!
//! SQLite looks for a cancel between the rows of a statement and, with the server's functions, between two calls.

use crate::error::{SqlError, SqlResult, SqlState};
use std::cell::RefCell;
use std::sync::Arc;

/// Asks whether a cancel has arrived.
pub type Asked = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// While it lives, [`check`] on this thread asks what was given to [`watch`].
pub struct Watched(Option<Asked>);

/// Begins to watch for a cancel on this thread.
pub fn watch(asked: &Asked) -> Watched {
    Watched(ASKED.replace(Some(asked.clone())))
}

impl Drop for Watched {
    fn drop(&mut self) {
        ASKED.set(self.0.take());
    }
}

/// 57014 if the statement on this thread was cancelled.
pub fn check() -> SqlResult<()> {
    if ASKED.with_borrow(|asked| asked.as_ref().is_some_and(|asked| asked())) {
        return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_is_seen_while_it_is_watched() {
        let (yes, no): (Asked, Asked) = (Arc::new(|| true), Arc::new(|| false));
        check().unwrap();
        let outer = watch(&yes);
        assert_eq!(check().unwrap_err().state(), SqlState::QUERY_CANCELED);
        let inner = watch(&no);
        check().unwrap();
        drop(inner);
        assert!(check().is_err());
        drop(outer);
        check().unwrap();
    }
}
