//! The initial copy for a role that has publications and no table: exactly what is published, whatever the text of its COPY.

use super::stock::{Stock, publisher};
use super::subscriber::{Refused, Subscriber};
use super::trusting;
use crate::server::{Running, one, run, state, until};

/// In every value that the role must not receive.
const HIDDEN: &str = "hidden";

const TABLES: [&str; 7] = [
    "create table per(id int primary key, dscrptn_text text, region int, salary text)",
    "insert into per select g, case g % 4 when 2 then 'shown ' when 3 then 'third ' else 'hidden ' end || g, g % 4, 'hidden ' || g \
     from generate_series(1, 40) g",
    "create table skill(id int primary key, s text, t text)",
    "insert into skill values (1, 'one', 'hidden'), (2, e'tab\\t', 'hidden')",
    "create table other(id int primary key, v text)",
    "insert into other values (1, 'hidden')",
    "create publication p for table per (id, dscrptn_text, region) where (region = 2), skill (id, s)",
];

const ROLE: &str = "create role r2 login replication password 'secret'";

const PUBLISHED: &str = "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 2)) TO STDOUT";

async fn served(more: &[&str]) -> Running {
    let server = Running::start();
    let client = server.connect().await;
    for sql in TABLES.iter().chain(&[ROLE, "grant select on publication p to r2"]).chain(more) {
        run(&client, sql).await;
    }
    drop(client);
    trusting(server)
}

/// The lines of a COPY, or the SQLSTATE of what refuses it.
fn copied(answer: Result<Vec<Vec<String>>, Refused>) -> Result<Vec<String>, String> {
    answer.map(|lines| lines.concat()).map_err(|refused| refused.state)
}

/// What the publication has of `per`, as the lines of a COPY.
fn region(number: usize, word: &str) -> Vec<String> {
    (1..=40).filter(|id| id % 4 == number).map(|id| format!("{id}\t{word} {id}\t{number}")).collect()
}

fn received_nothing_hidden(site: &Subscriber) {
    let found = site.received.windows(HIDDEN.len()).position(|bytes| bytes == HIDDEN.as_bytes());
    let around = found.map(|at| String::from_utf8_lossy(&site.received[at.saturating_sub(200)..at + 20]));
    assert_eq!(around, None);
}

#[tokio::test]
async fn a_stock_subscription_of_a_role_without_tables_gets_what_is_published() {
    let server = publisher(&TABLES).await;
    let client = server.connect().await;
    for sql in [
        "create table \"Odd \"\"name\"(\"Key\" int primary key, \"select\" text, flag boolean)",
        "insert into \"Odd \"\"name\" values (1, 'it''s', true), (2, 'hidden', false), (3, 'null', null), (4, ') OR (', true)",
        "create publication q for table per (id, dscrptn_text, region) where (region = 3 and dscrptn_text <> ') TO STDOUT'), \
         \"Odd \"\"name\" where (flag)",
        // It is shown as it is stored, with a GLOB, which no statement may have.
        "create publication f for table other where (length(v) < 4 or v like 'SHOW%')",
        "insert into other values (2, 'abc'), (3, 'SHOWN')",
        "create publication unasked for table per (id, dscrptn_text, region) where (region = 1)",
        ROLE,
        "grant select on publication p to r2; grant select on publication q to r2; grant select on publication f to r2; \
         grant select on publication unasked to r2",
    ] {
        run(&client, sql).await;
    }
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run("alter system set wal_retrieve_retry_interval = '100ms'").await;
    stock.run("select pg_reload_conf()").await;
    stock.run("create table per(id int primary key, dscrptn_text text, region int)").await;
    stock.run("create table skill(id int primary key, s text)").await;
    stock.run("create table other(id int primary key, v text)").await;
    stock.run("create table \"Odd \"\"name\"(\"Key\" int primary key, \"select\" text, flag boolean)").await;
    stock.subscribe_as("r2", "p, q, f").await;
    let per = "select id, dscrptn_text, region from per where region in (2, 3) order by id";
    stock.until_equal(&client, "select * from per order by id", per).await;
    let skill = "select id, s from skill order by id";
    stock.until_equal(&client, skill, skill).await;
    let odd = "select * from \"Odd \"\"name\" order by 1";
    let published = "select * from \"Odd \"\"name\" where flag order by 1";
    stock.until_equal(&client, odd, published).await;
    stock
        .until_equal(&client, "select id from other order by id", "select id from other where id > 1 order by id")
        .await;
    // It follows, too.
    run(&client, "update per set region = 2 where id = 4; insert into skill values (3, 'three', 'hidden')").await;
    stock.until_equal(&client, skill, skill).await;
    stock.until_equal(&client, "select * from per order by id", per).await;
    stock.run("drop subscription s").await;
    // One of them again, and none of the others' rows.
    stock.run("truncate per, \"Odd \"\"name\"").await;
    stock.subscribe_as("r2", "q").await;
    let per = "select id, dscrptn_text, region from per where region = 3 order by id";
    stock.until_equal(&client, "select * from per order by id", per).await;
    assert!(!stock.log().contains("permission denied"), "{}", stock.log());
}

/// It waits for the grant, and continues then.
#[tokio::test]
async fn a_stock_subscription_of_a_role_without_the_publication_copies_nothing() {
    let server = publisher(&TABLES).await;
    let client = server.connect().await;
    run(&client, ROLE).await;
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run("create table per(id int primary key, dscrptn_text text, region int)").await;
    stock.run("create table skill(id int primary key, s text)").await;
    stock.subscribe_as("r2", "p").await;
    until("it is refused", async || stock.log().contains("permission denied for publication p")).await;
    assert_eq!(one(&stock.client, "select count(*) from per").await, "0");
    run(&client, "grant select on publication p to r2").await;
    let published = "select id, dscrptn_text, region from per where region = 2 order by id";
    stock.until_equal(&client, "select * from per order by id", published).await;
}

#[tokio::test]
async fn whatever_the_text_nothing_else_is_received() {
    let server = served(&[]).await;
    let mut site = Subscriber::connect_as(server.port, "r2").unwrap();
    let per = region(2, "shown");
    let ids: Vec<String> = (1..=40).filter(|id| id % 4 == 2).map(|id| id.to_string()).collect();
    for (text, expected) in [
        (PUBLISHED, &per),
        ("copy ( select id , dscrptn_text,region from only public.per where (region = 2) ) to stdout", &per),
        ("COPY (SELECT id, dscrptn_text, region FROM ONLY public.per) TO STDOUT", &per),
        ("COPY public.per (id, dscrptn_text, region) TO STDOUT", &per),
        ("COPY \"public\".\"per\" (\"id\") TO STDOUT", &ids),
        ("COPY public.skill (id, s) TO STDOUT", &vec!["1\tone".to_owned(), "2\ttab\\t".to_owned()]),
    ] {
        assert_eq!(copied(site.query(text)).as_ref(), Ok(expected), "{text}");
    }
    let stays_refused = [
        "COPY public.per (id, salary) TO STDOUT",
        "COPY public.per TO STDOUT",
        "COPY (SELECT id, salary FROM ONLY public.per WHERE (region = 2)) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE true) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 2) OR true) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 2) OR (region = 1)) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 1)) TO STDOUT",
        "COPY (SELECT id FROM ONLY public.per WHERE (id IN (SELECT id FROM other))) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 2) UNION SELECT id, v, 1 FROM other) TO STDOUT",
        "COPY (SELECT id, (SELECT v FROM other LIMIT 1), region FROM ONLY public.per WHERE (region = 2)) TO STDOUT",
        "COPY (SELECT per.id FROM ONLY public.per, other) TO STDOUT",
        "COPY (SELECT id FROM ONLY public.per NATURAL JOIN public.other) TO STDOUT",
        "COPY (SELECT p.id, o.v FROM ONLY public.per p JOIN public.other o ON true) TO STDOUT",
        "COPY (SELECT id, upper(dscrptn_text), region FROM ONLY public.per WHERE (region = 2)) TO STDOUT",
        "COPY (SELECT id, pg_sleep(0) FROM ONLY public.per) TO STDOUT",
        "COPY (SELECT id, CAST(dscrptn_text AS int), region FROM ONLY public.per) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (dscrptn_text::int = 1)) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM public.per WHERE (region = 2)) TO STDOUT",
        "COPY (SELECT id, dscrptn_text, region FROM ONLY per WHERE (region = 2)) TO STDOUT",
        "COPY (SELECT * FROM ONLY public.per) TO STDOUT",
        "COPY (TABLE per) TO STDOUT",
        "COPY per (id, dscrptn_text, region) TO STDOUT",
        "COPY public.per (id, dscrptn_text, region) TO STDOUT WITH (FORMAT csv)",
        "COPY public.other (id, v) TO STDOUT",
        "COPY (SELECT id, v FROM ONLY public.other) TO STDOUT",
        "COPY (WITH per AS (SELECT * FROM other) SELECT id FROM per) TO STDOUT",
        "COPY public.per (id, dscrptn_text, region) FROM STDIN",
        "SELECT * FROM per",
        "SELECT id, dscrptn_text, region FROM ONLY public.per WHERE (region = 2)",
        "SELECT count(*) FROM per WHERE region = 2",
        "TABLE skill",
        "EXPLAIN SELECT id FROM per",
        "BEGIN; DECLARE c CURSOR FOR SELECT id FROM per; FETCH ALL c",
        "CREATE TEMP TABLE copy_of AS SELECT * FROM per",
        "UPDATE per SET region = 2",
    ];
    for text in stays_refused {
        assert_eq!(copied(site.query(text)), Err("42501".into()), "{text}");
        assert_eq!(site.state("ROLLBACK"), "");
    }
    for (text, expected) in [
        ("COPY public.per (id, dscrptn_text, region) TO PROGRAM 'cat'", "42501"),
        ("COPY public.per (id, dscrptn_text, region) TO '/tmp/per'", "42501"),
        ("COPY public.per (id, dscrptn_text, region) TO STDOUT (FORMAT binary)", "0A000"),
        ("COPY public.per (id, none) TO STDOUT", "42703"),
        ("EXPLAIN COPY public.per (id) TO STDOUT", "42501"),
        ("BEGIN; DECLARE c CURSOR FOR COPY public.per (id) TO STDOUT", "42601"),
        ("PREPARE c AS COPY public.per (id) TO STDOUT; EXECUTE c", "42501"),
    ] {
        assert_eq!(copied(site.query(text)), Err(expected.into()), "{text}");
        assert_eq!(site.state("ROLLBACK"), "");
    }
    assert_eq!(copied(site.extended(PUBLISHED)), Err("42501".into()), "a subscriber sends simple messages");
    // What hides the table from its name.
    assert_eq!(site.state("CREATE TEMP TABLE per(id int, dscrptn_text text, region int)"), "");
    assert_eq!(site.state("INSERT INTO per VALUES (7, 'own', 2)"), "");
    assert_eq!(copied(site.query(PUBLISHED)), Ok(per.clone()));
    assert_eq!(copied(site.query("COPY per (id) TO STDOUT")), Ok(vec!["7".to_owned()]));
    received_nothing_hidden(&site);
}

#[tokio::test]
async fn only_a_session_for_replication_and_only_while_the_role_may_follow() {
    let server = served(&["create role plain login; grant select on publication p to plain"]).await;
    let client = server.connect().await;
    for role in ["r2", "plain"] {
        let without = server.connect_with(&format!("user={role} dbname=holdfast")).await;
        assert_eq!(state(&without, PUBLISHED).await.unwrap().code(), "42501", "{role}");
    }
    let mut site = Subscriber::connect_as(server.port, "r2").unwrap();
    let per = region(2, "shown");
    let refused = Err::<Vec<String>, _>("42501".to_owned());
    for (sql, expected) in [
        ("select 1", Ok(per.clone())),
        ("revoke select on publication p from r2", refused.clone()),
        ("grant select on publication p to public", Ok(per.clone())),
        ("alter role r2 noreplication", refused.clone()),
        ("alter role r2 replication", Ok(per.clone())),
        ("revoke usage on schema public from public", refused.clone()),
        ("grant usage on schema public to public", Ok(per.clone())),
        ("alter publication p drop table per", refused.clone()),
        ("alter publication p add table per (id, region) where (region = 2)", refused.clone()),
        ("alter publication p set table per (id, dscrptn_text, region) where (region = 3)", refused.clone()),
        ("alter publication p set table per (id, dscrptn_text, region) where (region = 2)", Ok(per.clone())),
        ("drop publication p", refused.clone()),
        ("create publication p for table per where (region = 2)", refused.clone()),
        // Its owner may follow.
        ("alter publication p owner to r2", Ok(per.clone())),
        ("alter publication p owner to holdfast", refused),
        // With the table's privilege the text counts.
        ("grant select on per to r2", Ok(per.clone())),
    ] {
        run(&client, sql).await;
        assert_eq!(copied(site.query(PUBLISHED)), expected, "{sql}");
    }
    received_nothing_hidden(&site);
    let all = "COPY (SELECT salary FROM public.per) TO STDOUT";
    assert_eq!(copied(site.query(all)).map(|lines| lines.len()), Ok(40));
    // In the transaction of a sync worker: the rows as they were at its slot.
    run(&client, "revoke select on per from r2; grant select on publication p to r2").await;
    for text in [
        "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ",
        "CREATE_REPLICATION_SLOT sync LOGICAL pgoutput (SNAPSHOT 'use')",
    ] {
        site.query(text).unwrap();
    }
    run(&client, "insert into per values (1002, 'later', 2, 'hidden')").await;
    assert_eq!(copied(site.query(PUBLISHED)), Ok(per.clone()));
    site.query("COMMIT").unwrap();
    assert_eq!(copied(site.query(PUBLISHED)).map(|lines| lines.len()), Ok(per.len() + 1));
    // A transaction that writes is no sync worker's.
    run(&client, "grant create on schema public to r2").await;
    for text in ["CREATE TABLE own(id int primary key)", "BEGIN", "INSERT INTO own VALUES (1)"] {
        site.query(text).unwrap();
    }
    assert_eq!(copied(site.query(PUBLISHED)), Err("42501".into()));
}

/// A value is sent only where one publication has its row and its column.
#[tokio::test]
async fn of_several_publications_rows_and_columns_are_not_mixed() {
    let server = served(&[
        "create publication pay for table per (id, salary) where (region = 1)",
        "create publication q for table per (id, dscrptn_text, region) where (region = 3)",
        "grant select on publication q to r2",
    ])
    .await;
    let client = server.connect().await;
    let mut site = Subscriber::connect_as(server.port, "r2").unwrap();
    let both: Vec<String> = {
        let mut both = [region(2, "shown"), region(3, "third")].concat();
        both.sort_by_key(|line| line.split('\t').next().unwrap().parse::<u32>().unwrap());
        both
    };
    let of = |condition: &str| {
        format!("COPY (SELECT id, dscrptn_text, region FROM ONLY public.per WHERE {condition}) TO STDOUT")
    };
    assert_eq!(copied(site.query(&of("(region = 2) OR (region = 3)"))), Ok(both.clone()));
    assert_eq!(copied(site.query(&of("(region = 3)"))), Ok(region(3, "third")), "of the others nothing");
    assert_eq!(copied(site.query("COPY public.per (id, dscrptn_text, region) TO STDOUT")), Ok(both));
    received_nothing_hidden(&site);
    run(&client, "grant select on publication pay to r2").await;
    let pay = "COPY public.per (id, salary) TO STDOUT";
    let paid: Vec<String> = (1..=40).filter(|id| id % 4 == 1).map(|id| format!("{id}\thidden {id}")).collect();
    assert_eq!(copied(site.query(pay)), Ok(paid));
    for text in [
        "COPY public.per (id, salary, region) TO STDOUT",
        "COPY (SELECT id, salary FROM ONLY public.per WHERE (region = 2)) TO STDOUT",
        &of("(region = 1)"),
    ] {
        assert_eq!(copied(site.query(text)), Err("42501".into()), "{text}");
    }
    // Without a condition, all rows of its columns.
    run(&client, "create publication everything for table per (id, region)").await;
    run(&client, "grant select on publication everything to r2").await;
    assert_eq!(copied(site.query("COPY public.per (id, region) TO STDOUT")).map(|lines| lines.len()), Ok(40));
    assert_eq!(copied(site.query("COPY public.per (id, dscrptn_text) TO STDOUT")).map(|lines| lines.len()), Ok(20));
    run(&client, "create publication whole for all tables").await;
    run(&client, "grant select on publication whole to r2; revoke select on publication whole from r2").await;
    assert_eq!(copied(site.query("COPY public.other (id, v) TO STDOUT")), Err("42501".into()));
    run(&client, "grant select on publication whole to r2").await;
    assert_eq!(copied(site.query("COPY public.other (id, v) TO STDOUT")), Ok(vec!["1\thidden".to_owned()]));
    run(&client, "create table g(id int primary key, v text, w text generated always as (v || '!') stored)").await;
    assert_eq!(copied(site.query("COPY public.g (id, v) TO STDOUT")), Ok(Vec::new()));
    assert_eq!(copied(site.query("COPY public.g (id, w) TO STDOUT")), Err("42501".into()), "subscribers generate it");
}

/// A condition that fails for a row shows nothing of the row.
#[tokio::test]
async fn a_condition_that_fails_for_a_row_ends_the_copy_without_its_values() {
    // The longest pattern that SQLite takes is shorter.
    let pattern = "a".repeat(50_001);
    let server = served(&[
        &format!("create publication failing for table other where (v like '{pattern}%')"),
        "grant select on publication failing to r2",
    ])
    .await;
    let mut site = Subscriber::connect_as(server.port, "r2").unwrap();
    let refused = site.query("COPY public.other (id, v) TO STDOUT").unwrap_err();
    assert_eq!(refused.state, "22000");
    assert_eq!(refused.message, "a row of a published table cannot be copied");
    received_nothing_hidden(&site);
}
