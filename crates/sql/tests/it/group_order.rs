//! Whether a GROUP BY over a whole table follows an index: as SQLite plans it.

use crate::common::Db;

const TABLES: [&str; 3] = [
    "create table t(id bigint primary key, place text, kind text, n int, price numeric(10, 2))",
    "create index t_place on t(place, kind)",
    "create index t_price on t(price)",
];

fn db() -> Db {
    let mut db = Db::postgres();
    for sql in TABLES {
        db.run(sql).unwrap();
    }
    for (id, place) in ["b", "a", "b", "c"].iter().enumerate() {
        db.run(&format!("insert into t values ({id}, '{place}', 'k{}', {id}, {id}.50)", id % 2)).unwrap();
    }
    db
}

/// Whether SQLite reads the table through that index, and in its order.
fn follows(db: &mut Db, sql: &str, index: &str) -> bool {
    let plan = db.lines(&format!("explain {sql}"));
    let has = |words: &str| plan.iter().any(|line| line.contains(words));
    has(&format!("INDEX {index}")) && !has("FOR GROUP BY")
}

#[test]
fn a_whole_table_is_not_fetched_row_by_row() {
    let mut db = db();
    for sql in [
        "select place, sum(n) from t group by place",
        "select place, sum(n) from t group by place order by 2 desc, 1 limit 10",
        "select kind, place, sum(n) from t group by 2, 1",
        "select place as p, max(n) from t as u group by u.place having sum(n) > 0",
        "select price, sum(n) from t group by price",
    ] {
        for index in ["t_place", "t_price"] {
            assert!(!follows(&mut db, sql, index), "{sql}");
        }
    }
    assert_eq!(
        db.lines("select place, sum(n), max(kind) from t group by place order by 2 desc, 1"),
        ["c|3|k1", "b|2|k0", "a|1|k1"]
    );
}

#[test]
fn an_index_is_followed_where_it_saves_more() {
    let mut db = db();
    for sql in [
        "select place, count(*) from t group by place",
        "select place, max(kind) from t group by place",
        "select place, max(id) from t group by place",
        "select place, sum(n) from t group by place order by place limit 1",
        "select place, sum(n) from t group by place order by 1 limit 1",
        "select kind, sum(n) from t where place = 'a' group by kind",
    ] {
        assert!(follows(&mut db, sql, "t_place"), "{sql}");
    }
    // A view is shown as it was written.
    db.run("create view v as select place, sum(n) as n from t group by place").unwrap();
    let shown = db.lines("select pg_get_viewdef('v'::regclass)");
    assert!(shown[0].contains("GROUP BY") && !shown[0].contains('+'), "{shown:?}");
    // The order of the table itself.
    let plan = db.lines("explain select id, max(n) from t group by id");
    assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:?}");
}
