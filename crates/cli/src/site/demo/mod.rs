//! `holdfast site demo`: a head office, and three sites that each take their part of it.
//!
//! | site | takes | is |
//! |---|---|---|
//! | region | the people of its region, all skills | a Holdfast |
//! | ship | two columns of all people | a Holdfast |
//! | warehouse | everything | a PostgreSQL, where one is installed |
//!
//! Each site's role is granted its publication and no table, and proves itself with a password. The links go through forwarders, which
//! count bytes and can be cut. At the end every published row is compared.
//!
//! Failure: a difference, or a site that does not catch up, ends the demonstration with exit code 1.

mod link;
mod load;
mod server;

use anyhow::{Context, bail};
use comfy_table::{Table, presets};
use holdfast_compare::{Report, compare, subscriptions};
use link::Link;
use load::Load;
use serde_json::json;
use server::{Server, Warehouse, connect};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How long anything that the demonstration waits for may take.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENTS: u64 = 4;
const REGIONS: u64 = 4;

/// Watch a head office, a region, a ship and a warehouse exchange rows on this machine
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast site demo
  holdfast site demo --seconds 10 --people 100000
  holdfast site demo --json

Needs no root, and about 1 GB in the temporary directory. The warehouse is a PostgreSQL, from version 15 on; without one the other two
sites take part. Exit codes: 0 all sites are equal, 1 otherwise.")]
pub struct Arguments {
    /// How long the load runs undisturbed, and again with the faults
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How many people head office has
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    people: u64,
    /// Keep the sites' directories below this one, which must be empty or not there yet
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the result as JSON, and nothing else on stdout
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn tell(&self, text: &str) {
        if !self.json {
            println!("demo: {text}");
        }
    }
}

/// What a site is, and how it is reached.
struct Site {
    name: &'static str,
    /// The statements that make its tables.
    tables: &'static [&'static str],
    publication: &'static str,
    port: u16,
    database: &'static str,
    link: Link,
}

/// What was measured of a site.
struct Measured {
    site: &'static str,
    rows: usize,
    differences: usize,
    bytes: u64,
    latency_ms: Option<(f64, f64)>,
}

const PEOPLE: &str = "CREATE TABLE per (id int PRIMARY KEY, dscrptn_text text, region int, rank text)";
const SKILL: &str = "CREATE TABLE skill (id int PRIMARY KEY, per_id int, s text)";
const BEAT: &str = "CREATE TABLE beat (id int PRIMARY KEY, n bigint)";
const TWO_COLUMNS: &str = "CREATE TABLE per (id int PRIMARY KEY, dscrptn_text text)";

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (dir, is_kept) = match &arguments.dir {
        Some(dir) => (std::path::absolute(dir)?, true),
        None => (std::env::temp_dir().join(format!("holdfast-sites-{}", std::process::id())), false),
    };
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = demo(arguments, &dir) => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        }
    });
    match done {
        Ok(()) if !is_kept => std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string()),
        done => done.with_context(|| format!("the sites' logs are in {}", dir.display())),
    }
}

async fn demo(arguments: &Arguments, dir: &Path) -> anyhow::Result<()> {
    let mut office = Server::start(dir.join("office"))?;
    let (mut region, mut ship) = (Server::start(dir.join("region"))?, Server::start(dir.join("ship"))?);
    let warehouse = Warehouse::start(dir.join("warehouse"))?;
    let with = match &warehouse {
        Some(warehouse) => format!("and a warehouse (PostgreSQL {})", warehouse.version),
        None => "but no warehouse: no PostgreSQL from version 15 on is installed".to_owned(),
    };
    arguments.tell(&format!("head office, a region and a ship (Holdfast) start, {with}"));
    fill(&office.connect().await?, arguments.people).await?;
    let mut sites = vec![
        Site::new("region", &[PEOPLE, SKILL, BEAT], "region_2", region.port, "holdfast", office.port).await?,
        Site::new("ship", &[TWO_COLUMNS, BEAT], "ship", ship.port, "holdfast", office.port).await?,
    ];
    if let Some(warehouse) = &warehouse {
        let all = &[PEOPLE, SKILL, BEAT];
        sites.push(Site::new("warehouse", all, "everything", warehouse.port, "postgres", office.port).await?);
    }
    for site in &sites {
        site.subscribe(dir).await.with_context(|| format!("{} cannot subscribe", site.name))?;
    }
    let copied = Instant::now();
    for site in &sites {
        site.until_copied().await?;
    }
    let people = arguments.people;
    arguments.tell(&format!("{people} people are copied to the sites in {:.1} s", copied.elapsed().as_secs_f64()));
    let (commits, latencies, bytes) = undisturbed(arguments, &office, &sites).await?;
    disturbed(arguments, &mut office, &sites).await?;
    let mut measured = Vec::new();
    for (at, site) in sites.iter().enumerate() {
        let reports = site.compared().await?;
        measured.push(Measured {
            site: site.name,
            rows: reports.iter().flat_map(|report| &report.tables).map(|table| table.rows).sum(),
            differences: reports.iter().map(|report| report.differences).sum(),
            bytes: bytes[at],
            latency_ms: latencies[at],
        });
    }
    drop(warehouse);
    [&mut region, &mut ship, &mut office].into_iter().try_for_each(Server::stop)?;
    report(arguments, commits, &measured)
}

/// The clerks work for a while; their commits, and of each site the latencies (median, 99 %) and the bytes.
type Undisturbed = (u64, Vec<Option<(f64, f64)>>, Vec<u64>);

async fn undisturbed(arguments: &Arguments, office: &Server, sites: &[Site]) -> anyhow::Result<Undisturbed> {
    arguments.tell(&format!("{CLIENTS} clerks update descriptions of 300 characters for {} s", arguments.seconds));
    let load = Load::new();
    let before: Vec<u64> = sites.iter().map(|site| site.link.bytes()).collect();
    let mut listeners = Vec::new();
    for site in sites {
        listeners.push(tokio::spawn(load.clone().listens(connect(site.port, site.database).await?)));
    }
    let drum = tokio::spawn(load.clone().drum(office.port));
    let clerks: Vec<_> =
        (1..=CLIENTS).map(|clerk| tokio::spawn(load.clone().clerk(office.port, arguments.people, clerk))).collect();
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    load.stop();
    for clerk in clerks {
        clerk.await?;
    }
    drum.await??;
    let mut latencies = Vec::new();
    for listener in listeners {
        let sorted = listener.await??;
        let at = |share: f64| sorted.get(((sorted.len() as f64) * share) as usize).map(|d| d.as_secs_f64() * 1e3);
        latencies.push(at(0.5).zip(at(0.99)));
    }
    let office = office.connect().await?;
    for site in sites {
        site.until_equal(&office).await?;
    }
    let bytes = sites.iter().zip(before).map(|(site, before)| site.link.bytes() - before);
    Ok((load.commits.load(Ordering::Relaxed), latencies, bytes.collect()))
}

/// The same with a ship that is out of reach and a head office that dies.
async fn disturbed(arguments: &Arguments, office: &mut Server, sites: &[Site]) -> anyhow::Result<()> {
    let load = Load::new();
    let clerks: Vec<_> = (1..=CLIENTS)
        .map(|clerk| tokio::spawn(load.clone().clerk(office.port, arguments.people, 100 + clerk)))
        .collect();
    let pause = Duration::from_secs(arguments.seconds) / 3;
    let ship = sites.iter().find(|site| site.name == "ship").context("there is no ship")?;
    arguments.tell("the ship's link is cut");
    ship.link.cut(true);
    tokio::time::sleep(pause).await;
    arguments.tell("kill -9 head office, and it starts again");
    office.kill()?;
    office.start_again()?;
    tokio::time::sleep(pause).await;
    arguments.tell("the ship's link is back");
    ship.link.cut(false);
    tokio::time::sleep(pause).await;
    load.stop();
    for clerk in clerks {
        clerk.await?;
    }
    let commits = load.commits.load(Ordering::Relaxed);
    arguments.tell(&format!("{commits} commits were acknowledged meanwhile; every published row is compared"));
    Ok(())
}

fn report(arguments: &Arguments, commits: u64, measured: &[Measured]) -> anyhow::Result<()> {
    let a_minute = commits * 60 / arguments.seconds;
    let differences: usize = measured.iter().map(|site| site.differences).sum();
    let rows: usize = measured.iter().map(|site| site.rows).sum();
    if arguments.json {
        let site = |site: &Measured| {
            json!({ "site": site.site, "rows": site.rows, "differences": site.differences, "bytes": site.bytes,
                    "latency_ms_median": site.latency_ms.map(|l| l.0), "latency_ms_p99": site.latency_ms.map(|l| l.1) })
        };
        let sites: Vec<_> = measured.iter().map(site).collect();
        println!(
            "{}",
            json!({ "commits": commits, "commits_a_minute": a_minute, "sites": sites, "differences": differences })
        );
    } else {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "site",
            "transactions a minute",
            "latency ms, median",
            "99 %",
            "bytes a transaction",
            "rows",
            "differences",
        ]);
        for site in measured {
            let ms = |of: fn((f64, f64)) -> f64| site.latency_ms.map_or("-".to_owned(), |l| format!("{:.1}", of(l)));
            table.add_row([
                site.site.to_owned(),
                a_minute.to_string(),
                ms(|l| l.0),
                ms(|l| l.1),
                site.bytes.checked_div(commits).map_or("-".to_owned(), |each| each.to_string()),
                site.rows.to_string(),
                site.differences.to_string(),
            ]);
        }
        println!("{table}");
    }
    if differences > 0 {
        bail!("{differences} rows differ");
    }
    arguments.tell(&format!("all sites are equal: {rows} rows compared, 0 differences"));
    Ok(())
}

/// Head office's tables, people and publications.
async fn fill(office: &Client, people: u64) -> anyhow::Result<()> {
    let text = "'description of person ' || g";
    for sql in [
        PEOPLE.to_owned(),
        SKILL.to_owned(),
        BEAT.to_owned(),
        format!(
            "INSERT INTO per SELECT g, {text}, g % {REGIONS}, 'rank ' || g % 9 FROM generate_series(1, {people}) g"
        ),
        format!("INSERT INTO skill SELECT g, g, 'skill ' || g % 50 FROM generate_series(1, {people}) g"),
        "INSERT INTO beat VALUES (1, -1)".to_owned(),
        "CREATE PUBLICATION region_2 FOR TABLE per WHERE (region = 2), skill, beat".to_owned(),
        "CREATE PUBLICATION ship FOR TABLE per (id, dscrptn_text), beat".to_owned(),
        "CREATE PUBLICATION everything FOR TABLE per, skill, beat".to_owned(),
    ] {
        office.batch_execute(&sql).await.with_context(|| sql.clone())?;
    }
    for publication in ["region_2", "ship", "everything"] {
        let role = format!("site_{publication}");
        office.batch_execute(&format!("CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{role}'")).await?;
        office.batch_execute(&format!("GRANT SELECT ON PUBLICATION {publication} TO {role}")).await?;
    }
    Ok(())
}

impl Site {
    async fn new(
        name: &'static str,
        tables: &'static [&'static str],
        publication: &'static str,
        port: u16,
        database: &'static str,
        office: u16,
    ) -> anyhow::Result<Site> {
        Ok(Site { name, tables, publication, port, database, link: Link::to(office).await? })
    }

    async fn subscribe(&self, dir: &Path) -> anyhow::Result<()> {
        let client = connect(self.port, self.database).await?;
        for table in self.tables {
            client.batch_execute(table).await?;
        }
        let role = format!("site_{}", self.publication);
        let place = format!("host=127.0.0.1 port={} dbname=holdfast user={role}", self.link.port);
        let proof = match self.database {
            // The user that PostgreSQL runs as cannot read our files.
            "postgres" => format!("password={role}"),
            _ => {
                let path = dir.join(format!("{}.pass", self.name));
                let mut file =
                    std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
                std::io::Write::write_all(&mut file, format!("*:*:*:{role}:{role}\n").as_bytes())?;
                format!("passfile={}", path.display())
            }
        };
        let (name, publication) = (self.name, self.publication);
        client
            .batch_execute(&format!(
                "CREATE SUBSCRIPTION {name} CONNECTION '{place} {proof}' PUBLICATION {publication}"
            ))
            .await?;
        Ok(())
    }

    async fn until_copied(&self) -> anyhow::Result<()> {
        let client = connect(self.port, self.database).await?;
        let open = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'";
        until(&format!("{} has copied its tables", self.name), async || {
            Ok(client.query_one(open, &[]).await?.get::<_, i64>(0) == 0)
        })
        .await
    }

    /// Waits until the site has the last beat.
    async fn until_equal(&self, office: &Client) -> anyhow::Result<()> {
        let last: i64 = office.query_one("SELECT n FROM beat", &[]).await?.get(0);
        let client = connect(self.port, self.database).await?;
        until(&format!("{} has everything", self.name), async || {
            Ok(client.query_one("SELECT n FROM beat", &[]).await?.get::<_, i64>(0) == last)
        })
        .await
    }

    async fn compared(&self) -> anyhow::Result<Vec<Report>> {
        let client = connect(self.port, self.database).await?;
        let mut reports = Vec::new();
        for subscription in subscriptions(&client, None).await? {
            reports.push(compare(&client, &subscription, |_| {}).await?);
        }
        Ok(reports)
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so().await? {
        if began.elapsed() > PATIENCE {
            bail!("not so within {} s: {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
