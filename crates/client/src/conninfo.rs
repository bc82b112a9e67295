//! Connection strings as libpq reads them, for a subscription's CONNECTION: `host=hq port=5433 dbname=shop user=r2`, or a URL.
//!
//! | keyword | meaning |
//! |---|---|
//! | `host`, `port` | where; several, separated by commas, are tried in their order. A host that begins with `/` is the directory of a Unix socket |
//! | `dbname`, `user` | as whom, to which database; `dbname` is the user's name if it is not there |
//! | `password` | for strings that are kept nowhere, or by a PostgreSQL: a subscription here refuses one that has it |
//! | `passfile` | a file of lines `host:port:database:user:password`, readable by its owner only; else `PGPASSFILE` and `~/.pgpass` |
//! | `sslmode`, `sslrootcert`, `sslcert`, `sslkey` | see [`crate`] |
//! | `target_session_attrs` | `primary` or `read-write`: a host that is a standby is passed over |
//! | `application_name` | what the publisher's views show |
//! | `connect_timeout` | seconds for one host |
//!
//! Source: the PostgreSQL 15 manual, 34.1.1 and 34.16.
//!
//! Failure: a keyword that is not known, or a value that is not one, is named.

use crate::tls::Tls;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Time for one host, where the string does not say it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection string taken apart.
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// Host and port.
    pub hosts: Vec<(String, u16)>,
    pub database: String,
    pub user: String,
    pub password: Option<String>,
    pub passfile: Option<PathBuf>,
    pub tls: Tls,
    /// A host that is a standby is passed over.
    pub primary_only: bool,
    pub application_name: Option<String>,
    pub connect_timeout: Duration,
}

/// Keywords that libpq has and that change nothing here.
const WITHOUT_EFFECT: [&str; 8] = [
    "client_encoding",
    "fallback_application_name",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "sslcompression",
];

impl ConnInfo {
    /// Reads a connection string.
    pub fn parse(text: &str) -> Result<ConnInfo, String> {
        let is_url = text.starts_with("postgresql://") || text.starts_with("postgres://");
        let pairs = if is_url { pairs_of_url(text)? } else { pairs(text)? };
        let value = |name: &str| {
            let found = pairs.iter().rev().find(|(keyword, _)| keyword == name);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        for (keyword, _) in &pairs {
            check(keyword)?;
        }
        let hosts: Vec<&str> = value("host").unwrap_or("/tmp").split(',').collect();
        let ports: Vec<&str> = value("port").unwrap_or("5432").split(',').collect();
        if ports.len() != 1 && ports.len() != hosts.len() {
            return Err(format!("could not match {} port numbers to {} hosts", ports.len(), hosts.len()));
        }
        let port = |at: usize| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or_default();
            port.parse::<u16>().map_err(|_| format!("invalid port number: \"{port}\""))
        };
        let hosts = hosts.iter().enumerate().map(|(at, host)| Ok(((*host).to_owned(), port(at)?)));
        let user = value("user").ok_or("the user is not named: add user=NAME")?.to_owned();
        let primary_only = match value("target_session_attrs") {
            None | Some("any") => false,
            Some("primary" | "read-write") => true,
            Some(other) => {
                return Err(format!(
                    "target_session_attrs {other:?} is not supported: any, primary and read-write are"
                ));
            }
        };
        let path = |name: &str| value(name).map(PathBuf::from);
        Ok(ConnInfo {
            hosts: hosts.collect::<Result<_, String>>()?,
            database: value("dbname").unwrap_or(&user).to_owned(),
            password: value("password").map(str::to_owned),
            passfile: path("passfile"),
            tls: Tls {
                mode: value("sslmode").map(str::parse).transpose()?,
                authority: path("sslrootcert"),
                certificate: path("sslcert"),
                key: path("sslkey"),
            },
            primary_only,
            application_name: value("application_name").map(str::to_owned),
            connect_timeout: match value("connect_timeout") {
                None => CONNECT_TIMEOUT,
                Some(seconds) => {
                    let seconds = seconds.parse().map_err(|_| format!("invalid connect_timeout: \"{seconds}\""))?;
                    if seconds == 0 { CONNECT_TIMEOUT } else { Duration::from_secs(seconds) }
                }
            },
            user,
        })
    }

    /// The password for one host: that of the string, else from the file that has it.
    pub fn password_for(&self, host: &str, port: u16) -> Result<Option<String>, String> {
        if self.password.is_some() {
            return Ok(self.password.clone());
        }
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
        let named = self.passfile.clone().or_else(|| std::env::var_os("PGPASSFILE").map(PathBuf::from));
        let Some(path) = named.or_else(home).filter(|path| path.exists()) else { return Ok(None) };
        let text = read_own(&path)?;
        let host = if host.starts_with('/') { "localhost" } else { host };
        let wanted = [host, &port.to_string(), &self.database, &self.user];
        // `replication` in the database's place is for physical replication only, as in libpq.
        Ok(text.lines().filter(|line| !line.starts_with('#')).find_map(|line| matching(line, &wanted)))
    }
}

fn check(keyword: &str) -> Result<(), String> {
    const KNOWN: [&str; 13] = [
        "host",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "target_session_attrs",
        "application_name",
        "connect_timeout",
    ];
    match keyword {
        _ if KNOWN.contains(&keyword) || WITHOUT_EFFECT.contains(&keyword) => Ok(()),
        other => Err(format!("invalid connection option \"{other}\"")),
    }
}

/// The file's text, if only its owner can read it.
fn read_own(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "password file {} has group or world access; permissions should be u=rw (0600) or less",
            path.display()
        ));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// The password of a line whose first four fields are the wanted ones or `*`.
fn matching(line: &str, wanted: &[&str; 4]) -> Option<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '\\' => fields[last].extend(chars.next()),
            ':' if last < 4 => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    let fits = fields.len() == 5 && wanted.iter().zip(&fields).all(|(wanted, field)| field == "*" || field == wanted);
    fits.then(|| fields.swap_remove(4))
}

/// Takes `keyword = 'value'` apart; a backslash stands before a quote or a backslash in a value.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(pairs);
        }
        let mut keyword = String::new();
        while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != '=') {
            keyword.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') {
            return Err(format!("missing \"=\" after \"{keyword}\" in connection info string"));
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.next() {
                None if quoted => return Err("unterminated quoted string in connection info string".to_owned()),
                None => break,
                Some('\'') if quoted => break,
                Some('\\') => value.extend(chars.next()),
                Some(c) if c.is_whitespace() && !quoted => break,
                Some(c) => value.push(c),
            }
        }
        pairs.push((keyword, value));
    }
}

fn pairs_of_url(text: &str) -> Result<Vec<(String, String)>, String> {
    let url = Url::parse(text).map_err(|error| format!("the connection URL is not one: {error}"))?;
    let decoded = |text: &str| crate::server::decoded(text);
    let mut pairs = Vec::new();
    let mut put = |keyword: &str, value: String| pairs.push((keyword.to_owned(), value));
    let host = decoded(url.host_str().unwrap_or_default());
    put("host", host.trim_matches(['[', ']']).to_owned());
    url.port().into_iter().for_each(|port| put("port", port.to_string()));
    put("user", decoded(url.username()));
    url.password().into_iter().for_each(|password| put("password", decoded(password)));
    put("dbname", decoded(url.path().trim_start_matches('/')));
    url.query_pairs().for_each(|(keyword, value)| put(&keyword, value.into_owned()));
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_urls() {
        let read =
            ConnInfo::parse(" host = 'hq,/run/x y' port=1,2 user='o\\'neil' dbname=shop target_session_attrs=primary")
                .unwrap();
        assert_eq!(read.hosts, [("hq".to_owned(), 1), ("/run/x y".to_owned(), 2)]);
        assert_eq!((read.user.as_str(), read.database.as_str(), read.primary_only), ("o'neil", "shop", true));
        assert_eq!(ConnInfo::parse("postgresql://a:b%40@h/d").unwrap().password.as_deref(), Some("b@"));
        let read = ConnInfo::parse("postgresql://ann@[::1]:7/shop?sslmode=verify-full&sslrootcert=/c").unwrap();
        assert_eq!(read.hosts, [("::1".to_owned(), 7)]);
        assert_eq!((read.database.as_str(), read.tls.authority), ("shop", Some("/c".into())));
        assert_eq!(ConnInfo::parse("user=a host=x,y").unwrap().hosts[1], ("y".to_owned(), 5432));
        for (text, why) in [
            ("host=h", "user"),
            ("user=a nonsense=1", "nonsense"),
            ("user=a host", "missing"),
            ("user='a", "unterminated"),
            ("user=a port=99999", "99999"),
            ("user=a host=a,b,c port=1,2", "2 port numbers"),
            ("user=a sslmode=always", "sslmode"),
        ] {
            let error = ConnInfo::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn lines_of_a_password_file() {
        let wanted = ["hq", "5433", "shop", "r2"];
        for (line, password) in [
            ("hq:5433:shop:r2:a", Some("a")),
            ("*:*:*:r2:a:b", Some("a:b")),
            ("hq:5433:shop:r2:a\\:\\\\", Some("a:\\")),
            ("hq:5432:shop:r2:a", None),
            ("hq:5433:shop:a", None),
            ("", None),
        ] {
            assert_eq!(matching(line, &wanted).as_deref(), password, "{line}");
        }
    }

    #[test]
    fn a_password_file_that_others_can_read_is_refused() {
        let dir = std::env::temp_dir().join(format!("holdfast-passfile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("pass");
        std::fs::write(&path, "hq:*:*:*:secret\n").unwrap();
        let info = ConnInfo::parse(&format!("host=hq user=a passfile={}", path.display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(info.password_for("hq", 1).unwrap_err().contains("group or world access"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(info.password_for("hq", 1).unwrap().as_deref(), Some("secret"));
        assert_eq!(info.password_for("other", 1).unwrap(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
