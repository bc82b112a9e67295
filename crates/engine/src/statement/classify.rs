//! Classifies a statement from SQLite's program for it: EXPLAIN lists the opcodes, those of triggers and foreign key
//! actions included.
//!
//! | the program | the class |
//! |---|---|
//! | writes the schema (ParseSchema, CreateBtree, Destroy, ...) | Ddl |
//! | steps through a b-tree or virtual table (Next, Prev, VNext, ...), or sorts, or opens a virtual table | Scan, WriteScan |
//! | has a loop in a loop (a join of VALUES lists), or one over the queue of a recursive query | Scan, WriteScan |
//! | calls a function whose time its arguments do not bound | Scan, WriteScan |
//! | calls others more than [`CALLS_MAX`] times, or is longer than [`PROGRAM_MAX`] | Scan, WriteScan |
//! | does none of these | Read, Write |
//!
//! Stepping once through rows that the statement itself has stored (RETURNING, VALUES) does not count: there are no more of them
//! than the text has. Nor does `sqlite_sequence`: every insert into an AUTOINCREMENT table looks its counter up by a scan,
//! and the table has one row per such table.
//!
//! Which functions are bounded is listed with their definitions ([`Conn::cost`]); a function that is not listed is not. A statement
//! that calls linear ones, or concatenates, runs where others wait for it only within the bounds of [`Step::bounds`]; beyond
//! them it ends with SQLITE_TOOBIG and begins again elsewhere.
//!
//! [`Step::bounds`]: crate::statement::model::Step::bounds

use crate::statement::model::Class;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::{Cost, Value};
use std::collections::HashMap;

/// The most calls of linear functions, and concatenations, of a bounded statement.
const CALLS_MAX: usize = 500;

/// The longest program of a bounded statement, in opcodes: a VALUES list of 10,000 rows with five columns.
const PROGRAM_MAX: usize = 100_000;

/// ALTER TABLE writes the schema with SetCookie and similar opcodes.
const DDL: [&str; 15] = [
    "ParseSchema",
    "CreateBtree",
    "Destroy",
    "DropTable",
    "DropIndex",
    "DropTrigger",
    "VCreate",
    "VDestroy",
    "VRename",
    "SetCookie",
    "Expire",
    "SqlExec",
    "LoadAnalysis",
    "Vacuum",
    "IncrVacuum",
];

/// `Next` is classified by its cursor. `Clear` empties a table at once here, but row by row where the hook is
/// installed.
const LOOPS: [&str; 10] =
    ["Prev", "VNext", "VOpen", "VFilter", "VUpdate", "SorterNext", "SorterSort", "Sort", "Count", "Clear"];

/// What a statement does, and what the functions cost that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    pub class: Class,
    pub cost: Cost,
}

/// The class of `sql`; `id` is the statement prepared from it. `explains`: it is an EXPLAIN.
pub fn classify(conn: &mut Conn, id: StmtId, sql: &str, explains: bool) -> Result<Classified, SqliteError> {
    // EXPLAIN itself only reads the schema, whatever statement follows it.
    if explains {
        return Ok(Classified { class: Class::Scan, cost: Cost::Constant });
    }
    let rows = conn.first_rows(&format!("explain {sql}"), PROGRAM_MAX + 1)?;
    let writes = !conn.readonly(id);
    let sequence = root_page(conn, "sqlite_sequence")?;
    let program: Vec<Op<'_>> = rows.iter().filter_map(|row| Op::of(row)).collect();
    let judged = judge(&program, sequence, |function| conn.cost(function));
    let class = match (judged.ddl, judged.bounded, writes) {
        (true, _, true) => Class::Ddl,
        (false, false, true) => Class::WriteScan,
        // Some PRAGMAs that only read have opcodes of schema changes.
        (true, _, false) | (false, false, false) => Class::Scan,
        (false, true, true) => Class::Write,
        (false, true, false) => Class::Read,
    };
    Ok(Classified { class, cost: judged.cost })
}

#[derive(Debug, PartialEq)]
struct Judged {
    ddl: bool,
    bounded: bool,
    cost: Cost,
}

fn root_page(conn: &mut Conn, table: &str) -> Result<Option<i64>, SqliteError> {
    let sql = format!("select rootpage from sqlite_schema where name = '{table}' and type = 'table'");
    Ok(match conn.query_value(&sql)? {
        Value::Int(page) => Some(page),
        _ => None,
    })
}

/// A row of EXPLAIN: addr, opcode, p1, p2, p3, p4, p5, comment.
#[derive(Clone, Copy)]
struct Op<'a> {
    at: i64,
    name: &'a str,
    p1: i64,
    p2: i64,
    p4: &'a str,
}

impl Op<'_> {
    fn of(row: &[Value]) -> Option<Op<'_>> {
        let [Value::Int(at), Value::Text(name), Value::Int(p1), Value::Int(p2), _, p4, ..] = row else { return None };
        let p4 = if let Value::Text(p4) = p4 { p4 } else { "" };
        Some(Op { at: *at, name, p1: *p1, p2: *p2, p4 })
    }
}

/// A cursor's number may be reused: the b-tree that counts is the one it was last opened on in the order of the listing. A
/// table that the statement itself fills (RETURNING) is opened at the listing's end, where programs begin.
fn judge(program: &[Op<'_>], sequence: Option<i64>, cost_of: impl Fn(&str) -> Cost) -> Judged {
    let mut cursors: HashMap<i64, Option<i64>> =
        program.iter().filter(|op| op.name == "OpenEphemeral").map(|op| (op.p1, None)).collect();
    let mut bounded = program.len() <= PROGRAM_MAX;
    // What is cut off may call anything.
    let mut cost = if bounded { Cost::Constant } else { Cost::Unbounded };
    // Rows that loops over what the statement has stored may meet: each was stored by one of these.
    let rows = program.iter().filter(|op| matches!(op.name, "Yield" | "NewRowid" | "IdxInsert")).count();
    let mut calls = 0_usize;
    let (mut rest, mut main) = (program, true);
    while !rest.is_empty() {
        // The program of a trigger or a foreign key action follows, with addresses of its own.
        let end = rest.windows(2).position(|w| w[1].at <= w[0].at).map_or(rest.len(), |i| i + 1);
        let (part, others) = rest.split_at(end);
        rest = others;
        let loops = loops(part);
        bounded &= !loops.nested && !loops.over_a_queue;
        for op in part {
            let times = if loops.contain(op.at) || !main { rows.max(1) } else { 1 };
            match op.name {
                name if DDL.contains(&name) => return Judged { ddl: true, bounded: false, cost: Cost::Unbounded },
                "OpenRead" | "OpenWrite" => drop(cursors.insert(op.p1, Some(op.p2))),
                "Next" => bounded &= cursors.get(&op.p1).is_some_and(|root| root.is_none() || *root == sequence),
                name if LOOPS.contains(&name) => bounded = false,
                "Function" | "PureFunc" | "AggStep" | "AggStep1" | "AggInverse" => {
                    let its = cost_of(op.p4);
                    cost = cost.max(its);
                    calls += if its == Cost::Linear { times } else { 0 };
                }
                "Concat" => {
                    cost = cost.max(Cost::Linear);
                    calls += times;
                }
                _ => {}
            }
        }
        main = false;
    }
    if bounded && calls > CALLS_MAX {
        cost = Cost::Unbounded;
    }
    bounded &= cost != Cost::Unbounded;
    Judged { ddl: false, bounded, cost }
}

/// The loops of one program, as addresses of their first and last opcode.
struct Loops {
    found: Vec<(i64, i64)>,
    nested: bool,
    over_a_queue: bool,
}

impl Loops {
    fn contain(&self, at: i64) -> bool {
        self.found.iter().any(|(first, last)| (*first..=*last).contains(&at))
    }
}

/// Next goes back to the first opcode after Rewind; a consumer of a coroutine goes back to its Yield, a second pass to
/// RowSetRead, a recursive query to the Rewind of its queue. Other jumps back are no loops: the program begins with
/// what stands at its end, and checks of constraints change places.
///
/// A recursive query may run indefinitely without stepping through any table. SQLite's program shows it also where it is in a view
/// or a trigger, or where the text does not have the word RECURSIVE, which SQLite does not need.
fn loops(part: &[Op<'_>]) -> Loops {
    let at = |address: i64| part.binary_search_by_key(&address, |op| op.at).ok().map(|i| part[i].name);
    let mut loops = Loops { found: Vec::new(), nested: false, over_a_queue: false };
    for op in part.iter().filter(|op| op.p2 < op.at) {
        match (op.name, at(op.p2)) {
            ("Next", _) | ("Goto", Some("Yield" | "RowSetRead")) => loops.found.push((op.p2, op.at)),
            ("Goto", Some("Rewind")) => loops.over_a_queue = true,
            _ => {}
        }
    }
    // In the order of their ends, a loop in another comes before it.
    let inside = |outer: &(i64, i64), inner: &(i64, i64)| outer.0 <= inner.0 && inner.1 < outer.1;
    loops.nested = loops.found.windows(2).any(|w| inside(&w[1], &w[0]));
    loops
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::sqlite::OpenFlags;

    fn conn() -> Conn {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(
            "create table t(id integer primary key, u text unique, x, y); create index tx on t(x);
             create table a(id integer primary key autoincrement, x); create table w(k primary key, v) without rowid;
             create table p(id integer primary key); create table c(id integer primary key, p references p(id));
             create table trg(x); create trigger tr after insert on trg begin update t set y = 1; end;
             create virtual table f using fts5(body);
             create view long_view as with recursive n(i) as (select 1 union all select i + 1 from n) select i from n;
             create table defaulted(a, b default (printf('%9d', 1))); create table checked(a check (replace(a, 1, 2) <> 3));
             create table computed(a, b as (replace(a, 1, 2)) check (b <> 3)); create table stored(a, b as (replace(a, 1, 2)) stored);
             create table indexed(id integer primary key, a); create index by_e on indexed(replace(a, 1, 2));
             create table named(id integer primary key, recursive_id, \"with recursive\");
             create table trr(x); create trigger recurs after insert on trr begin
                 insert into t(x) with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n; end;",
        )
        .unwrap();
        c.register_function("not_known", 1, true, Cost::Unbounded, |a| Ok(a[0].to_value())).unwrap();
        c
    }

    #[test]
    fn classes() {
        use Class::*;
        let mut c = conn();
        for (sql, class) in [
            ("select * from t where id = ?", Read),
            ("select * from t where u = ?", Read),
            ("select 1", Read),
            ("select * from t where x = ?", Scan),
            ("select count(*) from t", Scan),
            ("select * from t order by id", Scan),
            ("with recursive n(i) as (select 1 union all select i + 1 from n) select i from n", Scan),
            ("select max(id) from t", Scan),
            ("insert into t values(?, ?, ?, ?)", Write),
            ("insert into t values(1,2,3,4),(2,3,4,5)", Write),
            ("insert into t values(?, ?, ?, ?) on conflict(u) do update set x = excluded.x returning id", Write),
            ("insert into a(x) values(?)", Write),
            ("insert into w values(?, ?)", Write),
            ("replace into w values(?, ?)", Write),
            ("update t set x = x + 1 where u = ?", Write),
            ("delete from t where id = ?", Write),
            ("update t set y = 1", WriteScan),
            ("delete from t where x = ?", WriteScan),
            ("delete from t", WriteScan),
            ("delete from w", WriteScan),
            ("insert into t select * from t", WriteScan),
            ("insert into c values(1, 1)", Write),
            ("delete from p where id = 1", WriteScan),
            ("insert into trg values(1)", WriteScan),
            ("insert into f values('x')", WriteScan),
            ("insert into a(x) values(randomblob(1000000000))", WriteScan),
            ("create table n(x)", Ddl),
            ("create index n on t(y)", Ddl),
            ("alter table t rename to s", Ddl),
            ("alter table t add column z", Ddl),
            ("drop table t", Ddl),
            ("explain query plan delete from t", Scan),
            // What a text of a few bytes makes long.
            ("select count(*) from (values (1),(2)) a, (values (1),(2)) b", Scan),
            ("insert into t(x) select count(*) from (values (1),(2)) a, (values (1),(2)) b", WriteScan),
            ("select 1 from (values (1),(2)) a, (values (1),(2)) b where a.column1 = b.column1", Scan),
            ("select * from long_view", Scan),
            ("insert into t(x) select max(i) from long_view", WriteScan),
            ("select column1 from (values (1),(2)) where column1 > 1", Read),
            ("select * from t where id in (1, 2, 3)", Read),
            ("insert into t values(1,2,3,4),(2,3,4,5) returning id, x", Write),
            ("delete from t where id = 1 or u = 'x'", Write),
            // Functions.
            ("insert into t(x) values(upper(?))", Write),
            ("insert into t(x) values(replace(?, ?, ?))", WriteScan),
            ("insert into t(x) select group_concat(column1) from (values (1), (2))", WriteScan),
            ("insert into t(x) values(1) returning printf('%1000d', id)", WriteScan),
            ("update t set x = replace(x, 'a', 'b') where id = 1", WriteScan),
            ("insert into t(x) values(1) on conflict(u) do update set x = printf('%d', excluded.x)", WriteScan),
            ("insert into defaulted(a) values(1)", WriteScan),
            ("insert into checked(a) values(1)", WriteScan),
            ("insert into computed(a) values(1)", WriteScan),
            ("insert into stored(a) values(1)", WriteScan),
            ("insert into indexed(a) values(1)", WriteScan),
            ("update indexed set a = 1 where id = 1", WriteScan),
            ("select not_known(1)", Scan),
            ("vacuum", Ddl),
            ("pragma integrity_check", Scan),
            ("analyze", Ddl),
        ] {
            let id = c.prepare(sql).unwrap();
            let explains = sql.starts_with("explain");
            assert_eq!(classify(&mut c, id, sql, explains).unwrap().class, class, "{sql}");
            c.finalize(id);
        }
    }

    #[test]
    fn a_query_is_recursive_by_its_program_and_not_by_a_word_of_its_text() {
        use Class::*;
        let endless = "with recursive n(i) as (select 1 union all select i + 1 from n)";
        let sorted = "with recursive n(i) as (select 1 union select i + 1 from n order by 1 desc limit 5 offset 1)";
        let queries = [endless, &endless.replace("recursive ", ""), sorted];
        let mut cases = Vec::new();
        for with in queries {
            cases.push((format!("{with} select i from n"), Scan));
            cases.push((format!("{with} select 1 where exists (select 1 from n where i = 7)"), Scan));
            cases.push((format!("{with} insert into t(x) select i from n"), WriteScan));
            cases.push((
                format!("insert into t(x) values((select i from ({with} select i from n) limit 1))"),
                WriteScan,
            ));
            cases.push((format!("{with} update t set x = (select max(i) from n) where id = 1"), WriteScan));
            cases.push((format!("{with} delete from t where id = (select i from n)"), WriteScan));
        }
        for (sql, class) in [
            ("insert into t(x) values((select i from long_view limit 1))", WriteScan),
            ("update t set x = (select max(i) from long_view) where id = 1", WriteScan),
            ("insert into trr values(1)", WriteScan),
            ("insert into named(recursive_id) values(?)", Write),
            ("insert into named(\"with recursive\") values('with recursive n as (')", Write),
            ("update named set recursive_id = 'recursive' where id = 1 /* recursive */", Write),
            ("select recursive_id from named where id = ?", Read),
            ("with recursive n(i) as (select 1) select i from n", Read),
        ] {
            cases.push((sql.to_owned(), class));
        }
        let mut c = conn();
        for (sql, class) in cases {
            let id = c.prepare(&sql).unwrap();
            assert_eq!(classify(&mut c, id, &sql, false).unwrap().class, class, "{sql}");
            c.finalize(id);
        }
    }

    #[test]
    fn costs() {
        use Cost::*;
        let mut c = conn();
        let values = |n: usize, value: &str| vec![value; n].join("), (");
        let concats = format!("select {}", vec!["?1"; CALLS_MAX + 2].join(" || "));
        let (few, many) = (values(CALLS_MAX, "upper(?1)"), values(CALLS_MAX + 1, "upper(?1)"));
        let (few, many) = (format!("insert into t(x) values ({few})"), format!("insert into t(x) values ({many})"));
        let (loops, long) = (values(CALLS_MAX, "1"), values(PROGRAM_MAX / 2, "1"));
        let loops = format!("insert into t(x) select upper(column1) || upper(column1) from (values ({loops}))");
        let long = format!("insert into t(x) values ({long})");
        for (sql, class, cost) in [
            ("insert into t(x) values(?)", Class::Write, Constant),
            ("insert into t(x) values(abs(?) + 1)", Class::Write, Constant),
            ("insert into t(x) values(upper(?))", Class::Write, Linear),
            ("update t set x = x || ? where id = 1", Class::Write, Linear),
            ("insert into t(x) values(1) returning y || x", Class::Write, Linear),
            ("insert into t(x) values(upper(not_known(?)))", Class::WriteScan, Unbounded),
            ("select x || y from t", Class::Scan, Linear),
            (&few, Class::Write, Linear),
            (&many, Class::WriteScan, Unbounded),
            (&loops, Class::WriteScan, Unbounded),
            (&concats, Class::Scan, Unbounded),
            (&long, Class::WriteScan, Unbounded),
        ] {
            let id = c.prepare(sql).unwrap();
            let shown = sql.get(..80).unwrap_or(sql);
            assert_eq!(classify(&mut c, id, sql, false).unwrap(), Classified { class, cost }, "{shown}");
            c.finalize(id);
        }
    }
}
