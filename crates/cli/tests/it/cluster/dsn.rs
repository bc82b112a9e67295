//! The connection strings of `holdfast cluster dsn` lead psql to the master.

use super::bed::{Bed, until_in_recovery};
use crate::node::{Node, holdfast, until_settled};
use std::process::Command;

/// psql is on the master's port with the printed string.
async fn leads_to(dsn: &str, master: &Node) {
    until_settled("psql finds the master", async || {
        let mut psql = Command::new("psql");
        psql.args([dsn, "-XAtc", "select pg_is_in_recovery()", "-c", "\\echo :PORT"]);
        let output = psql.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = format!("f\n{}\n", master.port);
        (said != expected).then(|| format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_string_for_libpq_leads_to_the_master_after_a_failover_too() {
    let mut bed = Bed::start().await;
    let config = bed.a.config.to_str().unwrap().to_owned();
    let output = holdfast(&["cluster", "dsn", "--config", &config, "--for", "libpq", "--user", "holdfast"]);
    assert!(output.status.success(), "{output:?}");
    let dsn = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    leads_to(&dsn, &bed.node_a).await;
    // The first one of the list is a standby then, and gone in the end.
    let switched = bed.a.run("switchover", &[]);
    assert!(switched.status.success(), "{switched:?}");
    until_in_recovery(&bed.node_a, true).await;
    leads_to(&dsn, &bed.node_b).await;
    bed.until_agreed("b", &["a", "b"]).await;
    bed.b.kill_both().await;
    until_in_recovery(&bed.node_a, false).await;
    leads_to(&dsn, &bed.node_a).await;
}
