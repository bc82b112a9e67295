//! Classifies a statement from SQLite's program for it: EXPLAIN lists the opcodes, those of triggers and foreign key
//! actions included.
//!
//! | the program | the class |
//! |---|---|
//! | writes the schema (ParseSchema, CreateBtree, Destroy, ...) | Ddl |
//! | steps through a b-tree or virtual table (Next, Prev, VNext, ...), or sorts, or opens a virtual table | Scan, WriteScan |
//! | calls a function that may take long | Scan, WriteScan |
//! | does none of these | Read, Write |
//!
//! Stepping through rows that the statement itself has stored (RETURNING) does not count: there are no more of them than were
//! written. Nor does `sqlite_sequence`: every insert into an AUTOINCREMENT table looks its counter up by a scan,
//! and the table has one row per such table.

use crate::statement::model::Class;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::Value;
use std::collections::HashMap;

/// Functions whose time does not depend on the row: they never share a batch on MAIN.
const SLOW_FUNCTIONS: [&str; 4] = ["pg_sleep", "randomblob", "zeroblob", "load_extension"];

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

/// The class of `sql`; `id` is the statement prepared from it.
pub fn classify(conn: &mut Conn, id: StmtId, sql: &str) -> Result<Class, SqliteError> {
    // EXPLAIN itself only reads the schema, whatever statement follows it.
    if sql.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("explain")) {
        return Ok(Class::Scan);
    }
    let program = conn.query_rows(&format!("explain {sql}"))?;
    let writes = !conn.readonly(id);
    let sequence = root_page(conn, "sqlite_sequence")?;
    // A recursive query may run indefinitely without stepping through any table.
    let recursive = sql.to_ascii_lowercase().contains("recursive");
    let judged = match judge(&program, sequence) {
        Judged::Bounded if recursive => Judged::Unbounded,
        judged => judged,
    };
    Ok(match (judged, writes) {
        (Judged::Ddl, true) => Class::Ddl,
        (Judged::Unbounded, true) => Class::WriteScan,
        // Some PRAGMAs that only read have opcodes of schema changes.
        (Judged::Unbounded | Judged::Ddl, false) => Class::Scan,
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

/// Rows of EXPLAIN: addr, opcode, p1, p2, p3, p4, p5, comment. A cursor's number may be reused: the b-tree that counts
/// is the one it was last opened on in the order of the listing. A table that the statement itself fills (RETURNING) is
/// opened at the listing's end, where programs begin.
fn judge(program: &[Vec<Value>], sequence: Option<i64>) -> Judged {
    let mut cursors: HashMap<i64, Option<i64>> = program
        .iter()
        .filter(|row| row.get(1) == Some(&Value::Text("OpenEphemeral".into())))
        .filter_map(|row| if let Some(Value::Int(p1)) = row.get(2) { Some((*p1, None)) } else { None })
        .collect();
    let mut bounded = true;
    for row in program {
        let (Some(Value::Text(op)), Some(Value::Int(p1)), Some(Value::Int(p2))) = (row.get(1), row.get(2), row.get(3))
        else {
            continue;
        };
        match op.as_str() {
            op if DDL.contains(&op) => return Judged::Ddl,
            "OpenRead" | "OpenWrite" => {
                cursors.insert(*p1, Some(*p2));
            }
            "Next" => bounded &= cursors.get(p1).is_some_and(|root| root.is_none() || *root == sequence),
            op if LOOPS.contains(&op) => bounded = false,
            "Function" | "PureFunc" => bounded &= !is_slow(row.get(5)),
            _ => {}
        }
    }
    if bounded { Judged::Bounded } else { Judged::Unbounded }
}

/// P4 of a function's opcode names it: `name(arguments)`.
fn is_slow(p4: Option<&Value>) -> bool {
    let Some(Value::Text(p4)) = p4 else { return false };
    let name = p4.split('(').next().unwrap_or("").to_ascii_lowercase();
    SLOW_FUNCTIONS.contains(&name.as_str())
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
            ("vacuum", Ddl),
            ("pragma integrity_check", Scan),
            ("analyze", Ddl),
        ] {
            let id = c.prepare(sql).unwrap();
            assert_eq!(classify(&mut c, id, sql).unwrap(), class, "{sql}");
            c.finalize(id);
        }
    }
}
