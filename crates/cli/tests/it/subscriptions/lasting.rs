//! Subscriptions survive: a kill, a standby's replay, a promotion.

use crate::node::{Pair, succeeds};
use crate::server::{Running, one, run, state};
use tokio_postgres::Client;

const MADE: &str = "create subscription s connection 'host=hq dbname=''my shop''' publication p, \"Q\" with (connect = false); \
    create subscription gone connection 'host=hq' publication p with (connect = false, slot_name = none)";

const CHANGED: &str = "alter subscription s skip (lsn = '1/2'); alter subscription s set (slot_name = 'other'); \
    alter subscription s enable; drop subscription gone; \
    create subscription later connection 'host=x' publication r with (connect = false, synchronous_commit = on)";

async fn seen(client: &Client) -> String {
    let sql = "select string_agg(oid || subname || subowner || subenabled || subdisableonerr || subconninfo || subslotname || \
               subsynccommit || subpublications::text || subskiplsn::text, ' ' order by oid) from pg_subscription";
    one(client, sql).await
}

#[tokio::test]
async fn subscriptions_outlive_a_kill() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    run(&client, CHANGED).await;
    let before = seen(&client).await;
    assert!(before.contains("other") && before.contains("{p,Q}1/2") && before.contains("later"), "{before}");
    let dir = server.kill();
    let server = Running::start_in(dir);
    assert_eq!(seen(&server.connect().await).await, before);
}

#[tokio::test]
async fn a_promoted_standby_has_the_subscriptions_of_its_master() {
    let mut pair = Pair::master("");
    let master = pair.a.connect().await;
    run(&master, MADE).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    run(&master, "set holdfast.level = hot").await;
    run(&master, CHANGED).await;
    pair.until_equal().await;
    let before = seen(&master).await;
    let standby = pair.b.connect().await;
    assert_eq!(seen(&standby).await, before);
    assert_eq!(state(&standby, "alter subscription s disable").await.unwrap().code(), "25006");
    drop((master, standby));
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let client = pair.b.connect().await;
    assert_eq!(seen(&client).await, before);
    run(&client, "alter subscription s disable; alter subscription s set (slot_name = none)").await;
    run(&client, "create subscription newest connection '' publication p with (connect = false)").await;
}
