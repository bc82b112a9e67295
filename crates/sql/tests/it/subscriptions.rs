//! What statements about subscriptions change, by what the publisher publishes, and which statements a subscribed table refuses.

use crate::common::Db;
use holdfast_sql::publications::Actor;
use holdfast_sql::subscription_statement::SubscriptionStatement;
use holdfast_sql::subscriptions::{AtPublisher, Outcome, Published, RemoteTable, translate, work_out};
use holdfast_sql::{Context, Kind};
use holdfast_types::access::{Checker, Need, Privileges, Roles};
use holdfast_types::{SqlError, SqlResult};
use std::sync::Arc;

fn db() -> Db {
    let mut db = Db::postgres();
    db.run(
        "create table t (id int primary key, a int, made int generated always as (a + 1) stored);
         create table serial (id serial primary key, a int);
         create table ident (id int generated always as identity primary key);
         create table u (id int primary key);
         create table child (id int primary key, u int references u);
         create table parent (id int primary key);
         create table cascade (id int primary key, p int references parent on delete cascade);
         create view v as select id from t",
    )
    .unwrap();
    db.reload();
    db
}

fn statement(text: &str) -> SubscriptionStatement {
    match translate(text).unwrap().kind {
        Kind::Subscription(statement) => *statement,
        other => panic!("{other:?}"),
    }
}

fn outcome(db: &Db, text: &str, in_block: bool, published: Option<&Published>) -> SqlResult<Outcome> {
    let roles = Roles::default();
    let checker = Checker { schema: &db.schema, roles: &roles, database_owner: 10, on_database: Privileges::NONE };
    let actor = Actor { checker, role: 10, session_role: 10, database: roles.database(5) };
    work_out(&statement(text), &actor, &db.context(), in_block, published)
}

fn published(tables: &[(&str, &[&str])]) -> Published {
    let table = |(name, columns): &(&str, &[&str])| {
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        let columns = columns.iter().map(|c| (*c).to_owned()).collect();
        RemoteTable { schema: schema.into(), name: name.into(), columns, conditions: Vec::new() }
    };
    Published { tables: tables.iter().map(table).collect(), unknown: Vec::new() }
}

const CREATE: &str = "create subscription s connection 'host=hq' publication p, q";

/// Makes the change of an outcome in the schema.
fn keep(db: &mut Db, outcome: Outcome) {
    db.schema.subscriptions = Arc::new(outcome.subscriptions);
}

fn tables(db: &Db) -> Vec<&str> {
    let tables = db.schema.subscriptions.list.iter().flat_map(|s| &s.tables);
    tables.map(|oid| db.schema.by_oid(*oid).unwrap().name.as_str()).collect()
}

fn messages(outcome: &Outcome) -> Vec<String> {
    outcome.notices.iter().map(|(severity, notice)| format!("{severity} {}", notice.parts().message)).collect()
}

#[test]
fn a_subscription_asks_its_publisher_creates_a_slot_and_drops_it() {
    let mut db = db();
    let asked = outcome(&db, CREATE, false, None).unwrap().asked.unwrap();
    assert_eq!((asked.connection.as_str(), asked.publications.len()), ("host=hq", 2));
    assert_eq!(outcome(&db, CREATE, true, None).unwrap_err().state().0, "25001");
    let mut answer = published(&[("u2", &["id"]), ("t", &["id", "a"])]);
    answer.tables[0].name = "v".into();
    let refused = outcome(&db, CREATE, false, Some(&answer)).unwrap_err();
    assert_eq!(refused.state().0, "42809", "a view");
    answer.tables[0].name = "t".into();
    answer.unknown = vec!["q".into()];
    let created = outcome(&db, CREATE, false, Some(&answer)).unwrap();
    let (connection, slot) = ("host=hq".to_owned(), "s".to_owned());
    assert_eq!(created.at_publisher, AtPublisher::CreateSlot { connection: connection.clone(), slot: slot.clone() });
    assert_eq!(
        messages(&created),
        [
            "WARNING publication \"q\" does not exist on the publisher",
            "NOTICE created replication slot \"s\" on publisher"
        ]
    );
    assert!(created.copied.is_empty(), "its rows are to be copied");
    keep(&mut db, created);
    assert_eq!(tables(&db), ["t"]);
    let dropped = outcome(&db, "drop subscription s", false, None).unwrap();
    assert_eq!(dropped.at_publisher, AtPublisher::DropSlot { connection, slot });
    assert!(dropped.subscriptions.list.is_empty());
    assert_eq!(outcome(&db, "drop subscription s", true, None).unwrap_err().state().0, "25001");
}

#[test]
fn a_refresh_takes_what_is_new_and_gives_up_what_is_gone() {
    let mut db = db();
    let no_slot = format!("{CREATE} with (create_slot = false)");
    let first = outcome(&db, &no_slot, true, Some(&published(&[("t", &["id"])]))).unwrap();
    assert_eq!(first.at_publisher, AtPublisher::Nothing);
    keep(&mut db, first);
    let refresh = "alter subscription s refresh publication with (copy_data = false)";
    let asked = outcome(&db, refresh, false, None).unwrap();
    assert!(asked.asked.is_some());
    assert_eq!(outcome(&db, refresh, true, None).unwrap_err().state().0, "25001");
    let both = outcome(&db, refresh, false, Some(&published(&[("parent2", &[]), ("t", &["id"])]))).unwrap_err();
    assert_eq!(both.parts().message, "relation \"public.parent2\" does not exist");
    let both = outcome(&db, refresh, false, Some(&published(&[("t", &["id", "nope"]), ("u", &["id"])]))).unwrap();
    assert_eq!(both.copied.len(), 1, "only the new one, without its rows");
    keep(&mut db, both);
    assert_eq!(tables(&db), ["t", "u"]);
    let set = "alter subscription s set publication r";
    let one = outcome(&db, set, false, Some(&published(&[("u", &["id"])]))).unwrap();
    assert_eq!(one.subscriptions.list[0].publications, ["r"]);
    keep(&mut db, one);
    assert_eq!(tables(&db), ["u"]);
    let second = "create subscription s2 connection '' publication p with (create_slot = false)";
    let twice = outcome(&db, second, false, Some(&published(&[("u", &["id"])]))).unwrap_err();
    assert!(
        twice.state().0 == "0A000" && twice.parts().detail.as_deref().is_some_and(|d| d.contains("\"s\"")),
        "{twice}"
    );
}

#[test]
fn tables_that_something_else_writes_are_refused() {
    let db = db();
    let refused =
        |tables: &[(&str, &[&str])]| -> SqlError { outcome(&db, CREATE, false, Some(&published(tables))).unwrap_err() };
    for (table, columns, state) in [
        ("none", &["id"][..], "42P01"),
        ("shop.t", &["id"], "3F000"),
        ("t", &["id", "b"], "55000"),
        ("t", &["id", "made"], "0A000"),
        ("serial", &["id", "a"], "0A000"),
        ("ident", &["id"], "0A000"),
        ("child", &["id"], "0A000"),
        ("cascade", &["id"], "0A000"),
        ("parent", &["id"], "0A000"),
    ] {
        let error = refused(&[(table, columns)]);
        assert_eq!(error.state().0, state, "{table}: {error}");
        assert!(state != "0A000" || error.parts().hint.is_some(), "{table}");
    }
    let one = refused(&[("t", &["b", "id"])]);
    let message = "logical replication target relation \"public.t\" is missing replicated column: \"b\"";
    assert_eq!(one.parts().message, message);
    let two = refused(&[("t", &["b", "c"])]).parts().message.clone();
    assert!(two.ends_with("is missing replicated columns: \"b\", \"c\""), "{two}");
    // A key without an action, and a sequence that is not published.
    outcome(&db, CREATE, false, Some(&published(&[("u", &["id"]), ("serial", &["a"]), ("t", &["id", "a"])]))).unwrap();
}

#[test]
fn the_worker_may_change_what_no_session_may() {
    let mut db = db();
    let created = outcome(&db, CREATE, false, Some(&published(&[("t", &["id"])]))).unwrap();
    keep(&mut db, created);
    let refuses = |sql: &str, applies: bool| {
        let scan = holdfast_sql::Scan::new(sql, db.dialect).unwrap();
        let piece = scan.pieces().next().unwrap();
        let context = Context { applies, ..db.context() };
        let translated = holdfast_sql::translate(&piece, &context).unwrap();
        translated.access.needs.iter().any(|need| matches!(need, Need::NotSubscribed { table, .. } if table == "t"))
    };
    for sql in [
        "insert into t values (1, 1)",
        "update t set a = 1",
        "delete from t",
        "truncate t",
        "copy t from stdin",
        "select * from t for key share",
        "with x as (select 1 as a) update t set a = x.a from x",
    ] {
        assert!(refuses(sql, false), "{sql}");
        assert!(!refuses(sql, true), "{sql}");
    }
    for sql in
        ["select * from t", "insert into u select id from t", "lock table t", "copy t to stdout", "delete from u"]
    {
        assert!(!refuses(sql, false), "{sql}");
    }
}
