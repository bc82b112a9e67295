//! The roles that exist from the start, with PostgreSQL's OIDs: the bootstrap superuser and the predefined roles
//! (PostgreSQL 15, section 22.5).

/// PUBLIC as a grantee: every role.
pub const PUBLIC_OID: u32 = 0;

/// The bootstrap superuser `holdfast`. It always exists, is always a superuser and can always log in.
pub const BOOTSTRAP_OID: u32 = 10;
pub const BOOTSTRAP_NAME: &str = "holdfast";

/// Owner of the current database, as an implicit member.
pub const DATABASE_OWNER_OID: u32 = 6171;
pub const READ_ALL_DATA_OID: u32 = 6181;
pub const WRITE_ALL_DATA_OID: u32 = 6182;
pub const MONITOR_OID: u32 = 3373;
pub const READ_ALL_SETTINGS_OID: u32 = 3374;
pub const READ_ALL_STATS_OID: u32 = 3375;
pub const STAT_SCAN_TABLES_OID: u32 = 3377;
pub const SIGNAL_BACKEND_OID: u32 = 4200;

/// Predefined roles by OID and name. They cannot log in, and cannot be changed or dropped.
pub const PREDEFINED: [(u32, &str); 8] = [
    (DATABASE_OWNER_OID, "pg_database_owner"),
    (READ_ALL_DATA_OID, "pg_read_all_data"),
    (WRITE_ALL_DATA_OID, "pg_write_all_data"),
    (MONITOR_OID, "pg_monitor"),
    (READ_ALL_SETTINGS_OID, "pg_read_all_settings"),
    (READ_ALL_STATS_OID, "pg_read_all_stats"),
    (STAT_SCAN_TABLES_OID, "pg_stat_scan_tables"),
    (SIGNAL_BACKEND_OID, "pg_signal_backend"),
];

/// The first OID of a role that a user creates.
pub const FIRST_ROLE_OID: u32 = 16384;
