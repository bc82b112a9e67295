//! What a statement locks: rows by FOR UPDATE, FOR SHARE and so on, tables by LOCK TABLE, and advisory locks.

use crate::common::{Db, Session, own};
use holdfast_sql::{AdvisoryOp, Kind, ParamSource, Scan, StatementCache, translate};
use holdfast_types::schema::Dialect;
use holdfast_types::{LockStrength, LockWait, RowLock, TableLockMode, Value};
use rusqlite::types::Value as Lite;

fn db() -> Db {
    let mut db = Db::postgres();
    db.run(
        "create table t (id int primary key, a int, b text);
         create table h (a int, \"Rowid\" text);
         create table two (x int, y int, primary key (y, x));
         create view v as select a from t;
         insert into t values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z');
         insert into h values (10, 'p'), (20, 'q')",
    )
    .unwrap();
    db.conn.execute_batch("create table w (v text, k int, j int, primary key (j, k)) without rowid").unwrap();
    db.conn.execute_batch("create virtual table f using fts5(body); insert into w values ('v', 1, 2)").unwrap();
    db.reload();
    db
}

fn lock(table: &str, strength: LockStrength, wait: LockWait, key: &[usize]) -> RowLock {
    RowLock { table: table.to_owned(), strength, wait, key: key.to_vec(), limit: None }
}

/// All columns of the statement's rows, including the hidden ones.
fn rows(db: &Db, sql: &str, client: &[Value]) -> Vec<Vec<Lite>> {
    let scan = Scan::new(sql, db.dialect).unwrap();
    let piece = scan.pieces().next().unwrap();
    let translated = translate(&piece, &db.context()).unwrap();
    let params = translated.bind(&piece.literals(), client, &Session).unwrap().into_iter().map(own);
    let mut statement =
        db.conn.prepare(&translated.steps[0].sql).unwrap_or_else(|e| panic!("{:?}: {e}", translated.steps));
    let width = statement.column_count();
    let row = |r: &rusqlite::Row<'_>| (0..width).map(|i| r.get(i)).collect::<Result<Vec<Lite>, _>>();
    statement.query_map(rusqlite::params_from_iter(params), row).unwrap().map(Result::unwrap).collect()
}

fn ints(rows: &[Vec<Lite>], columns: &[usize]) -> Vec<Vec<i64>> {
    let int = |v: &Lite| if let Lite::Integer(i) = v { *i } else { panic!("{v:?}") };
    rows.iter().map(|r| columns.iter().map(|c| int(&r[*c])).collect()).collect()
}

#[test]
fn keys_stand_behind_what_the_client_sees() {
    use LockStrength::*;
    use LockWait::*;
    let db = db();
    for (sql, visible, locks, keys) in [
        (
            "select b from t where a > 10 order by 1 for update",
            1,
            vec![lock("t", Update, Wait, &[1])],
            vec![vec![2], vec![3]],
        ),
        (
            "select a from h for no key update nowait",
            1,
            vec![lock("h", NoKeyUpdate, NoWait, &[1])],
            vec![vec![1], vec![2]],
        ),
        ("select * from w for share", 3, vec![lock("w", Share, Wait, &[3, 4])], vec![vec![2, 1]]),
        ("select from t where id = 1 for key share", 0, vec![lock("t", KeyShare, Wait, &[0])], vec![vec![1]]),
        (
            "select x.b, y.a from t as x join h y on x.a = y.a where x.id = 2 for update",
            2,
            vec![lock("t", Update, Wait, &[2]), lock("h", Update, Wait, &[3])],
            vec![vec![2, 2]],
        ),
        (
            "select 1 from (t join h using (a)) where t.id = 1 for update of h for share",
            1,
            vec![lock("t", Share, Wait, &[1]), lock("h", Update, Wait, &[2])],
            vec![vec![1, 1]],
        ),
        (
            "select 1 from t left join h using (a) where id = 3 for update of t nowait for key share of t skip locked",
            1,
            vec![lock("t", Update, NoWait, &[1])],
            vec![vec![3]],
        ),
        (
            "with c as (select 2 as n) select id from t, c, (values (1)) as q(z), pg_class k where id = n and relname = 't' for update",
            1,
            vec![lock("t", Update, Wait, &[1])],
            vec![vec![2]],
        ),
        ("select id from t order by id for update limit 1", 1, vec![lock("t", Update, Wait, &[1])], vec![vec![1]]),
        ("select 5 for update", 1, vec![], vec![vec![]]),
    ] {
        let translated = db.translate(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        assert_eq!(translated.row_locks, locks, "{sql}");
        assert_eq!(translated.desc.columns.len(), visible, "{sql}");
        assert!(translated.locks, "{sql}");
        let columns: Vec<usize> = locks.iter().flat_map(|l| l.key.clone()).collect();
        assert_eq!(ints(&rows(&db, sql, &[]), &columns), keys, "{sql}");
    }
}

#[test]
fn rows_left_out_do_not_count_for_the_limit() {
    let db = db();
    let sql = "select b from t order by id limit 2 for update skip locked";
    let translated = db.translate(sql).unwrap();
    assert_eq!(
        translated.row_locks,
        [RowLock { limit: Some(2), ..lock("t", LockStrength::Update, LockWait::SkipLocked, &[1]) }]
    );
    assert_eq!(ints(&rows(&db, sql, &[]), &[1, 2]), [[1, 2], [2, 2], [3, 2]]);
    let sql = "select b from t for update skip locked limit $1";
    assert_eq!(ints(&rows(&db, sql, &[Value::Int(7)]), &[2]), [[7], [7], [7]]);
    let translated = db.translate("select b from t for update skip locked").unwrap();
    assert_eq!(translated.row_locks[0].limit, None);
    // Where no row can be skipped, SQLite applies the limit.
    for sql in [
        "select relname from pg_class limit 2 for update skip locked",
        "select b from t limit 2 for update skip locked for update nowait",
        "select b from t, (values (1)) v(z) limit (select 2) for update of v skip locked",
    ] {
        let translated = db.translate(sql).unwrap();
        assert!(translated.row_locks.iter().all(|l| l.limit.is_none()), "{sql}");
        assert_eq!(rows(&db, sql, &[]).len(), 2, "{sql}");
    }
    let error = db.translate("select b from t limit 1 offset 1 for update skip locked").unwrap_err();
    assert_eq!(error.state().0, "0A000");
}

#[test]
fn what_has_no_rows_of_its_own_is_refused_in_postgresqls_words() {
    let db = db();
    for (sql, state, message) in [
        ("select count(*) from t for update", "0A000", "FOR UPDATE is not allowed with aggregate functions"),
        ("select a from t group by a for share", "0A000", "FOR SHARE is not allowed with GROUP BY clause"),
        ("select 1 from t having true for share", "0A000", "FOR SHARE is not allowed with HAVING clause"),
        ("select distinct a from t for key share", "0A000", "FOR KEY SHARE is not allowed with DISTINCT clause"),
        (
            "select rank() over (order by a) from t for update",
            "0A000",
            "FOR UPDATE is not allowed with window functions",
        ),
        (
            "select a from t union select a from h for no key update",
            "0A000",
            "FOR NO KEY UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
        ),
        ("values (1) for update", "0A000", "FOR UPDATE cannot be applied to VALUES"),
        (
            "select 1 from t left join h using (a) for update",
            "0A000",
            "FOR UPDATE cannot be applied to the nullable side of an outer join",
        ),
        (
            "select 1 from t as x for update of t",
            "42P01",
            "relation \"t\" in FOR UPDATE clause not found in FROM clause",
        ),
        (
            "select 1 from t, generate_series(1, 2) g for update of g",
            "0A000",
            "FOR UPDATE cannot be applied to a function",
        ),
        (
            "with c as (select 1) select 1 from t, c for update of c",
            "0A000",
            "FOR UPDATE cannot be applied to a WITH query",
        ),
        ("select 1 from t for update of public.t", "42601", "FOR UPDATE must specify unqualified relation names"),
    ] {
        let error = db.translate(sql).expect_err(sql);
        assert_eq!((error.state().0, error.message()), (state, message), "{sql}");
    }
    for sql in [
        "select 1 from (select * from t) s for update",
        "select * from v for update",
        "select * from f for update",
        "select 1 from t where id in (select a from h for update)",
        "with c as (select * from t for no key update) select * from c",
        "insert into h (a) select a from t for update",
        "create table n as select a from t for update",
    ] {
        assert_eq!(db.translate(sql).expect_err(sql).state().0, "0A000", "{sql}");
    }
    let prepared = db.translate("prepare p as select * from t for no key update of t").unwrap();
    assert!(matches!(&prepared.kind, Kind::Prepare { statement, .. } if statement.ends_with("for no key update of t")));
    let plan = db.translate("explain select * from t for update").unwrap();
    assert!(!plan.locks && plan.row_locks.is_empty());
}

#[test]
fn locking_statements_are_cached_with_their_locks() {
    let db = db();
    let cache: StatementCache<()> = StatementCache::new(10, 1 << 20);
    let scan = |text| Scan::new(text, db.dialect).unwrap();
    let first = scan("select b from t where id = 1 for update");
    let piece = first.pieces().next().unwrap();
    cache.insert(&piece, 1, translate(&piece, &db.context()).unwrap(), ());
    let second = scan("select b from t where id = 1 for update");
    let found = cache.lookup(&second.pieces().next().unwrap(), 1).unwrap();
    assert_eq!(found.translated.row_locks.len(), 1);
}

#[test]
fn tables_are_locked_by_name_and_mode() {
    use TableLockMode::*;
    let db = db();
    for (sql, tables, mode, no_wait) in [
        ("lock table t", &["t"][..], AccessExclusive, false),
        ("lock t, public.h in access share mode nowait", &["t", "h"], AccessShare, true),
        ("LOCK TABLE ONLY T IN ROW SHARE MODE", &["t"], RowShare, false),
        ("lock t in row exclusive mode", &["t"], RowExclusive, false),
        ("lock t in share update exclusive mode", &["t"], ShareUpdateExclusive, false),
        ("lock t in share mode", &["t"], Share, false),
        ("lock f in share row exclusive mode", &["f"], ShareRowExclusive, false),
        ("lock t in exclusive mode", &["t"], Exclusive, false),
        ("lock t nowait", &["t"], AccessExclusive, true),
    ] {
        let translated = db.translate(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        let tables = tables.iter().map(|t| (*t).to_owned()).collect();
        assert_eq!(translated.kind, Kind::LockTable { tables, mode, no_wait }, "{sql}");
        assert!(translated.locks && translated.steps.is_empty() && translated.verb == "LOCK TABLE");
    }
    for (sql, state) in [
        ("lock nothing", "42P01"),
        ("lock table \"T\"", "42P01"),
        ("lock other.t", "3F000"),
        ("lock v", "0A000"),
        ("lock pg_class", "42501"),
        ("lock t in some mode", "42601"),
    ] {
        assert_eq!(db.translate(sql).expect_err(sql).state().0, state, "{sql}");
    }
}

#[test]
fn advisory_locks_become_one_function() {
    use AdvisoryOp::*;
    let mut db = db();
    let wide = |a: i64, b: u32| (a << 32) | i64::from(b);
    for (sql, ty, shown, calls) in [
        ("select pg_advisory_lock(7)", "void", "", vec![(Lock, 7, 0)]),
        ("select pg_advisory_lock_shared('-7')", "void", "", vec![(LockShared, -7, 0)]),
        ("select pg_advisory_xact_lock(1, -2)", "void", "", vec![(XactLock, wide(1, u32::MAX - 1), 1)]),
        ("select pg_advisory_xact_lock_shared(-1, 2::smallint)", "void", "", vec![(XactLockShared, wide(-1, 2), 1)]),
        ("select pg_try_advisory_lock(9223372036854775807)", "boolean", "t", vec![(TryLock, i64::MAX, 0)]),
        ("select pg_try_advisory_lock_shared(0, 0)", "boolean", "t", vec![(TryLockShared, 0, 1)]),
        ("select pg_try_advisory_xact_lock(2)", "boolean", "t", vec![(TryXactLock, 2, 0)]),
        ("select pg_catalog.pg_try_advisory_xact_lock_shared(3)", "boolean", "t", vec![(TryXactLockShared, 3, 0)]),
        ("select pg_advisory_unlock(4)", "boolean", "t", vec![(Unlock, 4, 0)]),
        ("select pg_advisory_unlock_shared(4, 5)", "boolean", "t", vec![(UnlockShared, wide(4, 5), 1)]),
        ("select pg_advisory_unlock_all()", "void", "", vec![(UnlockAll, 0, 0)]),
        (
            "select pg_try_advisory_lock(a) from t where a > 10",
            "boolean",
            "t",
            vec![(TryLock, 20, 0), (TryLock, 30, 0)],
        ),
        ("select pg_advisory_lock(null)", "void", "NULL", vec![]),
        ("select pg_try_advisory_lock(1, null)", "boolean", "NULL", vec![]),
        ("select * from pg_advisory_unlock_all()", "void", "", vec![(UnlockAll, 0, 0)]),
    ] {
        let translated = db.translate(sql).unwrap();
        assert!(translated.advisory && translated.locks, "{sql}");
        let answer = db.run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        assert_eq!((answer.columns[0].1.as_str(), answer.lines()[0].as_str()), (ty, shown), "{sql}");
        assert_eq!(std::mem::take(&mut *db.advisory.lock().unwrap()), calls, "{sql}");
    }
    let keys = db.translate("select pg_try_advisory_lock(5), pg_advisory_lock(1, -2)").unwrap();
    let lifted = keys.params.iter().filter(|p| matches!(p.source, ParamSource::Literal(_))).count();
    assert_eq!(lifted, 3, "other keys are the same statement: {:?}", keys.steps);
    let answer = db.run_with("select pg_advisory_lock($1)", &[Value::Int(11)]).unwrap();
    assert_eq!(answer.lines(), [""]);
    assert_eq!(*db.advisory.lock().unwrap(), [(Lock, 11, 0)]);
    for sql in
        ["select pg_advisory_lock(1.5)", "select pg_advisory_lock(3000000000, 1)", "select pg_advisory_unlock_all(1)"]
    {
        assert_eq!(db.state(sql), "42883", "{sql}");
    }
    assert_eq!(db.state("create view w1 as select pg_try_advisory_lock(1)"), "0A000");
    assert!(!db.translate("explain select pg_advisory_lock(1)").unwrap().advisory);
    assert!(!db.translate("select 1").unwrap().advisory);
    let numbers: Vec<i64> = (0..20).filter_map(AdvisoryOp::from_i64).map(|op| op as i64).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<i64>>());
    let other = Db::new(Dialect::Sqlite);
    assert!(other.translate("select pg_try_advisory_lock(1)").unwrap().advisory);
}
