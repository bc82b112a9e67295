//! `holdfast site`: what it lists, which differences it finds, and the demonstration.

use super::bed::Bed;
use crate::node::{holdfast, succeeds};
use crate::server::{run, until};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(arguments)).unwrap()
}

#[tokio::test]
async fn compare_finds_rows_that_are_missing_changed_and_too_many() {
    let bed = Bed::start();
    bed.both(
        "create table t(id int primary key, v text); create table \"T 2\"(a text, b int, v text, primary key (b, a))",
    )
    .await;
    bed.publish("create publication p for table t where (id < 100), \"T 2\"").await;
    bed.publish("insert into t values (1, 'same'), (2, 'there'), (3, null), (150, 'not published')").await;
    bed.publish("insert into \"T 2\" values (e'tab\\t''\\\\', 1, 'x'), ('only there', 2, 'y')").await;
    let subscriber = bed.subscriber.connect().await;
    run(&subscriber, "insert into t values (1, 'same'), (2, 'here'), (4, 'too many')").await;
    run(&subscriber, "insert into \"T 2\" values (e'tab\\t''\\\\', 1, 'z')").await;
    bed.subscribe(" with (copy_data = false)").await;
    let at = bed.subscriber.at();
    let output = holdfast(&["site", "compare", "--at", &at, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |table: &str| {
        let tables = reports[0]["tables"].as_array().unwrap();
        let table = tables.iter().find(|t| t["table"] == table).unwrap();
        let first = table["first"].as_array().unwrap().iter();
        let mut found: Vec<String> = first.map(|d| format!("{} {}", d["what"], d["key"])).collect();
        found.sort();
        found
    };
    assert_eq!(found("t"), ["\"changed\" [\"2\"]", "\"extra\" [\"4\"]", "\"missing\" [\"3\"]"]);
    assert_eq!(found("T 2"), ["\"changed\" [\"tab\\t'\\\\\",\"1\"]", "\"missing\" [\"only there\",\"2\"]"]);
    // What is changed there arrives, and is equal then.
    bed.publish("delete from t; delete from \"T 2\"").await;
    let output = holdfast(&["site", "compare", "--at", &at]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.ends_with("1 differences\n") && text.contains("extra 4"), "{text}");
}

#[tokio::test]
async fn compare_works_while_both_sides_are_written() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key, n int)").await;
    bed.publish("insert into t select g, 0 from generate_series(1, 500) g").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    bed.until_equal("select count(*) from t", "select count(*) from t").await;
    let writer = bed.publisher.connect().await;
    let writing = tokio::spawn(async move {
        for n in 0_u64.. {
            // The same few rows again and again.
            let sql = format!("update t set n = n + 1 where id = {}", n % 20 + 1);
            if writer.batch_execute(&sql).await.is_err() {
                break;
            }
        }
    });
    let at = bed.subscriber.at();
    let output =
        tokio::task::spawn_blocking(move || holdfast(&["site", "compare", "--at", &at, "--json"])).await.unwrap();
    writing.abort();
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports[0]["differences"], 0, "{reports}");
}

#[tokio::test]
async fn list_shows_both_directions() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key)").await;
    bed.publish("create publication p for table t").await;
    assert_eq!(
        succeeds(&["site", "list", "--at", &bed.publisher.at()]),
        "no site: the server has no subscription and no slot\n"
    );
    bed.subscribe("").await;
    // Else the row may come with the copy.
    until("the feed is followed", async || bed.figure("state").await == "following").await;
    bed.publish("insert into t values (1)").await;
    bed.until_equal("select * from t", "select * from t").await;
    let sites = json(&["site", "list", "--at", &bed.subscriber.at(), "--json"]);
    let site = &sites["sites"][0];
    assert_eq!((&site["direction"], &site["name"], &site["state"]), (&"from".into(), &"s".into(), &"following".into()));
    assert_eq!((&site["transactions"], &site["errors"]), (&1.into(), &0.into()));
    let sites = json(&["site", "list", "--at", &bed.publisher.at(), "--json"]);
    assert_eq!((&sites["sites"][0]["direction"], &sites["sites"][0]["name"]), (&"to".into(), &"s".into()));
    assert!(succeeds(&["site", "list", "--at", &bed.subscriber.at()]).contains("following"));
}

#[test]
fn the_demonstration_ends_with_equal_sites() {
    let said = succeeds(&["site", "demo", "--seconds", "2", "--people", "1000"]);
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("demo: all sites are equal: ") && last.ends_with(" rows compared, 0 differences"),
        "{said}"
    );
    assert!(said.contains("the ship's link is cut") && said.contains("kill -9 head office"), "{said}");
}
