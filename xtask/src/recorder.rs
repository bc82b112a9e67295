//! The clients of the kill test, the power-cut test and the failover test: each inserts rows of its own and records a
//! transaction only after the server has acknowledged its commit.
//!
//! One transaction writes a row into `ack` and two rows with the same id and note into `ack_part`, in the same database
//! or in another one; some also move something between accounts, of one database or of both. The note follows
//! from the id, so that a row that is half there, or not the one written, is found. What was acknowledged is kept in
//! memory: the server is killed, not this process.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::server::{Address, USER};

pub const DATABASE: &str = "holdfast";
/// Where transactions over two databases go on.
const OTHER: &str = "postgres";
const TABLES: &str = "CREATE TABLE ack (id bigint PRIMARY KEY, client int NOT NULL, note text NOT NULL); \
    CREATE TABLE ack_part (id bigint NOT NULL, part int NOT NULL, note text NOT NULL, PRIMARY KEY (id, part)); \
    CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL); \
    INSERT INTO account VALUES (0, 0), (1, 0), (2, 0), (3, 0)";

/// How a client sends its transactions.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// BEGIN, both statements and COMMIT as one simple-protocol message.
    OneMessage,
    /// BEGIN, prepared statements and COMMIT, each awaited before the next.
    Interactive,
    /// One message that also moves something between two accounts.
    Transfer,
    /// One message that also makes a table with a row and drops the one that the same client made before.
    Schema,
    /// The parts go to another database, in the same transaction.
    TwoDatabases,
}

impl Way {
    fn of(client: u32, load: Load) -> Way {
        match client % 10 {
            9 => Way::Interactive,
            8 if load.databases == Databases::Two => Way::TwoDatabases,
            6 if load.schema => Way::Schema,
            7 | 8 => Way::Transfer,
            _ => Way::OneMessage,
        }
    }
}

/// Over how many databases transactions go: only Holdfast has any that change two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Databases {
    One,
    #[default]
    Two,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    pub databases: Databases,
    /// Some change the schema.
    pub schema: bool,
}

impl Databases {
    fn names(self) -> &'static [&'static str] {
        match self {
            Databases::One => &[DATABASE],
            Databases::Two => &[DATABASE, OTHER],
        }
    }
}

/// Everything acknowledged so far, over all rounds.
#[derive(Debug, Default)]
pub struct Recorder {
    load: Load,
    acknowledged: Arc<Mutex<Vec<i64>>>,
    count: Arc<AtomicU64>,
    next_id: Arc<AtomicU64>,
}

/// What was found after a restart.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub acknowledged: usize,
    pub found: usize,
    /// Acknowledged, and not there.
    pub missing: Vec<i64>,
    /// There, but without its parts, with wrong contents, or parts without their row.
    pub broken: Vec<i64>,
    /// What the accounts of both databases add up to: nothing, unless half a transfer is there.
    pub accounts: i64,
}

impl Recorder {
    pub fn of(load: Load) -> Recorder {
        Recorder { load, ..Recorder::default() }
    }

    pub async fn create_tables(&self, address: Address) -> anyhow::Result<()> {
        for database in self.load.databases.names() {
            let client = connect(&address.hosts(), database).await?;
            client.batch_execute(TABLES).await.context("creating the recorder's tables")?;
        }
        Ok(())
    }

    /// How many transactions have been acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The transactions that the server shows.
    pub async fn shown(&self, address: Address) -> anyhow::Result<HashSet<i64>> {
        let client = connect(&address.hosts(), DATABASE).await?;
        let rows = pairs(&client, "SELECT id, '' FROM ack").await?;
        Ok(rows.into_iter().map(|(id, _)| id).collect())
    }

    /// Forgets acknowledgements whose loss is accounted for.
    pub fn strike(&self, ids: &HashSet<i64>) {
        self.acknowledged.lock().expect("no client panics with the list in hand").retain(|id| !ids.contains(id));
    }

    /// Connects all clients and sets them to work. They end when the server goes away; the set yields each one's
    /// last error.
    pub async fn start(&self, address: Address, clients: u32) -> anyhow::Result<JoinSet<tokio_postgres::Error>> {
        self.start_at(&address.hosts(), clients).await
    }

    /// As [`Recorder::start`], at the first of several hosts that fits; `hosts` is that part of a connection string.
    pub async fn start_at(&self, hosts: &str, clients: u32) -> anyhow::Result<JoinSet<tokio_postgres::Error>> {
        let mut running = JoinSet::new();
        for number in 0..clients {
            let client = connect(hosts, DATABASE).await.with_context(|| format!("connecting client {number}"))?;
            let way = Way::of(number, self.load);
            let (ids, acknowledged, count) = (self.next_id.clone(), self.acknowledged.clone(), self.count.clone());
            running.spawn(async move {
                let mut before = match last_of(&client, way, number).await {
                    Ok(before) => before,
                    Err(error) => return error,
                };
                loop {
                    let id = ids.fetch_add(1, Ordering::Relaxed) as i64;
                    if let Err(error) = write(&client, way, id, number, before).await {
                        return error;
                    }
                    before = Some(id);
                    acknowledged.lock().expect("no client panics with the list in hand").push(id);
                    count.fetch_add(1, Ordering::Release);
                }
            });
        }
        Ok(running)
    }

    /// Reads everything back and holds it against what was acknowledged.
    pub async fn check(&self, address: Address) -> anyhow::Result<Verdict> {
        let (mut rows, mut parts, mut accounts) = (Vec::new(), Vec::new(), 0);
        let mut tables = Vec::new();
        for database in self.load.databases.names() {
            let client = connect(&address.hosts(), database).await?;
            rows.extend(pairs(&client, "SELECT id, note FROM ack").await?);
            parts.extend(pairs(&client, "SELECT id, note FROM ack_part").await?);
            let sum = pairs(&client, "SELECT sum(v), '' FROM account").await?;
            accounts += sum.iter().map(|(sum, _)| sum).sum::<i64>();
            if self.load.schema {
                tables.extend(wrong_tables(&client).await?);
            }
        }
        let acknowledged = self.acknowledged.lock().expect("the clients have ended").clone();
        let mut verdict = Verdict { accounts, ..judge(&acknowledged, &rows, &parts) };
        verdict.broken.extend(tables);
        Ok(verdict)
    }
}

/// The last transaction of a client that changes the schema: its table is there now.
async fn last_of(client: &Client, way: Way, number: u32) -> Result<Option<i64>, tokio_postgres::Error> {
    match way {
        Way::Schema => {
            client.query_one("SELECT max(id) FROM ack WHERE client = $1", &[&(number as i32)]).await?.try_get(0)
        }
        _ => Ok(None),
    }
}

/// Transactions whose tables are not as they must be: of each client that makes tables there is that of its last
/// transaction, with its row, and no other.
async fn wrong_tables(client: &Client) -> anyhow::Result<Vec<i64>> {
    let rows = pairs(client, "SELECT max(id), client FROM ack WHERE client % 10 = 6 GROUP BY client").await?;
    let expected: HashMap<String, i64> =
        rows.into_iter().map(|(id, number)| (format!("made_{number}_{id}"), id)).collect();
    let named = "SELECT 0, table_name FROM information_schema.tables WHERE table_name LIKE 'made%'";
    let found: Vec<String> = pairs(client, named).await?.into_iter().map(|(_, name)| name).collect();
    let mut wrong: Vec<i64> = expected.iter().filter(|(name, _)| !found.contains(name)).map(|(_, id)| *id).collect();
    for name in found {
        let made_by = name.rsplit_once('_').and_then(|(_, id)| id.parse().ok());
        let Some(id) = made_by else { bail!("a table {name} that nobody made") };
        let content = pairs(client, &format!("SELECT id, note FROM {name}")).await?;
        if !expected.contains_key(&name) || content != [(id, note(id))] {
            wrong.push(id);
        }
    }
    Ok(wrong)
}

/// Compares the acknowledged ids with the rows and parts found.
pub fn judge(acknowledged: &[i64], rows: &[(i64, String)], parts: &[(i64, String)]) -> Verdict {
    let mut parts_of: HashMap<i64, usize> = HashMap::new();
    let mut broken: Vec<i64> = Vec::new();
    for (id, text) in parts {
        *parts_of.entry(*id).or_default() += 1;
        if *text != note(*id) {
            broken.push(*id);
        }
    }
    let ids: HashSet<i64> = rows.iter().map(|(id, _)| *id).collect();
    broken
        .extend(rows.iter().filter(|(id, text)| *text != note(*id) || parts_of.get(id) != Some(&2)).map(|(id, _)| id));
    broken.extend(parts_of.keys().filter(|id| !ids.contains(id)));
    broken.sort_unstable();
    broken.dedup();
    let missing = acknowledged.iter().copied().filter(|id| !ids.contains(id)).collect();
    Verdict { acknowledged: acknowledged.len(), found: rows.len(), missing, broken, accounts: 0 }
}

/// `before`: the client's transaction before this one, where it is known.
async fn write(
    client: &Client,
    way: Way,
    id: i64,
    number: u32,
    before: Option<i64>,
) -> Result<(), tokio_postgres::Error> {
    let note = note(id);
    match way {
        Way::OneMessage => {
            client
                .batch_execute(&format!(
                    "BEGIN; INSERT INTO ack VALUES ({id}, {number}, '{note}'); \
                     INSERT INTO ack_part VALUES ({id}, 1, '{note}'), ({id}, 2, '{note}'); COMMIT"
                ))
                .await
        }
        Way::Transfer => {
            let (from, to) = (id % 4, (id + 1) % 4);
            // In order of their ids, so that no two clients wait for each other.
            let mut moves = [(from, -id), (to, id)];
            moves.sort_unstable();
            let updates = moves.map(|(account, by)| format!("UPDATE account SET v = v + {by} WHERE id = {account}; "));
            client
                .batch_execute(&format!(
                    "BEGIN; INSERT INTO ack VALUES ({id}, {number}, '{note}'); \
                     INSERT INTO ack_part VALUES ({id}, 1, '{note}'), ({id}, 2, '{note}'); {}COMMIT",
                    updates.concat()
                ))
                .await
        }
        Way::Schema => {
            let drop = before.map(|before| format!("DROP TABLE made_{number}_{before}; ")).unwrap_or_default();
            client
                .batch_execute(&format!(
                    "BEGIN; INSERT INTO ack VALUES ({id}, {number}, '{note}'); \
                     INSERT INTO ack_part VALUES ({id}, 1, '{note}'), ({id}, 2, '{note}'); \
                     CREATE TABLE made_{number}_{id} (id bigint PRIMARY KEY, note text NOT NULL); \
                     INSERT INTO made_{number}_{id} VALUES ({id}, '{note}'); {drop}COMMIT"
                ))
                .await
        }
        Way::Interactive => {
            client.batch_execute("BEGIN").await?;
            let number = number as i32;
            client.execute("INSERT INTO ack VALUES ($1, $2, $3)", &[&id, &number, &note]).await?;
            for part in 1..=2_i32 {
                client.execute("INSERT INTO ack_part VALUES ($1, $2, $3)", &[&id, &part, &note]).await?;
            }
            client.batch_execute("COMMIT").await
        }
        Way::TwoDatabases => {
            client.batch_execute("BEGIN").await?;
            client.batch_execute(&format!("INSERT INTO ack VALUES ({id}, {number}, '{note}')")).await?;
            client.batch_execute(&format!("UPDATE account SET v = v - {id} WHERE id = {}", id % 4)).await?;
            client.batch_execute(&format!("USE {OTHER}")).await?;
            let parts = format!("INSERT INTO ack_part VALUES ({id}, 1, '{note}'), ({id}, 2, '{note}')");
            client.batch_execute(&parts).await?;
            client.batch_execute(&format!("UPDATE account SET v = v + {id} WHERE id = {}", id % 4)).await?;
            client.batch_execute("COMMIT").await?;
            client.batch_execute(&format!("USE {DATABASE}")).await
        }
    }
}

/// Some hundred bytes that follow from the id.
pub fn note(id: i64) -> String {
    format!("{id:020}").repeat(1 + (id % 17) as usize)
}

/// The error with what the server said.
pub fn error_text(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |said| format!("{} {}", said.code().code(), said.message()))
}

/// A session with the server, or the first server that fits; `hosts` is that part of a connection string.
pub async fn connect(hosts: &str, database: &str) -> anyhow::Result<Client> {
    let config = format!("{hosts} user={USER} dbname={database}");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.context("connecting")?;
    // It ends with the client or the server; the client's own calls report the error.
    tokio::spawn(connection);
    Ok(client)
}

async fn pairs(client: &Client, sql: &str) -> anyhow::Result<Vec<(i64, String)>> {
    let mut found = Vec::new();
    for message in client.simple_query(sql).await.context("reading the rows back")? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let (Some(id), Some(note)) = (row.get(0), row.get(1)) else { bail!("a NULL where none was written: {sql}") };
        found.push((id.parse()?, note.to_string()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ids: &[i64]) -> Vec<(i64, String)> {
        ids.iter().map(|id| (*id, note(*id))).collect()
    }

    #[test]
    fn whole_transactions_pass_acknowledged_or_not() {
        let verdict = judge(&[1, 2], &rows(&[1, 2, 3]), &rows(&[1, 1, 2, 2, 3, 3]));
        assert_eq!(verdict, Verdict { acknowledged: 2, found: 3, missing: vec![], broken: vec![], accounts: 0 });
    }

    #[test]
    fn a_lost_row_and_each_kind_of_half_row_are_found() {
        assert_eq!(judge(&[1, 2], &rows(&[1]), &rows(&[1, 1])).missing, vec![2]);
        assert_eq!(judge(&[], &rows(&[1]), &rows(&[1])).broken, vec![1], "a part is missing");
        assert_eq!(judge(&[], &rows(&[]), &rows(&[5, 5])).broken, vec![5], "parts without their row");
        assert_eq!(judge(&[], &[(4, "other".into())], &rows(&[4, 4])).broken, vec![4], "wrong contents");
    }
}
