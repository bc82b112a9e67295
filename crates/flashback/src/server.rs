//! A session with the server: names, types and present values come from it, and an undo runs in it.
//!
//! The connection is that of a client ([`holdfast_client`]): through the server's Unix socket on the same machine, else over TCP.
//!
//! Failure: an error of the server is returned with its DETAIL and HINT.

use crate::error::FlashbackError;
use futures::TryStreamExt as _;
pub use holdfast_client::Server as Connect;
use holdfast_client::{Row, StatementError, row_of};
use holdfast_types::VolumeId;
use holdfast_types::schema::Dialect;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, SimpleQueryMessage};

/// PostgreSQL's OIDs of databases and tables begin above this.
pub const FIRST_OID: i64 = 16384;

/// A session in one database.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

/// The rows of an answer.
pub type Rows = Vec<Row>;

/// A database of the server.
#[derive(Clone, Debug)]
pub struct Database {
    pub name: String,
    pub volume: VolumeId,
}

impl Session {
    pub fn open(connect: &Connect, database: &str) -> Result<Session, FlashbackError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(connect.connect(database, "holdfast trail"))?;
        Ok(Session { runtime, client })
    }

    /// Runs statements; their answers one after the other, as rows or as the number of rows that were changed.
    pub fn run(&self, what: &str, sql: &str) -> Result<Vec<Answer>, FlashbackError> {
        let answer = self.runtime.block_on(self.client.simple_query(sql));
        let mut answers = vec![];
        let mut rows = Rows::new();
        for message in answer.map_err(|error| StatementError::of(what, &error))? {
            match message {
                SimpleQueryMessage::CommandComplete(count) => {
                    answers.push(Answer { rows: std::mem::take(&mut rows), count });
                }
                message => rows.extend(row_of(&message)),
            }
        }
        Ok(answers)
    }

    /// The rows of one query.
    pub fn rows(&self, what: &str, sql: &str) -> Result<Rows, FlashbackError> {
        Ok(self.run(what, sql)?.pop().map(|answer| answer.rows).unwrap_or_default())
    }

    /// Everything that the open transaction has changed in its current database, as operations of the trail's format.
    pub fn transaction_changes(&self) -> Result<Vec<u8>, FlashbackError> {
        let what = "the changes of the transaction";
        let failed = |error: tokio_postgres::Error| StatementError::of(what, &error);
        let read = async {
            let rows = self.client.simple_query_raw("SHOW holdfast.transaction_changes").await.map_err(failed)?;
            let (mut rows, mut bytes) = (std::pin::pin!(rows), Vec::new());
            while let Some(message) = rows.try_next().await.map_err(failed)? {
                if let SimpleQueryMessage::Row(row) = message {
                    let digits = row.get(0).filter(|digits| put_hex(&mut bytes, digits).is_some());
                    digits.ok_or(FlashbackError::Answer { what })?;
                }
            }
            Ok(bytes)
        };
        self.runtime.block_on(read)
    }

    /// The number of the stored column that the first result of a query is; `None`: it is none, or the query has an error.
    pub fn column_of(&self, sql: &str) -> Result<Option<i16>, ()> {
        let statement = self.runtime.block_on(self.client.prepare(sql)).map_err(|_| ())?;
        Ok(statement.columns().first().and_then(tokio_postgres::Column::column_id))
    }

    pub fn databases(&self) -> Result<Vec<Database>, FlashbackError> {
        let rows = self.rows("the list of databases", "SELECT datname, oid FROM pg_database")?;
        let database = |row: &Row| {
            let oid: i64 = row.get(1)?.as_deref()?.parse().ok()?;
            let volume = VolumeId(u32::try_from(oid - FIRST_OID).ok()?);
            Some(Database { name: row.first()?.clone()?, volume })
        };
        Ok(rows.iter().filter_map(database).collect())
    }

    /// Only databases of SQLite's dialect have its table of the schema.
    pub fn dialect(&self) -> Dialect {
        match self.rows("the dialect", "SELECT name FROM sqlite_schema LIMIT 0") {
            Ok(_) => Dialect::Sqlite,
            Err(_) => Dialect::Postgres,
        }
    }
}

/// The answer to one statement.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub rows: Rows,
    pub count: u64,
}

/// Appends the bytes that hexadecimal digits stand for.
fn put_hex(bytes: &mut Vec<u8>, digits: &str) -> Option<()> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for pair in digits.as_bytes().chunks(2) {
        let &[high, low] = pair else { return None };
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        let mut bytes = vec![7];
        assert_eq!(put_hex(&mut bytes, "00ff1A"), Some(()));
        assert_eq!(bytes, [7, 0, 255, 26]);
        assert!(put_hex(&mut bytes, "0").is_none() && put_hex(&mut bytes, "0g").is_none());
    }
}
