//! Work that takes long leaves the worker's thread.

use holdfast_types::{SqlError, SqlResult};

/// Runs work that takes long on another thread than the worker's.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> SqlResult<T> + Send + 'static) -> SqlResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SqlError::internal(format!("a thread of the server failed: {error}"))),
    }
}
