//! What [`crate::ReplicationStatus`] reports: plain values, which the node shows in views.

use holdfast_types::{ArchiveRow, LinkRow, StandbyRow};

/// The state of replication on this server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicationReport {
    /// It is a standby.
    pub in_recovery: bool,
    pub epoch: u32,
    /// Everything below is durable here.
    pub durable_lsn: u64,
    /// A standby: everything below is shown to readers.
    pub applied_lsn: u64,
    /// A standby's link to its master.
    pub link: Option<LinkRow>,
    /// The mirror on another disk, where there is one. Its name is `mirror`, which a standby may have as well.
    pub mirror: Option<StandbyRow>,
    /// A master's standbys.
    pub standbys: Vec<StandbyRow>,
    /// Where the trail is archived.
    pub archive: Option<ArchiveRow>,
}

impl ReplicationReport {
    /// The rows of the views of standbys: the mirror's first.
    pub fn rows(&self) -> impl Iterator<Item = &StandbyRow> {
        self.mirror.iter().chain(&self.standbys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_is_called_mirror_is_not_the_mirror() {
        let row =
            |sent_lsn| StandbyRow { name: "mirror".to_owned(), sent_lsn: Some(sent_lsn), ..StandbyRow::default() };
        let report = ReplicationReport { mirror: Some(row(1)), standbys: vec![row(2)], ..ReplicationReport::default() };
        assert_eq!(report.rows().map(|row| row.sent_lsn).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert_eq!(report.standbys, [row(2)]);
    }
}
