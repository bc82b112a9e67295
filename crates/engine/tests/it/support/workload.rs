//! Random transactions as SQL text. The same text on any SQLite gives the same result: no clock, no random function.

use holdfast_seams::testing::Seeded;

/// Tables of every kind that travels differently: by rowid, by hidden rowid, by key, with a counter, with cascades and
/// triggers, virtual.
pub const SCHEMA: [&str; 8] = [
    "create table t(id integer primary key, k integer unique, v text)",
    "create table a(id integer primary key autoincrement, x)",
    "create table w(k text primary key, v) without rowid",
    "create table h(x)",
    "create table c(id integer primary key, t integer references t(id) on delete cascade deferrable initially deferred)",
    "create table log(what, id)",
    "create trigger tr after delete on t begin insert into log values('gone', old.id); end",
    "create virtual table f using fts5(body)",
];

/// One step of an interactive transaction.
#[derive(Clone, Debug)]
pub enum Step {
    Run(String),
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

/// A transaction as a client sends it.
#[derive(Clone, Debug)]
pub enum Transaction {
    /// One message: everything or nothing.
    Message(Vec<String>),
    /// BEGIN, steps, COMMIT: a step that fails is undone alone.
    Interactive(Vec<Step>),
}

impl Transaction {
    /// What follows must be prepared after it.
    pub fn changes_schema(&self) -> bool {
        match self {
            Transaction::Message(sqls) => sqls.iter().any(|s| s.contains(" table ") || s.contains(" index ")),
            Transaction::Interactive(_) => true,
        }
    }
}

pub fn transaction(r: &mut Seeded) -> Transaction {
    match r.below(20) {
        0..=13 => Transaction::Message((0..1 + r.below(3)).map(|_| bounded(r)).collect()),
        14 | 15 => Transaction::Message((0..1 + r.below(2)).map(|_| unbounded(r)).collect()),
        16 => Transaction::Message(vec![large(r)]),
        17 => Transaction::Message(vec![schema_change(r)]),
        _ => Transaction::Interactive(interactive(r)),
    }
}

fn text(r: &mut Seeded) -> String {
    let word = ["red", "green", "blue", "ü", "it''s"][r.below(5) as usize];
    let times = if r.one_in(30) { 900 } else { r.below(20) };
    format!("'{} {}'", word, word.repeat(times as usize))
}

/// By unique key or VALUES.
fn bounded(r: &mut Seeded) -> String {
    let (id, k) = (r.below(60), r.below(80));
    match r.below(14) {
        0 | 1 => format!("insert into t values({id}, {k}, {})", text(r)),
        2 => format!("insert or replace into t values({id}, {k}, {})", text(r)),
        3 => format!("insert or ignore into t values({id}, {k}, {})", text(r)),
        4 => format!("update t set v = {} where id = {id}", text(r)),
        5 => format!("update t set id = {}, k = k + 1 where id = {id}", r.below(60)),
        6 => format!("delete from t where id = {id}"),
        7 => format!("insert into a(x) values({k})"),
        8 => format!("insert or ignore into a(id, x) values({id}, {k})"),
        9 => format!("insert into w values('{}', {id}) on conflict(k) do update set v = v + 1", id % 20),
        10 => format!("insert into h values({})", text(r)),
        11 => format!("insert into c values({k}, {id})"),
        12 => format!("insert or rollback into t values({id}, {k}, 'rollback')"),
        _ => format!("delete from h where rowid = {id}"),
    }
}

/// Steps through tables, or writes a virtual one.
fn unbounded(r: &mut Seeded) -> String {
    let n = r.below(7);
    match r.below(8) {
        0 => format!("update t set v = v || 'x' where id % 7 = {n}"),
        1 => format!("delete from t where id % 7 = {n}"),
        2 => format!("insert into h select x from a where id % 7 = {n}"),
        3 => format!("insert into f(rowid, body) values({}, {})", r.below(40), text(r)),
        4 => format!("delete from f where rowid = {}", r.below(40)),
        5 => format!("update f set body = {} where rowid = {}", text(r), r.below(40)),
        6 => "delete from a where id % 5 = 0".to_owned(),
        _ => format!("delete from h where rowid % 7 = {n}"),
    }
}

/// Travels in fragments, where segments are small.
fn large(r: &mut Seeded) -> String {
    let rows = 100 + r.below(300);
    let numbers = format!("with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})");
    match r.below(3) {
        0 => format!("{numbers} insert into h select i || '{}' from n", "large ".repeat(60)),
        1 => "delete from h where rowid > 20".to_owned(),
        _ => format!("{numbers} insert or replace into w select 'k' || i, '{}' from n", "w".repeat(300)),
    }
}

fn schema_change(r: &mut Seeded) -> String {
    let n = r.below(3);
    match r.below(7) {
        0 => format!("create table n{n}(id integer primary key, x)"),
        1 => format!("drop table n{n}"),
        2 => format!("alter table n{n} add column y default 5"),
        3 => format!("create index tv{n} on t(v)"),
        4 => format!("drop index tv{n}"),
        5 => format!("create table n{n} as select id, v from t where id < 30"),
        _ => format!("alter table n{n} rename to n{}", (n + 1) % 3),
    }
}

fn interactive(r: &mut Seeded) -> Vec<Step> {
    let mut open: Vec<String> = Vec::new();
    (0..1 + r.below(8))
        .map(|i| match r.below(12) {
            0 | 1 => {
                open.push(format!("s{i}"));
                Step::Savepoint(format!("s{i}"))
            }
            2 if !open.is_empty() => {
                open.truncate(r.below(open.len() as u64) as usize + 1);
                Step::RollbackTo(open[open.len() - 1].clone())
            }
            3 if !open.is_empty() => {
                let at = r.below(open.len() as u64) as usize;
                let name = open[at].clone();
                open.truncate(at);
                Step::Release(name)
            }
            4 => Step::Run(schema_change(r)),
            5 | 6 => Step::Run(unbounded(r)),
            7 => Step::Run(large(r)),
            _ => Step::Run(bounded(r).replace("or rollback ", "")),
        })
        .collect()
}
