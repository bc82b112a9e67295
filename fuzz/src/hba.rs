//! `pg_hba.conf` and `pg_ident.conf`: every line is a rule or an error, and every rule can be compared with a connection.

use holdfast_node::admission::hba::{Attempt, parse};
use holdfast_node::admission::ident;
use holdfast_types::access::Roles;
use holdfast_wire::{Peer, PeerAddress};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let roles = Roles::default();
    let tcp = |address: &str| {
        let client = address.parse().ok()?;
        Some(PeerAddress::Tcp { client, server: client })
    };
    let unix = Some(PeerAddress::Unix { uid: 1, gid: 1, pid: None });
    for entry in parse(text) {
        let Ok(rule) = entry.rule else { continue };
        for address in [tcp("10.0.0.1:5"), tcp("[2001:db8::1]:5"), unix, None] {
            let peer = Peer { address, tls: None };
            rule.matches(&Attempt { peer: &peer, database: "shop", user: "ann", roles: &roles });
        }
    }
    for entry in ident::parse(text) {
        if let Ok(mapping) = entry.mapping {
            mapping.allows("os", "ann@example.com", "ann");
        }
    }
}
