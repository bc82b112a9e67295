//! A private PostgreSQL: its own data directory, its own port, settings a person would choose for this load with
//! full durability. Found in /usr/lib/postgresql or on the PATH; nothing on the machine is changed.
//!
//! PostgreSQL refuses to run as root. Then it runs as the user `postgres`, or `nobody` where there is none, through
//! setpriv, and its directory is given to that user.

use crate::child::{self, Server};
use crate::machine;
use crate::pg_client::{Client, DATABASE, USER};
use crate::results::Fact;
use crate::server::{Kind, Peer};
use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(60);

/// Starts a PostgreSQL whose files lie in `dir`.
pub fn start(dir: &Path) -> anyhow::Result<Peer> {
    start_with(dir, &[])
}

/// Starts a server with settings in addition to the usual ones.
pub fn start_with(dir: &Path, settings_more: &[(&'static str, String)]) -> anyhow::Result<Peer> {
    let bin = find_bin()?;
    initialise(dir, &bin)?;
    let mut peer = serve(dir, dir, settings_more)?;
    let mut create = Command::new(bin.join("createdb"));
    create.args(["-h", "127.0.0.1", "-p", &peer.addr.port().to_string(), "-U", USER, DATABASE]).current_dir(dir);
    child::run(create).context("cannot create the database")?;
    let version = peer.process.wait_until(START_MAX, || version(peer.addr))?;
    peer.settings.insert(0, Fact::new("Version", version));
    Ok(peer)
}

/// Makes an empty data directory in `dir`.
fn initialise(dir: &Path, bin: &Path) -> anyhow::Result<()> {
    let user = User::choose()?;
    let home = user.home(dir)?;
    let mut init = user.command(&bin.join("initdb"));
    init.arg("-D").arg(home.join("data")).args([
        "-U",
        USER,
        "--auth=trust",
        "--no-locale",
        "--encoding=UTF8",
        "--no-sync",
    ]);
    init.current_dir(&home);
    child::run(init).context("cannot create PostgreSQL's data directory")?;
    Ok(())
}

/// Copies the running PostgreSQL at `from` to `dir`, as its standby with a replication slot of this name.
pub fn base_backup(dir: &Path, from: SocketAddr, slot: &str) -> anyhow::Result<()> {
    let user = User::choose()?;
    let home = user.home(dir)?;
    let mut copy = user.command(&find_bin()?.join("pg_basebackup"));
    copy.arg("-D").arg(home.join("data")).args(["-h", "127.0.0.1", "-p", &from.port().to_string(), "-U", USER]);
    copy.args(["-R", "-X", "stream", "-c", "fast", "-C", "-S", slot]).current_dir(&home);
    child::run(copy).context("cannot copy PostgreSQL").map(|_| ())
}

/// Starts the PostgreSQL whose files [`start`] or [`base_backup`] has made in `dir`, with its log in the directory `log`
/// and settings in addition to the usual ones or in place of them.
pub fn serve(dir: &Path, log: &Path, settings_more: &[(&'static str, String)]) -> anyhow::Result<Peer> {
    let bin = find_bin()?;
    let home = dir.join("postgres");
    let port = child::free_port()?;
    let mut settings = settings();
    settings.retain(|(name, _)| settings_more.iter().all(|(other, _)| other != name));
    settings.extend_from_slice(settings_more);
    let mut command = User::choose()?.command(&bin.join("postgres"));
    // No socket in a directory: not every file system has them.
    command.arg("-D").arg(home.join("data")).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", ""]);
    command.current_dir(&home);
    for (name, value) in &settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    // SIGINT is PostgreSQL's fast shutdown.
    let mut process = Server::start("PostgreSQL", command, log.join("postgres.log"), rustix::process::Signal::INT)?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    process.wait_until(START_MAX, || std::net::TcpStream::connect(addr).map_err(Into::into))?;
    process.wait_until(START_MAX, || ready(&bin, addr))?;
    let settings = settings.into_iter().map(|(name, value)| Fact::new(name, value)).collect();
    Ok(Peer { kind: Kind::Postgres, addr, settings, process })
}

fn ready(bin: &Path, addr: SocketAddr) -> anyhow::Result<()> {
    let mut command = Command::new(bin.join("pg_isready"));
    command.args(["-q", "-h", "127.0.0.1", "-p", &addr.port().to_string()]);
    child::run(command).map(|_| ())
}

fn version(addr: SocketAddr) -> anyhow::Result<String> {
    let rows = Client::connect(addr)?.rows("show server_version")?;
    rows.into_iter().flatten().next().flatten().context("PostgreSQL returned no version")
}

/// Settings for this machine. Everything durability rests on is at its safe value and named here.
fn settings() -> Vec<(&'static str, String)> {
    let memory_mib = machine::meminfo_kib("MemTotal").unwrap_or(4 << 20) / 1024;
    let shared_mib = (memory_mib / 4).clamp(128, 8192);
    vec![
        ("fsync", "on".into()),
        ("synchronous_commit", "on".into()),
        ("full_page_writes", "on".into()),
        ("shared_buffers", format!("{shared_mib}MB")),
        ("effective_cache_size", format!("{}MB", memory_mib * 3 / 4)),
        ("wal_level", "minimal".into()),
        ("max_wal_senders", "0".into()),
        ("wal_buffers", "64MB".into()),
        ("min_wal_size", "2GB".into()),
        ("max_wal_size", "16GB".into()),
        ("checkpoint_timeout", "15min".into()),
        ("checkpoint_completion_target", "0.9".into()),
        ("random_page_cost", "1.1".into()),
        ("max_connections", "1100".into()),
        ("jit", "off".into()),
    ]
}

/// The directory with PostgreSQL's programs, the newest version there is.
fn find_bin() -> anyhow::Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").is_file())
        .collect();
    versions.sort();
    if let Some((_, bin)) = versions.pop() {
        return Ok(bin);
    }
    let initdb = child::find_program("initdb", &[]).context(
        "there is no PostgreSQL here to compare with: neither /usr/lib/postgresql/*/bin nor the PATH has initdb; \
         install the postgresql package, or leave out --peer",
    )?;
    let real = initdb.canonicalize()?;
    real.parent().map(Path::to_path_buf).context("initdb has no parent directory")
}

/// Directories where PostgreSQL's programs may be.
pub fn bin_directories() -> Vec<PathBuf> {
    find_bin().into_iter().collect()
}

/// The user PostgreSQL runs as.
enum User {
    /// The one running the lab.
    Same,
    /// Another, since root may not.
    Other { uid: u32, gid: u32 },
}

impl User {
    fn choose() -> anyhow::Result<User> {
        if !rustix::process::geteuid().is_root() {
            return Ok(User::Same);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let ids = |name: &str| {
            let line = passwd.lines().find(|l| l.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2).map(str::parse::<u32>);
            Some((fields.next()?.ok()?, fields.next()?.ok()?))
        };
        let (uid, gid) = ids("postgres").or_else(|| ids("nobody")).context(
            "PostgreSQL refuses to run as root, and neither the user postgres nor the user nobody exists to run it as",
        )?;
        Ok(User::Other { uid, gid })
    }

    /// Makes the directory that its files go into, below `dir`.
    fn home(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let home = dir.join("postgres");
        std::fs::create_dir(&home).with_context(|| format!("cannot create {}", home.display()))?;
        self.own(dir, &home)?;
        Ok(home)
    }

    /// Lets the user into `scratch` and gives it `home`.
    fn own(&self, scratch: &Path, home: &Path) -> anyhow::Result<()> {
        let User::Other { uid, gid } = *self else { return Ok(()) };
        use std::os::unix::fs::PermissionsExt;
        std::os::unix::fs::chown(home, Some(uid), Some(gid))
            .with_context(|| format!("cannot change the owner of {}", home.display()))?;
        // Passing through, not reading: the directory's name cannot be guessed and nothing in it is secret.
        std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o711))?;
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        match *self {
            User::Same => Command::new(program),
            User::Other { uid, gid } => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()]).arg("--");
                command.arg(program);
                command
            }
        }
    }
}
