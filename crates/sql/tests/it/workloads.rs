//! The SQL of pgbench and of the authorization study on real SQLite, with the statement cache.

use crate::common::{Db, Session};
use holdfast_sql::{Kind, Scan, StatementCache, translate};
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Dialect;

const PGBENCH: &[&str] = &[
    "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
    "create table pgbench_history(tid int,bid int,aid    int,delta int,mtime timestamp,filler char(22))",
    "create table pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84)) with (fillfactor=100)",
    "create table pgbench_accounts(aid    int not null,bid int,abalance int,filler char(84)) with (fillfactor=100)",
    "create table pgbench_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)",
    "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
    "insert into pgbench_branches(bid,bbalance) values(1,0)",
    "insert into pgbench_tellers(tid,bid,tbalance) values (1,1,0)",
    "insert into pgbench_accounts(aid,bid,abalance,filler) values (1,1,0,''),(2,1,0,'')",
    "alter table pgbench_branches add primary key (bid)",
    "alter table pgbench_tellers add primary key (tid)",
    "alter table pgbench_accounts add primary key (aid)",
];

fn bench() -> Db {
    let mut db = Db::postgres();
    for sql in PGBENCH {
        db.run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    db
}

#[test]
fn pgbench_initialises_and_runs() {
    let mut db = bench();
    let verb = |db: &mut Db, sql: &str| db.run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}")).verb;
    assert_eq!(verb(&mut db, "UPDATE pgbench_accounts SET abalance = abalance + -301 WHERE aid = 1;"), "UPDATE");
    assert_eq!(db.lines("SELECT abalance FROM pgbench_accounts WHERE aid = 1;"), ["-301"]);
    verb(&mut db, "UPDATE pgbench_tellers SET tbalance = tbalance + 5 WHERE tid = 1;");
    verb(&mut db, "UPDATE pgbench_branches SET bbalance = bbalance + 5 WHERE bid = 1;");
    let insert = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, 5, CURRENT_TIMESTAMP);";
    assert_eq!(verb(&mut db, insert), "INSERT 0");
    assert_eq!(db.lines("select mtime, filler from pgbench_history"), ["2026-11-18 11:06:40.123456|NULL"]);
    assert_eq!(db.lines("select count(*) from pgbench_branches"), ["1"]);
    assert_eq!(db.lines("select filler || '.' from pgbench_accounts where aid = 1"), ["."]);
    for sql in ["vacuum analyze pgbench_accounts", "vacuum pgbench_branches", "analyze pgbench_history", "begin", "end"]
    {
        db.translate(sql).unwrap();
    }
    assert_eq!(db.state("insert into pgbench_accounts values (1, 1, 0, 'x')"), "23505");
    assert_eq!(db.state("insert into pgbench_accounts values (null, 1, 0, 'x')"), "23502");
    assert_eq!(db.state("update pgbench_accounts set abalance = 2147483647 + abalance + 2147483647"), "22003");
    let copy = db.translate("copy pgbench_accounts from stdin with (freeze on)").unwrap();
    let Kind::CopyIn(copied) = &copy.kind else { panic!("{copy:?}") };
    assert_eq!(
        copied.columns.iter().map(|c| c.type_oid).collect::<Vec<_>>(),
        [oid::INT4, oid::INT4, oid::INT4, oid::BPCHAR]
    );
    assert!(db.translate("select o.n, p.partstrat, pg_catalog.count(i.inhparent) from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on (n.oid = c.relnamespace) cross join lateral (select pg_catalog.array_position(pg_catalog.current_schemas(true), n.nspname)) as o(n) left join pg_catalog.pg_partitioned_table as p on (p.partrelid = c.oid) left join pg_catalog.pg_inherits as i on (c.oid = i.inhparent) where c.relname = 'pgbench_accounts' and o.n is not null group by 1, 2 order by 1 asc limit 1").is_ok());
}

/// In prepared and pipelined statements, parameters get the types of their columns.
#[test]
fn parameters_take_the_types_of_their_columns() {
    let db = bench();
    let params = |sql: &str| db.translate(sql).unwrap().desc.params.clone();
    assert_eq!(params("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"), [oid::INT4, oid::INT4]);
    assert_eq!(
        params("INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)"),
        [oid::INT4; 4]
    );
    assert_eq!(params("SELECT $1"), [oid::TEXT]);
    assert_eq!(params("SELECT $1 + 1, $2 || 'a', $3::date"), [oid::INT4, oid::TEXT, oid::DATE]);
}

#[test]
fn the_cache_serves_other_literals_with_right_values() {
    let mut db = bench();
    let cache: StatementCache<()> = StatementCache::new(100, 1 << 20);
    let epoch = db.schema.epoch;
    let message = |aid: i32, delta: i32| {
        format!(
            "BEGIN; UPDATE pgbench_accounts SET abalance = abalance + {delta}, filler = 'it''s {delta}' WHERE aid = {aid}; \
             INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, {delta}, {aid}, -{delta}, '2026-01-0{aid}'); END;"
        )
    };
    for (round, text) in [message(1, 10), message(2, 20), message(1, 7)].into_iter().enumerate() {
        let scan = Scan::new(&text, Dialect::Postgres).unwrap();
        assert_eq!(scan.pieces().len(), 4);
        for piece in scan.pieces() {
            let entry = match cache.lookup(&piece, epoch) {
                Some(entry) => entry,
                None => {
                    assert_eq!(round, 0, "not found again: {}", piece.text());
                    let translated = translate(&piece, &db.context()).unwrap();
                    cache.insert(&piece, epoch, translated, ())
                }
            };
            let params = entry.translated.bind(&piece.literals(), &[], &Session).unwrap();
            db.execute(&entry.translated, params).unwrap();
        }
    }
    assert_eq!(
        db.lines("select aid, abalance, trim(filler) from pgbench_accounts order by 1"),
        ["1|17|it's 7", "2|20|it's 20"]
    );
    assert_eq!(
        db.lines("select bid, aid, delta, mtime from pgbench_history order by bid"),
        ["7|1|-7|2026-01-01 00:00:00", "10|1|-10|2026-01-01 00:00:00", "20|2|-20|2026-01-02 00:00:00",]
    );
    assert_eq!(cache.len(), 4);
}

#[test]
fn fixed_literals_make_entries_of_their_own() {
    let db = bench();
    let cache: StatementCache<u32> = StatementCache::new(100, 1 << 20);
    let texts = ["select aid from pgbench_accounts limit 1", "select aid from pgbench_accounts limit 2"];
    for (i, text) in texts.iter().enumerate() {
        let scan = Scan::new(text, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        assert!(cache.lookup(&piece, 1).is_none());
        cache.insert(&piece, 1, translate(&piece, &db.context()).unwrap(), i as u32);
    }
    for (i, text) in texts.iter().enumerate() {
        let scan = Scan::new(text, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        assert_eq!(cache.lookup(&piece, 1).unwrap().extra, i as u32);
        assert!(cache.lookup(&piece, 2).is_none(), "another epoch");
    }
}

#[test]
fn lifted_literals_are_checked_like_the_first() {
    let mut db = Db::postgres();
    db.run("create table t (a smallint, b varchar(3), c date, d boolean)").unwrap();
    let scan = Scan::new("insert into t values (1, 'abc', '2026-01-01', 'yes')", Dialect::Postgres).unwrap();
    let translated = translate(&scan.pieces().next().unwrap(), &db.context()).unwrap();
    assert_eq!(translated.params.len(), 4);
    for (text, state) in [
        ("insert into t values (70000, 'abc', '2026-01-01', 'yes')", "22003"),
        ("insert into t values (7, 'abcd', '2026-01-01', 'yes')", "22001"),
        ("insert into t values (7, 'abc', '2026-13-01', 'yes')", "22008"),
        ("insert into t values (7, 'abc', '2026-12-01', 'maybe')", "22P02"),
    ] {
        let scan = Scan::new(text, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        let error = translated.bind(&piece.literals(), &[], &Session).unwrap_err();
        assert_eq!(error.state().0, state, "{text}");
    }
}

#[test]
fn the_authorization_transaction() {
    let mut db = Db::postgres();
    db.run(
        "create table tdf (id integer primary key, terminal text not null unique, merchant text not null, balance bigint not null, filler text);
         create unique index tdf_merchant on tdf (merchant, id);
         create table tlf (id bigserial primary key, terminal text not null, card text not null, at timestamptz not null, amount bigint not null, filler text);
         create index tlf_1 on tlf (terminal); create index tlf_2 on tlf (card); create index tlf_3 on tlf (at); create index tlf_4 on tlf (amount);
         insert into tdf values (1, 'T1', 'M', 100, repeat('x', 4000))",
    )
    .unwrap();
    let text = "begin; select id, balance from tdf where terminal = 'T1' for update; \
                update tdf set balance = balance + 12 where id = 1; \
                insert into tlf (terminal, card, at, amount, filler) values ('T1', '4000', now(), 12, 'y'); commit";
    let scan = Scan::new(text, Dialect::Postgres).unwrap();
    for piece in scan.pieces() {
        let translated = translate(&piece, &db.context()).unwrap();
        assert_eq!(translated.locks, piece.text().contains("for update"));
        let params = translated.bind(&piece.literals(), &[], &Session).unwrap();
        db.execute(&translated, params).unwrap();
    }
    assert_eq!(db.lines("select balance from tdf"), ["112"]);
    assert_eq!(db.lines("select id, terminal, at from tlf"), ["1|T1|2026-11-18 11:06:40.123456+00"]);
    let plan = db.lines("explain select id, balance from tdf where terminal = 'T1'");
    assert!(plan[0].contains("SEARCH tdf USING INDEX"), "{plan:?}");
    let answer = db.run_with("select id, balance from tdf where id = $1", &[Value::Int(1)]).unwrap();
    assert_eq!(answer.columns, [("id".into(), "integer".into()), ("balance".into(), "bigint".into())]);
}
