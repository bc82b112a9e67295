//! COPY FROM STDIN: rows go to the transaction's writer, many to a request.

use super::failure::read_only;
use super::node_session::NodeSession;
use crate::plan::Extra;
use holdfast_engine::Statement;
use holdfast_sql::{CopyIn, Entry, Kind};
use holdfast_types::{SqlError, SqlResult, SqlState, Tag, Value};
use holdfast_wire::copy::{CopyFormat, CopyReader};
use holdfast_wire::{Client, CopyChunk, Failure, Lost};
use std::sync::Arc;
use std::time::Duration;

/// Rows submitted to the writer in one request.
const ROWS_MAX: usize = 1000;

/// After this many bytes of COPY data the rows are submitted even when they are fewer.
const BYTES_MAX: usize = 1 << 20;

/// Converts COPY options from the dialect's form to the protocol's.
pub(super) fn format(format: &holdfast_sql::CopyFormat) -> CopyFormat {
    CopyFormat {
        csv: format.csv,
        header: format.header,
        delimiter: format.delimiter,
        null: format.null.clone(),
        quote: format.quote,
        escape: format.escape,
    }
}

/// A COPY in progress.
struct Load<'a> {
    copy: &'a CopyIn,
    entry: &'a Entry<Extra>,
    stmt: Arc<Statement>,
    reader: CopyReader,
    rows: Vec<Vec<Value>>,
    bytes: usize,
    /// Line of the first of `rows`.
    first_line: u64,
    count: u64,
}

impl NodeSession {
    pub(super) async fn copy_in(
        &mut self,
        number: usize,
        entry: &Arc<Entry<Extra>>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let Kind::CopyIn(copy) = &entry.translated.kind else { return Err(at(SqlError::internal("not a COPY"))) };
        let Some(stmt) = entry.extra.clone() else { return Err(at(SqlError::internal("COPY was not prepared"))) };
        self.begin_implicit();
        if let Some(block) = self.state.block() {
            block.queried = true;
            if block.read_only && stmt.temp.is_none() {
                return Err(at(read_only("COPY FROM")));
            }
        }
        let schema = self.schema();
        self.touch_temporary(entry).map_err(at)?;
        if stmt.temp.is_none() {
            self.become_writer(false).await.map_err(at)?;
        }
        if !Arc::ptr_eq(&schema, &self.schema()) {
            let message = format!("table \"{}\" was changed while COPY waited for its turn", copy.table);
            return Err(at(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)));
        }
        let columns = copy.columns.iter().map(|c| c.name.clone()).collect();
        let reader = CopyReader::new(format(&copy.format), columns);
        let load = Load { copy, entry, stmt, reader, rows: Vec::new(), bytes: 0, first_line: 0, count: 0 };
        client.reply().script_until(number);
        let count = self.load(load, client).await.map_err(|f| Failure { step: Some(number), ..f })?;
        client.reply().complete(number, &Tag { verb: "COPY", rows: Some(count) });
        Ok(())
    }

    async fn load(&mut self, mut load: Load<'_>, client: &mut Client) -> Result<u64, Failure> {
        client.begin_copy_in(load.copy.columns.len()).await.map_err(lost)?;
        let mut data = Vec::new();
        loop {
            data.clear();
            let chunk = self.activity.until_client(client.copy_chunk(&mut data));
            let chunk = self.canceller.wait(Duration::ZERO, chunk).await?.map_err(lost)?;
            match &chunk {
                CopyChunk::Data => load.reader.feed(&data),
                CopyChunk::Done => load.reader.finish(),
                CopyChunk::Failed(why) => return Err(SqlError::new(SqlState::QUERY_CANCELED, why.as_str()).into()),
            }
            load.bytes += data.len();
            self.take_rows(&mut load).await?;
            if chunk == CopyChunk::Done {
                self.submit_rows(&mut load).await?;
                return Ok(load.count);
            }
        }
    }

    /// Converts every complete row, and submits rows as they reach a limit.
    async fn take_rows(&mut self, load: &mut Load<'_>) -> Result<(), Failure> {
        let mut fields = Vec::new();
        while load.reader.next_row(&mut fields)? {
            let line = load.reader.line();
            if load.rows.is_empty() {
                load.first_line = line;
            }
            let row = self.convert(load, &mut fields).map_err(|e| in_line(load.copy, line, e))?;
            load.rows.push(row);
            if load.rows.len() >= ROWS_MAX {
                self.submit_rows(load).await?;
            }
        }
        if load.bytes >= BYTES_MAX { self.submit_rows(load).await } else { Ok(()) }
    }

    fn convert(&self, load: &Load<'_>, fields: &mut Vec<Option<String>>) -> SqlResult<Vec<Value>> {
        let one = |(field, column): (Option<String>, &holdfast_sql::CopyColumn)| match field {
            Some(text) => holdfast_sql::types::input(column.type_oid, column.typmod, &text),
            None => Ok(Value::Null),
        };
        let values = fields.drain(..).zip(&load.copy.columns).map(one).collect::<SqlResult<Vec<Value>>>()?;
        load.entry.translated.bind(&[], &values, &self.values())
    }

    async fn submit_rows(&mut self, load: &mut Load<'_>) -> Result<(), Failure> {
        load.bytes = 0;
        if load.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut load.rows);
        load.count += rows.len() as u64;
        let gone = |error| Failure { step: None, error, fatal: true };
        let ran = self.execute_rows(&load.stmt, rows).await.map_err(gone)?;
        // A row is a line, except where quoted values span lines: then this names an earlier line.
        ran.map_err(|(i, e)| in_line(load.copy, load.first_line + i as u64, e).into())
    }
}

fn in_line(copy: &CopyIn, line: u64, error: SqlError) -> SqlError {
    match error.parts().detail {
        Some(_) => error,
        None => error.with_detail(format!("COPY {}, line {line}", copy.table)),
    }
}

fn lost(_: Lost) -> Failure {
    let error = SqlError::new(SqlState::CONNECTION_DOES_NOT_EXIST, "the connection to the client was lost during COPY");
    Failure { step: None, error, fatal: true }
}
