//! Long texts are translated and prepared on another thread than the worker's, where other sessions would wait for it.

use super::blocking::blocking;
use super::node_session::NodeSession;
use crate::plan::Extra;
use holdfast_sql::{Entry, Scan};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult};
use std::sync::Arc;

/// A longer text leaves the worker's thread. The translation of so much takes some milliseconds.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Whether a text is translated on another thread.
pub(super) fn is_long(text: &str) -> bool {
    text.len() > TEXT_BYTES_MAX
}

impl NodeSession {
    /// Translates and prepares every statement of the text under `schema`.
    pub(super) async fn resolve_elsewhere(
        &self,
        text: &str,
        schema: &Arc<Schema>,
        param_types: &[u32],
    ) -> SqlResult<Vec<Arc<Entry<Extra>>>> {
        let (text, schema, served) = (text.to_owned(), schema.clone(), self.served.shared());
        let (param_types, user) = (param_types.to_vec(), self.identity.user.clone());
        blocking(move || {
            let scan = Scan::new(&text, served.db.dialect())?;
            scan.pieces().map(|piece| served.resolve(&piece, &schema, &param_types, &user)).collect()
        })
        .await
    }

    /// [`NodeSession::resolve_elsewhere`] for the text of one statement.
    pub(super) async fn resolve_one_elsewhere(
        &self,
        text: &str,
        schema: &Arc<Schema>,
        param_types: &[u32],
    ) -> SqlResult<Arc<Entry<Extra>>> {
        let mut entries = self.resolve_elsewhere(text, schema, param_types).await?;
        entries.pop().ok_or_else(|| SqlError::internal("the text of a statement has none"))
    }
}
