//! Copies the rows that a table has at its publisher, with the requests of PostgreSQL's own table synchronisation.
//!
//! A slot of its own gives the snapshot from which the rows come, and the LSN at which that is. The rows and that LSN are written in
//! one transaction. The feed does not move meanwhile, so that it is behind that LSN when it continues: changes of the table in front
//! of it are left out then.
//!
//! Failure: the table is empty of what was copied; the next try begins again. A slot that stayed behind is dropped first.

use super::apply::Applier;
use super::progress::{Phase, Progress};
use super::publisher::{PLUGIN, as_sql, connect, named, quoted, quoted_list};
use super::target::{Prepared, Target};
use holdfast_client::{LinkError, ReplicationLink};
use holdfast_engine::{Collect, WriteTxn};
use holdfast_sites::pgoutput::Column;
use holdfast_sites::received::RemoteRelation;
use holdfast_types::array::Array;
use holdfast_types::lsn::parse_lsn;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState, TableLockMode, Value};
use holdfast_wire::copy::{CopyFormat, CopyReader};

/// Rows, and bytes of them, in one request to the writer.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// What is copied from where.
pub struct Copy<'a> {
    pub connection: &'a str,
    pub publications: &'a [String],
    pub slot: String,
    /// The table's name, which is the same there, and its OID here.
    pub table: &'a str,
    pub oid: u32,
}

/// Copies a table, and notes the place at which its rows were copied.
pub async fn copy_table(copy: &Copy<'_>, applier: &mut Applier, progress: &Progress) -> SqlResult<()> {
    progress.change(|figures| (figures.phase, figures.copying) = (Phase::Copying, Some(copy.oid)));
    let mut link = connect(copy.connection, &copy.slot).await.map_err(as_sql)?;
    let copied = through(copy, &mut link, applier, progress).await;
    let dropped = match copied {
        Ok(_) => drop_slot_there(&mut link, &copy.slot).await.map_err(as_sql),
        Err(_) => Ok(()),
    };
    link.close().await;
    let lsn = copied?;
    dropped?;
    applier.positions.copied.insert(copy.oid, lsn);
    progress.change(|figures| figures.copying = None);
    Ok(())
}

/// Drops a slot, if it is there.
async fn drop_slot_there(link: &mut ReplicationLink, slot: &str) -> Result<(), LinkError> {
    match link.query(&format!("DROP_REPLICATION_SLOT {} WAIT", named(slot))).await {
        Err(LinkError::Refused { code, .. }) if code == SqlState::UNDEFINED_OBJECT.0 => Ok(()),
        done => done.map(drop),
    }
}

async fn through(
    copy: &Copy<'_>,
    link: &mut ReplicationLink,
    applier: &mut Applier,
    progress: &Progress,
) -> SqlResult<u64> {
    drop_slot_there(link, &copy.slot).await.map_err(as_sql)?;
    link.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ").await.map_err(as_sql)?;
    let create = format!("CREATE_REPLICATION_SLOT {} LOGICAL {PLUGIN} (SNAPSHOT 'use')", named(&copy.slot));
    let made = link.query(&create).await.map_err(as_sql)?;
    let point = made.first().and_then(|row| row.get(1)?.as_deref()).and_then(parse_lsn);
    let point = point.ok_or_else(|| SqlError::internal("the publisher did not say where its slot begins"))?;
    let (columns, text) = what_to_copy(copy, link).await.map_err(as_sql)?;
    let schema = applier.db.schema();
    let target = target_of(copy, applier, &schema, columns)?;
    link.copy_out(&text).await.map_err(as_sql)?;
    let mut txn = applier.begin(applier.positions.copied_at(copy.oid, point)).await?;
    let loaded = match txn.lock_table(copy.table, TableLockMode::Exclusive, false).await {
        Ok(()) => load(link, &target, &mut txn, copy, progress).await,
        Err(error) => Err(error),
    };
    if let Err(error) = loaded {
        txn.rollback().await?;
        return Err(error);
    }
    txn.commit(Box::new(Collect::new()))?.await.ok_or_else(SqlError::shutting_down)?.result?;
    link.query("COMMIT").await.map_err(as_sql)?;
    Ok(point)
}

fn target_of(copy: &Copy<'_>, applier: &Applier, schema: &Schema, columns: Vec<String>) -> SqlResult<Target> {
    let columns = columns.into_iter().map(|name| Column { name, type_oid: 0, typmod: -1, is_key: false });
    let relation = RemoteRelation {
        oid: 0,
        schema: "public".to_owned(),
        name: copy.table.to_owned(),
        columns: columns.collect(),
        is_full: false,
    };
    let target = Target::of(&applier.db, schema, &relation, &applier.subscribed)?;
    target.ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"public.{}\" does not exist", copy.table))
    })
}

/// The published columns of the table, and the COPY that gives its published rows.
async fn what_to_copy(copy: &Copy<'_>, link: &mut ReplicationLink) -> Result<(Vec<String>, String), LinkError> {
    let publications = quoted_list(copy.publications);
    let gone = || LinkError::Refused {
        code: SqlState::UNDEFINED_TABLE.0.to_owned(),
        message: format!("table \"public.{}\" is not published", copy.table),
    };
    let found = link
        .query(&format!(
            "SELECT c.oid, c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n        \
             ON (c.relnamespace = n.oid) WHERE n.nspname = 'public'   AND c.relname = {}",
            quoted(copy.table)
        ))
        .await?;
    let Some([Some(oid), _, Some(kind)]) = found.first().map(Vec::as_slice) else { return Err(gone()) };
    let oid: u32 = oid.parse().map_err(|_| gone())?;
    let listed = link
        .query(&format!(
            "SELECT DISTINCT t.attnames FROM pg_catalog.pg_publication_tables t WHERE t.schemaname = 'public' AND t.tablename = {} \
             AND t.pubname IN ({publications})",
            quoted(copy.table)
        ))
        .await?;
    let names = listed.first().and_then(|row| row.first()?.as_deref()).and_then(|text| Array::parse_braces(text).ok());
    // The view lists generated columns, which COPY refuses.
    let generated = format!(
        "SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = {oid} AND a.attnum > 0 AND a.attgenerated <> ''"
    );
    let generated: Vec<String> = link.query(&generated).await?.into_iter().flatten().flatten().collect();
    let names = names.ok_or_else(gone)?.elements.into_iter().flatten();
    let names: Vec<String> = names.filter(|name| !generated.contains(name)).collect();
    let filters = link
        .query(&format!(
            "SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL \
             pg_get_publication_tables(p.pubname) gpt  WHERE gpt.relid = {oid}   AND p.pubname IN ( {publications} )"
        ))
        .await?;
    let filters: Option<Vec<String>> = filters.into_iter().map(|row| row.into_iter().next().flatten()).collect();
    let columns = names.iter().map(|name| named(name)).collect::<Vec<_>>().join(", ");
    let table = format!("public.{}", named(copy.table));
    let only = if kind == "r" { "ONLY " } else { "" };
    let text = match filters.filter(|filters| !filters.is_empty()) {
        None if kind == "r" => format!("COPY {table} ({columns}) TO STDOUT"),
        None => format!("COPY (SELECT {columns} FROM {table}) TO STDOUT"),
        Some(filters) => format!("COPY (SELECT {columns} FROM {only}{table} WHERE {}) TO STDOUT", filters.join(" OR ")),
    };
    Ok((names, text))
}

/// Rows for one request to the writer.
struct Rows {
    values: Vec<Vec<Value>>,
    /// The line of the first.
    first_line: u64,
}

/// The rows of a COPY as they arrive.
struct Loading<'a> {
    link: &'a mut ReplicationLink,
    reader: CopyReader,
    target: &'a Target,
    loader: &'a Prepared,
    copy: &'a Copy<'a>,
    progress: &'a Progress,
    has_ended: bool,
}

impl Loading<'_> {
    /// Reads and converts rows until a limit is reached; `None` where no more come.
    async fn next(&mut self) -> SqlResult<Option<Rows>> {
        let (mut values, mut first_line, mut fields, mut bytes) = (Vec::new(), 0, Vec::new(), 0);
        while !self.has_ended {
            let data = self.link.copied().await.map_err(as_sql)?;
            match &data {
                Some(data) => {
                    self.progress.heard(data.len());
                    bytes += data.len();
                    self.reader.feed(data);
                }
                None => {
                    self.has_ended = true;
                    self.reader.finish();
                }
            }
            while self.reader.next_row(&mut fields)? {
                let line = self.reader.line();
                if values.is_empty() {
                    first_line = line;
                }
                values.push(self.target.loaded(self.loader, &mut fields).map_err(|e| self.copy.in_line(line, e))?);
            }
            if values.len() >= ROWS_MAX || bytes >= BYTES_MAX {
                break;
            }
        }
        Ok((!values.is_empty()).then_some(Rows { values, first_line }))
    }
}

impl Copy<'_> {
    /// The error with the place in the copy at which it happened.
    fn in_line(&self, line: u64, error: SqlError) -> SqlError {
        let message = format!("copy of \"public.{}\", line {line}: {}", self.table, error.message());
        let named = SqlError::new(error.state(), message);
        match error.parts().detail.clone() {
            Some(detail) => named.with_detail(detail),
            None => named,
        }
    }
}

/// Puts the rows into the table. While the writer has some the next ones are read.
async fn load(
    link: &mut ReplicationLink,
    target: &Target,
    txn: &mut WriteTxn,
    copy: &Copy<'_>,
    progress: &Progress,
) -> SqlResult<()> {
    let loader = target.loader()?;
    let reader = CopyReader::new(CopyFormat::text(), target.column_names());
    let mut loading = Loading { link, reader, target, loader: &loader, copy, progress, has_ended: false };
    let mut next = loading.next().await?;
    while let Some(Rows { values, first_line }) = next {
        let count = values.len() as u64;
        let run = async {
            let ran = txn.execute_rows(loader.statement.clone(), values).await?;
            ran.map_err(|(at, error)| copy.in_line(first_line + at as u64, error))
        };
        let (mut run, mut read) = (std::pin::pin!(run), std::pin::pin!(loading.next()));
        // An error of the writer does not wait for the publisher; one of the link waits for the writer, which rolls back then.
        next = tokio::select! {
            ran = &mut run => {
                ran?;
                read.await?
            }
            read = &mut read => {
                run.await?;
                read?
            }
        };
        progress.change(|figures| figures.rows_copied += count);
    }
    Ok(())
}
