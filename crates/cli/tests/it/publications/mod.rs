//! Publications: statements about them and what psql shows against PostgreSQL's answers, and that they survive.

mod lasting;

use crate::roles::against_postgresql::{differences, postgresql};
use crate::server::{Running, run, state};
use std::path::Path;

/// Lines that differ: Holdfast has no wal_level to be set, no REPLICA IDENTITY, and no statements of its own behind foreign keys.
const OTHER_LINES: [&str; 6] = [
    "CONTEXT:  SQL statement \"",
    "WARNING:  wal_level is insufficient",
    "HINT:  Set wal_level",
    "HINT:  To enable updating the table, set REPLICA IDENTITY",
    "HINT:  To enable deleting from the table, set REPLICA IDENTITY",
    "HINT:  Add a primary key",
];

#[test]
fn statements_about_publications_answer_as_postgresqls() {
    let mut different = Vec::new();
    for script in ["statements", "dependencies", "identity", "subscriber"] {
        // Each script begins without tables, publications and roles.
        let Some(postgres) = postgresql() else { return };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/publications/{script}.sql"));
        different.extend(differences(&postgres, &script, |line| !OTHER_LINES.iter().any(|h| line.starts_with(h))));
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}

#[tokio::test]
async fn upserts_and_prepared_statements_need_a_primary_key_of_a_published_table() {
    let server = Running::start();
    let (client, other) = (server.connect().await, server.connect().await);
    run(&client, "create table bare(a int unique, b int); insert into bare values (1, 1); create publication p").await;
    let change = client.prepare("update bare set b = b + 1").await.unwrap();
    let upsert = "insert into bare values (1, 1) on conflict (a) do update set b = 9";
    run(&client, upsert).await;
    assert_eq!(client.execute(&change, &[]).await.unwrap(), 1);
    run(&other, "alter publication p add table bare").await;
    let refused = client.execute(&change, &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55000");
    assert_eq!(state(&client, upsert).await.unwrap().code(), "55000");
    assert!(state(&client, "insert into bare values (1, 1) on conflict (a) do nothing").await.is_none());
    // PostgreSQL sends it as such; here it is sent as the removal of each row.
    assert_eq!(state(&client, "truncate bare").await.unwrap().code(), "55000");
    run(&other, "alter publication p set (publish = 'insert')").await;
    run(&client, "begin; truncate bare; rollback").await;
    run(&other, "alter publication p set (publish = 'insert, delete')").await;
    assert_eq!(client.execute(&change, &[]).await.unwrap(), 1);
    run(&client, upsert).await;
}
