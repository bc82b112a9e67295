//! The rows of one table on both sides, as hashes by key: 32 bytes a row, whatever is in it.
//!
//! Rows are compared as the text that COPY gives of them, which both sides write alike; a subscriber received them as text as well.

use crate::subscription::{CompareError, Published, quoted};
use bytes::Bytes;
use futures::{StreamExt, pin_mut};
use holdfast_client::ReplicationLink;
use holdfast_types::quoting::quote;
use std::collections::{HashMap, HashSet};
use tokio_postgres::Client;
use xxhash_rust::xxh3::xxh3_128;

/// Key and row of each row, as hashes.
pub type Hashes = HashMap<u128, u128>;

/// Lines put together from pieces of a COPY.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn feed(&mut self, data: &[u8], mut line: impl FnMut(&[u8])) {
        self.0.extend_from_slice(data);
        let mut from = 0;
        while let Some(end) = self.0[from..].iter().position(|b| *b == b'\n') {
            line(&self.0[from..from + end]);
            from += end + 1;
        }
        self.0.drain(..from);
    }
}

/// The key of a line of COPY, as it stands there.
pub fn key_of<'a>(line: &'a [u8], key: &[usize]) -> Vec<&'a [u8]> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b'\t').collect();
    key.iter().map(|at| fields.get(*at).copied().unwrap_or_default()).collect()
}

pub fn key_hash(line: &[u8], key: &[usize]) -> u128 {
    xxh3_128(&key_of(line, key).join(&b'\t'))
}

/// The list of columns.
fn list(table: &Published) -> String {
    table.columns.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}

/// The COPY of all rows that a filter permits.
fn copy_text(table: &Published, filter: Option<&str>) -> String {
    let condition = filter.map(|filter| format!(" WHERE {filter}")).unwrap_or_default();
    format!(
        "COPY (SELECT {} FROM ONLY {}.{}{condition}) TO STDOUT",
        list(table),
        quote(&table.schema),
        quote(&table.name)
    )
}

/// The COPY of the rows of these keys.
fn copy_of_keys(table: &Published, keys: &[Vec<String>]) -> String {
    let columns: Vec<String> = table.key.iter().map(|at| quote(&table.columns[*at])).collect();
    let one = |key: &Vec<String>| {
        let equal = columns.iter().zip(key).map(|(column, value)| format!("{column} = {}", quoted(value)));
        format!("({})", equal.collect::<Vec<_>>().join(" AND "))
    };
    let of_keys = keys.iter().map(one).collect::<Vec<_>>().join(" OR ");
    let here = table.filter_here.as_ref().map(|filter| format!(" AND ({filter})")).unwrap_or_default();
    copy_text(table, Some(&format!("({of_keys}){here}")))
}

async fn at_publisher(link: &mut ReplicationLink, sql: &str, mut line: impl FnMut(&[u8])) -> Result<(), CompareError> {
    let mut lines = Lines::default();
    link.copy_out(sql).await?;
    while let Some(data) = link.copied().await? {
        lines.feed(&data, &mut line);
    }
    Ok(())
}

async fn at_subscriber(client: &Client, sql: &str, mut line: impl FnMut(&[u8])) -> Result<(), CompareError> {
    let mut lines = Lines::default();
    let stream = client.copy_out(sql).await?;
    pin_mut!(stream);
    while let Some(data) = stream.next().await {
        let data: Bytes = data?;
        lines.feed(&data, &mut line);
    }
    Ok(())
}

/// All rows at the publisher.
pub async fn published_rows(link: &mut ReplicationLink, table: &Published) -> Result<Hashes, CompareError> {
    let mut hashes = Hashes::new();
    at_publisher(link, &copy_text(table, table.filter.as_deref()), |line| {
        hashes.insert(key_hash(line, &table.key), xxh3_128(line));
    })
    .await?;
    Ok(hashes)
}

/// Calls `each` with every row at the subscriber.
pub async fn received_rows(client: &Client, table: &Published, each: impl FnMut(&[u8])) -> Result<(), CompareError> {
    at_subscriber(client, &copy_text(table, table.filter_here.as_deref()), each).await
}

/// Calls `each` with every row at the publisher.
pub async fn each_published(
    link: &mut ReplicationLink,
    table: &Published,
    each: impl FnMut(&[u8]),
) -> Result<(), CompareError> {
    at_publisher(link, &copy_text(table, table.filter.as_deref()), each).await
}

/// The rows of some keys at the publisher. All are read: a role that may only follow the publication may ask for no part of them.
pub async fn published_of(
    link: &mut ReplicationLink,
    table: &Published,
    keys: &HashSet<u128>,
) -> Result<Hashes, CompareError> {
    let mut hashes = Hashes::new();
    each_published(link, table, |line| {
        let key = key_hash(line, &table.key);
        if keys.contains(&key) {
            hashes.insert(key, xxh3_128(line));
        }
    })
    .await?;
    Ok(hashes)
}

/// The rows of some keys at the subscriber.
pub async fn received_of(client: &Client, table: &Published, keys: &[Vec<String>]) -> Result<Hashes, CompareError> {
    let mut hashes = Hashes::new();
    at_subscriber(client, &copy_of_keys(table, keys), |line| {
        hashes.insert(key_hash(line, &table.key), xxh3_128(line));
    })
    .await?;
    Ok(hashes)
}

/// A field of COPY as the value that it stands for; a key has no NULL.
pub fn value_of(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('t') => value.push('\t'),
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('b') => value.push('\u{8}'),
                Some('f') => value.push('\u{c}'),
                Some('v') => value.push('\u{b}'),
                other => value.extend(other),
            },
            (c, false) => value.push(c),
        }
    }
    value
}

/// The hash of a key's values, as [`key_hash`] has it of a line.
pub fn hash_of_values(fields: &[Vec<u8>]) -> u128 {
    xxh3_128(&fields.join(&b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keys_and_values() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in [&b"1\ta\n2\t"[..], b"b\\n", b"\n"] {
            lines.feed(piece, |line| found.push(line.to_vec()));
        }
        assert_eq!(found, [b"1\ta".to_vec(), b"2\tb\\n".to_vec()]);
        assert_eq!(key_of(&found[1], &[1, 0]), [&b"b\\n"[..], b"2"]);
        assert_eq!(value_of(b"b\\n\\\\\\t"), "b\n\\\t");
        assert_eq!(hash_of_values(&[b"2".to_vec()]), key_hash(&found[1], &[0]));
    }
}
