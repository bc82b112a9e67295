//! What can go wrong with an archive, in the operator's words; each error names the object.

use holdfast_trail::TrailError;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("archive = {text:?}: {what}")]
    Setting { text: String, what: String },

    #[error("cannot {what} {name} in the archive: {source}")]
    Store { what: &'static str, name: String, source: Box<dyn std::error::Error + Send + Sync> },

    #[error(
        "{name} in the archive is damaged: {what}. Nothing was changed. Put back a copy of that object, or move it away: a \
         node whose trail still has the segment archives it again"
    )]
    Damaged { name: String, what: String },

    #[error(
        "{name} in the archive has format {found}; this program knows formats up to {known}. Use the newer program"
    )]
    Newer { name: String, found: u16, known: u16 },

    /// Never overwritten, whichever of both is right.
    #[error(
        "{name} is in the archive already and holds other boxcars than this node's segment: {what}. Nothing was overwritten, \
         and this node keeps its segment. Look at it with: holdfast archive verify. If it is damaged, move it away"
    )]
    Differs { name: String, what: String },

    #[error("{name} is not in the archive any more, a moment after it was listed or put")]
    Vanished { name: String },

    #[error(
        "{name} was archived and is not in {place}: is that mounted, and the right one? Nothing more is archived, and the trail \
         keeps everything, until it is there. To begin another archive: start once without the setting, then with it"
    )]
    Lost { name: String, place: String },

    #[error("{name} cannot be in this history: {what}")]
    Lineage { name: String, what: String },

    #[error(transparent)]
    Trail(#[from] TrailError),

    #[error("a task of the archive has failed: {0}")]
    Task(String),
}

impl ArchiveError {
    pub(crate) fn store(
        what: &'static str,
        name: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> ArchiveError {
        ArchiveError::Store { what, name: name.into(), source: source.into() }
    }

    /// Whether somebody has to look at it: trying again leads to the same.
    pub fn needs_operator(&self) -> bool {
        matches!(
            self,
            ArchiveError::Damaged { .. }
                | ArchiveError::Newer { .. }
                | ArchiveError::Differs { .. }
                | ArchiveError::Lost { .. }
                | ArchiveError::Lineage { .. }
                | ArchiveError::Setting { .. }
        )
    }
}

/// Work that blocks, beside the runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ArchiveError::Task(error.to_string())),
    }
}
