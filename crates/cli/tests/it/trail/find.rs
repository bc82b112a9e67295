//! What `trail find` lists.

use super::Bed;
use serde_json::json;

#[tokio::test]
async fn a_row_is_found_by_its_key_with_values_before_and_after() {
    let bed = Bed::start().await;
    bed.run("create table orders(id int primary key, state text, amount numeric(8,2))").await;
    bed.run("insert into orders select g, 'new', g from generate_series(1, 50) g").await;
    bed.run("update orders set amount = 0 where id > 5").await;
    bed.run("update orders set state = 'paid' where id = 7").await;
    bed.run("update orders set state = 'paid' where id = 8").await;
    bed.run("delete from orders where id = 7").await;
    let found = bed.find(&["--table", "orders", "--where", "id = 7"]);
    let changes = found["changes"].as_array().unwrap();
    let shown: Vec<_> = changes.iter().map(|c| json!([c["operation"], c["key"], c["before"], c["after"]])).collect();
    assert!(shown[0][0] == "schema" && changes[0]["sql"].as_str().unwrap().contains("CREATE TABLE"), "{found}");
    assert_eq!(
        shown[1..],
        [
            json!(["insert", {"id": 7}, null, {"id": 7, "state": "new", "amount": "7.00"}]),
            json!(["update", {"id": 7}, {"amount": "7.00"}, {"amount": "0.00"}]),
            json!(["update", {"id": 7}, {"state": "new"}, {"state": "paid"}]),
            json!(["delete", {"id": 7}, {"id": 7, "state": "paid", "amount": "0.00"}, null]),
        ]
    );
    assert_eq!(found["read"]["is_complete"], true);
    let lsns: Vec<u64> = changes.iter().map(|change| change["lsn"].as_u64().unwrap()).collect();
    assert!(lsns.is_sorted(), "{found}");
}

#[tokio::test]
async fn a_condition_is_evaluated_on_the_row_of_that_time() {
    let bed = Bed::start().await;
    bed.run("create table orders(id text primary key, state text, amount numeric(8,2), sent boolean)").await;
    bed.run("insert into orders values ('a', 'new', 1, false), ('b', 'new', 20, true)").await;
    bed.run("update orders set state = 'paid'").await;
    bed.run("update orders set amount = 5 where id = 'a'").await;
    bed.run("update orders set amount = 15 where id = 'b'").await;
    bed.run("delete from orders where id = 'a'").await;
    let of = |condition: &str| {
        let found = bed.find(&["--table", "orders", "--where", condition]);
        let changes = found["changes"].as_array().unwrap().clone();
        let rows = changes.iter().filter(|change| change["operation"] != "schema");
        rows.map(|c| format!("{} {}", c["operation"].as_str().unwrap(), c["key"]["rowid"])).collect::<Vec<_>>()
    };
    // The rows of this table are found by a hidden rowid: 1 is a, 2 is b.
    assert_eq!(of("id = 'a'"), ["insert 1", "update 1", "update 1", "delete 1"]);
    assert_eq!(of("id = 'a' and amount > 4"), ["update 1", "delete 1"]);
    assert_eq!(of("amount > 10 and state = 'paid'"), ["update 2", "update 2"]);
    assert_eq!(of("sent"), ["insert 2", "update 2", "update 2"]);
    assert_eq!(of("orders.amount = 15"), ["update 2"]);
    assert_eq!(of("rowid + 0 = 2"), ["insert 2", "update 2", "update 2"]);
    assert_eq!(of("rowid = 2 and amount = 20"), ["insert 2", "update 2", "update 2"]);
    assert_eq!(of("id like 'x%'"), [""; 0]);
    // The condition is a query's: its errors are the server's.
    let refused =
        crate::node::refuses(&["trail", "find", "--data", bed.node.data(), "--table", "orders", "--where", "nix > 1"]);
    assert!(refused.contains("column \"nix\" does not exist"), "{refused}");
}

#[tokio::test]
async fn times_and_a_dropped_table() {
    let bed = Bed::start().await;
    bed.run("create table orders(id int primary key, v text); create table other(id int primary key)").await;
    bed.run("insert into orders values (1, 'x')").await;
    let all = bed.find(&["--table", "orders"]);
    let inserted = all["changes"][1]["unix_ms"].as_u64().unwrap();
    // The clock's next millisecond.
    crate::server::until("a later reading of the clock", async || {
        bed.run("update other set id = 2").await;
        bed.run("insert into other select coalesce(max(id), 0) + 1 from other").await;
        let newest = bed.find(&["--table", "other"]);
        newest["changes"].as_array().unwrap().last().unwrap()["unix_ms"].as_u64().unwrap() > inserted + 1
    })
    .await;
    bed.run("alter table orders add column w int").await;
    bed.run("drop table orders").await;
    let time = holdfast_dump::show_moment(inserted + 1);
    let since = bed.find(&["--table", "orders", "--since", &time]);
    let shown: Vec<_> = since["changes"].as_array().unwrap().iter().map(|c| c["sql"].as_str().unwrap()).collect();
    assert_eq!(shown.len(), 2, "{since}");
    assert!(shown[0].to_lowercase().starts_with("alter table") && shown[1].to_lowercase().starts_with("drop table"));
    assert_eq!(since["exists"], false);
    let until = bed.find(&["--table", "orders", "--until", &time]);
    assert!(until["changes"].as_array().unwrap().iter().all(|c| c["sql"].as_str().unwrap().contains("CREATE TABLE")));
    let (id, _) = super::newest(&since);
    let refused = bed.refuses(&id, &[]);
    assert!(refused.contains(&format!("holdfast restore --before-transaction {id}")), "{refused}");
}

#[tokio::test]
async fn a_column_that_the_table_has_not_is_an_error_and_rows_that_cannot_be_compared_are_counted() {
    let bed = Bed::start().await;
    bed.run("create database lite dialect sqlite").await;
    let lite = bed.node.connect_to("lite").await;
    let tables = [("orders", "holdfast"), ("notes", "lite")];
    bed.run("create table orders(id int primary key, state text, amount int)").await;
    crate::node::run(&lite, "create table notes(id integer primary key, state text, amount int)").await;
    for (client, (table, _)) in [(&bed.client, tables[0]), (&lite, tables[1])] {
        crate::node::run(client, &format!("insert into {table} values (7, 'new', 5)")).await;
        crate::node::run(client, &format!("alter table {table} drop column amount")).await;
    }
    for (table, database) in tables {
        let of = ["--database", database, "--table", table, "--where"];
        for (condition, column) in [
            ("amount = 5", "amount"),
            ("amount > 5", "amount"),
            ("\"amount\" <> '5'", "amount"),
            ("id = 7 and amount = 5", "amount"),
            ("id = 8 and nix", "nix"),
        ] {
            let begin = ["trail", "find", "--data", bed.node.data()];
            let refused = crate::node::refuses(&[&begin[..], &of, &[condition]].concat());
            let named = refused.contains(column) && refused.contains("id, state");
            assert!(named && refused.contains("--since"), "{database} {condition}: {refused}");
        }
        // The key is that of all times; other columns are compared only where their numbers are known.
        let found = bed.find(&[&of[..], &["id = 7"]].concat());
        let rows = |found: &serde_json::Value| {
            let changes = found["changes"].as_array().unwrap();
            changes.iter().filter(|change| change["operation"] != "schema").count()
        };
        assert_eq!((rows(&found), &found["not_compared"]), (1, &json!(0)), "{found}");
        let found = bed.find(&[&of[..], &["state = 'new'"]].concat());
        assert_eq!((rows(&found), &found["not_compared"]), (0, &json!(1)), "{found}");
    }
}
