//! `holdfast site list`: the rows of `holdfast_stat_sites`.

use super::At;
use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

/// Columns of `holdfast_stat_sites`, and whether they are numbers.
const COLUMNS: [(&str, bool); 14] = [
    ("direction", false),
    ("name", false),
    ("database", false),
    ("state", false),
    ("applied_lsn", false),
    ("lag_bytes", true),
    ("lag_ms", true),
    ("transactions", true),
    ("bytes_per_transaction", true),
    ("rows_copied", true),
    ("rows_missing", true),
    ("errors", true),
    ("last_contact", false),
    ("last_error", false),
];

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast site list
  holdfast site list --at 127.0.0.1:5433 --json

`from`: a subscription of this server; `to`: a slot that a subscriber follows. The figures of a subscription are since the server
started; the view holdfast_stat_sites has them too.")]
pub struct Arguments {
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let server = arguments.at.server()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        let client = server.connect("holdfast", "holdfast site list").await?;
        let names = COLUMNS.map(|(name, _)| name).join(", ");
        let sql = format!("SELECT {names} FROM pg_catalog.holdfast_stat_sites ORDER BY direction, database, name");
        anyhow::Ok(holdfast_client::rows(&client, "the sites", &sql).await?)
    })?;
    match (arguments.json, rows.is_empty()) {
        (true, _) => println!("{}", as_json(&rows)),
        (false, true) => println!("no site: the server has no subscription and no slot"),
        (false, false) => println!("{}", as_table(rows)),
    }
    Ok(())
}

fn as_json(rows: &[Vec<Option<String>>]) -> Value {
    let cell = |(cell, (name, is_number)): (&Option<String>, (&str, bool))| {
        let value = match cell {
            Some(text) if is_number => text.parse::<i64>().map_or(Value::Null, Value::from),
            Some(text) => Value::from(text.as_str()),
            None => Value::Null,
        };
        (name.to_owned(), value)
    };
    let object = |row: &Vec<Option<String>>| Value::Object(row.iter().zip(COLUMNS).map(cell).collect::<Map<_, _>>());
    json!({ "sites": rows.iter().map(object).collect::<Vec<_>>() })
}

fn as_table(rows: Vec<Vec<Option<String>>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(COLUMNS.map(|(name, _)| name.replace('_', " ")));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
    }
    table
}
