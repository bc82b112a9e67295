//! Statements of a client in both dialects, up to the SQL that SQLite would get: translated, or refused.

use holdfast_sql::{Context, Scan, translate};
use holdfast_types::schema::{Dialect, Schema};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let schema = Schema::default();
    for dialect in [Dialect::Postgres, Dialect::Sqlite] {
        let Ok(scan) = Scan::new(text, dialect) else { continue };
        let context = Context { dialect, schema: &schema, database: "d", user: "u", param_types: &[], applies: false };
        for piece in scan.pieces() {
            // Either way is right: what is not understood is refused.
            drop(translate(&piece, &context));
        }
    }
}
