//! Reads `pg_hba.conf`: PostgreSQL's columns, keywords, options and error texts.
//!
//! Not supported, and refused with what to use instead: `@file`, host names as addresses, and the methods other than
//! `trust`, `reject`, `peer`, `cert` and `scram-sha-256`. In addition to PostgreSQL's, `peer` is allowed for TCP.

use super::rule::{Addresses, ClientCert, ClientName, Connection, Method, Name, Rule, Shown};
use super::tokens::{Field, Token, lines};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A rule, or what is wrong with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub line: u32,
    pub rule: Result<Rule, String>,
}

/// Reads the text of the file.
pub fn parse(text: &str) -> Vec<Entry> {
    let entry = |line: super::tokens::Line| {
        let number = line.number;
        Entry { line: number, rule: line.fields.and_then(|fields| rule(number, fields)) }
    };
    lines(text).into_iter().map(entry).collect()
}

/// The fields of a line, one after another.
struct Columns(std::vec::IntoIter<Field>);

impl Columns {
    fn list(&mut self, before: &str) -> Result<Field, String> {
        let field = self.0.next().ok_or_else(|| format!("end-of-line before {before}"))?;
        match field.iter().find(|t| !t.quoted && t.text.len() > 1 && t.text.starts_with('@')) {
            Some(file) => Err(format!("\"{}\": names from another file are not supported; list them here", file.text)),
            None => Ok(field),
        }
    }

    fn one(&mut self, before: &str, multiple: &str) -> Result<Token, String> {
        let mut field = self.list(before)?;
        match (field.pop(), field.is_empty()) {
            (Some(token), true) => Ok(token),
            _ => Err(format!("multiple values specified for {multiple}")),
        }
    }
}

fn rule(line: u32, fields: Vec<Field>) -> Result<Rule, String> {
    let mut columns = Columns(fields.into_iter());
    let connection = connection(&columns.one("connection type", "connection type")?.text)?;
    let databases = columns.list("database specification")?;
    let users = columns.list("role specification")?;
    let mut shown = Shown { databases: texts(&databases), users: texts(&users), ..Shown::default() };
    let addresses = match connection {
        Connection::Local => Addresses::All,
        _ => addresses(&mut columns, &mut shown)?,
    };
    let method = method(&columns.one("authentication method", "authentication type")?.text, connection)?;
    if method == Method::Cert && connection != Connection::HostSsl {
        return Err("cert authentication is only supported on hostssl connections".into());
    }
    let mut rule = Rule {
        line,
        connection,
        databases: databases.iter().map(database_name).collect(),
        users: users.iter().map(user_name).collect(),
        addresses,
        method,
        map: None,
        client_cert: if method == Method::Cert { ClientCert::VerifyFull } else { ClientCert::Optional },
        client_name: ClientName::CommonName,
        shown,
    };
    for option in columns.0.flatten() {
        set_option(&mut rule, &option.text)?;
    }
    Ok(rule)
}

fn texts(field: &Field) -> Vec<String> {
    field.iter().map(|token| token.text.clone()).collect()
}

fn connection(word: &str) -> Result<Connection, String> {
    Ok(match word {
        "local" => Connection::Local,
        "host" => Connection::Host,
        "hostssl" => Connection::HostSsl,
        "hostnossl" => Connection::HostNoSsl,
        "hostgssenc" => Connection::HostGssEnc,
        "hostnogssenc" => Connection::HostNoGssEnc,
        _ => return Err(format!("invalid connection type \"{word}\"")),
    })
}

fn database_name(token: &Token) -> Name {
    match token.text.as_str() {
        _ if token.quoted => Name::Exact(token.text.clone()),
        "all" => Name::All,
        "sameuser" => Name::SameUser,
        "samerole" | "samegroup" => Name::SameRole,
        "replication" => Name::Replication,
        _ => Name::Exact(token.text.clone()),
    }
}

fn user_name(token: &Token) -> Name {
    match token.text.strip_prefix('+') {
        _ if token.quoted => Name::Exact(token.text.clone()),
        _ if token.text == "all" => Name::All,
        Some(role) => Name::Members(role.to_owned()),
        None => Name::Exact(token.text.clone()),
    }
}

fn method(word: &str, connection: Connection) -> Result<Method, String> {
    Ok(match word {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        "peer" => Method::Peer,
        // As in PostgreSQL, for the Unix socket they are the same.
        "ident" if connection == Connection::Local => Method::Peer,
        "cert" => Method::Cert,
        "scram-sha-256" => Method::ScramSha256,
        "md5" | "password" => {
            return Err(format!(
                "invalid authentication method \"{word}\": not supported by this server; use scram-sha-256, which does \
                 not reveal the password"
            ));
        }
        "ident" => {
            return Err(
                "invalid authentication method \"ident\": not supported by this server; use peer on loopback, or \
                        scram-sha-256"
                    .into(),
            );
        }
        "gss" | "sspi" | "pam" | "bsd" | "ldap" | "radius" => {
            return Err(format!(
                "invalid authentication method \"{word}\": not supported by this server; use scram-sha-256 or cert"
            ));
        }
        _ => return Err(format!("invalid authentication method \"{word}\"")),
    })
}

fn addresses(columns: &mut Columns, shown: &mut Shown) -> Result<Addresses, String> {
    let token = columns.one("IP address specification", "host address")?;
    let keyword = ["all", "samehost", "samenet"].into_iter().find(|word| token.is(word));
    if let Some(keyword) = keyword {
        shown.address = Some(keyword.to_owned());
        return Ok(match keyword {
            "all" => Addresses::All,
            "samehost" => Addresses::SameHost,
            _ => Addresses::SameNet,
        });
    }
    let (text, bits) = token.text.split_once('/').map_or((token.text.as_str(), None), |(a, b)| (a, Some(b)));
    let Ok(address) = text.parse::<IpAddr>() else { return Err(no_address(text, bits.is_some())) };
    let mask = match bits {
        Some(bits) => {
            cidr_mask(address, bits).ok_or_else(|| format!("invalid CIDR mask in address \"{}\"", token.text))?
        }
        None => {
            let mask = columns.one("netmask specification", "netmask")?.text;
            mask.parse::<IpAddr>().map_err(|_| format!("invalid IP mask \"{mask}\""))?
        }
    };
    if address.is_ipv4() != mask.is_ipv4() {
        return Err("IP address and mask do not match".into());
    }
    (shown.address, shown.netmask) = (Some(address.to_string()), Some(mask.to_string()));
    Ok(Addresses::Range { address, mask })
}

/// The error for what is neither a keyword nor an address.
fn no_address(text: &str, has_mask: bool) -> String {
    if has_mask {
        return format!("specifying both host name and CIDR mask is invalid: \"{text}\"");
    }
    if text.contains(':') || text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return format!("invalid IP address \"{text}\"");
    }
    format!("host name \"{text}\": host names are not supported; write the address, such as 192.0.2.10/32")
}

fn cidr_mask(address: IpAddr, bits: &str) -> Option<IpAddr> {
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u32 = bits.parse().ok()?;
    match address {
        IpAddr::V4(_) if bits <= 32 => Some(Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into()),
        IpAddr::V6(_) if bits <= 128 => {
            Some(Ipv6Addr::from_bits(u128::MAX.checked_shl(128 - bits).unwrap_or(0)).into())
        }
        _ => None,
    }
}

fn set_option(rule: &mut Rule, option: &str) -> Result<(), String> {
    let Some((name, value)) = option.split_once('=') else {
        return Err(format!("authentication option not in name=value format: {option}"));
    };
    let only_hostssl = |rule: &Rule| match rule.connection {
        Connection::HostSsl => Ok(()),
        _ => Err(format!("{name} can only be configured for \"hostssl\" rows")),
    };
    match name {
        "map" if matches!(rule.method, Method::Peer | Method::Cert) => rule.map = Some(value.to_owned()),
        "map" => {
            return Err("authentication option \"map\" is only valid for authentication methods ident, peer, gssapi, \
                        sspi, and cert"
                .into());
        }
        "clientcert" => {
            only_hostssl(rule)?;
            rule.client_cert = match value {
                "verify-full" => ClientCert::VerifyFull,
                "verify-ca" if rule.method == Method::Cert => {
                    return Err("clientcert only accepts \"verify-full\" when using \"cert\" authentication".into());
                }
                "verify-ca" => ClientCert::VerifyCa,
                _ => return Err(format!("invalid value for clientcert: \"{value}\"")),
            };
        }
        "clientname" => {
            only_hostssl(rule)?;
            rule.client_name = match value {
                "CN" => ClientName::CommonName,
                "DN" => ClientName::DistinguishedName,
                _ => return Err(format!("invalid value for clientname: \"{value}\"")),
            };
        }
        _ => return Err(format!("unrecognized authentication option name: \"{name}\"")),
    }
    Ok(())
}
