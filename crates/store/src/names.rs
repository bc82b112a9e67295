//! Which table names belong to Holdfast, and how a name is written in SQL.

/// Prefix of internal tables.
const INTERNAL_PREFIX: &[u8] = b"holdfast_";

/// Holds prepared transactions.
pub const PREPARED_TABLE: &str = "holdfast_prepared";

/// Holds owners and privileges of tables, views and columns. It is written by schema changes, whose text the trail carries.
pub const PRIVILEGES_TABLE: &str = "holdfast_privileges";

/// Holds publications. It is written by schema changes, as [`PRIVILEGES_TABLE`] is.
pub const PUBLICATIONS_TABLE: &str = "holdfast_publications";

/// Holds what a published table was at each schema epoch. It is written by schema changes, as [`PUBLICATIONS_TABLE`] is.
pub const SHAPES_TABLE: &str = "holdfast_shapes";

/// Holds logical replication slots.
pub const SLOTS_TABLE: &str = "holdfast_slots";

/// Holds subscriptions. It is written by schema changes, as [`PUBLICATIONS_TABLE`] is.
pub const SUBSCRIPTIONS_TABLE: &str = "holdfast_subscriptions";

/// Holds how far subscriptions have applied their publishers' changes.
pub const POSITIONS_TABLE: &str = "holdfast_positions";

/// The internal tables whose rows are changed as those of a user's table are.
const AUDITED: [&str; 3] = [PREPARED_TABLE, SLOTS_TABLE, POSITIONS_TABLE];

/// Whether the trail carries what is changed in a table of this name.
pub fn is_audited(name: &[u8]) -> bool {
    !is_internal(name) || AUDITED.iter().any(|audited| name == audited.as_bytes())
}

/// Whether a table of this name belongs to Holdfast and not to the user. ASCII case is ignored, as SQLite does.
pub fn is_internal(name: &[u8]) -> bool {
    name.get(..INTERNAL_PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(INTERNAL_PREFIX))
}
