//! `holdfast cluster demo`: three nodes on this machine, a load, the loss of the master, and the count of what was kept.
//!
//! Each client inserts rows with ids of its own and notes which were acknowledged. The demo only breaks a: the cluster names the
//! successor, which promotes itself, and a returns by itself. Every acknowledged id is looked for on the new master; a commit that
//! was not answered may be there or not.
//!
//! Failure: an acknowledged row that is missing, or a node that does not take over, ends the demo with exit code 1.

mod bed;

use anyhow::{Context, bail};
use bed::Bed;
use holdfast_cluster::Asked;
use rustix::process::Signal;
use serde_json::json;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// How long anything that the demo waits for may take.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(5);
/// How long a client waits for a connection.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// Without an answer in this time a client connects again; its commit stays open.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const CLIENTS_MAX: u64 = 100;

/// Watch a cluster of three nodes on this machine lose its master, and lose nothing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast cluster demo
  holdfast cluster demo --fault server
  holdfast cluster demo --seconds 5 --json

Needs no root and about 700 MB in the temporary directory. The standby takes over by itself. Exit codes: 0 no acknowledged row was
lost, 1 otherwise.")]
pub struct Arguments {
    /// What happens to the master a
    #[arg(long, value_enum, default_value_t = Fault::Node)]
    fault: Fault,
    /// How long the load runs before the fault, and again after it
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// How many clients write at a time
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: u64,
    /// Keep the nodes' directories below this one, which must be empty or not there yet
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the result as JSON, and nothing else on stdout
    #[arg(long)]
    json: bool,
}

/// What happens to the master.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fault {
    /// kill -9 of its server
    Server,
    /// kill -9 of its server and its supervisor
    Node,
    /// SIGSTOP of both; they continue when the standby has taken over
    Stop,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Fault::Server => "kill -9 a",
            Fault::Node => "kill -9 a and its supervisor",
            Fault::Stop => "SIGSTOP a and its supervisor",
        }
    }

    fn happens(self, bed: &mut Bed) -> anyhow::Result<()> {
        match self {
            Fault::Server => bed.signal_server(0, Signal::KILL),
            Fault::Node => {
                bed.signal_server(0, Signal::KILL)?;
                bed.kill_supervisor(0)
            }
            Fault::Stop => {
                bed.signal_server(0, Signal::STOP)?;
                bed.signal_supervisor(0, Signal::STOP)
            }
        }
    }
}

/// What the clients share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    commits: AtomicU64,
    /// Commits answered by b.
    on_b: AtomicU64,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (dir, is_kept) = match &arguments.dir {
        Some(dir) => (std::path::absolute(dir)?, true),
        None => (std::env::temp_dir().join(format!("holdfast-demo-{}", std::process::id())), false),
    };
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = demo(arguments, dir.clone()) => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        }
    });
    match done {
        Ok(()) if !is_kept => std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string()),
        done => done.with_context(|| format!("the nodes' logs are in {}", dir.display())),
    }
}

async fn demo(arguments: &Arguments, dir: PathBuf) -> anyhow::Result<()> {
    let tell = |text: &str| {
        if !arguments.json {
            println!("demo: {text}");
        }
    };
    tell("makes the server a, its standby b and the witness w");
    let mut bed = Bed::make(dir)?;
    for node in [2, 1, 0] {
        bed.start(node)?;
    }
    until_agreed(&bed, "a").await?;
    let setup = connect(bed.ports[0]).await.context("a cannot be reached")?;
    setup.batch_execute("create table demo (id bigint primary key)").await?;
    drop(setup);
    tell("a is the master, b its standby at level hot; the clients begin");

    let load = Arc::new(Load::default());
    let clients = (0..arguments.clients).map(|number| tokio::spawn(insert(load.clone(), bed.ports, number)));
    let clients: Vec<_> = clients.collect();
    show(&load, arguments, Duration::from_secs(arguments.seconds)).await;
    let began = Instant::now();
    let ms = || began.elapsed().as_millis() as u64;
    arguments.fault.happens(&mut bed)?;
    let limit = Instant::now() + PATIENCE;
    let (mut named, mut raised) = (None, None);
    while load.on_b.load(Ordering::Relaxed) == 0 {
        if Instant::now() > limit {
            bail!("b has answered no commit in {PATIENCE:?}");
        }
        let record = bed.ask(2, Asked::Status)?["record"].clone();
        let is_master = record["master"] == "b";
        if is_master || record["successor"] == "b" {
            named.get_or_insert_with(ms);
        }
        if is_master {
            raised.get_or_insert_with(ms);
        }
        tokio::time::sleep(LOOK).await;
    }
    let first = ms();
    // A fast machine may have done all of it between two looks.
    let (raised, named) = (raised.unwrap_or(first), named.unwrap_or(first));
    if arguments.fault == Fault::Stop {
        for signalled in [bed.signal_supervisor(0, Signal::CONT), bed.signal_server(0, Signal::CONT)] {
            signalled?;
        }
    }
    show(&load, arguments, Duration::from_secs(arguments.seconds)).await;
    load.stop.store(true, Ordering::Relaxed);
    let (mut acknowledged, mut open) = (Vec::new(), HashSet::new());
    for client in clients {
        let (done, unanswered) = client.await?;
        acknowledged.extend(done);
        open.extend(unanswered);
    }
    let found = ids(bed.ports[1]).await?;
    let lost = acknowledged.iter().filter(|id| !found.contains(id)).count();
    let answered: HashSet<i64> = acknowledged.iter().copied().collect();
    let foreign = found.iter().filter(|id| !answered.contains(id) && !open.contains(id)).count();

    if arguments.fault == Fault::Node {
        tell("the node a is started again");
        bed.start(0)?;
    }
    tell("a returns as the standby of b, by itself");
    until_agreed(&bed, "b").await?;
    let limit = Instant::now() + PATIENCE;
    while ids(bed.ports[0]).await? != found {
        if Instant::now() > limit {
            bail!("a does not show the rows of b after {PATIENCE:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
    tell("a has the same rows as b");
    // The master first: a standby that stops would be waited for.
    for node in [1, 0, 2] {
        bed.stop(node)?;
    }
    let total = acknowledged.len();
    match arguments.json {
        true => println!(
            "{}",
            json!({ "named_ms": named, "promoted_ms": raised, "first_commit_ms": first, "acknowledged": total, "found": found.len(),
                    "unanswered": open.len(), "lost": lost, "foreign": foreign })
        ),
        false => println!(
            "demo: 0 ms {} | {named} b named | {raised} promoted | {first} first commit | lost {lost} of {total}",
            arguments.fault.words()
        ),
    }
    if lost > 0 || foreign > 0 {
        bail!("{lost} acknowledged rows are lost, and {foreign} are there that no client wrote");
    }
    Ok(())
}

/// Waits until this node is the master and both are in the sync set.
async fn until_agreed(bed: &Bed, master: &str) -> anyhow::Result<()> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let record = bed.ask(2, Asked::Status)?["record"].clone();
        if record["master"] == master && record["serving"] == true && record["sync_set"] == json!(["a", "b"]) {
            return Ok(());
        }
        if Instant::now() > limit {
            bail!("the nodes did not agree on {master} with both in the sync set in {PATIENCE:?}: {record}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(port: u16) -> Result<Client, tokio_postgres::Error> {
    let config = format!("host=127.0.0.1 port={port} user=holdfast dbname=holdfast");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One client: inserts until it is stopped. Returns the acknowledged ids, and those without an answer.
async fn insert(load: Arc<Load>, ports: [u16; 2], number: u64) -> (Vec<i64>, Vec<i64>) {
    let (mut acknowledged, mut open) = (Vec::new(), Vec::new());
    let (mut id, mut host) = ((number as i64) << 40, 0);
    while !load.stop.load(Ordering::Relaxed) {
        let connected = tokio::time::timeout(CONNECT_MAX, connect(ports[host])).await;
        if let Ok(Ok(client)) = connected {
            while !load.stop.load(Ordering::Relaxed) {
                id += 1;
                let sql = format!("insert into demo values ({id})");
                let Ok(Ok(())) = tokio::time::timeout(ANSWER_MAX, client.batch_execute(&sql)).await else {
                    open.push(id);
                    break;
                };
                acknowledged.push(id);
                load.commits.fetch_add(1, Ordering::Relaxed);
                if host == 1 {
                    load.on_b.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        host = 1 - host;
        tokio::time::sleep(PAUSE).await;
    }
    (acknowledged, open)
}

/// Shows how many commits were answered in each tenth of a second: a line for each second.
async fn show(load: &Load, arguments: &Arguments, lasts: Duration) {
    let mut counts = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    ticks.tick().await;
    let mut before = load.commits.load(Ordering::Relaxed);
    for _ in 0..lasts.as_millis() / 100 {
        ticks.tick().await;
        let now = load.commits.load(Ordering::Relaxed);
        counts.push((now - before).to_string());
        before = now;
        if counts.len() == 10 && !arguments.json {
            println!("demo: commits per 100 ms: {}", counts.join(" "));
            counts.clear();
        }
    }
}

/// All ids on a node.
async fn ids(port: u16) -> anyhow::Result<HashSet<i64>> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let asked = async { connect(port).await?.query("select id from demo", &[]).await };
        match asked.await {
            Ok(rows) => return Ok(rows.iter().map(|row| row.get(0)).collect()),
            // It starts, or its lease is late.
            Err(_) if Instant::now() < limit => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}
