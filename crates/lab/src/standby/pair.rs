//! A master and its standby, both private to the run: made, stopped, started again, asked how far they are.
//!
//! Both servers are asked by the same functions, `pg_current_wal_lsn` and its kin; positions are bytes.
//!
//! Failure: a server that does not start or ends, with the end of its log; a standby that does not catch up in time, with
//! how far it is behind.

use super::link::Link;
use crate::pg_client::Client;
use crate::server::{Kind, Peer};
use crate::{interrupt, peer_holdfast, peer_postgres};
use anyhow::Context;
use holdfast_testbed::{Account, run};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The standby's name, and PostgreSQL's replication slot.
const NAME: &str = "standby";
/// How long a standby may take to have what its master has.
pub const CATCH_UP_MAX: Duration = Duration::from_secs(300);
/// Between looks how far the standby is.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a commit waits for, or that there is no standby to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The standby is stopped.
    None,
    Local,
    Warm,
    Hot,
    Commit,
}

impl Level {
    pub const ALL: [Level; 5] = [Level::None, Level::Local, Level::Warm, Level::Hot, Level::Commit];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Local => "local",
            Level::Warm => "warm",
            Level::Hot => "hot",
            Level::Commit => "commit",
        }
    }

    /// What a session starts with.
    pub fn options(self, kind: Kind) -> &'static str {
        match (kind, self) {
            (Kind::Holdfast, Level::None | Level::Local) => "-c holdfast.level=local",
            (Kind::Holdfast, Level::Warm) => "-c holdfast.level=warm",
            (Kind::Holdfast, Level::Hot) => "-c holdfast.level=hot",
            (Kind::Holdfast, Level::Commit) => "-c holdfast.level=commit",
            (Kind::Postgres, Level::None | Level::Local) => "-c synchronous_commit=local",
            (Kind::Postgres, Level::Warm) => "-c synchronous_commit=remote_write",
            (Kind::Postgres, Level::Hot) => "-c synchronous_commit=on",
            (Kind::Postgres, Level::Commit) => "-c synchronous_commit=remote_apply",
        }
    }
}

/// See the module's description.
pub struct Pair {
    pub kind: Kind,
    program: PathBuf,
    /// Running at any time except during a restart.
    master: Option<Peer>,
    standby: Option<Peer>,
    /// Between the two, for a standby that goes that way.
    pub link: Link,
    way: Way,
    /// The standby's address, for threads that watch it come and go.
    pub standby_addr: Arc<Mutex<Option<SocketAddr>>>,
    /// Of the last run on its rows.
    epoch: u64,
    /// Transactions that were acknowledged in all runs.
    pub answered: u64,
    /// Bytes that the standby's first copy took over the link.
    pub copied_bytes: u64,
    dir: TempDir,
}

impl Pair {
    /// Starts a master with the study's rows.
    pub fn start(
        kind: Kind,
        program: &Path,
        scratch: &Path,
        log_rows: u64,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<Pair> {
        let dir = tempfile::Builder::new().prefix(kind.name()).tempdir_in(scratch)?;
        let master = match kind {
            Kind::Holdfast => peer_holdfast::start(program, dir.path()),
            Kind::Postgres => peer_postgres::start_with(dir.path(), &master_settings()),
        };
        let master = master.with_context(|| format!("cannot start {}", kind.name()))?;
        master.load(log_rows, tell)?;
        Client::connect(master.addr)?
            .run("create table bulk (id bigint primary key, body text not null)")
            .context("cannot create the table of the large transaction")?;
        let link = Link::open(master.addr)?;
        let (program, standby_addr) = (program.to_path_buf(), Arc::default());
        Ok(Pair {
            kind,
            program,
            master: Some(master),
            standby: None,
            link,
            way: Way::Straight,
            standby_addr,
            epoch: 0,
            answered: 0,
            copied_bytes: 0,
            dir,
        })
    }

    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    pub fn master(&self) -> anyhow::Result<&Peer> {
        self.master.as_ref().context("the master is not running")
    }

    pub fn standby(&self) -> anyhow::Result<&Peer> {
        self.standby.as_ref().context("the standby is not running")
    }

    /// A number that no earlier run on these rows had.
    pub fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    fn standby_dir(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// Copies the master, by way of the link, and starts the copy as its standby.
    fn create_standby(&mut self) -> anyhow::Result<()> {
        let (dir, before) = (self.standby_dir(), self.link.passed());
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        match self.kind {
            Kind::Holdfast => {
                let mut create = Command::new(&self.program);
                create.args(["standby", "create", "--from", &self.link.addr.to_string(), "--name", NAME, "--data"]);
                create.arg(dir.join("holdfast"));
                run(create).context("cannot create the standby")?;
            }
            Kind::Postgres => {
                Account::choose()?.pass_through(self.dir.path())?;
                peer_postgres::base_backup(&dir, self.link.addr, NAME)?;
            }
        }
        self.copied_bytes = self.link.passed() - before;
        self.start_standby(Way::Straight)?;
        if self.kind == Kind::Postgres {
            // Only now: before there is a standby, every commit would wait for one.
            let mut client = Client::connect(self.master()?.addr)?;
            client.run("alter system set synchronous_standby_names = '*'")?;
            client.run("select pg_reload_conf()")?;
        }
        Ok(())
    }

    /// Has a standby that follows straight and has caught up, whatever was before.
    pub fn need_standby(&mut self) -> anyhow::Result<()> {
        if !self.standby_dir().exists() {
            self.create_standby()?;
        }
        if self.standby.is_none() || self.way != Way::Straight {
            self.stop_standby();
            self.start_standby(Way::Straight)?;
        }
        self.catch_up(CATCH_UP_MAX).map(|_| ())
    }

    /// Starts the standby where it was stopped.
    pub fn start_standby(&mut self, way: Way) -> anyhow::Result<()> {
        let from = match way {
            Way::Straight => self.master()?.addr,
            Way::Link => self.link.addr,
        };
        let dir = self.standby_dir();
        let standby = match self.kind {
            Kind::Holdfast => {
                let mut configure = Command::new(&self.program);
                configure.args(["standby", "configure", "--from", &from.to_string(), "--data"]);
                run({
                    configure.arg(dir.join("holdfast"));
                    configure
                })?;
                peer_holdfast::start(&self.program, &dir)
            }
            Kind::Postgres => {
                let mut settings = master_settings().to_vec();
                let to = format!("host=127.0.0.1 port={} user={}", from.port(), crate::pg_client::USER);
                settings.push(("primary_conninfo", format!("{to} application_name={NAME}")));
                settings.push(("primary_slot_name", NAME.to_string()));
                peer_postgres::serve(&dir, &dir, &settings)
            }
        };
        let standby = standby.context("cannot start the standby")?;
        *self.standby_addr.lock().unwrap_or_else(PoisonError::into_inner) = Some(standby.addr);
        self.standby = Some(standby);
        self.way = way;
        Ok(())
    }

    /// Stops the standby in good order.
    pub fn stop_standby(&mut self) {
        *self.standby_addr.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.standby = None;
    }

    /// Restarts the master with these lines in its settings. Only for Holdfast, with the standby stopped.
    pub fn restart_master(&mut self, settings: &str) -> anyhow::Result<()> {
        self.master = None;
        let master = peer_holdfast::start_with(&self.program, self.dir.path(), settings)?;
        self.link.lead_to(master.addr);
        self.master = Some(master);
        Ok(())
    }

    /// Everything below is in the master's trail.
    pub fn position(&self) -> anyhow::Result<u64> {
        master_position(&mut Client::connect(self.master()?.addr)?)
    }

    /// Waits until everything that is at the master now is shown to the standby's readers; how long that took.
    pub fn catch_up(&self, limit: Duration) -> anyhow::Result<Duration> {
        let target = self.position()?;
        let (mut client, start) = (Client::connect(self.standby()?.addr)?, Instant::now());
        loop {
            interrupt::check()?;
            let (_, applied) = standby_position(&mut client)?;
            if applied >= target {
                return Ok(start.elapsed());
            }
            anyhow::ensure!(
                start.elapsed() < limit,
                "the standby is still {} bytes behind after {} s; its log ends:\n{}",
                target - applied,
                limit.as_secs(),
                self.standby()?.process.log_end()
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Pair {
    /// The standby first: a PostgreSQL that stops waits for its standbys.
    fn drop(&mut self) {
        self.stop_standby();
    }
}

/// How the standby reaches its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Without the link between.
    Straight,
    Link,
}

/// Everything below is in the master's trail.
pub fn master_position(client: &mut Client) -> anyhow::Result<u64> {
    positions(client, "select pg_current_wal_lsn()::text").map(|p| p[0])
}

/// What a standby has received and made durable, and what it shows to readers.
pub fn standby_position(client: &mut Client) -> anyhow::Result<(u64, u64)> {
    let found = positions(client, "select pg_last_wal_receive_lsn()::text, pg_last_wal_replay_lsn()::text")?;
    Ok((found[0], found[found.len() - 1]))
}

/// The row's positions; NULL, which PostgreSQL returns before it has received anything, is 0.
fn positions(client: &mut Client, sql: &str) -> anyhow::Result<Vec<u64>> {
    let rows = client.rows(sql)?;
    let row = rows.first().filter(|row| !row.is_empty()).with_context(|| format!("{sql} returned nothing"))?;
    let parse = |text: &Option<String>| text.as_deref().map_or(Some(0), parse_position);
    row.iter().map(parse).collect::<Option<Vec<u64>>>().with_context(|| format!("{sql} returned {row:?}"))
}

/// `16/B374D848` as a number.
fn parse_position(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from(u32::from_str_radix(high, 16).ok()?) << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

/// What PostgreSQL's documentation asks for, and a bound on its files.
fn master_settings() -> [(&'static str, String); 5] {
    [
        ("wal_level", "replica".into()),
        ("max_wal_senders", "10".into()),
        ("shared_buffers", "1GB".into()),
        ("min_wal_size", "256MB".into()),
        ("max_wal_size", "2GB".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read() {
        assert_eq!(parse_position("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!((parse_position("B374D848"), parse_position("x/1")), (None, None));
    }
}
