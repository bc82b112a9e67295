//! Judges a statement from SQLite's program for it: EXPLAIN lists the opcodes, those of triggers and foreign key
//! actions included.
//!
//! | the program | the class |
//! |---|---|
//! | writes the schema (ParseSchema, CreateBtree, Destroy, ...) | Ddl |
//! | steps through a b-tree or virtual table (Next, Prev, VNext, ...), or sorts, or opens a virtual table | Scan, WriteScan |
//! | calls a function that may take long | Scan, WriteScan |
//! | neither | Read, Write |
//!
//! Stepping through `sqlite_sequence` does not count: every insert into an AUTOINCREMENT table looks its counter up so,
//! and the table has one row per such table.

use crate::statement::Class;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::Value;
use std::collections::{HashMap, HashSet};

/// Functions whose time does not depend on the row: they never run on MAIN beside others.
const SLOW_FUNCTIONS: [&str; 4] = ["pg_sleep", "randomblob", "zeroblob", "load_extension"];

const DDL: [&str; 9] = [
    "ParseSchema",
    "CreateBtree",
    "Destroy",
    "DropTable",
    "DropIndex",
    "DropTrigger",
    "VCreate",
    "VDestroy",
    "VRename",
];

const LOOPS: [&str; 10] =
    ["Next", "Prev", "VNext", "VOpen", "VFilter", "VUpdate", "SorterNext", "SorterSort", "Sort", "Count"];

/// The class of `sql`, which `id` is prepared from.
pub fn classify(conn: &mut Conn, id: StmtId, sql: &str) -> Result<Class, SqliteError> {
    let program = conn.query_rows(&format!("explain {sql}"))?;
    let writes = !conn.readonly(id);
    let sequence = root_page(conn, "sqlite_sequence")?;
    let judged = judge(&program, sequence);
    Ok(match (judged, writes) {
        (Judged::Ddl, _) => Class::Ddl,
        (Judged::Unbounded, true) => Class::WriteScan,
        (Judged::Unbounded, false) => Class::Scan,
        (Judged::Bounded, true) => Class::Write,
        (Judged::Bounded, false) => Class::Read,
    })
}

#[derive(Debug, PartialEq)]
enum Judged {
    Bounded,
    Unbounded,
    Ddl,
}

fn root_page(conn: &mut Conn, table: &str) -> Result<Option<i64>, SqliteError> {
    let sql = format!("select rootpage from sqlite_schema where name = '{table}' and type = 'table'");
    Ok(match conn.query_value(&sql)? {
        Value::Int(page) => Some(page),
        _ => None,
    })
}

/// Rows of EXPLAIN: addr, opcode, p1, p2, p3, p4, p5, comment. Cursor numbers (p1) are reused between a statement and
/// its triggers' programs, so a cursor counts as `sqlite_sequence` only where nothing else uses its number.
fn judge(program: &[Vec<Value>], sequence: Option<i64>) -> Judged {
    let mut opened: HashMap<i64, HashSet<i64>> = HashMap::new();
    let mut looped = Vec::new();
    let mut slow = false;
    for row in program {
        let (Some(Value::Text(op)), Some(Value::Int(p1)), Some(Value::Int(p2))) = (row.get(1), row.get(2), row.get(3))
        else {
            continue;
        };
        match op.as_str() {
            op if DDL.contains(&op) => return Judged::Ddl,
            "OpenRead" | "OpenWrite" => {
                opened.entry(*p1).or_default().insert(*p2);
            }
            op if LOOPS.contains(&op) => looped.push((op.to_owned(), *p1)),
            "Function" | "PureFunc" => {
                let name = match row.get(5) {
                    Some(Value::Text(p4)) => p4.split('(').next().unwrap_or("").to_ascii_lowercase(),
                    _ => String::new(),
                };
                slow |= SLOW_FUNCTIONS.contains(&name.as_str());
            }
            // Writes to sqlite_schema outside the opcodes above (ALTER TABLE).
            "SetCookie" | "Expire" | "SqlExec" | "LoadAnalysis" => return Judged::Ddl,
            "Vacuum" | "IncrVacuum" => return Judged::Ddl,
            _ => {}
        }
    }
    let bounded = |(op, cursor): &(String, i64)| {
        op == "Next" && sequence.is_some_and(|s| opened.get(cursor).is_some_and(|roots| roots.len() == 1 && roots.contains(&s)))
    };
    if slow || !looped.iter().all(bounded) { Judged::Unbounded } else { Judged::Bounded }
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
             create virtual table f using fts5(body);",
        )
        .unwrap();
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
            ("select max(id) from t", Read),
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
            ("vacuum", Ddl),
            ("analyze", Ddl),
        ] {
            let id = c.prepare(sql).unwrap();
            assert_eq!(classify(&mut c, id, sql).unwrap(), class, "{sql}");
            c.finalize(id);
        }
    }
}
