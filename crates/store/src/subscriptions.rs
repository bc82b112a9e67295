//! The internal tables of subscriptions. They are created by the first subscription; a volume without them needs nothing.
//!
//! `holdfast_subscriptions`:
//!
//! | column | content |
//! |---|---|
//! | `subscription` | the subscription's number |
//! | `object` | 0: the subscription itself; else the stable id of a table that it writes |
//! | `name` | of a subscription; else empty, as all further texts |
//! | `owner` | the owner's OID, of a subscription; else 0 |
//! | `connection` | how the publisher is reached, as libpq reads it |
//! | `slot` | the slot at the publisher; NULL for none |
//! | `publications` | their names, as the text of an array |
//! | `options` | letters: [`SubscriptionOptions::letters`] |
//! | `condition` | of a table in partition mode: which rows are the subscription's, in SQLite's SQL; else NULL |
//! | `skip` | the transaction that ends at this LSN is not applied; 0: none |
//!
//! Its rows are changed by schema changes only, as those of `holdfast_publications` are. After each schema change the rows of
//! dropped tables are removed.
//!
//! `holdfast_positions`: `lsn` of a `subscription` and an `object`. For object 0 everything of the publisher below it is applied; for
//! the stable id of a table the rows of the table are a copy of that place. A table without a row has not been copied. The worker
//! that applies changes its rows as those of a user's table are changed, in the transactions that it applies. A schema change
//! removes those of a subscription that is dropped, and of a table that is taken out.
//!
//! Failure: a row that cannot be read is damage, and the schema cannot be served.

use crate::names::{POSITIONS_TABLE, SUBSCRIPTIONS_TABLE};
use crate::privileges::{ColumnsBefore, damaged_table, exists, literal};
use crate::publications::{Changed, changed_columns, named_columns, with_renamed};
use crate::sqlite::{Conn, SqliteError};
use holdfast_types::Value;
use holdfast_types::array::Array;
use holdfast_types::subscription::{Subscription, SubscriptionOptions, Subscriptions};
use std::collections::BTreeMap;

/// Creates the tables where they do not exist.
const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS main.holdfast_subscriptions(subscription INTEGER NOT NULL, object INTEGER NOT NULL, \
     name TEXT NOT NULL, owner INTEGER NOT NULL, connection TEXT NOT NULL, slot TEXT, publications TEXT NOT NULL, \
     options TEXT NOT NULL, skip INTEGER NOT NULL, condition TEXT, PRIMARY KEY(subscription, object)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS main.holdfast_positions(subscription INTEGER NOT NULL, object INTEGER NOT NULL, \
     lsn INTEGER NOT NULL, PRIMARY KEY(subscription, object)) WITHOUT ROWID",
];

/// Subscription, object and LSN of each row of the positions.
pub const SELECT_POSITIONS: &str = "SELECT subscription, object, lsn FROM main.holdfast_positions";

/// The schema changes that turn the stored subscriptions into others. `id` makes a table's stable id of its OID.
pub fn steps(before: &Subscriptions, after: &Subscriptions, id: impl Fn(u32) -> u32) -> Vec<String> {
    let mut steps = Vec::new();
    for gone in before.list.iter().filter(|b| !after.list.iter().any(|a| a.number == b.number)) {
        for table in [SUBSCRIPTIONS_TABLE, POSITIONS_TABLE] {
            steps.push(format!("DELETE FROM main.{table} WHERE subscription = {}", gone.number));
        }
    }
    for new in &after.list {
        let old = before.list.iter().find(|b| b.number == new.number);
        if old.is_none_or(|old| head(old) != head(new)) {
            steps.push(format!(
                "INSERT OR REPLACE INTO main.{SUBSCRIPTIONS_TABLE} VALUES({}, 0, {})",
                new.number,
                head(new)
            ));
        }
        let of_old = old.map_or(&[][..], |old| &old.tables);
        let condition_of = |subscription: &Subscription, table: &u32| subscription.conditions.get(table).cloned();
        let same = |table: &&u32| {
            of_old.contains(table) && old.is_some_and(|old| condition_of(old, table) == condition_of(new, table))
        };
        for gone in of_old.iter().filter(|table| !new.tables.contains(table)) {
            for table in [SUBSCRIPTIONS_TABLE, POSITIONS_TABLE] {
                let (number, object) = (new.number, id(*gone));
                steps.push(format!("DELETE FROM main.{table} WHERE subscription = {number} AND object = {object}"));
            }
        }
        for table in new.tables.iter().filter(|table| !same(table)) {
            steps.push(format!(
                "INSERT OR REPLACE INTO main.{SUBSCRIPTIONS_TABLE} VALUES({}, {}, '', 0, '', NULL, '', '', 0, {})",
                new.number,
                id(*table),
                condition_of(new, table).as_deref().map_or("NULL".to_owned(), literal)
            ));
        }
    }
    if !before.stored && !steps.is_empty() {
        steps.splice(0..0, CREATE.map(str::to_owned));
    }
    steps
}

/// The schema change after which a table of a subscription counts as copied, as it is where its rows are not to be copied.
pub fn copied(subscription: u32, object: u32) -> String {
    format!("INSERT OR REPLACE INTO main.{POSITIONS_TABLE} VALUES({subscription}, {object}, 0)")
}

/// What the row of the subscription itself holds, as a list of SQL's values.
fn head(subscription: &Subscription) -> String {
    let names = subscription.publications.iter().cloned().map(Some).collect();
    format!(
        "{}, {}, {}, {}, {}, {}, {}, NULL",
        literal(&subscription.name),
        subscription.owner,
        literal(&subscription.connection),
        subscription.slot.as_deref().map_or("NULL".to_owned(), literal),
        literal(&Array::flat(names).to_text()),
        literal(&subscription.options.letters()),
        subscription.skip as i64
    )
}

/// Reads all rows. `oid` makes a table's OID of its stable id.
pub fn read(conn: &mut Conn, oid: impl Fn(u32) -> u32) -> Result<Subscriptions, SqliteError> {
    if !exists(conn, SUBSCRIPTIONS_TABLE)? {
        return Ok(Subscriptions::default());
    }
    let mut subscriptions = Subscriptions { stored: true, list: Vec::new() };
    let sql = format!(
        "SELECT subscription, object, name, owner, connection, slot, publications, options, skip, condition \
         FROM main.{SUBSCRIPTIONS_TABLE} ORDER BY subscription, object"
    );
    for row in conn.query_rows(&sql)? {
        let [Value::Int(number), Value::Int(object), of_itself @ ..] = row.as_slice() else {
            return Err(damaged("a row has values of other types"));
        };
        let number = *number as u32;
        if *object == 0 {
            subscriptions.list.push(subscription(number, of_itself)?);
            continue;
        }
        // The row of the subscription itself comes first.
        let of = subscriptions.list.last_mut().filter(|s| s.number == number);
        let of = of.ok_or_else(|| damaged("a table is in no subscription"))?;
        let table = oid(*object as u32);
        of.tables.push(table);
        if let Some(Value::Text(condition)) = of_itself.last() {
            of.conditions.insert(table, condition.clone());
        }
    }
    Ok(subscriptions)
}

fn subscription(number: u32, row: &[Value]) -> Result<Subscription, SqliteError> {
    let [
        Value::Text(name),
        Value::Int(owner),
        Value::Text(connection),
        slot @ (Value::Null | Value::Text(_)),
        Value::Text(publications),
        Value::Text(options),
        Value::Int(skip),
        _,
    ] = row
    else {
        return Err(damaged("a row has values of other types"));
    };
    let names = Array::parse_braces(publications).ok().and_then(|a| a.elements.into_iter().collect());
    Ok(Subscription {
        number,
        name: name.clone(),
        owner: *owner as u32,
        connection: connection.clone(),
        slot: if let Value::Text(slot) = slot { Some(slot.clone()) } else { None },
        publications: names.ok_or_else(|| damaged(publications))?,
        options: SubscriptionOptions::parse_letters(options).ok_or_else(|| damaged(options))?,
        skip: *skip as u64,
        tables: Vec::new(),
        conditions: BTreeMap::new(),
    })
}

fn damaged(what: &str) -> SqliteError {
    damaged_table(SUBSCRIPTIONS_TABLE, what)
}

/// Reads what [`follow_schema`] compares with: the columns of the tables that have a condition.
pub(crate) fn columns_before(conn: &mut Conn) -> Result<ColumnsBefore, SqliteError> {
    named_columns(conn, SUBSCRIPTIONS_TABLE, "p.condition IS NOT NULL")
}

/// After a schema change: removes the rows of tables that were dropped, and follows renamed columns. A condition on a column that is
/// gone stays: it cannot be evaluated, and rows of its table are changed by neither side.
pub(crate) fn follow_schema(conn: &mut Conn, before: &ColumnsBefore) -> Result<(), SqliteError> {
    for Changed { table, old, new } in changed_columns(conn, before)? {
        let Some(new) = new else { continue };
        for subscription in read(conn, |id| id)?.list {
            let condition = subscription.conditions.iter().find(|(id, _)| i64::from(**id) == table);
            let Some((_, condition)) = condition else { continue };
            conn.exec(&format!(
                "UPDATE main.{SUBSCRIPTIONS_TABLE} SET condition = {} WHERE subscription = {} AND object = {table}",
                literal(&with_renamed(condition, &old, &new)),
                subscription.number
            ))?;
        }
    }
    for table in [SUBSCRIPTIONS_TABLE, POSITIONS_TABLE] {
        if exists(conn, table)? {
            conn.exec(&format!(
                "DELETE FROM main.{table} WHERE object <> 0 AND object NOT IN (SELECT id FROM main.holdfast_tables)"
            ))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::change_schema;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;

    fn opened(sql: &str) -> Conn {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(sql).unwrap();
        create_internal_tables(&mut c, VolumeId(1)).unwrap();
        c
    }

    fn id(c: &mut Conn, name: &str) -> u32 {
        match c.query_value(&format!("SELECT id FROM holdfast_tables WHERE name = '{name}'")).unwrap() {
            Value::Int(id) => id as u32,
            other => panic!("{other:?}"),
        }
    }

    fn put_all(c: &mut Conn, after: &Subscriptions) {
        let before = read(c, |id| id).unwrap();
        for step in steps(&before, after, |id| id) {
            change_schema(c, &step).unwrap();
        }
        assert_eq!(read(c, |id| id).unwrap(), *after);
    }

    fn positions(c: &mut Conn) -> Vec<(i64, i64)> {
        let rows = c.query_rows(&format!("{SELECT_POSITIONS} ORDER BY 1, 2")).unwrap();
        let pair = |row: &Vec<Value>| match row.as_slice() {
            [Value::Int(subscription), Value::Int(object), Value::Int(_)] => (*subscription, *object),
            other => panic!("{other:?}"),
        };
        rows.iter().map(pair).collect()
    }

    fn subscription(number: u32, tables: Vec<u32>) -> Subscription {
        Subscription {
            number,
            name: format!("it's {number}"),
            owner: 10,
            connection: "host=hq dbname='my shop'".into(),
            slot: (number > 1).then(|| "s".into()),
            publications: vec!["p".into(), "A, \"b\"".into()],
            options: SubscriptionOptions { copy_data: true, ..SubscriptionOptions::default() },
            skip: u64::MAX - 1,
            tables,
            conditions: BTreeMap::new(),
        }
    }

    #[test]
    fn rows_follow_their_tables() {
        let mut c = opened("CREATE TABLE a(x); CREATE TABLE gone(x); CREATE TABLE t(x)");
        let (a, gone, t) = (id(&mut c, "a"), id(&mut c, "gone"), id(&mut c, "t"));
        let all = vec![subscription(1, vec![a, gone]), subscription(2, vec![t])];
        put_all(&mut c, &Subscriptions { stored: true, list: all });
        let feed = id(&mut c, POSITIONS_TABLE);
        assert!(feed > 0, "its rows are carried by the trail");
        let rows = [(1, 0), (1, a), (1, gone), (2, 0), (2, t)];
        rows.iter().for_each(|(s, o)| c.exec(&copied(*s, *o)).unwrap());
        change_schema(&mut c, "DROP TABLE gone").unwrap();
        change_schema(&mut c, "ALTER TABLE t RENAME TO other").unwrap();
        let now = read(&mut c, |id| id).unwrap();
        assert_eq!(now.list.iter().map(|s| s.tables.clone()).collect::<Vec<_>>(), [vec![a], vec![t]]);
        let kept = |rows: &[(i64, u32)]| rows.iter().map(|(s, o)| (*s, i64::from(*o))).collect::<Vec<_>>();
        assert_eq!(positions(&mut c), kept(&[(1, 0), (1, a), (2, 0), (2, t)]));
        // Taken out of a subscription, and a subscription that is dropped.
        put_all(&mut c, &Subscriptions { stored: true, list: vec![subscription(1, vec![a]), subscription(2, vec![])] });
        assert_eq!(positions(&mut c), kept(&[(1, 0), (1, a), (2, 0)]));
        put_all(&mut c, &Subscriptions { stored: true, list: vec![subscription(2, vec![])] });
        assert_eq!(positions(&mut c), kept(&[(2, 0)]));
    }

    #[test]
    fn changes_write_what_differs_only() {
        let mut c = opened("CREATE TABLE t(a); CREATE TABLE u(a)");
        let (t, u) = (id(&mut c, "t"), id(&mut c, "u"));
        let mut wanted = Subscriptions { stored: true, list: vec![subscription(1, vec![t, u])] };
        assert_eq!(steps(&Subscriptions::default(), &wanted, |id| id).len(), 5, "with both CREATE");
        put_all(&mut c, &wanted);
        let before = wanted.clone();
        wanted.list[0].tables.remove(0);
        assert_eq!(steps(&before, &wanted, |id| id).len(), 2, "its row and its position");
        put_all(&mut c, &wanted);
        for change in [
            (|s| s.owner = 11) as fn(&mut Subscription),
            |s| s.name = "x".into(),
            |s| s.connection = "host=x".into(),
            |s| s.slot = Some("it's".into()),
            |s| s.publications = vec!["q".into()],
            |s| s.options.enabled = true,
            |s| s.skip = 0,
        ] {
            let before = wanted.clone();
            change(&mut wanted.list[0]);
            assert_eq!(steps(&before, &wanted, |id| id).len(), 1);
            put_all(&mut c, &wanted);
        }
        for condition in [Some("(\"a\" = 'it''s')"), Some("(\"a\" = 2)"), None] {
            let before = wanted.clone();
            wanted.list[0].conditions = condition.map(|condition| (u, condition.to_owned())).into_iter().collect();
            assert_eq!(steps(&before, &wanted, |id| id).len(), 1);
            put_all(&mut c, &wanted);
        }
        wanted.list.push(subscription(2, Vec::new()));
        put_all(&mut c, &wanted);
        assert!(steps(&wanted, &wanted, |id| id).is_empty());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_damage() {
        for row in [
            "1, 0, 'p', 10, '', NULL, '{}', 'z', 0",
            "1, 5, '', 0, '', NULL, '', '', 0",
            "1, 0, 'p', 'x', '', NULL, '{}', '', 0",
            "1, 0, 'p', 10, '', NULL, 'p', '', 0",
            "1, 0, 'p', 10, '', x'00', '{}', '', 0",
        ] {
            let mut c = opened("");
            CREATE.iter().for_each(|create| drop(change_schema(&mut c, create).unwrap()));
            c.exec(&format!("INSERT INTO holdfast_subscriptions VALUES({row}, NULL)")).unwrap();
            let error = read(&mut c, |id| id).unwrap_err();
            assert!(error.message.contains("holdfast_subscriptions is damaged"), "{error}");
        }
    }
}
