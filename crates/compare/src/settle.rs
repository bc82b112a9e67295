//! Compares a subscription's tables, and looks again at the rows that differ.
//!
//! | publisher before | publisher after | subscriber between, with everything applied | then |
//! |---|---|---|---|
//! | r | r | r | equal |
//! | r | r | another, or none | different, if it is so at three looks in a row: a publisher may have stalled before it sent |
//! | r | s | any | it is being changed: looked at again |

use crate::rows::{
    Hashes, each_published, hash_of_values, key_hash, key_of, published_of, published_rows, received_of, received_rows,
    value_of,
};
use crate::subscription::{CompareError, Published, Subscription, note_partitions, published, publisher, quoted, rows};
use holdfast_client::ReplicationLink;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use xxhash_rust::xxh3::xxh3_128;

/// Rows that are looked at again, of one table; beyond them the table counts as different without a second look.
const AGAIN_MAX: usize = 100_000;

/// Keys in one query.
const KEYS_MAX: usize = 200;

/// At so many looks a row has to be different.
const SAME_LOOKS: u32 = 3;

/// How often a row that is being changed is looked at, and how long the subscriber may take to catch up.
const LOOKS_MAX: usize = 20;
const CATCH_UP_MAX: Duration = Duration::from_secs(120);

/// So long nothing is sent to a subscriber that has everything.
const QUIET: Duration = Duration::from_millis(500);

/// A row that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The values of its key.
    pub key: Vec<String>,
    /// `missing` here, `extra` here, or `changed`.
    pub what: &'static str,
}

/// A table that was compared.
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    pub table: String,
    pub rows: usize,
    pub differences: usize,
    /// Some of them.
    pub first: Vec<Difference>,
    /// Rows that were changed at each look.
    pub busy: usize,
}

/// A subscription that was compared.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub subscription: String,
    pub tables: Vec<TableReport>,
    pub differences: usize,
}

/// Compares a subscription; `progress` is called with each table's name first.
pub async fn compare(
    client: &Client,
    of: &Subscription,
    mut progress: impl FnMut(&str),
) -> Result<Report, CompareError> {
    let mut link = publisher(of).await?;
    let mut tables = Vec::new();
    let mut all = published(&mut link, of).await?;
    note_partitions(client, of, &mut all).await?;
    for table in all {
        progress(&table.name);
        tables.push(compare_table(client, &mut link, of, &table).await?);
    }
    link.close().await;
    let differences = tables.iter().map(|table| table.differences).sum();
    Ok(Report { subscription: of.name.clone(), tables, differences })
}

/// A row that is not known to be equal: the fields of its key, as COPY writes them.
type Key = Vec<Vec<u8>>;

async fn compare_table(
    client: &Client,
    link: &mut ReplicationLink,
    of: &Subscription,
    table: &Published,
) -> Result<TableReport, CompareError> {
    let mut there = published_rows(link, table).await?;
    let count = there.len();
    until_applied(client, link, of).await?;
    let mut open: Vec<Key> = Vec::new();
    let keep = |line: &[u8]| key_of(line, &table.key).into_iter().map(<[u8]>::to_vec).collect::<Key>();
    received_rows(client, table, |line| {
        if there.remove(&key_hash(line, &table.key)) != Some(xxh3_128(line)) && open.len() < AGAIN_MAX {
            open.push(keep(line));
        }
    })
    .await?;
    if !there.is_empty() {
        // Of these only the hashes are known.
        each_published(link, table, |line| {
            if there.contains_key(&key_hash(line, &table.key)) && open.len() < AGAIN_MAX {
                open.push(keep(line));
            }
        })
        .await?;
    }
    let mut open: HashMap<Key, u32> = open.into_iter().map(|key| (key, 0)).collect();
    let mut differences = Vec::new();
    for look in 0..LOOKS_MAX {
        if open.is_empty() {
            break;
        }
        if look > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        open = look_again(client, link, of, table, open, &mut differences).await?;
    }
    let total = differences.len();
    differences.truncate(10);
    Ok(TableReport { table: table.name.clone(), rows: count, differences: total, first: differences, busy: open.len() })
}

/// Looks at the rows of some keys again, with how often they were different; returns those that have to be looked at again.
async fn look_again(
    client: &Client,
    link: &mut ReplicationLink,
    of: &Subscription,
    table: &Published,
    open: HashMap<Key, u32>,
    differences: &mut Vec<Difference>,
) -> Result<HashMap<Key, u32>, CompareError> {
    let open: Vec<(Key, u32)> = open.into_iter().collect();
    let wanted: HashSet<u128> = open.iter().map(|(key, _)| hash_of_values(key)).collect();
    let values: Vec<Vec<String>> = open.iter().map(|(key, _)| key.iter().map(|f| value_of(f)).collect()).collect();
    let before = published_of(link, table, &wanted).await?;
    until_applied(client, link, of).await?;
    let mut here = Hashes::new();
    for some in values.chunks(KEYS_MAX) {
        here.extend(received_of(client, table, some).await?);
    }
    let after = published_of(link, table, &wanted).await?;
    let mut again = HashMap::new();
    for ((key, times), values) in open.into_iter().zip(values) {
        let row = |rows: &Hashes| rows.get(&hash_of_values(&key)).copied();
        let what = match (row(&before), row(&here), row(&after)) {
            (before, _, after) if before != after => {
                again.insert(key, 0);
                continue;
            }
            (before, here, _) if before == here => continue,
            (None, _, _) => "extra",
            (_, None, _) => "missing",
            _ => "changed",
        };
        match times + 1 < SAME_LOOKS {
            true => _ = again.insert(key, times + 1),
            false => differences.push(Difference { key: values, what }),
        }
    }
    Ok(again)
}

/// Waits until the subscriber has applied everything that the publisher has now.
async fn until_applied(client: &Client, link: &mut ReplicationLink, of: &Subscription) -> Result<(), CompareError> {
    let now = link.query("SELECT pg_catalog.pg_current_wal_lsn()").await?;
    let now = now.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    let now = now.ok_or_else(|| CompareError::Other("the publisher does not say how far it is".to_owned()))?;
    let slot = rows(
        client,
        &format!("SELECT subslotname FROM pg_catalog.pg_subscription WHERE subname = {}", quoted(&of.name)),
    )
    .await?;
    let slot = slot.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    let slot = slot.ok_or_else(|| CompareError::Other(format!("subscription \"{}\" has no slot", of.name)))?;
    // The subscriber confirms what it has applied, also of transactions that it was not sent. What the publisher writes for itself it
    // need not confirm: then nothing is sent for a while, and all of that is confirmed.
    let reached = format!(
        "SELECT s.confirmed_flush_lsn >= '{now}', r.sent_lsn, s.confirmed_flush_lsn >= r.sent_lsn \
         FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid \
         WHERE s.slot_name = {}",
        quoted(&slot)
    );
    let until = Instant::now() + CATCH_UP_MAX;
    let (mut sent, mut since) = (None, Instant::now());
    loop {
        let answer = link.query(&reached).await?;
        let Some([is_reached, sent_now, all_sent]) = answer.first().map(Vec::as_slice) else {
            return Err(CompareError::Other(format!("the publisher has no slot \"{slot}\"")));
        };
        if *sent_now != sent {
            (sent, since) = (sent_now.clone(), Instant::now());
        }
        let is_quiet = all_sent.as_deref() == Some("t") && since.elapsed() >= QUIET;
        if is_reached.as_deref() == Some("t") || is_quiet {
            return Ok(());
        }
        if Instant::now() >= until {
            let seconds = CATCH_UP_MAX.as_secs();
            return Err(CompareError::Other(format!("the subscriber has not caught up in {seconds} s")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
