//! `listen`: where clients connect. One address or a list: HOST:PORT, [IPv6]:PORT, or *:PORT for every address of the machine.
//!
//! Failure: text that is not of this form is an error of the file or of the command line.

use serde::Deserialize;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The most addresses in a list.
const ADDRESSES_MAX: usize = 64;

/// The addresses that a server listens on, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "OneOrMany")]
pub struct Listen(Vec<ListenAddress>);

/// One of them, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress(String);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text such as \"127.0.0.1:5433\", or a list of such texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Listen {
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.0
    }

    fn of(addresses: Vec<ListenAddress>) -> Result<Listen, String> {
        match addresses.len() {
            0 => Err("listen names no address".to_owned()),
            1..=ADDRESSES_MAX => Ok(Listen(addresses)),
            count => Err(format!("listen has {count} addresses; the limit is {ADDRESSES_MAX}")),
        }
    }
}

impl ListenAddress {
    /// The port, where this stands for every address of the machine.
    pub fn every_address(&self) -> Option<u16> {
        self.0.strip_prefix("*:")?.parse().ok()
    }

    /// The addresses that the host name stands for. Where one of them is this machine's own, only those; IPv4 first, because
    /// most clients try it first.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let mut all: Vec<SocketAddr> = self.0.to_socket_addrs()?.collect();
        if all.iter().any(|address| address.ip().is_loopback()) {
            all.retain(|address| address.ip().is_loopback());
        }
        all.sort_by_key(SocketAddr::is_ipv6);
        all.dedup();
        Ok(all)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&str> = self.0.iter().map(|address| address.0.as_str()).collect();
        all.join(",").fmt(f)
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen(vec![ListenAddress(address.to_string())])
    }
}

impl TryFrom<OneOrMany> for Listen {
    type Error = String;

    fn try_from(value: OneOrMany) -> Result<Listen, String> {
        match value {
            OneOrMany::One(text) => text.parse(),
            OneOrMany::Many(all) => Listen::of(all.iter().map(|text| text.parse()).collect::<Result<_, _>>()?),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        Listen::of(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let text = text.trim();
        let refuse = |why: &str| format!("\"{text}\" is not HOST:PORT: {why}");
        let (host, port) = text.rsplit_once(':').ok_or_else(|| refuse("the port is missing"))?;
        if host.is_empty() {
            return Err(refuse("the host is missing"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(refuse("an IPv6 address is written in brackets, as in [::1]:5433"));
        }
        port.parse::<u16>().map_err(|_| refuse("the port is a number from 0 to 65535"))?;
        Ok(ListenAddress(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_host_name_is_an_address_of_this_machine() {
        let addresses = |text: &str| text.parse::<ListenAddress>().unwrap().resolve().unwrap();
        let local = addresses("localhost:5433");
        assert!(!local.is_empty() && local.iter().all(|a| a.ip().is_loopback() && a.port() == 5433), "{local:?}");
        assert_eq!(addresses("[::1]:1"), ["[::1]:1".parse().unwrap()]);
        assert_eq!(addresses("10.1.2.3:1"), ["10.1.2.3:1".parse().unwrap()]);
        for wrong in ["localhost", ":5433", "::1:5433", "localhost:http", "localhost:70000", "", "a:1,", "a:1,,b:2"] {
            assert!(wrong.parse::<Listen>().unwrap_err().contains("is not HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn one_address_or_a_list() {
        let listen = |text: &str| Config::parse(&format!("listen = {text}")).map(|config| config.listen.to_string());
        assert_eq!(listen("\"127.0.0.1:5433\""), Ok("127.0.0.1:5433".to_owned()));
        assert_eq!(listen("[\"127.0.0.1:5433\", \"[::1]:5433\"]"), Ok("127.0.0.1:5433,[::1]:5433".to_owned()));
        assert_eq!(listen("\"127.0.0.1:5433, *:5434\""), Ok("127.0.0.1:5433,*:5434".to_owned()));
        assert!(listen("[]").unwrap_err().contains("names no address"));
        assert!(listen("[\"a\"]").unwrap_err().contains("\"a\" is not HOST:PORT"));
        let expected = "line 1: listen = 3 is not valid; it must be a text such as";
        assert!(listen("3").unwrap_err().contains("a text such as"), "{expected}: {}", listen("3").unwrap_err());
        let every = |text: &str| text.parse::<ListenAddress>().unwrap().every_address();
        assert_eq!((every("*:5433"), every("127.0.0.1:5433")), (Some(5433), None));
        let many = vec!["\"127.0.0.1:1\""; 65].join(",");
        assert!(listen(&format!("[{many}]")).unwrap_err().contains("the limit is 64"));
    }
}
