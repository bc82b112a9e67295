//! What leaves and enters a server as a SQLite file: VACUUM INTO, import; and a file that has gone.

use crate::server::{Running, one, state};
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;

fn holdfast(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn sqlite(path: &Path) -> Conn {
    Conn::open(path.to_str().unwrap(), OpenFlags { write: true, create: true }, Some(c"unix")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn vacuum_into_writes_what_a_reader_sees() {
    let server = Running::start();
    server.connect().await.batch_execute("create database lite dialect = sqlite").await.unwrap();
    for database in ["holdfast", "lite"] {
        let out = TempDir::new().unwrap();
        let path = out.path().join("it's a copy.db");
        let (client, other) = (server.connect_to(database).await, server.connect_to(database).await);
        client.batch_execute("create table t(id integer primary key, v text)").await.unwrap();
        client.batch_execute("insert into t values (1, 'a'), (2, 'b')").await.unwrap();
        other.batch_execute("begin; insert into t values (3, 'not committed')").await.unwrap();
        let into = format!("vacuum into '{}'", path.display().to_string().replace('\'', "''"));
        client.batch_execute(&into).await.unwrap_or_else(|e| panic!("{database}: {e:?}"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut copy = sqlite(&path);
        assert_eq!(copy.query_value("select group_concat(v) from t").unwrap(), Value::Text("a,b".into()));
        assert_eq!(copy.query_value("pragma integrity_check").unwrap(), Value::Text("ok".into()));
        drop(copy);
        assert_eq!(state(&client, &into).await, Some(SqlState::DUPLICATE_FILE), "nothing is overwritten");
        let inside = format!("vacuum into '{}/volumes/x.db'", server.dir.path().display());
        for (sql, expected) in [
            ("vacuum into 'copy.db'", "42602"),
            ("vacuum into '/no/such/directory/copy.db'", "58P01"),
            (&inside, "42501"),
            ("begin; vacuum into '/tmp/never'", "25001"),
            ("vacuum nosuch", "42P01"),
            ("vacuum (analyze) t, nosuch", "42P01"),
        ] {
            assert_eq!(state(&client, sql).await.as_ref().map(SqlState::code), Some(expected), "{database}: {sql}");
            client.batch_execute("rollback").await.unwrap();
        }
        assert_eq!(names(out.path()), ["it's a copy.db"], "no part of another is left");
        other.batch_execute("rollback").await.unwrap();
        client.batch_execute("vacuum t").await.unwrap();
        client.batch_execute("vacuum (verbose) t").await.unwrap();
        // A second path under the same text but for the literal.
        let second = out.path().join("second.db");
        client.batch_execute(&format!("vacuum into '{}'", second.display())).await.unwrap();
        assert!(second.exists());
    }
}

#[tokio::test]
async fn a_missing_volume_is_told_at_start_at_connect_and_by_every_report() {
    let dir = TempDir::new().unwrap();
    let source = TempDir::new().unwrap();
    let file = source.path().join("shop.db");
    sqlite(&file).exec("create table t(x); insert into t values(1)").unwrap();
    let data = dir.path().to_str().unwrap().to_owned();
    let (code, _, error) = holdfast(&["import", file.to_str().unwrap(), "--data", &data]);
    assert_eq!(code, Some(0), "{error}");
    let volume = dir.path().join("volumes/000003-shop.db");
    let away = source.path().join("away.db");
    fs::rename(&volume, &away).unwrap();

    let (code, report, _) = holdfast(&["check", "--data", &data]);
    assert_eq!(code, Some(1));
    assert!(report.contains("database shop: the file") && report.contains("does not exist: restore it"), "{report}");

    let server = Running::start_in(dir);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("shop") && line.contains("ERROR")).unwrap_or_default();
    assert!(line.contains("000003-shop.db does not exist"), "{log}");
    let at = format!("127.0.0.1:{}", server.port);
    let (_, status, _) = holdfast(&["standby", "status", "--at", &at]);
    assert!(status.contains("database shop CANNOT BE OPENED") && status.contains("000003-shop.db"), "{status}");
    let (_, json, _) = holdfast(&["standby", "status", "--at", &at, "--json"]);
    assert!(json.contains("\"missing_files\":[{\"database\":\"shop\""), "{json}");
    let config = format!("host=127.0.0.1 port={} user=holdfast dbname=shop", server.port);
    let refused = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.err().unwrap();
    let told = refused.as_db_error().unwrap();
    assert_eq!(told.code(), &SqlState::UNDEFINED_FILE);
    assert!(told.message().contains("database \"shop\"") && told.message().contains("does not exist"), "{told}");
    assert!(told.hint().unwrap_or_default().contains("DROP DATABASE"), "{told:?}");
    // Put back, it is served without a restart.
    fs::rename(&away, &volume).unwrap();
    assert_eq!(one(&server.connect_to("shop").await, "select x from t").await, "1");
}

#[test]
fn an_import_shows_progress_and_json_is_quiet() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("large.db");
    let rows = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 20000) select i, randomblob(1000) from r";
    sqlite(&file).exec(&format!("create table t(i integer primary key, b); insert into t {rows}")).unwrap();
    let (file, data) = (file.to_str().unwrap(), dir.path().join("data"));
    let arguments = ["import", file, "--data", data.to_str().unwrap()];
    let (code, _, progress) = holdfast(&arguments);
    assert_eq!(code, Some(0), "{progress}");
    let lines: Vec<_> = progress.lines().collect();
    assert!(lines.first().is_some_and(|line| line.contains("checking the file")), "{progress}");
    assert!(lines.last().is_some_and(|line| line.contains("sealing the copy")), "{progress}");
    assert!(lines.iter().any(|line| line.contains("copying: ") && line.contains(" MiB)")), "{progress}");
    let (code, out, progress) = holdfast(&[&arguments[..], &["--database", "again", "--json"]].concat());
    assert_eq!((code, progress.as_str()), (Some(0), ""));
    assert!(out.contains("\"database\":\"again\"") && out.contains("\"bytes\":"), "{out}");
}

#[test]
fn what_is_no_database_or_no_directory_is_said_plainly() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (text, data, empty) = (at("notes.txt"), at("data"), at("empty"));
    fs::write(&text, "no database at all, but longer than a header of one hundred bytes is: ".repeat(3)).unwrap();
    fs::create_dir(&empty).unwrap();
    sqlite(Path::new(&at(".db"))).exec("create table t(x)").unwrap();
    // As an application would leave it that defines the collation.
    let unicase = "create table notes(id int, title text collate nocase); insert into notes values(1, 'x'); \
                   pragma writable_schema = on; update sqlite_schema set sql = replace(sql, 'nocase', 'unicase')";
    sqlite(Path::new(&at("uni.db"))).exec(unicase).unwrap();
    let missing = at("missing/deeper");
    let opened = at("opened");
    for (arguments, says) in [
        (vec!["import", &text, "--data", &data], format!("{text} is not a SQLite database: no SQLite header")),
        (
            vec!["import", &at(".db"), "--data", &data],
            format!("cannot derive a database name from {}; use --database", at(".db")),
        ),
        (
            vec!["import", &at("uni.db"), "--data", &opened],
            "column title of table notes uses the collation \"unicase\"".to_owned(),
        ),
        (vec!["trail", "dump", "--data", &empty], format!("not a data directory: {empty}")),
        (vec!["check", "--data", &empty], format!("not a data directory: {empty}")),
        (vec!["doctor", "--data", &missing], format!("neither {missing} nor its parent exists")),
        (
            vec!["archive", "verify", "--data", &empty, "--archive", "/nonexistent"],
            "the archive directory does not exist: /nonexistent".to_owned(),
        ),
    ] {
        let (code, _, error) = holdfast(&arguments);
        assert!(code.is_some_and(|code| code > 0) && error.contains(&says), "{arguments:?}: {error}");
    }
    assert!(!Path::new(&data).exists(), "an import that fails before it opens the directory leaves none");
}

#[tokio::test]
async fn a_generated_column_is_shown_as_it_is() {
    let server = Running::start();
    server.connect().await.batch_execute("create database lite dialect = sqlite").await.unwrap();
    let client = server.connect_to("lite").await;
    client
        .batch_execute("create table t(a int, v int as (a * 2), s int generated always as (a + (1)) stored)")
        .await
        .unwrap();
    let shown = |column: &'static str, what: &'static str| {
        let sql = format!(
            "select {what} from pg_attribute a left join pg_attrdef d on (adrelid, adnum) = (attrelid, attnum) where attrelid = 't'::regclass and attname = '{column}'"
        );
        let client = &client;
        async move { one(client, &sql).await }
    };
    let expression = "pg_get_expr(adbin, adrelid)";
    assert_eq!((shown("v", "attgenerated").await, shown("v", expression).await), ("v".into(), "a * 2".into()));
    assert_eq!((shown("s", "attgenerated").await, shown("s", expression).await), ("s".into(), "a + (1)".into()));
    assert_eq!((shown("a", "attgenerated").await, shown("a", expression).await), (String::new(), String::new()));
    let sql =
        "select generation_expression from information_schema.columns where table_name = 't' and column_name = 'v'";
    assert_eq!(one(&client, sql).await, "a * 2");
}
