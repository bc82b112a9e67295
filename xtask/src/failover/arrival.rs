//! Clients that have a list of hosts look for the master with `target_session_attrs=read-write`: through the load
//! generator's driver (tokio-postgres) and through libpq (psql).
//!
//! A mark is a row that only the new master has, so that a client can tell which server it has reached. It is committed at
//! level local, because a new master may have no standby yet.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use tokio_postgres::SimpleQueryMessage;

use crate::recorder::{DATABASE, connect};
use crate::server::{Address, USER};

/// Longer than a client takes to try every host; a client that hangs meets it.
const ARRIVE_MAX: Duration = Duration::from_secs(60);

/// libpq gives up on a host that takes the connection and does not answer.
const CONNECT_TIMEOUT_S: u32 = 10;

/// Clients of the driver that look for the master.
const CLIENTS: usize = 3;

const LOCAL: &str = "options='-c holdfast.level=local -c synchronous_commit=local'";

pub async fn create_table(master: Address) -> anyhow::Result<()> {
    let client = connect(&master.hosts(), DATABASE).await?;
    client.batch_execute("CREATE TABLE mark (id int PRIMARY KEY)").await.context("creating the table of marks")
}

/// Commits a row that a deposed master does not have, unless it is there.
pub async fn leave_mark(master: Address, mark: u32) -> anyhow::Result<()> {
    let written = async {
        let client = connect(&format!("{} {LOCAL}", master.hosts()), DATABASE).await?;
        let insert = format!("INSERT INTO mark VALUES ({mark}) ON CONFLICT DO NOTHING");
        client.batch_execute(&insert).await.context("leaving a mark on the new master")
    };
    tokio::time::timeout(ARRIVE_MAX, written).await.context("the new master does not answer a commit at level local")?
}

/// What went wrong with clients of the driver.
pub async fn through_driver(hosts: &str, mark: u32) -> Vec<String> {
    let mut astray = Vec::new();
    for _ in 0..CLIENTS {
        let arrived = async {
            let client = connect(hosts, DATABASE).await?;
            anyhow::Ok(count(&client.simple_query(&select(mark)).await?) == Some(1))
        };
        match tokio::time::timeout(ARRIVE_MAX, arrived).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => astray.push("tokio-postgres arrived at a server that is not the new master".to_owned()),
            Ok(Err(error)) => astray.push(format!("tokio-postgres did not arrive: {error:#}")),
            Err(_) => astray.push(format!("tokio-postgres waits for a host after {ARRIVE_MAX:?}")),
        }
    }
    astray
}

/// What went wrong with psql.
pub fn through_libpq(hosts: &str, master: Address, mark: u32) -> anyhow::Result<Option<String>> {
    let server = format!("{hosts} user={USER} dbname={DATABASE} sslmode=disable connect_timeout={CONNECT_TIMEOUT_S}");
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", &server, "-c", "\\echo :PORT", "-c"])
        .arg(select(mark))
        .output()
        .context("starting psql")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().replace('\n', " ");
    if output.status.success() && said == format!("{} 1", master.port) {
        return Ok(None);
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Ok(Some(format!("psql with {hosts} did not arrive at port {}: {said} {error}", master.port)))
}

fn select(mark: u32) -> String {
    format!("SELECT count(*) FROM mark WHERE id = {mark}")
}

/// The number in the only row.
fn count(messages: &[SimpleQueryMessage]) -> Option<i64> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}
