//! Errors of an archive, worded for the operator; each error names the object.

use crate::keys::KEY_NAME;
use holdfast_trail::TrailError;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("archive = {text:?}: {what}")]
    Setting { text: String, what: String },

    #[error("cannot {what} {name} in the archive: {source}")]
    Store { what: &'static str, name: String, source: Box<dyn std::error::Error + Send + Sync> },

    #[error(
        "cannot {what} {name:?} in the archive: {place} has not answered for {seconds} s; check that the file system is mounted and its \
         server runs, or that the object store can be reached"
    )]
    NoAnswer { what: &'static str, name: String, place: String, seconds: u64 },

    #[error("the archive directory does not exist: {place}; make it, or mount the file system that it is on")]
    NoDirectory { place: String },

    #[error(
        "{name} in the archive is damaged: {what}. Nothing was changed. Put back a copy of that object, or move it away: a \
         node whose trail still has the segment archives it again"
    )]
    Damaged { name: String, what: String },

    #[error("{name} in the archive has format {found}; this program reads formats up to {known}. Use a newer program")]
    Newer { name: String, found: u16, known: u16 },

    /// The object is never overwritten, whichever of the two is right.
    #[error(
        "{name} already exists in the archive with other boxcars than this node's segment: {what}. Nothing was overwritten, \
         and this node keeps its segment. Examine it with: holdfast archive verify. If it is damaged, move it away"
    )]
    Differs { name: String, what: String },

    #[error("{name} disappeared from the archive after it was listed or put")]
    Vanished { name: String },

    #[error(
        "{name} was archived and is not in {place}: check that the right archive is mounted. Until it is there, nothing is \
         archived and the trail keeps all segments. To begin another archive: start once without the setting, then with it"
    )]
    Lost { name: String, place: String },

    #[error(
        "another server of this trail archives to {place}: {name} is of its epoch or a later one, and this server of epoch {epoch} \
         has not put it. Nothing more is archived from here, and the trail keeps all segments. If one of the two runs on a copy \
         of the other's directory, stop it and make a server of its own with holdfast restore; if this one was replaced, bring it \
         back with holdfast rejoin"
    )]
    OtherServer { name: String, place: String, epoch: u32 },

    #[error("{name} does not belong to this history: {what}")]
    Lineage { name: String, what: String },

    #[error(
        "{place} is encrypted: name a file with an identity that it is encrypted to, as age-keygen makes one (--identity, \
         --archive-identity, dump.identity, archive_identity)"
    )]
    NoKey { place: String },

    #[error("{place} is not encrypted to an identity in {file}: use the file of one of its recipients")]
    WrongKey { place: String, file: String },

    #[error(
        "the recipient {recipients} does not belong to an identity in {file}: what is encrypted to it cannot be read with that \
         file. Nothing was written. Name the recipient {own} (--encrypt-to, dump.encrypt_to, archive_encrypt_to), or the file \
         with the other identity (--identity, dump.identity, archive_identity)"
    )]
    NoPair { recipients: String, file: String, own: String },

    #[error("{place} has objects that are not encrypted; only an empty place becomes encrypted. Use another one")]
    NotEncrypted { place: String },

    #[error(
        "{name} is sealed with another key than that in {KEY_NAME} of {place}: one of the two was put there from another place. \
         Nothing was changed. Put back the copy of {KEY_NAME} that belongs to the objects, or remove {name} if it is not of this place"
    )]
    OtherKey { name: String, place: String },

    /// Without recipients: with them a place without a key gets one.
    #[error(
        "{place} has no key object {KEY_NAME}, and it is expected to be encrypted: nothing is read or written there. If it is \
         encrypted, the store has lost or hides that object: put back a copy of it. If it is new, name the recipients \
         (--encrypt-to, dump.encrypt_to, archive_encrypt_to). If it was never encrypted, leave the identity out (--identity, \
         --archive-identity, dump.identity, archive_identity)"
    )]
    NoKeyObject { place: String },

    #[error(
        "{place} has encrypted objects such as {name}, and no key object {KEY_NAME}: the store has lost or hides it. Nothing \
         is read or written there. Put back a copy of {KEY_NAME}; without it those objects cannot be read"
    )]
    KeyLost { place: String, name: String },

    #[error("the file with identities {file} cannot be used: {what}")]
    Identity { file: String, what: String },

    #[error("{text:?} is not a recipient such as age1...: {what}")]
    Recipient { text: String, what: String },

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

    /// Whether an operator must act: a retry fails in the same way.
    pub fn needs_operator(&self) -> bool {
        matches!(
            self,
            ArchiveError::Damaged { .. }
                | ArchiveError::Newer { .. }
                | ArchiveError::Differs { .. }
                | ArchiveError::Lost { .. }
                | ArchiveError::OtherServer { .. }
                | ArchiveError::Lineage { .. }
                | ArchiveError::Setting { .. }
                | ArchiveError::NoKey { .. }
                | ArchiveError::WrongKey { .. }
                | ArchiveError::NoPair { .. }
                | ArchiveError::NotEncrypted { .. }
                | ArchiveError::NoKeyObject { .. }
                | ArchiveError::OtherKey { .. }
                | ArchiveError::KeyLost { .. }
                | ArchiveError::Identity { .. }
                | ArchiveError::Recipient { .. }
        )
    }
}

/// Runs blocking work outside the runtime's own threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ArchiveError::Task(error.to_string())),
    }
}
