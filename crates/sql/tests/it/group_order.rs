//! GROUP BY: what a name in it means, and whether it follows an index when it goes over a whole table, as SQLite plans it.

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

/// PostgreSQL's manual, SELECT, GROUP BY: "In case of ambiguity, a GROUP BY name will be interpreted as an input-column name".
#[test]
fn a_name_means_an_input_column_first_and_then_an_output_column() {
    let mut db = Db::postgres();
    db.run("create table al(a int, b int, t text, u text)").unwrap();
    db.run("insert into al values (1, 1, 'x', 'p'), (1, 2, 'X', 'p'), (2, 1, 'x', 'q')").unwrap();
    for (sql, rows) in [
        ("select a + 0 as b, a from al group by a, b order by 1", &["1|1", "1|1", "2|2"][..]),
        ("select a + 0 as b, count(*) from al group by b, a order by 1", &["1|1", "1|1", "2|1"]),
        ("select a as k, count(*) from al group by k order by 1", &["1|2", "2|1"]),
        ("select al.a as k, count(*) from al group by k order by k", &["1|2", "2|1"]),
        ("select lower(t) as low, count(*) from al group by low", &["x|3"]),
        ("select b as a, a as b from al group by a, b order by 1, 2", &["1|1", "1|2", "2|1"]),
    ] {
        assert_eq!(db.lines(sql), rows, "{sql}");
    }
    assert_eq!(db.state("select lower(t) as u, count(*) from al group by u"), "42803");
    assert_eq!(db.state("select a as k from al group by nothing"), "42703");
}
