//! Random text and mutated statements give an answer or an error, never a panic.

use crate::common::Db;
use holdfast_sql::{NEXT_ID_FUNCTION, Scan, translate};
use holdfast_types::schema::Dialect;
use proptest::prelude::*;
use std::cell::RefCell;

const SEEDS: &[&str] = &[
    "select a, count(*) from t where b like 'x%' and id in (1, 2) group by a having sum(id) > 3 order by 1 desc limit 5 offset $1",
    "insert into t (a, b) values (1, 'it''s'), ($1, default) on conflict (id) do update set a = excluded.a + 1 returning *",
    "replace into main.t (id, a) values (null, 1), ((select 2), 'x') returning id; insert into t default values; insert into t (a) select a from t order by b on conflict do nothing",
    "with q(n) as (select 1 union select 2) insert or ignore into t as z (b, a) select n, a from q, t where z.a > 1 order by n limit 3 -- end",
    "insert into t values (null, 1, 'x', 2, 3, 4), (5, 1, 'x', 2, 3, (select 4)) on conflict (id) do update set a = excluded.a where true returning *",
    "insert into h select * from h union all values (1, 2); replace into h (rowid, a) values (?, 1); insert into h default values returning rowid",
    "update t as x set a = a - -1, (b, c) = ('q', 1.5e3) from t y where x.id = y.id and y.e > now() returning x.*",
    "delete from t using t u where t.id = u.id and exists (select 1 from t v where v.a = t.a)",
    "select a, x.b from t x join t as y using (id) where x.a > 3 order by 1 for no key update of x, y skip locked limit 5; lock table t in share row exclusive mode nowait",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n::text || E'\\n', $$x$$ from r join t using (id)",
    "create table q (id bigint generated always as identity primary key, n numeric(10,2) check (n > 0), unique (n)) with (fillfactor=70)",
    "create unique index i on t (lower(b), a desc) where a is not null",
    "copy t (a, b) from stdin with (format csv, header true)",
    "select extract(epoch from e), substring(b from 2 for 3), trim(both 'x' from b), case a when 1 then 'one' else b end from t natural join t t2",
    "select c.oid::regclass, pg_get_expr(d.adbin, d.adrelid) from pg_class c left join pg_attrdef d on d.adrelid = c.oid where relname operator(pg_catalog.~) '^(t)$'",
    "declare c no scroll cursor with hold for select * from t for update; fetch backward -2 from c; move absolute 5 in c; close all; prepare transaction 'x'; commit prepared 'y'",
    "select pg_try_advisory_lock(id, $1), pg_advisory_xact_lock(a) from t where pg_advisory_unlock(7)",
    "begin isolation level serializable; set local x.y = 'z'; savepoint a; rollback to a; alter table t add column z int default 3; commit",
    "create trigger tr after insert on t begin update t set a = 1; end; pragma table_info(t)",
];

thread_local! {
    static DBS: RefCell<Vec<Db>> = const { RefCell::new(Vec::new()) };
}

/// Translates every statement of the text in both dialects.
fn throw(text: &str) {
    DBS.with(|dbs| {
        let mut dbs = dbs.borrow_mut();
        if dbs.is_empty() {
            let mut db = Db::postgres();
            db.run("create table t (id serial primary key, a int, b text, c numeric(10,2), d boolean, e timestamptz)")
                .unwrap();
            let mut other = Db::new(Dialect::Sqlite);
            let tables = "create table t (id integer primary key, a int, b text, c, d, e); create table h (a, b)";
            other.conn.execute_batch(tables).unwrap();
            other.reload();
            dbs.extend([db, other]);
        }
        for db in dbs.iter() {
            let Ok(scan) = Scan::new(text, db.dialect) else { continue };
            for piece in scan.pieces() {
                let Ok(translated) = translate(&piece, &db.context()) else { continue };
                let _ = translated.bind(&piece.literals(), &[], &crate::common::Session);
                // SQLite must understand what the translation writes, except where the text was passed through.
                for step in translated.steps.iter().map(|step| &step.sql) {
                    if let (Dialect::Postgres, Err(e)) = (db.dialect, db.conn.prepare(step)) {
                        let message = e.to_string();
                        assert!(!message.contains("syntax error"), "{}\n{step}\n{message}", piece.text());
                    }
                    // SQLite still understands an INSERT that it understood before the translation. (This test cannot
                    // handle named parameters.)
                    let named = piece.text().contains([':', '@']);
                    if step.contains(NEXT_ID_FUNCTION) && !named && db.conn.prepare(piece.text()).is_ok() {
                        let prepared = db.conn.prepare(step);
                        assert!(prepared.is_ok(), "{}\n{step}\n{prepared:?}", piece.text());
                    }
                }
            }
        }
    });
}

fn mutated() -> impl Strategy<Value = String> {
    let seed = prop::sample::select(SEEDS);
    let edits = prop::collection::vec(
        (any::<prop::sample::Index>(), 0..5u8, any::<prop::sample::Index>(), "[ -~é\\n]{0,3}"),
        1..5,
    );
    (seed, edits).prop_map(|(seed, edits)| {
        let mut words: Vec<String> = seed.split_inclusive([' ', '(', ')', ',', '\'']).map(str::to_owned).collect();
        for (at, kind, other, text) in edits {
            let (i, j) = (at.index(words.len()), other.index(words.len()));
            match kind {
                0 => drop(words.remove(i)),
                1 => words.swap(i, j),
                2 => words.insert(i, words[j].clone()),
                3 => words[i] = text,
                _ => words.insert(i, text),
            }
            if words.is_empty() {
                words.push(String::new());
            }
        }
        words.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_statements_never_panic(text in mutated()) {
        throw(&text);
    }

    #[test]
    fn random_text_never_panics(text in "[ -~\\n\\té€\u{1}]{0,60}") {
        throw(&text);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let db = Db::postgres();
    for text in [
        format!("select {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("select {}1", "- ".repeat(5000)),
        format!("select {}1", "not ".repeat(5000)),
        format!("select 1 where {}", vec!["(select 1) = 1"; 2000].join(" and (")),
        format!("select {}", vec!["1"; 20_000].join(" + ")),
        format!("select {}", vec!["case when true then "; 3000].concat()),
    ] {
        let scan = Scan::new(&text, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        if let Err(e) = translate(&piece, &db.context()) {
            assert!(["54001", "42601"].contains(&e.state().0), "{e:?}");
        }
    }
}
