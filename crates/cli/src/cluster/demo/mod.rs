//! `holdfast cluster demo`: three nodes on this machine, a load, the loss of the master, and the count of what was kept.
//!
//! Each client inserts rows with ids of its own and notes which were acknowledged. The demo only breaks a, and when a is back, b: the
//! cluster names the successor, which promotes itself, and the old master returns by itself. Every acknowledged id is looked for on
//! the new master; a commit that was not answered may be there or not.
//!
//! Failure: an acknowledged row that is missing, or a node that does not take over, ends the demo with exit code 1.

mod bed;
mod net;

use anyhow::{Context, bail};
use bed::{Bed, Host, NAMES};
use holdfast_cluster::Asked;
use net::Net;
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
  sudo holdfast cluster demo --netns --fault cable

Needs no root, except for --netns, and about 700 MB in the temporary directory. The standby takes over by itself. Exit codes: 0 no acknowledged row was
lost, 1 otherwise.")]
pub struct Arguments {
    /// What happens to the master, first a, then b
    #[arg(long, value_enum, default_value_t = Fault::Node)]
    fault: Fault,
    /// Give each node a network namespace of its own, and certificates; needs root
    #[arg(long)]
    netns: bool,
    /// How long the load runs before the fault, and again after it
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// How many clients write at a time
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: u64,
    /// How long a lease lasts: 300, 600, 900, 1500 or 3000
    #[arg(long, value_name = "MS", default_value_t = 600)]
    lease_ms: u32,
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
    /// Its network cable is pulled, and put back when the standby has taken over; needs --netns
    Cable,
}

impl Fault {
    fn words(self, node: usize) -> String {
        let name = NAMES[node];
        match self {
            Fault::Server => format!("kill -9 {name}"),
            Fault::Node => format!("kill -9 {name} and its supervisor"),
            Fault::Stop => format!("SIGSTOP {name} and its supervisor"),
            Fault::Cable => format!("the cable of {name} is pulled"),
        }
    }

    fn happens(self, bed: &mut Bed, node: usize) -> anyhow::Result<()> {
        match self {
            Fault::Server => bed.signal_server(node, Signal::KILL),
            Fault::Node => {
                bed.signal_server(node, Signal::KILL)?;
                bed.kill_supervisor(node)
            }
            Fault::Stop => {
                bed.signal_server(node, Signal::STOP)?;
                bed.signal_supervisor(node, Signal::STOP)
            }
            Fault::Cable => bed.cut(node, true),
        }
    }

    /// What can be undone is, when the standby has taken over.
    fn ends(self, bed: &Bed, node: usize) -> anyhow::Result<()> {
        match self {
            Fault::Server | Fault::Node => Ok(()),
            Fault::Stop => {
                bed.signal_supervisor(node, Signal::CONT)?;
                bed.signal_server(node, Signal::CONT)
            }
            Fault::Cable => bed.cut(node, false),
        }
    }
}

/// What the clients of a round share.
struct Load {
    stop: AtomicBool,
    commits: AtomicU64,
    /// Commits answered by the node that takes over.
    on_new: AtomicU64,
    /// That node.
    new: usize,
}

/// What the clients of all rounds were told.
#[derive(Default)]
struct Told {
    acknowledged: HashSet<i64>,
    unanswered: HashSet<i64>,
}

/// When what happened after a fault, in milliseconds.
#[derive(Clone, Copy)]
struct TimeLine {
    named: u64,
    promoted: u64,
    first_commit: u64,
}

/// What was found on the new master.
#[derive(Clone, Copy)]
struct Counts {
    found: usize,
    lost: usize,
    foreign: usize,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.fault == Fault::Cable && !arguments.netns {
        bail!("--fault cable needs --netns: the nodes have no cables without namespaces");
    }
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

impl Arguments {
    fn tell(&self, text: &str) {
        if !self.json {
            println!("demo: {text}");
        }
    }
}

async fn demo(arguments: &Arguments, dir: PathBuf) -> anyhow::Result<()> {
    arguments.tell("makes the server a, its standby b and the witness w");
    let net = arguments.netns.then(Net::make).transpose()?;
    let mut bed = Bed::make(dir, net, arguments.lease_ms)?;
    for node in [2, 1, 0] {
        bed.start(node)?;
    }
    until_agreed(&bed, 0).await?;
    let setup = connect(&bed.hosts[0]).await.context("a cannot be reached")?;
    setup.batch_execute("create table demo (id bigint primary key)").await?;
    drop(setup);
    let (mut told, mut rounds) = (Told::default(), Vec::new());
    for master in [0, 1] {
        let (name, new) = (NAMES[master], NAMES[1 - master]);
        arguments.tell(&format!("{name} is the master, {new} its standby at level hot; the clients begin"));
        let line = fails_over(&mut bed, arguments, master, &mut told).await?;
        let ids = ids(&bed.hosts[1 - master]).await?;
        let counts = told.compared_with(&ids);
        returns(&mut bed, arguments, master, &ids).await?;
        if master == 1 {
            // The master first: a standby that stops would be waited for.
            for node in [0, 1, 2] {
                bed.stop(node)?;
            }
        }
        let (words, lost, total) = (arguments.fault.words(master), counts.lost, told.acknowledged.len());
        let TimeLine { named, promoted, first_commit } = line;
        arguments.tell(&format!(
            "0 ms {words} | {named} {new} named | {promoted} promoted | {first_commit} first commit | lost {lost} of {total}"
        ));
        rounds.push((line, counts));
        if lost > 0 || counts.foreign > 0 {
            break;
        }
    }
    if arguments.json {
        println!("{}", as_json(&rounds, &told));
    }
    match rounds.last() {
        Some((_, Counts { lost, foreign, .. })) if lost + foreign > 0 => {
            bail!("{lost} acknowledged rows are lost, and {foreign} are there that no client wrote")
        }
        _ => Ok(()),
    }
}

fn as_json(rounds: &[(TimeLine, Counts)], told: &Told) -> serde_json::Value {
    let shown: Vec<_> = (rounds.iter().zip(NAMES))
        .map(|((line, counts), master)| {
            json!({ "master": master, "named_ms": line.named, "promoted_ms": line.promoted, "first_commit_ms": line.first_commit,
                    "found": counts.found, "lost": counts.lost, "foreign": counts.foreign })
        })
        .collect();
    json!({ "rounds": shown, "acknowledged": told.acknowledged.len(), "unanswered": told.unanswered.len() })
}

impl Told {
    fn compared_with(&self, found: &HashSet<i64>) -> Counts {
        let foreign = |id: &&i64| !self.acknowledged.contains(id) && !self.unanswered.contains(id);
        Counts {
            found: found.len(),
            lost: self.acknowledged.difference(found).count(),
            foreign: found.iter().filter(foreign).count(),
        }
    }
}

/// Clients write, the fault happens to the master, and the other node takes over.
async fn fails_over(bed: &mut Bed, arguments: &Arguments, master: usize, told: &mut Told) -> anyhow::Result<TimeLine> {
    let (new, name) = (1 - master, NAMES[1 - master]);
    let load = Load { stop: AtomicBool::default(), commits: AtomicU64::default(), on_new: AtomicU64::default(), new };
    let load = Arc::new(load);
    let numbers = (0..arguments.clients).map(|number| master as u64 * CLIENTS_MAX + number);
    let clients: Vec<_> = numbers.map(|number| tokio::spawn(insert(load.clone(), bed.hosts.clone(), number))).collect();
    show(&load, arguments, Duration::from_secs(arguments.seconds)).await;
    let began = Instant::now();
    let ms = || began.elapsed().as_millis() as u64;
    arguments.fault.happens(bed, master)?;
    let limit = Instant::now() + PATIENCE;
    let (mut named, mut promoted) = (None, None);
    while load.on_new.load(Ordering::Relaxed) == 0 {
        if Instant::now() > limit {
            bail!("{name} has answered no commit in {PATIENCE:?}");
        }
        let record = bed.ask(2, Asked::Status)?["record"].clone();
        let is_master = record["master"] == name;
        if is_master || record["successor"] == name {
            named.get_or_insert_with(ms);
        }
        if is_master {
            promoted.get_or_insert_with(ms);
        }
        tokio::time::sleep(LOOK).await;
    }
    let first_commit = ms();
    arguments.fault.ends(bed, master)?;
    show(&load, arguments, Duration::from_secs(arguments.seconds)).await;
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        let (acknowledged, unanswered) = client.await?;
        told.acknowledged.extend(acknowledged);
        told.unanswered.extend(unanswered);
    }
    // A fast machine may have done all of it between two looks.
    Ok(TimeLine { named: named.unwrap_or(first_commit), promoted: promoted.unwrap_or(first_commit), first_commit })
}

/// The old master returns as the standby, by itself, and has the same rows.
async fn returns(bed: &mut Bed, arguments: &Arguments, old: usize, found: &HashSet<i64>) -> anyhow::Result<()> {
    let (name, new) = (NAMES[old], NAMES[1 - old]);
    if arguments.fault == Fault::Node {
        arguments.tell(&format!("the node {name} is started again"));
        bed.start(old)?;
    }
    arguments.tell(&format!("{name} returns as the standby of {new}, by itself"));
    until_agreed(bed, 1 - old).await?;
    let limit = Instant::now() + PATIENCE;
    while ids(&bed.hosts[old]).await? != *found {
        if Instant::now() > limit {
            bail!("{name} does not show the rows of {new} after {PATIENCE:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
    arguments.tell(&format!("{name} has the same rows as {new}"));
    Ok(())
}

/// Waits until this node is the master and both are in the sync set.
async fn until_agreed(bed: &Bed, master: usize) -> anyhow::Result<()> {
    let master = NAMES[master];
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

async fn connect(to: &Host) -> Result<Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host(&to.host).port(to.port).user("holdfast").dbname("holdfast");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One client: inserts until it is stopped. Returns the acknowledged ids, and those without an answer.
async fn insert(load: Arc<Load>, hosts: [Host; 2], number: u64) -> (Vec<i64>, Vec<i64>) {
    let (mut acknowledged, mut open) = (Vec::new(), Vec::new());
    let (mut id, mut host) = ((number as i64) << 40, 1 - load.new);
    while !load.stop.load(Ordering::Relaxed) {
        let connected = tokio::time::timeout(CONNECT_MAX, connect(&hosts[host])).await;
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
                if host == load.new {
                    load.on_new.fetch_add(1, Ordering::Relaxed);
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
async fn ids(of: &Host) -> anyhow::Result<HashSet<i64>> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let asked = async { connect(of).await?.query("select id from demo", &[]).await };
        match asked.await {
            Ok(rows) => return Ok(rows.iter().map(|row| row.get(0)).collect()),
            // It starts, or its lease is late.
            Err(_) if Instant::now() < limit => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}
