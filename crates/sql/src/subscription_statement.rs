//! CREATE, ALTER, DROP and COMMENT ON SUBSCRIPTION, as they were written.

use crate::privilege_statement::RoleName;
use holdfast_types::subscription::SynchronousCommit;

/// A statement about subscriptions.
#[derive(Clone, Debug, PartialEq)]
pub enum SubscriptionStatement {
    Create {
        name: String,
        connection: String,
        publications: Vec<String>,
        options: WrittenOptions,
    },
    Alter {
        name: String,
        change: Alteration,
    },
    Drop {
        name: String,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// COMMENT ON SUBSCRIPTION; comments are not kept.
    Comment(String),
}

/// What ALTER SUBSCRIPTION does.
#[derive(Clone, Debug, PartialEq)]
pub enum Alteration {
    Connection(String),
    /// SET, ADD or DROP PUBLICATION.
    Publications {
        how: Listing,
        names: Vec<String>,
        options: WrittenOptions,
    },
    /// REFRESH PUBLICATION.
    Refresh(WrittenOptions),
    /// ENABLE or DISABLE.
    Enable(bool),
    Options(WrittenOptions),
    Skip(WrittenOptions),
    Rename(String),
    Owner(RoleName),
}

/// What becomes of the list of publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Set,
    Add,
    Drop,
}

/// The options that WITH or SET names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenOptions {
    pub connect: Option<bool>,
    pub create_slot: Option<bool>,
    pub enabled: Option<bool>,
    /// `Some(None)`: NONE.
    pub slot_name: Option<Option<String>>,
    pub copy_data: Option<bool>,
    pub refresh: Option<bool>,
    pub synchronous_commit: Option<SynchronousCommit>,
    pub disable_on_error: Option<bool>,
    /// `mode`: true for 'partition'.
    pub partition: Option<bool>,
    pub binary: Option<bool>,
    pub streaming: Option<bool>,
    pub two_phase: Option<bool>,
    /// 0 for NONE.
    pub lsn: Option<u64>,
}
