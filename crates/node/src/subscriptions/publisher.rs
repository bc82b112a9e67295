//! What a subscription asks of its publisher in single commands: the tables of publications, and slots.
//!
//! Failure: 08001 where the publisher cannot be reached; what it refuses keeps its SQLSTATE.

use holdfast_client::{ConnInfo, LinkError, ReplicationLink};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::time::Duration;

/// The output plugin.
pub const PLUGIN: &str = "pgoutput";

/// Longest wait for an answer: another reader may have the slot that is to be dropped.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// A table that the publications publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteTable {
    pub schema: String,
    pub name: String,
    pub columns: Vec<String>,
    /// Its conditions, in PostgreSQL's SQL; none where one of the publications has all rows.
    pub conditions: Vec<String>,
}

/// An error of the connection as clients see it.
pub fn as_sql(error: LinkError) -> SqlError {
    match error {
        LinkError::Refused { code, message } => {
            let state = SqlState::of(&code).unwrap_or(SqlState::CONNECTION_FAILURE);
            SqlError::new(state, format!("the publisher refuses: {message}"))
        }
        LinkError::Setting(why) => SqlError::new(SqlState::CONNECTION_FAILURE, why),
        other => {
            let message = format!("could not connect to the publisher: {other}");
            SqlError::new(SqlState::CONNECTION_FAILURE, message)
        }
    }
}

/// Connects; `name` is what the publisher's views show.
pub async fn connect(connection: &str, name: &str) -> Result<ReplicationLink, LinkError> {
    let info = ConnInfo::parse(connection).map_err(LinkError::Setting)?;
    let mut link = ReplicationLink::connect(&info, name).await?;
    // As PostgreSQL's subscribers do: names are looked up in no schema that a table's owner could have filled.
    answered(link.query("SELECT pg_catalog.set_config('search_path', '', false);")).await?;
    Ok(link)
}

/// Waits for an answer that takes no work at the publisher, and not longer than [`COMMAND_MAX`].
pub async fn answered<T>(answer: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    let lost = || LinkError::Lost(format!("the publisher has not answered within {} s", COMMAND_MAX.as_secs()));
    tokio::time::timeout(COMMAND_MAX, answer).await.unwrap_or_else(|_| Err(lost()))
}

/// A text as a literal.
pub fn quoted(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", doubled.replace('\\', "\\\\")),
        false => format!("'{doubled}'"),
    }
}

/// A name as an identifier.
pub fn named(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names as a list of literals.
pub fn quoted_list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// The tables of these publications, and the names of those that the publisher does not have.
pub async fn published_tables(connection: &str, publications: &[String]) -> SqlResult<(Vec<RemoteTable>, Vec<String>)> {
    let mut link = connect(connection, "subscription").await.map_err(as_sql)?;
    let found = answered(ask_for_tables(&mut link, publications)).await.map_err(as_sql);
    link.close().await;
    found
}

async fn ask_for_tables(
    link: &mut ReplicationLink,
    publications: &[String],
) -> Result<(Vec<RemoteTable>, Vec<String>), LinkError> {
    let names = quoted_list(publications);
    let known = format!("SELECT t.pubname FROM\n pg_catalog.pg_publication t WHERE\n t.pubname IN ({names})");
    let known: Vec<String> = link.query(&known).await?.into_iter().flatten().flatten().collect();
    let missing = publications.iter().filter(|name| !known.contains(name)).cloned().collect();
    let tables = format!(
        "SELECT DISTINCT t.schemaname, t.tablename, t.attnames FROM pg_catalog.pg_publication_tables t WHERE t.pubname IN ({names})"
    );
    // The view lists generated columns, which are not sent.
    let generated = "SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
                     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE a.attnum > 0 AND a.attgenerated <> ''";
    let generated = link.query(generated).await?;
    let is_sent = |schema: &String, table: &String, column: &String| {
        let names = [Some(schema), Some(table), Some(column)];
        !generated.iter().any(|row| row.iter().map(Option::as_ref).eq(names))
    };
    let mut found: Vec<RemoteTable> = Vec::new();
    for row in link.query(&tables).await? {
        let [Some(schema), Some(name), columns] = row.as_slice() else {
            return Err(LinkError::Lost("the list of published tables has another form".to_owned()));
        };
        let columns = columns.as_deref().and_then(|text| holdfast_types::array::Array::parse_braces(text).ok());
        let columns = columns.into_iter().flat_map(|array| array.elements).flatten();
        let columns: Vec<String> = columns.filter(|column| is_sent(schema, name, column)).collect();
        if let Some(other) = found.iter().find(|t| (&t.schema, &t.name) == (schema, name)) {
            let why = format!(
                "cannot use different column lists for table \"{}.{}\" in different publications",
                other.schema, other.name
            );
            return Err(LinkError::Refused { code: SqlState::FEATURE_NOT_SUPPORTED.0.to_owned(), message: why });
        }
        found.push(RemoteTable { schema: schema.clone(), name: name.clone(), columns, conditions: Vec::new() });
    }
    let conditions = format!(
        "SELECT DISTINCT t.schemaname, t.tablename, t.rowfilter FROM pg_catalog.pg_publication_tables t WHERE t.pubname IN ({names})"
    );
    let conditions = link.query(&conditions).await?;
    for table in &mut found {
        let of_it = |row: &&Vec<Option<String>>| {
            row.iter().take(2).map(Option::as_ref).eq([Some(&table.schema), Some(&table.name)])
        };
        let of_it = conditions.iter().filter(of_it).map(|row| row.get(2).cloned().flatten());
        table.conditions = of_it.collect::<Option<_>>().unwrap_or_default();
    }
    Ok((found, missing))
}

/// Creates the slot of a subscription.
pub async fn create_slot(connection: &str, slot: &str) -> SqlResult<()> {
    let command = format!("CREATE_REPLICATION_SLOT {} LOGICAL {PLUGIN} (SNAPSHOT 'nothing')", named(slot));
    run(connection, &command).await
}

/// Drops the slot of a subscription.
pub async fn drop_slot(connection: &str, slot: &str) -> SqlResult<()> {
    run(connection, &format!("DROP_REPLICATION_SLOT {} WAIT", named(slot))).await
}

/// Drops the slot of a subscription, after those of its copies that are there.
pub async fn drop_slots(connection: &str, slot: &str, copies: &CopySlots) -> SqlResult<()> {
    let mut link = connect(connection, "subscription").await.map_err(as_sql)?;
    let dropped = drop_copy_slots(&mut link, copies).await;
    link.close().await;
    dropped.map_err(as_sql)?;
    drop_slot(connection, slot).await
}

/// The names of the slots from whose snapshots a subscription's tables are copied: what stands before and behind the table.
pub struct CopySlots {
    pub before: String,
    pub behind: String,
}

impl CopySlots {
    pub fn of(&self, table: u32) -> String {
        format!("{}{table}{}", self.before, self.behind)
    }
}

/// Drops those that are there. One may be there although its table was copied: what has copied it can end between the commit here and
/// the end of the slot.
pub async fn drop_copy_slots(link: &mut ReplicationLink, copies: &CopySlots) -> Result<(), LinkError> {
    let slots = answered(link.query("SELECT slot_name FROM pg_catalog.pg_replication_slots")).await?;
    let is_of_a_copy = |slot: &String| slot.starts_with(&copies.before) && slot.ends_with(&copies.behind);
    for slot in slots.into_iter().flatten().flatten().filter(is_of_a_copy) {
        tracing::info!(slot, "the slot of a copy that has ended is dropped at the publisher");
        match answered(link.query(&format!("DROP_REPLICATION_SLOT {} WAIT", named(&slot)))).await {
            Err(LinkError::Refused { code, .. }) if code == SqlState::UNDEFINED_OBJECT.0 => {}
            done => _ = done?,
        }
    }
    Ok(())
}

async fn run(connection: &str, command: &str) -> SqlResult<()> {
    let mut link = connect(connection, "subscription").await.map_err(as_sql)?;
    let done = answered(link.query(command)).await;
    link.close().await;
    done.map(drop).map_err(as_sql)
}

#[cfg(test)]
mod tests {
    use super::{named, quoted};

    #[test]
    fn texts_and_names_are_quoted() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(quoted("a\\'b"), "E'a\\\\''b'");
        assert_eq!(named("a\"b"), "\"a\"\"b\"");
    }
}
