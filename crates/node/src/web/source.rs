//! What the HTTP listener asks of the server, see [`Source`].

use super::collect::{self, Setup};
use super::console_key::{self, KeyFile};
use super::events;
use super::standing::{Now, Standing};
use crate::activity::Signal;
use crate::admission::{Admission, stored};
use crate::config::{Config, FILE_NAME};
use holdfast_archive::ArchiveLocation;
use holdfast_scram::Verifier;
use holdfast_types::access::predefined::{MONITOR_OID, SIGNAL_BACKEND_OID};
use holdfast_types::access::{Role, Roles};
use holdfast_web::figures::{Event, Figures, Health, Refused, Rights, SessionShown, SignalKind, Source};
use holdfast_web::{Settings, TlsSource, Web, WebError};
use holdfast_wire::TlsSlot;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// The listener of a server, with the file that tells `holdfast console` where it is.
pub(crate) struct Listening {
    web: Web,
    scheme: &'static str,
    key: Vec<u8>,
    file: Option<KeyFile>,
}

impl Listening {
    /// The directory is this server's: `holdfast console` may find the listener now.
    pub fn announce(&mut self, dir: &Path) {
        if self.file.is_some() {
            return;
        }
        let url = format!("{}://{}/", self.scheme, self.web.address());
        match console_key::write(dir, &url, &self.key) {
            Ok(file) => self.file = Some(file),
            Err(error) => tracing::warn!("`holdfast console` does not work: its key cannot be written: {error}"),
        }
    }
}

/// Starts the listener, if one is configured.
pub(crate) fn start(
    dir: &Path,
    config: &Config,
    name: &str,
    standing: Arc<Standing>,
    tls: &TlsSlot,
    admission: Arc<Admission>,
) -> Result<Option<Listening>, WebError> {
    let Some(address) = config.http_listen().map_err(|error| io::Error::other(error.to_string()))? else {
        return Ok(None);
    };
    // On this machine nothing leaves it, and Prometheus and browsers need no CA.
    let needs_tls = !address.ip().to_canonical().is_loopback();
    let slot = tls.clone();
    let tls = (needs_tls && tls.get().is_some())
        .then(|| -> TlsSource { Arc::new(move || slot.get().map(|config| config.http.clone())) });
    let key = console_key::draw()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let token = token(dir, config)?;
    let settings = Settings { address, tls, token, key: key.clone(), version: env!("CARGO_PKG_VERSION") };
    let secret = holdfast_scram::random().map_err(|error| io::Error::other(error.to_string()))?;
    let source = NodeSource { standing, setup: setup(dir, config, name), secret, admission };
    let web = Web::start(settings, Arc::new(source))?;
    Ok(Some(Listening { web, scheme, key, file: None }))
}

/// The content of `http_token_file`.
fn token(dir: &Path, config: &Config) -> io::Result<Option<String>> {
    if config.http_token_file.as_os_str().is_empty() {
        return Ok(None);
    }
    let path = dir.join(&config.http_token_file);
    let wrong = |what: &str| io::Error::other(format!("http_token_file = {:?} in {FILE_NAME}: {what}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("the file is empty")),
        token => Ok(Some(token.to_owned())),
    }
}

fn setup(dir: &Path, config: &Config, name: &str) -> Setup {
    let mut disks = vec![("data", dir.to_owned())];
    if config.has_mirror() {
        disks.push(("mirror", config.mirror.clone()));
    }
    #[allow(irrefutable_let_patterns, reason = "without the feature of object stores there are only directories")]
    if let Ok(Some(place)) = ArchiveLocation::parse(&config.archive)
        && let ArchiveLocation::Directory(path) = place
    {
        disks.push(("archive", path));
    }
    Setup {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        sessions_max: config.connections_max as u64,
        disks,
    }
}

struct NodeSource {
    standing: Arc<Standing>,
    setup: Setup,
    /// Of the verifiers of roles that do not exist, so that they take the same time.
    secret: [u8; 32],
    admission: Arc<Admission>,
}

/// The same for an unknown role, a wrong password and one that has expired.
fn refused(role: &str) -> Refused {
    Refused(format!("password authentication failed for role \"{role}\""))
}

fn unavailable() -> Refused {
    Refused("the server is starting up or changing its role; try again".to_owned())
}

fn roles(now: &Now) -> Option<Arc<Roles>> {
    let engine = now.open.as_ref()?.watcher.engine.read().clone()?;
    Some(engine.roles())
}

fn rights(roles: &Roles, role: &Role) -> Rights {
    let mut hasher = DefaultHasher::new();
    (role.oid, &role.password).hash(&mut hasher);
    Rights {
        monitors: roles.has_privileges_of(role.oid, MONITOR_OID),
        signals: roles.has_privileges_of(role.oid, SIGNAL_BACKEND_OID),
        version: hasher.finish(),
    }
}

impl Source for NodeSource {
    fn health(&self) -> Health {
        collect::health(&self.setup, &self.standing.now())
    }

    fn figures(&self) -> Figures {
        let figures = collect::figures(&self.setup, &self.standing.now());
        Figures { authentication_failures: self.admission.failures(), ..figures }
    }

    fn sessions(&self) -> Vec<SessionShown> {
        collect::sessions(&self.standing.now())
    }

    fn events(&self, after: u64) -> Vec<Event> {
        events::after(after)
    }

    fn login(&self, name: &str, password: &str, client: IpAddr) -> Result<Rights, Refused> {
        let roles = roles(&self.standing.now()).ok_or_else(unavailable)?;
        let found = roles.by_name(name);
        let (verifier, why_not) = match stored(found) {
            Ok(verifier) => (verifier, None),
            // So that the answer takes the same time.
            Err(why) => (Verifier::mock(name, &self.secret), Some(why)),
        };
        let is_right = verifier.accepts(password);
        let why = match (found, why_not) {
            (_, Some(why)) => why,
            (Some(role), None) if is_right && role.login => return Ok(rights(&roles, role)),
            (_, None) if is_right => "the role may not log in",
            (_, None) => "wrong password",
        };
        self.admission.console_failed(name, client, why);
        Err(refused(name))
    }

    fn login_failed(&self, client: IpAddr, why: &str) {
        self.admission.console_failed("", client, why);
    }

    fn rights(&self, name: &str) -> Option<Rights> {
        let roles = roles(&self.standing.now())?;
        roles.by_name(name).filter(|role| role.login).map(|role| rights(&roles, role))
    }

    fn signal(&self, by: &str, pid: i32, kind: SignalKind) -> Result<(), Refused> {
        let now = self.standing.now();
        let roles = roles(&now).ok_or_else(unavailable)?;
        let by = roles.by_name(by).filter(|role| role.login).ok_or_else(|| refused(by))?;
        let Some(open) = now.open.as_ref() else { return Err(unavailable()) };
        let signal = match kind {
            SignalKind::Cancel => Signal::Cancel,
            SignalKind::Terminate => Signal::Terminate,
        };
        match open.watcher.activities.signal(&roles, Some(by.oid), signal, pid) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused(format!("no session has the process number {pid}"))),
            Err(error) => Err(Refused(error.message().to_owned())),
        }
    }
}
