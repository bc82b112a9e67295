//! A rule of `pg_hba.conf`, and which connections it is for.

use holdfast_types::access::Roles;
use holdfast_wire::{Peer, PeerAddress};
use std::net::IpAddr;

/// The first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
    /// GSSAPI encryption, which this server does not have: it matches no connection.
    HostGssEnc,
    /// Every connection over TCP.
    HostNoGssEnc,
}

/// An entry of the column of databases or of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    All,
    SameUser,
    /// `samerole` and `samegroup`.
    SameRole,
    /// Connections of PostgreSQL's replication protocol, which this server does not have.
    Replication,
    /// `+name`: members of a role.
    Members(String),
    Exact(String),
}

/// The column of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    All,
    /// An address of this machine.
    SameHost,
    /// A network that this machine is in.
    SameNet,
    Range {
        address: IpAddr,
        mask: IpAddr,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Trust,
    Reject,
    Peer,
    Cert,
    ScramSha256,
}

impl Method {
    pub fn word(self) -> &'static str {
        match self {
            Method::Trust => "trust",
            Method::Reject => "reject",
            Method::Peer => "peer",
            Method::Cert => "cert",
            Method::ScramSha256 => "scram-sha-256",
        }
    }
}

/// `clientcert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCert {
    #[default]
    Optional,
    VerifyCa,
    /// Also the name in the certificate must be the user's.
    VerifyFull,
}

/// `clientname`: which name of the certificate is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientName {
    #[default]
    CommonName,
    DistinguishedName,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub line: u32,
    pub connection: Connection,
    pub databases: Vec<Name>,
    pub users: Vec<Name>,
    /// `Addresses::All` for `local`.
    pub addresses: Addresses,
    pub method: Method,
    pub map: Option<String>,
    pub client_cert: ClientCert,
    pub client_name: ClientName,
    /// The columns as `pg_hba_file_rules` shows them.
    pub shown: Shown,
}

/// A rule's columns in `pg_hba_file_rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub databases: Vec<String>,
    pub users: Vec<String>,
    pub address: Option<String>,
    pub netmask: Option<String>,
}

/// What a rule is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub peer: &'a Peer,
    pub database: &'a str,
    pub user: &'a str,
    pub roles: &'a Roles,
}

impl Rule {
    pub fn matches(&self, attempt: &Attempt<'_>) -> bool {
        self.matches_as(attempt, attempt.peer.tls.is_some())
    }

    /// Whether it would match the connection with or without encryption.
    pub fn matches_as(&self, attempt: &Attempt<'_>, encrypted: bool) -> bool {
        self.is_for_connection(attempt.peer, encrypted)
            && self.databases.iter().any(|name| name.is_for_database(attempt))
            && self.users.iter().any(|name| name.is_for_user(attempt))
    }

    fn is_for_connection(&self, peer: &Peer, encrypted: bool) -> bool {
        match (peer.address, self.connection) {
            (Some(PeerAddress::Unix { .. }), connection) => connection == Connection::Local,
            (Some(PeerAddress::Tcp { client, .. }), connection) => {
                let kind = match connection {
                    Connection::Host | Connection::HostNoGssEnc => true,
                    Connection::HostSsl => encrypted,
                    Connection::HostNoSsl => !encrypted,
                    Connection::Local | Connection::HostGssEnc => false,
                };
                kind && self.addresses.contain(client.ip().to_canonical())
            }
            (None, _) => false,
        }
    }
}

impl Name {
    fn is_for_database(&self, attempt: &Attempt<'_>) -> bool {
        match self {
            Name::All => true,
            Name::SameUser => attempt.database == attempt.user,
            Name::SameRole => is_member(attempt.roles, attempt.user, attempt.database),
            Name::Replication | Name::Members(_) => false,
            Name::Exact(name) => name == attempt.database,
        }
    }

    fn is_for_user(&self, attempt: &Attempt<'_>) -> bool {
        match self {
            Name::All => true,
            Name::Members(role) => is_member(attempt.roles, attempt.user, role),
            Name::Exact(name) => name == attempt.user,
            Name::SameUser | Name::SameRole | Name::Replication => false,
        }
    }
}

/// Whether a role is another one or its member, directly or not. A superuser is a member where it was made one.
fn is_member(roles: &Roles, user: &str, role: &str) -> bool {
    let (Some(user), Some(role)) = (roles.by_name(user), roles.by_name(role)) else { return false };
    let (mut found, mut at) = (vec![user.oid], 0);
    while let Some(oid) = found.get(at).copied() {
        if oid == role.oid {
            return true;
        }
        at += 1;
        let above = roles.by_oid(oid).map(|r| r.member_of.iter().map(|m| m.role).collect()).unwrap_or(Vec::new());
        let new: Vec<u32> = above.into_iter().filter(|oid| !found.contains(oid)).collect();
        found.extend(new);
    }
    false
}

impl Addresses {
    fn contain(self, client: IpAddr) -> bool {
        match self {
            Addresses::All => true,
            Addresses::Range { address, mask } => is_within(client, address, mask),
            Addresses::SameHost => super::interfaces::any(|address, _| address == client),
            Addresses::SameNet => super::interfaces::any(|address, mask| is_within(client, address, mask)),
        }
    }

    /// Whether every address in it is of this machine's loopback.
    pub fn is_loopback(self) -> bool {
        match self {
            Addresses::All | Addresses::SameHost | Addresses::SameNet => false,
            Addresses::Range { address: IpAddr::V4(address), mask: IpAddr::V4(mask) } => {
                address.is_loopback() && mask.octets()[0] == 255
            }
            Addresses::Range { address, mask } => address.is_loopback() && mask == IpAddr::from([0xff; 16]),
        }
    }
}

/// Whether two addresses have the same network.
pub fn is_within(client: IpAddr, network: IpAddr, mask: IpAddr) -> bool {
    match (client, network, mask) {
        (IpAddr::V4(client), IpAddr::V4(network), IpAddr::V4(mask)) => {
            client.to_bits() & mask.to_bits() == network.to_bits() & mask.to_bits()
        }
        (IpAddr::V6(client), IpAddr::V6(network), IpAddr::V6(mask)) => {
            client.to_bits() & mask.to_bits() == network.to_bits() & mask.to_bits()
        }
        _ => false,
    }
}
