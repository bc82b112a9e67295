//! The server, as options, a URL and the environment name it.

use crate::statement::shown;
use crate::tls::{Tls, connector};
use std::net::IpAddr;
use std::path::PathBuf;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use url::Url;

/// Of a URL without one: where `holdfast serve` listens.
const DEFAULT_PORT: u16 = 5433;
const DEFAULT_USER: &str = "holdfast";

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{at}: {what}")]
    Address { at: String, what: String },
    #[error("cannot read {path}: {what}")]
    File { path: String, what: String },
    #[error("cannot connect to {at}, database {database}: {what}")]
    Connect { at: String, database: String, what: String },
}

/// What options name; they count before the URL and the environment.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub user: Option<String>,
    /// The authority of the server's certificate.
    pub ca: Option<PathBuf>,
}

/// A running server, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Server {
    /// For messages: without a password.
    pub at: String,
    host: String,
    port: u16,
    user: String,
    password: Option<String>,
    tls: Tls,
}

fn refuse(at: &str, what: impl Into<String>) -> ClientError {
    ClientError::Address { at: at.to_owned(), what: what.into() }
}

impl Server {
    /// Reads `text`, an address or a URL; `environment` gives its variables.
    pub fn parse(
        text: &str,
        given: &Given,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Server, ClientError> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut server = match text.starts_with("postgresql://") || text.starts_with("postgres://") {
            true => from_url(text)?,
            false => from_address(text)?,
        };
        let own = std::mem::take(&mut server.tls);
        let path = |name: &str| set(name).map(PathBuf::from);
        let mode = own.mode.map(Ok).or_else(|| set("PGSSLMODE").map(|mode| mode.parse()));
        server.tls = Tls {
            mode: mode.transpose().map_err(|what: String| refuse(&server.at, what))?,
            authority: given.ca.clone().or(own.authority).or_else(|| path("PGSSLROOTCERT")),
            certificate: own.certificate.or_else(|| path("PGSSLCERT")),
            key: own.key.or_else(|| path("PGSSLKEY")),
        };
        let of_url = Some(std::mem::take(&mut server.user)).filter(|user| !user.is_empty());
        let user = given.user.clone().or(of_url).or_else(|| set("PGUSER"));
        server.user = user.unwrap_or_else(|| DEFAULT_USER.to_owned());
        server.password = server.password.or_else(|| set("PGPASSWORD"));
        Ok(server)
    }

    /// A session in a database. The connection runs on the current runtime.
    pub async fn connect(&self, database: &str, program: &str) -> Result<Client, ClientError> {
        let mut config = Config::new();
        config.host(&self.host).port(self.port).user(&self.user).dbname(database).application_name(program);
        if let Some(password) = &self.password {
            config.password(password);
        }
        let failed = |error: tokio_postgres::Error| ClientError::Connect {
            at: self.at.clone(),
            database: database.to_owned(),
            what: shown(&error),
        };
        let (is_socket, is_here) = (self.host.starts_with('/'), self.is_here());
        let mode = self.tls.resolved(is_socket, is_here).map_err(|what| refuse(&self.at, what))?;
        config.ssl_mode(mode.libpq());
        if config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            return Ok(client);
        }
        let (client, connection) = config.connect(connector(mode, &self.tls)?).await.map_err(failed)?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn is_here(&self) -> bool {
        self.host.starts_with('/')
            || self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

fn without(host: String, port: u16, at: String) -> Server {
    Server { at, host, port, user: String::new(), password: None, tls: Tls::default() }
}

fn from_address(text: &str) -> Result<Server, ClientError> {
    let form = "write it as HOST:PORT, or as postgresql://USER@HOST:PORT/?sslmode=verify-full&sslrootcert=FILE";
    let (host, port) = text.rsplit_once(':').ok_or_else(|| refuse(text, form))?;
    let port = port.parse().map_err(|_| refuse(text, "the port is not a number up to 65535"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(refuse(text, form));
    }
    Ok(without(host.to_owned(), port, text.to_owned()))
}

fn from_url(text: &str) -> Result<Server, ClientError> {
    // The text may have a password: it is in no message.
    let url = Url::parse(text).map_err(|error| refuse("the server's URL", error.to_string()))?;
    let port = url.port().unwrap_or(DEFAULT_PORT);
    let host = decoded(url.host_str().unwrap_or_default());
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host).to_owned();
    let at = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    if host.is_empty() {
        return Err(refuse("the server's URL", "it names no host"));
    }
    if !matches!(url.path(), "" | "/") {
        return Err(refuse(&at, "the URL names a database: name it with --database instead"));
    }
    let mut server = without(host, port, at);
    server.user = decoded(url.username());
    server.password = url.password().map(decoded);
    for (name, value) in url.query_pairs() {
        let value = value.into_owned();
        match &*name {
            "sslmode" => server.tls.mode = Some(value.parse().map_err(|what: String| refuse(&server.at, what))?),
            "sslrootcert" => server.tls.authority = Some(value.into()),
            "sslcert" => server.tls.certificate = Some(value.into()),
            "sslkey" => server.tls.key = Some(value.into()),
            "user" => server.user = value,
            "password" => server.password = Some(value),
            other => {
                let known = "sslmode, sslrootcert, sslcert, sslkey, user and password are";
                return Err(refuse(&server.at, format!("the parameter {other} is not known; {known}")));
            }
        }
    }
    Ok(server)
}

/// Without percent-encoding.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn parse(text: &str) -> Result<Server, String> {
        Server::parse(text, &Given::default(), &none).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_and_urls() {
        for (text, host, port) in [
            ("db:5433", "db", 5433),
            ("[::1]:5433", "::1", 5433),
            ("/run/holdfast:5433", "/run/holdfast", 5433),
            ("postgresql://ann@db.example.com:6000/", "db.example.com", 6000),
            ("postgres://[::1]", "::1", DEFAULT_PORT),
            ("postgresql://%2Frun%2Fholdfast:5433", "/run/holdfast", 5433),
        ] {
            let server = parse(text).unwrap();
            assert_eq!((server.host.as_str(), server.port), (host, port), "{text}");
        }
        for text in
            ["db", "db:", ":5433", "db:70000", "", "postgresql://", "postgresql://db/orders", "postgresql://db/?x=1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let refused = parse("postgresql://ann:secret@db/?sslmode=always").unwrap_err();
        assert!(refused.contains("sslmode") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn options_count_before_the_url_and_the_url_before_the_environment() {
        let environment = |name: &str| {
            let value = match name {
                "PGUSER" => "of_environment",
                "PGPASSWORD" => "p",
                "PGSSLROOTCERT" => "/e/ca.crt",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let read = |text: &str, user: Option<&str>| {
            let given = Given { user: user.map(str::to_owned), ca: None };
            Server::parse(text, &given, &environment).unwrap()
        };
        let server = read("postgresql://of_url:%40x@db/?sslrootcert=/u/ca.crt", None);
        assert_eq!((server.user.as_str(), server.password.as_deref()), ("of_url", Some("@x")));
        assert_eq!(server.tls.authority, Some("/u/ca.crt".into()));
        let server = read("db:1", None);
        assert_eq!((server.user.as_str(), server.password.as_deref()), ("of_environment", Some("p")));
        assert_eq!(server.tls.authority, Some("/e/ca.crt".into()));
        assert_eq!(read("postgresql://of_url@db", Some("of_option")).user, "of_option");
    }

    #[tokio::test]
    async fn another_machine_is_not_sent_plain_text() {
        for text in
            ["192.0.2.1:5433", "postgresql://192.0.2.1/?sslmode=prefer", "postgresql://192.0.2.1/?sslmode=disable"]
        {
            let error = parse(text).unwrap().connect("d", "test").await.err().unwrap().to_string();
            assert!(error.contains("verify-full"), "{error}");
        }
    }
}
