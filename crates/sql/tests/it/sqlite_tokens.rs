//! SQLite's tokenizer against ours: whatever table SQLite finds in a text, our reading of the text mentions it. SQLite's
//! authorizer reports which table it found.

use holdfast_sql::sqlite::TextWords;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::{Arc, Mutex};

struct Oracle {
    conn: Connection,
    found: Arc<Mutex<Vec<String>>>,
}

impl Oracle {
    fn new() -> Oracle {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("create table secret(v); create table \"\u{e9}\"(v); create table t(v)").unwrap();
        let found = Arc::new(Mutex::new(Vec::new()));
        let into = found.clone();
        conn.authorizer(Some(move |context: AuthContext<'_>| {
            let table = match context.action {
                AuthAction::Read { table_name, .. }
                | AuthAction::Insert { table_name }
                | AuthAction::Delete { table_name }
                | AuthAction::Update { table_name, .. } => table_name,
                _ => return Authorization::Allow,
            };
            if !table.starts_with("sqlite_") {
                into.lock().unwrap().push(table.to_owned());
            }
            Authorization::Allow
        }))
        .unwrap();
        Oracle { conn, found }
    }

    /// The tables that SQLite finds in a text that it takes.
    fn tables(&self, text: &str) -> Option<Vec<String>> {
        self.found.lock().unwrap().clear();
        self.conn.prepare(text).ok()?;
        Some(self.found.lock().unwrap().clone())
    }

    /// True if SQLite takes the text.
    fn agrees(&self, text: &str) -> bool {
        let Some(tables) = self.tables(text) else { return false };
        let words = TextWords::new(text);
        for table in &tables {
            assert!(words.mentions(table), "SQLite touches {table}, our reading does not: {text:?} {words:?}");
        }
        if !text.trim_start().to_ascii_lowercase().starts_with("select") && !tables.is_empty() {
            assert_eq!(words.target().map(str::to_ascii_lowercase).as_deref(), Some("secret"), "{text:?}");
        }
        true
    }
}

const PLACES: [&str; 9] = [
    "select * from@secret",
    "select * from @secret",
    "select * from t,@secret@",
    "select*from\"secret\"@where 1",
    "select@v from[secret]",
    "insert into@secret values(1)",
    "update@secret@set v = 1",
    "delete from@secret",
    "select 1@from secret",
];

#[test]
fn our_reading_of_a_text_misses_no_table_that_sqlite_finds() {
    let oracle = Oracle::new();
    let single: Vec<String> = (1u32..0x250)
        .chain([0x1680, 0x2000, 0x200b, 0x2028, 0x202f, 0x3000, 0xfeff, 0xfffd, 0x1f600])
        .filter_map(char::from_u32)
        .map(String::from)
        .collect();
    let parts = [
        " ", "\t", "\n", "\r", "\u{b}", "\u{c}", "\u{feff}", "/*", "*/", "/**/", "--", "'", "\"", "`", "[", "]", "(",
        ")", ";", "$", "$x(", "::", ":a", "?", "?1", "@a", "#", "1", "1e", "0x", "1_0", ".", ".5", "x'00'", "X'", "e'",
        "\\", "u&", "\u{a0}", "\u{e9}", "-", "/", "|", "as", "secret", "t",
    ];
    let mut taken = 0;
    for place in PLACES {
        let mut try_one = |between: &str| taken += usize::from(oracle.agrees(&place.replace('@', between)));
        single.iter().for_each(|between| try_one(between));
        for first in parts {
            for second in parts {
                try_one(&format!("{first}{second}"));
                for third in ["\u{feff}", " ", "/**/", "'", "\""] {
                    try_one(&format!("{first}{second}{third}"));
                }
            }
        }
    }
    // SQLite takes enough of them for the test to mean something.
    assert!(taken > 1000, "{taken}");
}
