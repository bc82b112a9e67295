//! A base copy over a link that breaks every few megabytes, or whose command is killed, while clients write.

use crate::node::{Pair, assert_same, run};
use holdfast_seams::testing::Patience;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ROWS: u64 = 24_000;

/// How many bytes from the server a [`Cutter`] passes on.
enum Allowed {
    /// With each connection.
    Each(u64),
    /// With all connections together: later ones end at once.
    Together(AtomicU64),
}

/// Passes connections on to a server, and cuts them.
struct Cutter {
    at: String,
    /// Bytes from the server that were passed on, over all connections.
    sent: Arc<AtomicU64>,
    /// Connections that ended at once.
    refused: Arc<AtomicU64>,
}

impl Cutter {
    fn start(to: String, allowed: Allowed) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let (sent, refused) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (count, ended, allowed) = (sent.clone(), refused.clone(), Arc::new(allowed));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if matches!(&*allowed, Allowed::Together(rest) if rest.load(Ordering::Relaxed) == 0) {
                    ended.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(from, into, |_| true));
                let (count, allowed) = (count.clone(), allowed.clone());
                let mut passed = 0;
                let counted = move |bytes: u64| {
                    passed += bytes;
                    let may_pass = match &*allowed {
                        Allowed::Each(bytes_max) => passed <= *bytes_max,
                        Allowed::Together(rest) => {
                            let left = rest.load(Ordering::Relaxed).checked_sub(bytes);
                            rest.store(left.unwrap_or(0), Ordering::Relaxed);
                            left.is_some()
                        }
                    };
                    count.fetch_add(if may_pass { bytes } else { 0 }, Ordering::Relaxed);
                    may_pass
                };
                std::thread::spawn(move || pass(server, client, counted));
            }
        });
        Cutter { at, sent, refused }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until the command is refused: it has what was passed on before, and looks for the rest.
    async fn until_refused(&self) {
        let mut patience = Patience::new();
        while self.refused.load(Ordering::Relaxed) == 0 {
            patience.sees(self.sent().to_string());
            patience.look("a part is copied");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Passes bytes on as long as `may_pass` allows their number, then both connections end.
fn pass(mut from: TcpStream, mut to: TcpStream, mut may_pass: impl FnMut(u64) -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer)
        && may_pass(n as u64)
        && to.write_all(&buffer[..n]).is_ok()
    {}
    // The other side may have ended the connection.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A master with some 27 MB.
async fn filled() -> Pair {
    let mut pair = Pair::master("");
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key, v text)").await;
    for first in (0..ROWS).step_by(1000) {
        let rows: Vec<String> = (first..first + 1000).map(|id| format!("({id}, '{id:0>1000}')")).collect();
        run(&client, &format!("insert into t values {}", rows.join(", "))).await;
    }
    drop(client);
    // The files have everything.
    assert!(pair.a.stop().success());
    pair.a.start();
    pair
}

/// Bytes of the master's databases.
fn size(pair: &Pair) -> u64 {
    let files = std::fs::read_dir(pair.a.dir.join("volumes")).unwrap().map(|entry| entry.unwrap());
    files.map(|file| file.metadata().unwrap().len()).sum()
}

fn create(pair: &Pair, from: &str) -> Child {
    let mut create = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    create.args(["standby", "create", "--from", from, "--name", "b", "--data", pair.b.data()]);
    create.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the command has ended; the bytes that it has received stay below `bytes_max`.
async fn until_it_ends(mut create: Child, cutter: &Cutter, bytes_max: u64) -> String {
    let mut patience = Patience::new();
    while create.try_wait().unwrap().is_none() {
        let sent = cutter.sent();
        if sent > bytes_max {
            create.kill().unwrap();
            panic!("{sent} bytes were sent, and the copy has not ended");
        }
        patience.sees(sent.to_string());
        patience.look("the copy ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = create.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_over_a_link_that_breaks_while_clients_write() {
    let mut pair = filled().await;
    let stop = Arc::new(AtomicBool::new(false));
    let (client, ended) = (pair.a.connect().await, stop.clone());
    let writer = tokio::spawn(async move {
        let mut n = 0;
        while !ended.load(Ordering::Relaxed) {
            n += 1;
            run(&client, &format!("update t set v = '{n}' || substr(v, 8) where id = {}", n * 7919 % ROWS)).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        n
    });
    // Room for a chunk or more in each link, with the answers to what was there already.
    let cutter = Cutter::start(pair.a.at(), Allowed::Each(4 << 20));
    let size = size(&pair);
    let said = until_it_ends(create(&pair, &cutter.at), &cutter, size * 2).await;
    stop.store(true, Ordering::Relaxed);
    eprintln!("{} of {size} bytes sent, {} writes meanwhile", cutter.sent(), writer.await.unwrap());
    for words in ["copying", "verifying", "the link broke", "MiB/s", "100 %"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    pair.b.start();
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
}

/// The master was started again as well: nothing is left of the copy but what is on the standby's disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_killed_is_continued_from_another_state() {
    let mut pair = filled().await;
    let size = size(&pair);
    let mut sent = 0;
    for round in 1..=2 {
        // The link ends by itself: no page is on the way when the command is killed.
        let cutter = Cutter::start(pair.a.at(), Allowed::Together(AtomicU64::new(size * 2 / 5)));
        let mut create = create(&pair, &cutter.at);
        cutter.until_refused().await;
        create.kill().unwrap();
        create.wait().unwrap();
        sent += cutter.sent();
        let client = pair.a.connect().await;
        for id in 0..5 {
            run(&client, &format!("update t set v = '{round}' || substr(v, 8) where id = {id}")).await;
        }
        drop(client);
        assert!(pair.a.stop().success());
        pair.a.start();
    }
    let whole = Cutter::start(pair.a.at(), Allowed::Each(u64::MAX));
    until_it_ends(create(&pair, &whole.at), &whole, size * 2).await;
    sent += whole.sent();
    eprintln!("{sent} of {size} bytes sent");
    assert!(sent < size * 3 / 2, "{sent} of {size} bytes sent: what was there was sent again");
    pair.b.start();
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
}
