//! `holdfast dump`: makes, lists, verifies and forgets dumps.

mod drill;

use crate::standby::At;
use crate::time_left;
use anyhow::{Context, bail};
use clap::Subcommand;
use comfy_table::{Table, presets};
use holdfast_dump::{
    ArchiveKeep, CreateOptions, Created, DumpProgress, ForgetOptions, Keep, Keys, Listing, Repository, create, forget,
    new_identity, show_moment, verify,
};
use holdfast_node::SCHEDULED_BY;
use holdfast_node::data_dir::private_umask;
use indicatif::{BinaryBytes, ProgressBar};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Back up a running server, and keep the backups
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast dump create --at 127.0.0.1:5433 --to /mnt/dumps
  holdfast dump list --from /mnt/dumps
  holdfast dump verify --from /mnt/dumps
  holdfast dump forget --from /mnt/dumps --keep-daily 7 --keep-weekly 4
  holdfast restore --from /mnt/dumps --data ./restored")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Copy all databases of a running server, at one LSN, while it serves
    Create(Create),
    /// Show the dumps in a place
    List(Look),
    /// Read every dump and check every byte; the exit code is 0 when all is well
    Verify(Verify),
    /// Remove old dumps, and what only they need; the last one always stays
    Forget(Forget),
    /// Restore the newest dump to scratch, check it, and compare it with a running server; the exit code is 0 when all is well
    Drill(drill::Arguments),
    /// Make an identity for encrypted dumps and archives: a file to keep, and the recipient to encrypt to
    Key(NewKey),
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast dump key --out ./dump-identity
  holdfast dump create --at 127.0.0.1:5433 --to /mnt/dumps --encrypt-to age1...
  holdfast dump create --at 127.0.0.1:5433 --to /mnt/dumps --identity ./dump-identity
  holdfast restore --from /mnt/dumps --identity ./dump-identity --data ./restored

The file is in the form of age-keygen. Keep a copy of it away from the server and from the dumps: without it no encrypted dump
can be read.")]
struct NewKey {
    /// File to make, which must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// The key to an encrypted place.
#[derive(clap::Args)]
pub struct Identity {
    /// A file with an identity, where the dumps are encrypted
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl Identity {
    pub fn open(&self, place: &str) -> anyhow::Result<Repository> {
        Ok(Repository::open_with(place, self.keys(&[]))?)
    }

    fn keys(&self, encrypt_to: &[String]) -> Keys {
        Keys { encrypt_to: encrypt_to.to_vec(), identity: self.identity.clone(), ..Keys::default() }
    }
}

/// The keys to an encrypted place and to the archive that belongs to it.
#[derive(clap::Args)]
pub struct Identities {
    #[command(flatten)]
    dumps: Identity,
    #[command(flatten)]
    archive: ArchiveIdentity,
}

/// The key to an encrypted archive.
#[derive(clap::Args)]
struct ArchiveIdentity {
    /// A file with an identity for the archive, where that is encrypted [default: the one of --identity, if it is needed]
    #[arg(long, value_name = "FILE")]
    archive_identity: Option<PathBuf>,
}

impl Identities {
    pub fn open(&self, place: &str) -> anyhow::Result<Repository> {
        Ok(self.dumps.open(place)?.with_archive_identity(self.archive.archive_identity.clone()))
    }
}

/// Threads that compress, store or fetch.
#[derive(clap::Args)]
pub struct Threads {
    /// How many chunks are worked on at a time [default: the number of processors, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
}

impl Threads {
    pub fn count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
        self.threads.map_or(processors, usize::from)
    }
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast dump create --at 127.0.0.1:5433 --to /mnt/dumps
  AWS_REGION=eu-central-1 holdfast dump create --at 127.0.0.1:5434 --to s3://bucket/prefix --rate-mb 50

The server may be a master or a standby; no writer waits. The directory must exist. Only what the dump before lacks is stored. Run
the command again after an interruption: chunks that are there are not stored again.")]
struct Create {
    #[command(flatten)]
    at: At,
    /// The directory or object store: /path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix
    #[arg(long, value_name = "URL")]
    to: String,
    /// Take at most this many megabytes of pages a second from the server
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate_mb: Option<u64>,
    /// How far to leave the processors to the server: the scheduler's nice value. With 0 the dump does not rest either
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(i32).range(0..=19))]
    nice: i32,
    #[command(flatten)]
    threads: Threads,
    /// Refuse a place to which another server's schedule dumps, as `dump.to` in holdfast.toml does
    #[arg(long)]
    claim: bool,
    /// Encrypt a new place to this recipient, in the age format: age1...; may be given several times
    #[arg(long, value_name = "RECIPIENT")]
    encrypt_to: Vec<String>,
    #[command(flatten)]
    identity: Identities,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  holdfast dump list --from /mnt/dumps")]
struct Look {
    /// The directory or object store
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    identity: Identity,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  holdfast dump verify --from /mnt/dumps")]
struct Verify {
    #[command(flatten)]
    look: Look,
    /// Only this dump, by its name in the list
    #[arg(long, value_name = "NAME")]
    dump: Option<String>,
    #[command(flatten)]
    threads: Threads,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast dump forget --from /mnt/dumps --keep-last 3 --keep-daily 7 --keep-weekly 4 --keep-monthly 12

A dump stays if any of the rules keeps it. With --archive, what lies in the archive in front of the oldest dump that stays is
removed, too; without it the archive is not changed.")]
struct Forget {
    #[command(flatten)]
    look: Look,
    /// Keep the last N dumps
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_last: usize,
    /// Keep the last dump of each of the last N days that have one
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_daily: usize,
    /// Keep the last dump of each of the last N weeks that have one
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_weekly: usize,
    /// Keep the last dump of each of the last N months that have one
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_monthly: usize,
    /// Only dumps of this trail
    #[arg(long, value_name = "ID")]
    trail: Option<String>,
    /// Remove from this archive what no dump that stays needs
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Keep in the archive what was written in the last N hours, although no dump needs it
    #[arg(long, value_name = "N", default_value_t = 24, requires = "archive")]
    archive_keep_hours: u32,
    #[command(flatten)]
    archive_identity: ArchiveIdentity,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    end_with_server()?;
    match arguments.command {
        Command::Create(create) => make(&create),
        Command::List(look) => list(&look),
        Command::Verify(verify) => check(&verify),
        Command::Forget(forget) => remove(&forget),
        Command::Drill(arguments) => drill::run(&arguments),
        Command::Key(key) => make_key(&key),
    }
}

/// A command that a server's schedule has started ends with the server, however that ends.
fn end_with_server() -> anyhow::Result<()> {
    let Some(server) = std::env::var(SCHEDULED_BY).ok().and_then(|pid| pid.parse::<u32>().ok()) else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    if std::os::unix::process::parent_id() != server {
        bail!("the server that has started this command has ended");
    }
    Ok(())
}

/// A bar on a terminal, else a line for each tenth.
pub struct Bar {
    bar: ProgressBar,
    is_terminal: bool,
    what: &'static str,
    tenths: AtomicU64,
}

impl Bar {
    pub fn new(what: &'static str) -> anyhow::Result<Bar> {
        let bar = ProgressBar::new(0);
        let template = "{msg} [{bar:40}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}{left}";
        bar.set_style(time_left::style(template)?);
        bar.set_message(what);
        Ok(Bar { bar, is_terminal: std::io::stderr().is_terminal(), what, tenths: AtomicU64::new(0) })
    }

    /// One that counts rows.
    pub fn of_rows(what: &'static str) -> anyhow::Result<Bar> {
        let bar = Bar::new(what)?;
        bar.bar.set_style(time_left::style("{msg} [{bar:40}] {human_pos} of {human_len} rows{left}")?);
        Ok(bar)
    }

    pub fn show_rows(&self, done: u64, total: u64) {
        if self.is_terminal {
            self.bar.set_length(total);
            self.bar.set_position(done);
            return;
        }
        let tenths = done * 10 / total.max(1);
        if tenths > self.tenths.fetch_max(tenths, Ordering::Relaxed) {
            eprintln!("holdfast: {}: {} % ({done} of {total} rows)", self.what, tenths * 10);
        }
    }

    pub fn show(&self, done: u64, total: u64, more: &str) {
        if self.is_terminal {
            self.bar.set_length(total);
            self.bar.set_position(done);
            if !more.is_empty() {
                self.bar.set_message(format!("{}, {more}", self.what));
            }
            return;
        }
        let tenths = done * 10 / total.max(1);
        if tenths > self.tenths.fetch_max(tenths, Ordering::Relaxed) {
            let more = if more.is_empty() { String::new() } else { format!(", {more}") };
            let (percent, done, total) = (tenths * 10, BinaryBytes(done), BinaryBytes(total));
            eprintln!("holdfast: {}: {percent} % ({done} of {total}){more}", self.what);
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn make_key(NewKey { out }: &NewKey) -> anyhow::Result<ExitCode> {
    let (text, recipient) = new_identity();
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(out)
        .with_context(|| format!("cannot make {}", out.display()))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", out.display()))?;
    println!("{recipient}");
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &Create) -> anyhow::Result<ExitCode> {
    let Create { at, to, rate_mb, nice, threads, claim, encrypt_to, identity, json } = arguments;
    // Before any thread starts, so that all of them are so.
    rustix::process::nice(*nice).context("cannot lower the priority; use --nice 0")?;
    let repository = Repository::open_with(to, identity.dumps.keys(encrypt_to))?;
    let repository = Arc::new(repository.with_archive_identity(identity.archive.archive_identity.clone()));
    let options = CreateOptions {
        at: at.at.clone(),
        certificates: at.client()?.certificates,
        rate_bytes: rate_mb.map(|mb| mb * 1_000_000),
        threads: threads.count(),
        gives_way: *nice > 0,
        claims: *claim,
    };
    let bar = Bar::new("dumping")?;
    let show = |p: DumpProgress| {
        let broken =
            if p.interruptions > 0 { format!(", the link broke {} times", p.interruptions) } else { String::new() };
        bar.show(p.done_bytes, p.total_bytes, &format!("{} stored{broken}", BinaryBytes(p.stored_bytes)));
    };
    let created = create(&repository, &options, &show);
    bar.end();
    let created = created?;
    created.warnings.iter().for_each(|warning| eprintln!("holdfast: warning: an earlier dump: {warning}"));
    if let Some(why) = &created.unregistered {
        eprintln!(
            "holdfast: warning: the archive does not know of this place: {why}. Until a later dump can register it, a `dump \
             forget --archive` for another place may remove trail that this dump needs"
        );
    }
    if *json {
        println!("{}", serde_json::to_string_pretty(&created)?);
        return Ok(ExitCode::SUCCESS);
    }
    let Created { name, node, lsn, clock_unix_ms, databases, bytes, stored_bytes, stored_chunks, found_chunks, .. } =
        &created;
    println!("holdfast: {}: {name}", repository.place());
    println!("  {databases} databases of {node} at LSN {lsn}, last commit {}", show_moment(*clock_unix_ms));
    println!(
        "  {} of databases; stored {} in {stored_chunks} chunks{}, in {:.1} s ({}/s)",
        BinaryBytes(*bytes),
        BinaryBytes(*stored_bytes),
        if *found_chunks > 0 { format!(" ({found_chunks} were there)") } else { String::new() },
        created.seconds,
        BinaryBytes((*bytes as f64 / created.seconds.max(0.001)) as u64)
    );
    Ok(ExitCode::SUCCESS)
}

fn list(look: &Look) -> anyhow::Result<ExitCode> {
    let repository = look.identity.open(&look.from)?;
    let dumps = repository.dumps()?;
    if look.json {
        let shown: Vec<_> = dumps.iter().map(shown).collect();
        println!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(ExitCode::SUCCESS);
    }
    if dumps.is_empty() {
        println!("{}: no dumps", repository.place());
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "dump",
        "node",
        "lsn",
        "last commit",
        "databases",
        "bytes",
        "stored",
    ]);
    for dump in &dumps {
        match &dump.head {
            Ok(head) => table.add_row([
                dump.name.clone(),
                head.node.clone(),
                head.lsn().to_string(),
                show_moment(head.clock_unix_ms()),
                head.plan.volumes.len().to_string(),
                BinaryBytes(head.bytes).to_string(),
                BinaryBytes(head.stored_bytes + dump.bytes).to_string(),
            ]),
            Err(error) => table.add_row([dump.name.clone(), format!("problem: {error}")]),
        };
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn shown(dump: &Listing) -> serde_json::Value {
    match &dump.head {
        Ok(head) => json!({
            "name": dump.name,
            "node": head.node,
            "trail": head.trail_id(),
            "lsn": head.lsn(),
            "taken_unix_ms": head.taken_unix_ms,
            "clock_unix_ms": head.clock_unix_ms(),
            "databases": head.plan.volumes.len(),
            "bytes": head.bytes,
            "stored_bytes": head.stored_bytes + dump.bytes,
            "first_segment": head.first_needed(),
            "program": head.program,
        }),
        Err(error) => json!({ "name": dump.name, "problem": error.to_string() }),
    }
}

fn check(Verify { look, dump, threads }: &Verify) -> anyhow::Result<ExitCode> {
    let repository = look.identity.open(&look.from)?;
    let bar = Bar::new("verifying")?;
    let verified = verify(&repository, dump.as_deref(), threads.count(), &|done, total| bar.show(done, total, ""));
    bar.end();
    let verified = verified?;
    let is_sound = verified.problems.is_empty();
    if look.json {
        println!("{}", serde_json::to_string_pretty(&verified)?);
    } else {
        for problem in &verified.problems {
            println!("problem: {}: {}; needed by {}", problem.object, problem.what, problem.dumps.join(", "));
        }
        println!(
            "{}: {} dumps, read {} chunks, {} of pages: {}",
            verified.place,
            verified.dumps,
            verified.chunks,
            BinaryBytes(verified.bytes),
            if is_sound { "sound" } else { "NOT SOUND" }
        );
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove(arguments: &Forget) -> anyhow::Result<ExitCode> {
    let Forget { look, keep_last, keep_daily, keep_weekly, keep_monthly, dry_run, .. } = arguments;
    let keep = Keep { last: *keep_last, daily: *keep_daily, weekly: *keep_weekly, monthly: *keep_monthly };
    if keep == Keep::default() {
        bail!("which dumps stay is not given; use --keep-last, --keep-daily, --keep-weekly or --keep-monthly");
    }
    let repository = look.identity.open(&look.from)?;
    let repository = repository.with_archive_identity(arguments.archive_identity.archive_identity.clone());
    let younger_than = Duration::from_secs(u64::from(arguments.archive_keep_hours) * 3600);
    let archive = arguments.archive.as_deref().map(|url| ArchiveKeep { url, younger_than });
    let options = ForgetOptions { keep, trail: arguments.trail.as_deref(), archive, only_shows: *dry_run };
    let forgotten = forget(&repository, &options).context("not everything was removed; run the command again")?;
    if look.json {
        println!("{}", serde_json::to_string_pretty(&forgotten)?);
        return Ok(ExitCode::SUCCESS);
    }
    let removed = if *dry_run { "would be removed" } else { "removed" };
    forgotten.removed.iter().for_each(|name| println!("{removed}: {name}"));
    println!(
        "{}: {} dumps stay, {} {removed}; {} chunks removed, {}",
        repository.place(),
        forgotten.kept.len(),
        forgotten.removed.len(),
        forgotten.removed_chunks,
        BinaryBytes(forgotten.removed_bytes)
    );
    if let Some(archive) = &arguments.archive {
        println!(
            "{archive}: {} objects {removed}, {}",
            forgotten.archive_objects,
            BinaryBytes(forgotten.archive_bytes)
        );
    }
    if let Some(why) = &forgotten.archive_left {
        println!("the archive was left, or a part of it: {why}");
    }
    if let Some(why) = &forgotten.chunks_left {
        println!("chunks that no dump needs were left: {why}");
    }
    Ok(ExitCode::SUCCESS)
}
