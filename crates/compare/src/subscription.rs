//! What there is to compare: the subscriptions of a database, and of each the published tables with their columns and filters.

use holdfast_client::{ClientError, ConnInfo, LinkError, ReplicationLink, Row, StatementError};
use tokio_postgres::Client;

/// What the errors of its statements begin with.
const SUBSCRIBER: &str = "the subscriber";

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Subscriber(#[from] StatementError),
    #[error("the publisher: {0}")]
    Publisher(#[from] LinkError),
    #[error("{0}")]
    Other(String),
}

impl From<tokio_postgres::Error> for CompareError {
    fn from(error: tokio_postgres::Error) -> CompareError {
        StatementError::of(SUBSCRIBER, &error).into()
    }
}

/// A subscription as its database has it.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub name: String,
    pub connection: String,
    pub publications: Vec<String>,
}

/// A published table.
#[derive(Clone, Debug)]
pub struct Published {
    pub schema: String,
    pub name: String,
    pub columns: Vec<String>,
    /// Of `columns`, by place: the primary key.
    pub key: Vec<usize>,
    /// The publisher's condition on its rows; `None`: all.
    pub filter: Option<String>,
    /// Which rows of the table at the subscriber are the subscription's; `None`: all.
    pub filter_here: Option<String>,
}

/// A text as a literal.
pub(crate) fn quoted(text: &str) -> String {
    match text.contains('\\') {
        true => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// The rows of a query at the subscriber.
pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Vec<Row>, CompareError> {
    Ok(holdfast_client::rows(client, SUBSCRIBER, sql).await?)
}

/// The subscriptions of the database; with `only` the one of that name.
pub async fn subscriptions(client: &Client, only: Option<&str>) -> Result<Vec<Subscription>, CompareError> {
    let condition = only.map(|name| format!(" AND s.subname = {}", quoted(name))).unwrap_or_default();
    let sql = format!(
        "SELECT s.subname, s.subconninfo, p.name FROM pg_catalog.pg_subscription s, \
         LATERAL unnest(s.subpublications) WITH ORDINALITY p(name, at) \
         WHERE s.subdbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()){condition} ORDER BY 1, p.at"
    );
    let found = match rows(client, &sql).await {
        Ok(found) => found,
        // Holdfast has no unnest in FROM: the array's text is taken apart.
        Err(_) => taken_apart(client, &condition).await?,
    };
    let mut list: Vec<Subscription> = Vec::new();
    for row in found {
        let [Some(name), Some(connection), Some(publication)] = row.as_slice() else {
            return Err(CompareError::Other("only a superuser may read how the publisher is reached".to_owned()));
        };
        match list.last_mut().filter(|last| last.name == *name) {
            Some(last) => last.publications.push(publication.clone()),
            None => list.push(Subscription {
                name: name.clone(),
                connection: connection.clone(),
                publications: vec![publication.clone()],
            }),
        }
    }
    match (list.is_empty(), only) {
        (true, Some(name)) => Err(CompareError::Other(format!("the database has no subscription \"{name}\""))),
        _ => Ok(list),
    }
}

async fn taken_apart(client: &Client, condition: &str) -> Result<Vec<Row>, CompareError> {
    let sql = format!(
        "SELECT s.subname, s.subconninfo, s.subpublications FROM pg_catalog.pg_subscription s WHERE true{condition} ORDER BY 1"
    );
    let mut found = Vec::new();
    for row in rows(client, &sql).await? {
        let [name, connection, Some(publications)] = row.as_slice() else { continue };
        for publication in elements(publications) {
            found.push(vec![name.clone(), connection.clone(), Some(publication)]);
        }
    }
    Ok(found)
}

/// The elements of an array of names, without NULL.
pub(crate) fn elements(text: &str) -> Vec<String> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default();
    let (mut elements, mut element, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        any = true;
        match c {
            '\\' => element.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => elements.push(std::mem::take(&mut element)),
            c => element.push(c),
        }
    }
    if any {
        elements.push(element);
    }
    elements
}

/// Connects to the publisher of a subscription.
pub(crate) async fn publisher(of: &Subscription) -> Result<ReplicationLink, CompareError> {
    let info = ConnInfo::parse(&of.connection).map_err(CompareError::Other)?;
    let mut link = ReplicationLink::connect(&info, "holdfast site compare").await?;
    link.query("SELECT pg_catalog.set_config('search_path', '', false);").await?;
    Ok(link)
}

/// The tables that the subscription's publications publish.
pub(crate) async fn published(link: &mut ReplicationLink, of: &Subscription) -> Result<Vec<Published>, CompareError> {
    let publications = of.publications.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let listed = link
        .query(&format!(
            "SELECT DISTINCT t.schemaname, t.tablename, t.attnames FROM pg_catalog.pg_publication_tables t \
             WHERE t.pubname IN ({publications}) ORDER BY 1, 2"
        ))
        .await?;
    let mut tables = Vec::new();
    for row in listed {
        let [Some(schema), Some(name), Some(columns)] = row.as_slice() else { continue };
        let generated = generated_columns(link, schema, name).await?;
        let columns: Vec<String> = elements(columns).into_iter().filter(|column| !generated.contains(column)).collect();
        let key = key_of(link, schema, name, &columns).await?;
        let filter = filter_of(link, schema, name, &publications).await?;
        tables.push(Published { schema: schema.clone(), name: name.clone(), columns, key, filter, filter_here: None });
    }
    Ok(tables)
}

/// Notes which rows at a subscriber are a subscription's. A PostgreSQL has no such list: there all rows of its tables are.
pub(crate) async fn note_partitions(
    client: &Client,
    of: &Subscription,
    tables: &mut [Published],
) -> Result<(), CompareError> {
    let list = "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname = 'holdfast_site_tables'";
    if rows(client, list).await?.is_empty() {
        return Ok(());
    }
    let conditions = format!(
        "SELECT tablename, rowfilter FROM pg_catalog.holdfast_site_tables WHERE subname = {}",
        quoted(&of.name)
    );
    for row in rows(client, &conditions).await? {
        let [Some(name), condition] = row.as_slice() else { continue };
        if let Some(table) = tables.iter_mut().find(|table| table.name == *name) {
            table.filter_here.clone_from(condition);
        }
    }
    Ok(())
}

/// The view of published tables lists them, and they are not sent.
async fn generated_columns(link: &mut ReplicationLink, schema: &str, name: &str) -> Result<Vec<String>, CompareError> {
    let sql = format!(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relname = {} AND a.attnum > 0 AND a.attgenerated <> ''",
        quoted(schema),
        quoted(name)
    );
    Ok(link.query(&sql).await?.into_iter().flatten().flatten().collect())
}

async fn key_of(
    link: &mut ReplicationLink,
    schema: &str,
    name: &str,
    columns: &[String],
) -> Result<Vec<usize>, CompareError> {
    let sql = format!(
        "SELECT a.attname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) \
         WHERE n.nspname = {} AND c.relname = {}",
        quoted(schema),
        quoted(name)
    );
    let names: Vec<String> = link.query(&sql).await?.into_iter().flatten().flatten().collect();
    let place = |name: &String| columns.iter().position(|column| column == name);
    let key: Option<Vec<usize>> = names.iter().map(place).collect();
    match key.filter(|key| !key.is_empty()) {
        Some(mut key) => {
            key.sort_unstable();
            Ok(key)
        }
        None => Err(CompareError::Other(format!("{schema}.{name} has no primary key among its published columns"))),
    }
}

async fn filter_of(
    link: &mut ReplicationLink,
    schema: &str,
    name: &str,
    publications: &str,
) -> Result<Option<String>, CompareError> {
    let oid = link
        .query(&format!(
            "SELECT c.oid, c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n        \
             ON (c.relnamespace = n.oid) WHERE n.nspname = {}   AND c.relname = {}",
            quoted(schema),
            quoted(name)
        ))
        .await?;
    let oid = oid.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    let oid = oid.ok_or_else(|| CompareError::Other(format!("{schema}.{name} is gone")))?;
    let filters = link
        .query(&format!(
            "SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL \
             pg_get_publication_tables(p.pubname) gpt  WHERE gpt.relid = {oid}   AND p.pubname IN ( {publications} )"
        ))
        .await?;
    let filters: Option<Vec<String>> = filters.into_iter().map(|row| row.into_iter().next().flatten()).collect();
    Ok(filters.filter(|filters| !filters.is_empty()).map(|filters| filters.join(" OR ")))
}

#[cfg(test)]
mod tests {
    use super::elements;

    #[test]
    fn arrays_of_names() {
        assert_eq!(elements("{a,\"b, \\\"c\\\"\",d}"), ["a", "b, \"c\"", "d"]);
        assert!(elements("{}").is_empty());
    }
}
