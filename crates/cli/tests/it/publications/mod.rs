//! Publications: statements about them and what psql shows against PostgreSQL's answers, and that they survive.

mod lasting;

use crate::roles::against_postgresql::{differences, postgresql};
use std::path::Path;

#[test]
fn statements_about_publications_answer_as_postgresqls() {
    let mut different = Vec::new();
    for script in ["statements", "dependencies"] {
        // Each script begins without tables, publications and roles.
        let Some(postgres) = postgresql() else { return };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/publications/{script}.sql"));
        // Nothing of Holdfast's can be set for subscriptions.
        let counts =
            |line: &str| !line.starts_with("HINT:  Set wal_level") && !line.starts_with("HINT:  The definition is");
        different.extend(differences(&postgres, &script, counts));
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
