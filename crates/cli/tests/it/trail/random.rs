//! Random transactions over two databases are undone, and the undo is undone: the databases are as before each time.

use super::{Bed, table};
use crate::node::run;
use tokio_postgres::Client;

const ROUNDS: u64 = 12;

/// xorshift: the same transactions in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

const TABLES: &str = "create table p(id int primary key, v text, n int); \
     create table c(id text primary key, pid int references p(id) on delete cascade, v numeric(9,2)); \
     create table h(v text, n int)";

fn statement(random: &mut Random) -> String {
    let (a, b) = (random.below(30), random.below(9));
    let text = random.one(&["''", "'it''s'", "null", "'ü\n'", "'0'"]);
    match random.below(12) {
        0 => format!("insert into p values ({a}, {text}, {b}) on conflict (id) do update set n = p.n + 1"),
        1 => format!("update p set v = {text}, n = {b} where id % 4 = {}", b % 4),
        2 => format!("delete from p where id = {a}"),
        3 => format!("insert into c select 'k{a}', min(id), {b}.5 from p on conflict (id) do nothing"),
        4 => format!("update c set v = v * -1, pid = null where id like '%{b}'"),
        5 => format!("delete from c where id like '%{b}'"),
        6 => format!("insert into h select {text}, g from generate_series(1, {b}) g"),
        7 => format!("update h set v = {text} where n > {b}"),
        8 => format!("delete from h where n = {b}"),
        9 => format!("update c set id = id || '{b}' where id like '%{b}'"),
        10 => format!("update p set n = null where id > {a}"),
        _ => format!("savepoint s; delete from p; rollback to s; update h set n = n + {b}"),
    }
}

async fn state(client: &Client) -> Vec<String> {
    let mut all = Vec::new();
    for database in ["holdfast", "other"] {
        run(client, &format!("use {database}")).await;
        for sql in [
            "select rowid, * from p order by 1",
            "select rowid, * from c order by 1",
            "select rowid, * from h order by 1",
        ] {
            all.push(format!("{database}: {sql}"));
            all.extend(table(client, sql).await);
        }
    }
    run(client, "use holdfast").await;
    all
}

#[tokio::test]
async fn random_transactions_are_undone() {
    let bed = Bed::start().await;
    bed.run("create database other").await;
    bed.run(&format!("{TABLES}; create table mark(id int primary key); use other; {TABLES}; use holdfast")).await;
    bed.run("insert into p select g, 'v' || g, g % 5 from generate_series(0, 20) g").await;
    bed.run("insert into c select 'k' || g, g, g from generate_series(0, 15) g; insert into h select 'h', g from generate_series(0, 9) g").await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let before = state(&bed.client).await;
        let mut sql = format!("begin; insert into mark values ({round}); ");
        for _ in 0..1 + random.below(7) {
            let database = random.one(&["holdfast", "holdfast", "other"]);
            sql.push_str(&format!("use {database}; {}; ", statement(&mut random)));
        }
        sql.push_str("commit; use holdfast");
        bed.run(&sql).await;
        let after = state(&bed.client).await;
        let (id, lsn) = bed.newest(&["--table", "mark", "--where", &format!("id = {round}")]);
        let own = bed.undoes(&id, &["--lsn", &lsn]);
        assert_eq!(state(&bed.client).await, before, "round {round}: {sql}");
        let again = bed.undoes(&own, &[]);
        assert_eq!(state(&bed.client).await, after, "round {round}: {sql}");
        // Every other round stays.
        if round % 2 == 0 {
            bed.undoes(&again, &[]);
            assert_eq!(state(&bed.client).await, before, "round {round}: {sql}");
        }
    }
}
