//! Where `holdfast trail find` and `undo` read the trail, and the server that they ask.

use holdfast_client::Given;
use holdfast_flashback::{Connect, Expects, Keys, Place, Source};
use holdfast_node::Config;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The name of a server's Unix socket, before the port.
const SOCKET: &str = ".s.PGSQL.";
/// The longest path of a Unix socket on Linux.
const SOCKET_PATH_MAX: usize = 107;

#[derive(clap::Args, Debug)]
pub struct TrailPlace {
    /// Data directory of the running server [default: ./holdfast-data, unless --archive is given]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The archive [default: the one in DIR/holdfast.toml]; alone it is enough for a server on another machine
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// A file with an identity, where the archive is encrypted [default: `archive_identity` in DIR/holdfast.toml]
    #[arg(long, visible_alias = "archive-identity", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The trail, where the archive has those of several servers
    #[arg(long, value_name = "ID")]
    trail: Option<String>,
    /// The server, also as postgresql://USER@HOST:PORT/?sslmode=verify-full&sslrootcert=FILE [default: the one that runs on
    /// DIR, else 127.0.0.1:5433]
    #[arg(long, value_name = "HOST:PORT|URL")]
    at: Option<String>,
    /// The role to connect as [default: that of the URL, PGUSER, else holdfast]; its password is taken from the URL or PGPASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The authority of the server's certificate, where the server is on another machine [default: PGSSLROOTCERT]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The database
    #[arg(long, value_name = "NAME", default_value = "holdfast")]
    pub database: String,
    /// Threads that read the trail [default: the number of processors, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
}

impl TrailPlace {
    /// The trail within reach, and how to connect to the server.
    pub fn open(&self) -> anyhow::Result<(Source, Connect)> {
        let data = match (&self.data, &self.archive) {
            (Some(data), _) => Some(data.clone()),
            (None, None) => Some(PathBuf::from("./holdfast-data")),
            (None, Some(_)) => None,
        };
        let config = data.as_deref().map(Config::load).transpose()?;
        let of_config = config.as_ref().map(|config| config.archive.clone()).filter(|archive| !archive.is_empty());
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
        let place = Place {
            data: data.clone(),
            archive: self.archive.clone().or(of_config),
            trail: self.trail.clone(),
            keys: self.keys(config.as_ref()),
            threads: self.threads.map_or(processors, usize::from),
        };
        let given = Given { user: self.user.clone(), ca: self.ca.clone() };
        let at = match &self.at {
            Some(at) => at.clone(),
            None => address(data.as_deref(), config.as_ref())?,
        };
        let connect = Connect::parse(&at, &given, &|name| std::env::var(name).ok())?;
        Ok((Source::open(&place)?, connect))
    }
}

impl TrailPlace {
    /// The keys to the archive. An identity that is named, or that belongs to the archive of the settings, says that the archive
    /// is encrypted; that of the settings may be needed for another archive, too, as for a copy.
    fn keys(&self, config: Option<&Config>) -> Keys {
        if let Some(identity) = &self.identity {
            return Keys { identity: Some(identity.clone()), ..Keys::default() };
        }
        // Nothing is written there.
        let keys = config.map(Config::archive_keys).unwrap_or_default();
        let is_encrypted = keys != Keys::default();
        let expects = match (is_encrypted, &self.archive) {
            (false, _) => Expects::AsNamed,
            (true, None) => Expects::Encrypted,
            (true, Some(_)) => Expects::Either,
        };
        Keys { encrypt_to: Vec::new(), expects, ..keys }
    }
}

/// The address of the server that runs on a data directory.
fn address(data: Option<&Path>, config: Option<&Config>) -> anyhow::Result<String> {
    let Some((data, config)) = data.zip(config) else { return Ok("127.0.0.1:5433".to_owned()) };
    let sockets = config.unix_socket_directory(data).map(std::path::absolute).transpose()?;
    if let Some((directory, port)) = sockets.and_then(|directory| Some((directory.clone(), port_in(&directory)?))) {
        let socket = directory.join(format!("{SOCKET}{port}"));
        let fits = socket.as_os_str().len() <= SOCKET_PATH_MAX;
        let host = if fits { directory.display().to_string() } else { "127.0.0.1".to_owned() };
        return Ok(format!("{host}:{port}"));
    }
    let first = config.listen.addresses().first().map(|address| address.resolve());
    let address = first.transpose()?.and_then(|all| all.first().copied());
    let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 5433)));
    Ok(address.to_string())
}

/// The port that the socket in a directory is named after.
fn port_in(directory: &Path) -> Option<u16> {
    let names = std::fs::read_dir(directory).ok()?;
    names.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix(SOCKET)?.parse().ok())
}
