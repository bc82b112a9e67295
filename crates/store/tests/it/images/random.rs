//! Random statements on tables of all kinds: the captured operations, applied to a copy, must give an equal database.
//! `HOLDFAST_SEED=n` repeats one run.

use super::volume::{Copy, Source, dump, open};
use std::fmt::Write;

/// Marsaglia's xorshift64: enough to vary statements, and equal on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    /// A literal of any storage class.
    fn literal(&mut self) -> String {
        match self.below(16) {
            0 => "NULL".into(),
            1 => "-0.0".into(),
            2 => "9e999".into(),
            3 => "9e999 - 9e999".into(),
            4 => "'a' || char(0) || 'b'".into(),
            5 => format!("zeroblob({})", self.below(40_000)),
            6 => "x''".into(),
            7 => "''".into(),
            8 => "'1e500'".into(),
            9 => format!("{}", self.next() as i64),
            10 => format!("randomblob({})", self.below(9_000)),
            11 => format!("{}.5", self.below(100)),
            12 => format!("{}.0", self.below(100)),
            _ => format!("{}", self.below(40)),
        }
    }

    /// A small number, so that keys collide.
    fn key(&mut self) -> u64 {
        self.below(30) + 1
    }
}

const SCHEMA: &[&str] = &[
    "CREATE TABLE plain(a, b INT, c TEXT, d REAL, e BLOB, f NUMERIC)",
    "CREATE TABLE hidden(rowid TEXT, oid, v UNIQUE ON CONFLICT REPLACE, w UNIQUE ON CONFLICT IGNORE)",
    "CREATE TABLE ipk(id INTEGER PRIMARY KEY, a UNIQUE, b DEFAULT 'x', c REAL)",
    "CREATE TABLE \"odd \"\"name\"(\"the id\" INTEGER PRIMARY KEY DESC, \"se lect\" TEXT COLLATE NOCASE UNIQUE)",
    "CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE)",
    "CREATE TABLE auto2(id INTEGER PRIMARY KEY AUTOINCREMENT, a)",
    "CREATE TABLE keyed(a TEXT COLLATE NOCASE, b INT, c, d REAL, PRIMARY KEY(b, a)) WITHOUT ROWID",
    "CREATE TABLE keyed2(g AS (a || 'g'), a, b REAL, c INT, PRIMARY KEY(b DESC, c)) WITHOUT ROWID",
    "CREATE TABLE gen(v AS (a + 1), a INT, s AS (a * 2) STORED, b TEXT, t TEXT AS (b || 't') STORED UNIQUE)",
    "CREATE TABLE strict1(id INT PRIMARY KEY, a INTEGER, b REAL, c TEXT, d ANY) STRICT",
    "CREATE TABLE parent(id INTEGER PRIMARY KEY, k UNIQUE, up REFERENCES parent(id) ON DELETE SET NULL)",
    "CREATE TABLE child(a REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE,
        b REFERENCES parent(k) ON DELETE SET DEFAULT ON UPDATE SET NULL)",
    "CREATE TABLE log(what, n)",
    "CREATE TABLE summary(id INTEGER PRIMARY KEY, n INT)",
    "CREATE INDEX part ON plain(b) WHERE b > 10",
    "CREATE UNIQUE INDEX expr ON ipk(a || coalesce(b, ''))",
    "CREATE VIEW both AS SELECT ipk.id, ipk.a, plain.b FROM ipk JOIN plain ON plain.a = ipk.id",
    "CREATE TRIGGER view_insert INSTEAD OF INSERT ON both BEGIN
        INSERT OR IGNORE INTO ipk(id, a) VALUES(new.id, new.a); INSERT INTO plain(a, b) VALUES(new.id, new.b); END",
    "CREATE TRIGGER ipk_log AFTER UPDATE ON ipk BEGIN INSERT INTO log VALUES('u' || old.id, random()); END",
    "CREATE TRIGGER plain_before BEFORE INSERT ON plain WHEN new.b % 7 = 0 BEGIN
        INSERT INTO log VALUES('ignored', new.b); SELECT raise(IGNORE); END",
    "CREATE TRIGGER child_sum AFTER DELETE ON child BEGIN
        INSERT INTO summary VALUES(old.a, 1) ON CONFLICT(id) DO UPDATE SET n = n + 1; END",
    "CREATE TRIGGER gen_fail BEFORE INSERT ON gen WHEN new.a = 13 BEGIN SELECT raise(FAIL, 'thirteen'); END",
    "CREATE VIRTUAL TABLE words USING fts5(title, body, prefix='2')",
    "CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1, y0, y1, +note)",
    "CREATE TABLE doc(id INTEGER PRIMARY KEY, body)",
    "CREATE VIRTUAL TABLE doc_words USING fts5(body, content='doc', content_rowid='id')",
    "CREATE TRIGGER doc_ai AFTER INSERT ON doc BEGIN
        INSERT INTO doc_words(rowid, body) VALUES(new.id, new.body); END",
];

/// Tables whose columns accept any values, with those columns.
const LOOSE: &[(&str, &[&str])] = &[
    ("plain", &["a", "b", "c", "d", "e", "f"]),
    ("hidden", &["rowid", "oid", "v", "w"]),
    ("ipk", &["id", "a", "b", "c"]),
    ("\"odd \"\"name\"", &["\"the id\"", "\"se lect\""]),
    ("auto", &["id", "a"]),
    ("auto2", &["a"]),
    ("keyed", &["a", "b", "c", "d"]),
    ("keyed2", &["a", "b", "c"]),
    ("gen", &["a", "b"]),
    ("strict1", &["id", "a", "b", "c", "d"]),
    ("parent", &["id", "k", "up"]),
    ("child", &["a", "b"]),
    ("log", &["what", "n"]),
    ("doc", &["id", "body"]),
];

fn statement(r: &mut Random) -> String {
    let (table, columns) = LOOSE[r.below(LOOSE.len() as u64) as usize];
    let value = |r: &mut Random| if r.below(3) == 0 { r.literal() } else { r.key().to_string() };
    let or = ["", "", "", "OR REPLACE ", "OR IGNORE ", "OR FAIL "];
    match r.below(20) {
        0..=5 => {
            let mut sql = format!("INSERT {}INTO {table}({}) VALUES", r.pick(&or), columns.join(","));
            for row in 0..=r.below(3) {
                let values: Vec<String> = columns.iter().map(|_| value(r)).collect();
                let comma = if row > 0 { "," } else { "" };
                write!(sql, "{comma}({})", values.join(",")).unwrap();
            }
            sql + r.pick(&["", " ON CONFLICT DO NOTHING"])
        }
        6..=9 => {
            let column = r.pick(columns);
            let (other, new, key) = (r.pick(columns), value(r), r.key());
            let set = if r.below(3) == 0 { format!("{column} = {column}") } else { format!("{column} = {new}") };
            let span = r.below(6);
            format!("UPDATE {}{table} SET {set} WHERE {other} BETWEEN {key} AND {}", r.pick(&or), key + span)
        }
        10 => format!("UPDATE plain SET rowid = rowid + {} WHERE b < {}", 100 + r.key(), r.key()),
        11 => format!("UPDATE hidden SET _rowid_ = -_rowid_ WHERE v < {}", r.key()),
        12..=13 => format!("DELETE FROM {table} WHERE {} = {}", r.pick(columns), r.key()),
        14 => special(r, table),
        15 => {
            let (a, b) = (r.key(), r.key());
            let word = r.pick(&["storm", "harbour", "mast", "keel"]);
            match r.below(4) {
                0 => format!("INSERT OR REPLACE INTO words(rowid, title, body) VALUES({a}, '{word}', '{word} {b}')"),
                1 => format!("UPDATE words SET body = '{word} x{b}' WHERE rowid = {a}"),
                2 => format!("DELETE FROM words WHERE rowid = {a}"),
                _ => "INSERT INTO words(words) VALUES('optimize')".into(),
            }
        }
        16 => {
            let (id, x, y) = (r.key(), r.key(), r.key());
            match r.below(3) {
                0 => format!("INSERT OR REPLACE INTO boxes VALUES({id}, {x}, {x} + 5, {y}, {y} + 1, 'n{x}')"),
                1 => format!("UPDATE boxes SET x1 = x1 + {x} WHERE id = {id}"),
                _ => format!("DELETE FROM boxes WHERE id = {id}"),
            }
        }
        17 => format!("INSERT INTO both VALUES({}, {}, {})", r.key() + 30, r.literal(), r.key()),
        18 => format!("INSERT INTO temp.scratch VALUES({}, {}); DELETE FROM temp.plain", r.key(), r.literal()),
        _ => {
            let (id, n) = (r.key(), r.key());
            format!("INSERT INTO ipk(id, a) VALUES({id}, {n}) ON CONFLICT(id) DO UPDATE SET a = {n}, id = id + 40")
        }
    }
}

/// Statements that each contain a trap.
fn special(r: &mut Random, table: &str) -> String {
    match r.below(9) {
        0 => format!("DELETE FROM {table}"),
        1 => "INSERT INTO plain SELECT * FROM plain LIMIT 50".into(),
        2 => "INSERT INTO auto2(a) SELECT a FROM auto".into(),
        3 => "INSERT OR IGNORE INTO auto(a) SELECT a FROM auto LIMIT 1".into(),
        4 => "DELETE FROM sqlite_sequence WHERE name = 'auto2'".into(),
        5 => format!("UPDATE sqlite_sequence SET seq = seq + {}", r.key()),
        6 => "INSERT INTO sqlite_sequence VALUES('nobody', 3)".into(),
        7 => "INSERT INTO twin SELECT * FROM plain".into(),
        _ => "PRAGMA incremental_vacuum".into(),
    }
}

fn schema_change(r: &mut Random) -> String {
    let n = r.below(4);
    match r.below(16) {
        0 => format!("CREATE TABLE extra{n}(a, b INTEGER PRIMARY KEY AUTOINCREMENT)"),
        1 => format!("DROP TABLE extra{n}"),
        2 => format!("ALTER TABLE extra{n} RENAME TO extra{}", r.below(4)),
        3 => format!("ALTER TABLE log ADD COLUMN c{n} DEFAULT {n}"),
        4 => format!("ALTER TABLE log DROP COLUMN c{n}"),
        5 => format!("CREATE INDEX IF NOT EXISTS log_n{n} ON log(n, what) WHERE n > {n}"),
        6 => format!("DROP INDEX IF EXISTS log_n{n}"),
        7 => "ANALYZE".into(),
        8 => format!("CREATE VIRTUAL TABLE IF NOT EXISTS more{n} USING fts5(t)"),
        9 => format!("DROP TABLE IF EXISTS more{n}"),
        10 => "CREATE TABLE twin(a, b INT, c TEXT, d REAL, e BLOB, f NUMERIC)".into(),
        11 => "DROP TABLE IF EXISTS twin".into(),
        12 => "REINDEX".into(),
        13 => format!("ALTER TABLE more{n} RENAME TO more{}", r.below(4)),
        14 => format!("CREATE VIEW IF NOT EXISTS view{n} AS SELECT {n}"),
        _ => format!("DROP VIEW IF EXISTS view{n}"),
    }
}

fn run(seed: u64, transactions: usize) {
    let mut r = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let (source_path, copy_path) = (dir.path().join("source"), dir.path().join("copy"));
    let (mut source, mut copy) = (Source::create(&source_path), Copy::create(&copy_path));
    source.begin();
    for sql in SCHEMA {
        source.ddl(sql).unwrap();
    }
    source
        .run("CREATE TEMP TABLE scratch(a, b); CREATE TEMP TABLE plain(a); INSERT INTO temp.plain VALUES(1)")
        .unwrap();
    copy.apply(&source.commit().unwrap()).unwrap();
    let mut done = 0;
    for _ in 0..transactions {
        source.begin();
        for _ in 0..=r.below(8) {
            let sql =
                statement(&mut r).replace("INTO plain", "INTO main.plain").replace("UPDATE plain", "UPDATE main.plain");
            let result = if r.below(30) == 0 { source.ddl(&schema_change(&mut r)) } else { source.run(&sql) };
            done += usize::from(result.is_ok());
            if r.below(40) == 0 {
                source
                    .conn
                    .capture()
                    .append(|buf| holdfast_types::record::op::put_pragma(buf, "PRAGMA user_version = 9"));
                source.conn.exec("PRAGMA user_version = 9").unwrap();
            }
        }
        if r.below(12) == 0 {
            source.rollback();
            continue;
        }
        let body = source.commit().unwrap();
        copy.apply(&body).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if r.below(20) == 0 {
            assert_equal(seed, &mut source, &mut copy);
        }
    }
    assert!(done > transactions, "seed {seed}: most statements failed");
    assert_equal(seed, &mut source, &mut copy);
    drop(copy);
    check_virtual_tables(seed, &mut open(&copy_path), &mut source);
}

fn assert_equal(seed: u64, source: &mut Source, copy: &mut Copy) {
    let (ours, theirs) = (dump(&mut source.conn), dump(&mut copy.conn));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "seed {seed}");
    }
    assert_eq!(ours.len(), theirs.len(), "seed {seed}");
}

/// On a fresh connection the copy's virtual tables give the same answers as the source's.
fn check_virtual_tables(seed: u64, copy: &mut holdfast_store::sqlite::Conn, source: &mut Source) {
    let ok = copy.query_value("PRAGMA integrity_check").unwrap();
    assert_eq!(ok, holdfast_types::Value::Text("ok".into()), "seed {seed}");
    copy.exec("INSERT INTO words(words) VALUES('integrity-check')").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for sql in [
        "SELECT rowid, title FROM words WHERE words MATCH 'storm OR ma*' ORDER BY rowid",
        "SELECT rowid FROM doc_words WHERE doc_words MATCH '3' ORDER BY rowid",
        "SELECT * FROM boxes WHERE x0 < 20 ORDER BY id",
    ] {
        assert_eq!(copy.query_rows(sql).unwrap(), source.conn.query_rows(sql).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_copy_fed_with_the_operations_is_equal() {
    match std::env::var("HOLDFAST_SEED") {
        Ok(seed) => run(seed.parse().expect("HOLDFAST_SEED is a number"), 400),
        Err(_) => (1..=12).for_each(|seed| run(seed, 150)),
    }
}
