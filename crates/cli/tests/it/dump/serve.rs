//! A moment of the past that is read before its pages have been fetched.

use super::bed::{Bed, fill, wal_lsn};
use crate::node::{dump, one, run, until};
use holdfast_testbed::Process;
use std::process::Command;
use tokio_postgres::{Client, NoTls};

/// `holdfast restore --serve`, and its port.
struct Served {
    process: Process,
    port: u16,
    scratch: std::path::PathBuf,
}

fn serve(bed: &Bed, more: &[&str]) -> Served {
    let scratch = bed.path("look");
    std::fs::create_dir_all(&scratch).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["restore", "--from", bed.place(), "--serve", "127.0.0.1:0", "--scratch"]).arg(&scratch).args(more);
    let mut process = Process::announcing("restore --serve", command, &bed.path("look.log")).unwrap();
    let port = process.announced_port().unwrap();
    Served { process, port, scratch }
}

impl Served {
    async fn connect(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// SIGTERM; the scratch directory goes.
    fn stop(mut self) {
        self.process.ask_to_stop().unwrap();
        assert!(self.process.ended().unwrap().success());
        assert_eq!(std::fs::read_dir(&self.scratch).unwrap().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moment_is_read_as_a_restore_of_it_has_it_and_cannot_be_changed() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    bed.dump();
    // Changes on old pages and new ones, in both databases; a table that comes and one that goes.
    run(&client, "update t set v = upper(v) where id % 17 = 0; create index on t(v); create table gone(k int)").await;
    run(&client, "use postgres; create table p(k int primary key); insert into p values (1), (2); use holdfast").await;
    fill(&client, 2).await;
    let lsn = wal_lsn(&client).await.to_string();
    run(&client, "delete from t; drop table gone").await;
    run(&client, "vacuum").await;
    bed.until_archived(&client).await;
    let moment = ["--to-lsn", &lsn];
    let (_, mut whole) = bed.restore("whole", &moment);
    whole.start();
    let served = serve(&bed, &moment);
    let there = served.connect().await;
    assert_eq!(
        one(&there, "select count(*) from t where v = upper(v) and id % 17 = 0").await,
        one(&whole.connect().await, "select count(*) from t where v = upper(v) and id % 17 = 0").await
    );
    let mut looked = crate::node::Node::new_in(bed.path("nowhere"));
    looked.port = served.port;
    assert_eq!(dump(&looked).await, dump(&whole).await);
    assert_eq!(one(&there, "use postgres; select count(*) from p").await, "2");
    run(&there, "use holdfast").await;
    for change in
        ["insert into t(v) values ('x')", "create table x(a int)", "drop table t", "create database x", "vacuum"]
    {
        let error = there.batch_execute(change).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25006", "{change}: {error:?}");
    }
    let output = crate::node::holdfast(&["promote", "--at", &format!("127.0.0.1:{}", served.port)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("a moment of the past"), "{said}");
    let data = std::fs::read_dir(&served.scratch).unwrap().next().unwrap().unwrap().path().join("data");
    assert!(data.join("restoring").exists(), "no other server opens it");
    served.stop();
    // The dump's own moment, without the archive.
    let dumps: serde_json::Value =
        serde_json::from_str(&crate::node::succeeds(&["dump", "list", "--from", bed.place(), "--json"])).unwrap();
    let served = serve(&bed, &["--to-lsn", &dumps[0]["lsn"].to_string(), "--archive", ""]);
    assert_eq!(one(&served.connect().await, "select count(*) from t").await, "24000");
    served.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_be_fetched_is_an_error_of_that_query_and_no_answer() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table small(k int primary key); insert into small values (1)").await;
    fill(&client, 24).await;
    let lsn = bed.dump()["lsn"].to_string();
    let (chunks, away) = (bed.dumps.join("chunks"), bed.path("away"));
    std::fs::create_dir(&away).unwrap();
    // The largest ones have only rows of t, of which the first pages are not.
    let mut files: Vec<_> = std::fs::read_dir(&chunks).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable_by_key(|path| std::fs::metadata(path).unwrap().len());
    let hidden = files.pop().unwrap();
    let kept = away.join(hidden.file_name().unwrap());
    std::fs::rename(&hidden, &kept).unwrap();
    let served = serve(&bed, &["--to-lsn", &lsn]);
    let there = served.connect().await;
    assert_eq!(one(&there, "select count(*) from small").await, "1");
    let error = there.simple_query("select sum(length(v)) from t").await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains(hidden.file_name().unwrap().to_str().unwrap()), "{text}");
    assert_eq!(one(&there, "select count(*) from small").await, "1");
    std::fs::rename(&kept, &hidden).unwrap();
    let whole = one(&client, "select sum(length(v)) from t").await;
    until("the chunk is fetched", async || {
        let there = served.connect().await;
        let answer = there.simple_query("select sum(length(v)) from t").await;
        answer.is_ok_and(|messages| crate::node::last_cell(messages) == whole)
    })
    .await;
    served.stop();
}
