//! A feed over the ends of servers: nothing twice, nothing missing.

use super::subscriber::{Event, Subscriber, Transaction};
use crate::server::{Running, one, run};
use tokio_postgres::Client;

const MADE: &str = "create table n(id int primary key, v text); create publication p for table n";

/// Receives until the server is gone.
fn until_it_is_gone(site: &mut Subscriber, all: &mut Vec<Transaction>) {
    loop {
        match site.next() {
            Event::Transaction(transaction) => all.push(transaction),
            Event::Keepalive => {}
            Event::Ended(_) => return,
        }
    }
}

/// Inserts rows until the server is gone; returns how many were acknowledged.
async fn insert(client: Client, from: i64) -> i64 {
    let mut next = from;
    while client.execute("insert into n values ($1::int8::int, 'x')", &[&next]).await.is_ok() {
        next += 1;
    }
    next
}

fn ids(all: &[Transaction]) -> Vec<i64> {
    let id = |change: &String| change.split(' ').nth(2).unwrap().parse().unwrap();
    all.iter().flat_map(|transaction| transaction.changes.iter().map(id)).collect()
}

/// Kills the server in the middle of the feed, again and again. The subscriber continues where its own position is, or, every
/// other time, where the slot is.
#[tokio::test]
async fn a_killed_publisher_sends_nothing_twice_and_leaves_nothing_out() {
    let mut server = Running::start();
    run(&server.connect().await, MADE).await;
    Subscriber::connect(server.port).create_slot("s");
    let (mut all, mut next, mut end) = (Vec::new(), 1, 0);
    for round in 0..6 {
        let client = server.connect().await;
        let mut site = Subscriber::connect(server.port);
        site.end = end;
        site.start("s", end, "p").unwrap();
        let receiving = std::thread::spawn(move || {
            let mut all = Vec::new();
            while all.len() < 40 {
                match site.next() {
                    Event::Transaction(transaction) => {
                        all.push(transaction);
                        // Confirmed late, or not at all.
                        if round % 2 == 0 && all.len() == 20 {
                            let end = site.end;
                            site.confirm(end);
                        }
                    }
                    Event::Keepalive => {}
                    Event::Ended(why) => panic!("{why:?}"),
                }
            }
            (all, site)
        });
        let inserting = tokio::spawn(insert(client, next));
        let (mut received, mut site) = tokio::task::spawn_blocking(|| receiving.join().unwrap()).await.unwrap();
        let dir = server.kill();
        inserting.await.unwrap();
        until_it_is_gone(&mut site, &mut received);
        end = site.end;
        all.extend(received);
        server = Running::start_in(dir);
        // A row that was not acknowledged may be there.
        let client = server.connect().await;
        next = one(&client, "select coalesce(max(id), 0) + 1 from n").await.parse().unwrap();
    }
    run(&server.connect().await, "insert into n values (0, 'end')").await;
    let mut site = Subscriber::connect(server.port);
    site.end = end;
    site.start("s", end, "p").unwrap();
    while all.last().is_none_or(|last: &Transaction| !last.changes[0].ends_with(" end")) {
        all.push(site.transaction());
    }
    let mut expected: Vec<i64> = (1..next).collect();
    expected.push(0);
    assert_eq!(ids(&all), expected);
}

/// A clean stop writes the positions: the next feed begins at what was confirmed last.
#[tokio::test]
async fn a_clean_stop_keeps_what_was_confirmed() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    site.start("s", 0, "p").unwrap();
    run(&client, "insert into n values (1, 'x')").await;
    run(&client, "insert into n values (2, 'x')").await;
    let first = site.transaction();
    let end = first.end;
    site.confirm(end);
    let confirmed = format!("select confirmed_flush_lsn >= '0/{end:X}' from pg_replication_slots");
    crate::server::until("the slot moves", async || one(&client, &confirmed).await == "t").await;
    let (status, dir) = server.stop();
    assert!(status.success());
    let server = Running::start_in(dir);
    let mut site = Subscriber::connect(server.port);
    site.start("s", 0, "p").unwrap();
    assert_eq!(ids(&[site.transaction()]), [2]);
}
