//! The prepared transactions of a database, by name.

use crate::state::lock_owner::LockOwner;
use std::collections::BTreeMap;

/// One prepared transaction.
pub struct Prepared {
    pub owner: String,
    pub prepared_unix_us: i64,
    /// Its locks; taken out while a command works on it.
    pub lock_owner: Option<LockOwner>,
}

/// The prepared transactions of a database, by name.
pub type Registry = BTreeMap<String, Prepared>;
