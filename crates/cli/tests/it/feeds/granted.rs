//! `GRANT SELECT ON PUBLICATION`: who may follow.

use super::subscriber::Subscriber;
use super::trusting;
use crate::server::{Running, run, state, until};
use tokio_postgres::Client;

/// Whether a role may follow the publication `p`.
async fn may(server: &Running, client: &Client, role: &str) -> bool {
    let free = "select active from pg_replication_slots where slot_name = 's'";
    until("the slot is free", async || crate::server::one(client, free).await == "f").await;
    let mut site = Subscriber::connect_as(server.port, role).unwrap();
    match site.start("s", 0, "p") {
        Ok(()) => {
            site.finish();
            true
        }
        Err(refused) => {
            assert_eq!(refused.state, "42501", "{role}");
            false
        }
    }
}

async fn code(client: &Client, sql: &str) -> String {
    state(client, sql).await.map_or("00000".to_owned(), |state| state.code().to_owned())
}

#[tokio::test]
async fn a_grant_on_a_publication_lets_a_role_follow_it_and_nothing_else() {
    let server = Running::start();
    let client = server.connect().await;
    run(
        &client,
        "create role ann login replication; create role bob login replication; create role cat login replication",
    )
    .await;
    run(&client, "create role staff; create table t(k int primary key); create publication p for table t").await;
    let server = trusting(server);
    let client = server.connect().await;
    Subscriber::connect(server.port).create_slot("s");
    run(&client, "alter publication p owner to ann").await;
    assert!(may(&server, &client, "ann").await && !may(&server, &client, "bob").await);
    for (sql, expected) in [
        ("grant select on publication none to bob", "42704"),
        ("grant select on publication p to none_such", "42704"),
        ("grant update on publication p to bob", "0LP01"),
        ("grant select (k) on publication p to bob", "0LP01"),
        ("set role bob; grant select on publication p to cat", "42501"),
        ("reset role; set role ann; grant select on publication p to bob with grant option", "00000"),
        ("reset role; set role bob; grant all on publication p to cat", "00000"),
        ("reset role", "00000"),
        ("revoke select on publication p from bob", "2BP01"),
        ("drop role bob", "2BP01"),
    ] {
        assert_eq!(code(&client, sql).await, expected, "{sql}");
    }
    for role in ["ann", "bob", "cat"] {
        assert!(may(&server, &client, role).await, "{role}");
    }
    assert_eq!(
        code(&server.connect_with("user=bob dbname=holdfast").await, "select * from t").await,
        "42501",
        "it is no right on the table"
    );
    run(&client, "revoke select on publication p from bob cascade").await;
    assert!(!may(&server, &client, "bob").await && !may(&server, &client, "cat").await);
    // Through a role that it is a member of.
    run(&client, "grant select on publication p to staff; grant staff to bob").await;
    assert!(may(&server, &client, "bob").await);
    run(&client, "drop owned by staff; drop role staff").await;
    assert!(!may(&server, &client, "bob").await);
    // What an owner has granted is the next owner's to revoke; the old one has nothing left.
    run(&client, "grant select on publication p to bob; alter publication p owner to cat").await;
    assert!(
        may(&server, &client, "bob").await && may(&server, &client, "cat").await && !may(&server, &client, "ann").await
    );
    let server = Running::start_in(server.kill());
    let client = server.connect().await;
    assert!(may(&server, &client, "bob").await, "after a crash");
    run(&client, "set role cat; revoke select on publication p from bob; reset role").await;
    assert!(!may(&server, &client, "bob").await);
    run(&client, "grant select on publication p to bob; reassign owned by cat to ann").await;
    assert!(
        may(&server, &client, "bob").await && may(&server, &client, "ann").await && !may(&server, &client, "cat").await
    );
    // Another publication of the same name and number has none of its grants.
    run(&client, "drop publication p; create publication p for table t").await;
    assert!(!may(&server, &client, "bob").await && !may(&server, &client, "ann").await);
    run(&client, "grant select on publication p to public").await;
    assert!(may(&server, &client, "bob").await);
}
