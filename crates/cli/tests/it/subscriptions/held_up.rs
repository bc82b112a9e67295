//! What a subscriber has received and not committed is not confirmed to its publisher: its commits are held up by a lock of another
//! session, it reports to its publisher meanwhile, and is killed. The publisher sends everything again that was not committed.
//!
//! A transaction is small, and waits as a whole, or large, and waits when its end has arrived.

use super::bed::fail_if_it_has_failed;
use super::proxy::Proxy;
use super::side::{Side, texts, until_same};
use crate::node::Node;
use crate::server::{one, run, until, until_settled};
use holdfast_testbed::oracle::Postgres;
use tempfile::TempDir;

const TABLE: &str = "create table t(site int, id int, v text, primary key (site, id))";
const ROWS: &str = "select id, length(v), md5(v) from t where site = 1 order by id";

/// The row that the other session locks is the last one that they change.
const TRANSACTIONS: [&str; 2] = [
    "insert into t values (1, 10, 'small'); update t set v = 'small' where id = 1",
    // More than 4 MB: applied while it arrives.
    "insert into t select 1, g, repeat('large', 20000) from generate_series(100, 144) g; update t set v = 'large' where id = 1",
];

/// The messages of the publisher that end a transaction, and those of the subscriber that report where it is.
const COMMIT: &str = ">dwC";
const REPORT: &str = "<dr";

async fn what_is_not_committed_is_sent_again(publisher: Side) {
    let scratch = TempDir::new().unwrap();
    let mut subscriber = Node::new(&scratch, "b");
    subscriber.start();
    let proxy = Proxy::to(&format!("127.0.0.1:{}", publisher.port()));
    let there = publisher.connect().await;
    run(&there, TABLE).await;
    run(&there, "insert into t values (1, 1, 'first')").await;
    // The rows are those of a part: a client may lock them here, as it may lock its own.
    run(&there, "create publication p for table t where (site = 1)").await;
    let here = subscriber.connect().await;
    run(&here, TABLE).await;
    let connection = format!("host=127.0.0.1 port={} dbname={} user=holdfast", proxy.port, publisher.database());
    run(
        &here,
        &format!(
            "create subscription s connection '{connection} sslmode=disable' publication p with (mode = 'partition')"
        ),
    )
    .await;
    until_same(&there, &here, ROWS).await;
    drop(here);
    for (number, transaction) in TRANSACTIONS.iter().enumerate() {
        let (here, locking) = (subscriber.connect().await, subscriber.connect().await);
        until("the feed is followed", async || {
            one(&there, "select count(*) from pg_replication_slots where active").await == "1"
        })
        .await;
        run(&locking, "begin; select * from t where site = 1 and id = 1 for update").await;
        let before = texts(&here, ROWS).await;
        proxy.begin(None);
        run(&there, &format!("begin; {transaction}; commit")).await;
        let seen = |kind: &str| proxy.seen().get(kind).copied().unwrap_or(0);
        until("the transaction has been sent", async || seen(COMMIT) > 0).await;
        // The first one may have been under way.
        let reports = seen(REPORT) + 2;
        until_settled("the subscriber reports to its publisher", async || {
            fail_if_it_has_failed(&here).await;
            (seen(REPORT) < reports).then(|| seen(REPORT).to_string())
        })
        .await;
        assert_eq!(texts(&here, ROWS).await, before, "the commit is held up");
        subscriber.kill();
        subscriber.start();
        // It comes behind what was held up.
        run(&there, &format!("insert into t values (1, {}, 'behind')", 1000 + number)).await;
        let here = subscriber.connect().await;
        until("what comes behind is here", async || {
            fail_if_it_has_failed(&here).await;
            one(&here, &format!("select count(*) from t where id = {}", 1000 + number)).await == "1"
        })
        .await;
        let (have, published) = (texts(&here, ROWS).await, texts(&there, ROWS).await);
        assert_eq!(have.len(), published.len(), "rows after {transaction}");
        assert_eq!(have, published, "after {transaction}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_committed_is_not_confirmed() {
    let scratch = TempDir::new().unwrap();
    what_is_not_committed_is_sent_again(Side::holdfast(&scratch, "a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_committed_is_not_confirmed_to_postgresql() {
    let Some(postgres) = Postgres::start_publishing() else { return };
    what_is_not_committed_is_sent_again(Side::Postgres(postgres)).await;
}
