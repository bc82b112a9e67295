//! Lines of `pg_hba.conf`: what they are read as, which connections they match, and which lines are refused.

use super::rule::{Addresses, Name};
use super::*;
use holdfast_types::access::{Membership, Role, Roles};
use holdfast_wire::{Peer, PeerAddress, TlsSession};
use std::sync::Arc;

fn one(line: &str) -> Rule {
    let mut entries = parse(line);
    assert_eq!(entries.len(), 1, "{line}");
    entries.remove(0).rule.unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refused(line: &str) -> String {
    parse(line).remove(0).rule.expect_err(line)
}

fn tcp(client: &str, tls: bool) -> Peer {
    let client = std::net::SocketAddr::new(client.parse().unwrap(), 4711);
    let session = TlsSession {
        version: "TLSv1.3",
        cipher: "TLS_AES_256_GCM_SHA384",
        bits: 256,
        server_end_point: vec![1],
        client_certificate: None,
    };
    Peer { address: Some(PeerAddress::Tcp { client, server: client }), tls: tls.then(|| Arc::new(session)) }
}

fn unix() -> Peer {
    Peer { address: Some(PeerAddress::Unix { uid: 1, gid: 1, pid: None }), tls: None }
}

fn roles() -> Roles {
    let of = |role| Membership { role, grantor: 10, admin: false };
    let staff = Role::new(20000, "staff");
    let crew = Role { member_of: vec![of(20000)], ..Role::new(20001, "crew") };
    let ann = Role { member_of: vec![of(20001)], inherit: false, ..Role::new(20002, "ann") };
    Roles::new(1, [staff, crew, ann, Role::new(20003, "bob")])
}

fn matches(line: &str, peer: &Peer, database: &str, user: &str) -> bool {
    one(line).matches(&Attempt { peer, database, user, roles: &roles() })
}

#[test]
fn columns_are_read() {
    let rule = one("hostssl \"My DB\",sameuser +staff,bob 10.0.0.0/8 cert map=m clientname=CN");
    assert_eq!(rule.databases, [Name::Exact("My DB".into()), Name::SameUser]);
    assert_eq!(rule.users, [Name::Members("staff".into()), Name::Exact("bob".into())]);
    let (address, mask) = ("10.0.0.0".parse().unwrap(), "255.0.0.0".parse().unwrap());
    assert_eq!(rule.addresses, Addresses::Range { address, mask });
    assert_eq!((rule.method, rule.map.as_deref()), (Method::Cert, Some("m")));
    assert_eq!(rule.client_cert, ClientCert::VerifyFull, "cert implies it");
    let rule = one("host all all 192.168.1.7 255.255.255.0 scram-sha-256");
    assert_eq!(
        (rule.shown.address.as_deref(), rule.shown.netmask.as_deref()),
        (Some("192.168.1.7"), Some("255.255.255.0"))
    );
    assert_eq!(one("local all all ident").method, Method::Peer);
    assert_eq!(one("host all all ::1/128 peer").method, Method::Peer);
    let rule = one("local \"all\" \"+staff\" trust");
    assert_eq!((&rule.databases[0], &rule.users[0]), (&Name::Exact("all".into()), &Name::Exact("+staff".into())));
    assert_eq!(one("hostssl all all all scram-sha-256 clientcert=verify-ca").client_cert, ClientCert::VerifyCa);
}

#[test]
fn each_mistake_is_named() {
    for (line, said) in [
        ("locl all all trust", "invalid connection type \"locl\""),
        ("local,host all all trust", "multiple values specified for connection type"),
        ("local", "end-of-line before database specification"),
        ("local all", "end-of-line before role specification"),
        ("host all all", "end-of-line before IP address specification"),
        ("local all all", "end-of-line before authentication method"),
        ("host all all 10.0.0.1", "end-of-line before netmask specification"),
        ("host all all 10.0.0.1 trust", "invalid IP mask \"trust\""),
        ("host all all 10.0.0.1 ffff:: trust", "IP address and mask do not match"),
        ("host all all 10.0.0.1/33 trust", "invalid CIDR mask in address \"10.0.0.1/33\""),
        ("host all all 10.0.0.1/ trust", "invalid CIDR mask"),
        ("host all all 10.0.0.1/+8 trust", "invalid CIDR mask"),
        ("host all all ::/129 trust", "invalid CIDR mask"),
        ("host all all 10.0.0.1/8/8 trust", "invalid CIDR mask"),
        ("host all all 10.0.0.256/8 trust", "specifying both host name and CIDR mask is invalid"),
        ("host all all 10.0.0 255.0.0.0 trust", "invalid IP address \"10.0.0\""),
        ("host all all 10.0.0.1/8,10.0.0.2/8 trust", "multiple values specified for host address"),
        ("host all all db.example.com trust", "host names are not supported"),
        ("host all all \"all\" trust", "host names are not supported"),
        ("local all all md5", "use scram-sha-256"),
        ("local all all password", "use scram-sha-256"),
        ("host all all all ident", "use peer on loopback"),
        ("local all all ldap", "not supported by this server"),
        ("local all all magic", "invalid authentication method \"magic\""),
        ("local all all trust,reject", "multiple values specified for authentication type"),
        ("host all all all cert", "cert authentication is only supported on hostssl connections"),
        ("local all all peer map", "authentication option not in name=value format: map"),
        ("local all all peer mad=x", "unrecognized authentication option name: \"mad\""),
        ("local all all trust map=x", "\"map\" is only valid for"),
        ("host all all all trust clientcert=verify-ca", "clientcert can only be configured for \"hostssl\" rows"),
        ("hostssl all all all trust clientcert=1", "invalid value for clientcert: \"1\""),
        ("hostssl all all all cert clientcert=verify-ca", "clientcert only accepts \"verify-full\""),
        ("hostssl all all all cert clientname=SN", "invalid value for clientname: \"SN\""),
        ("local @names all trust", "names from another file are not supported"),
        ("local all @names trust", "names from another file are not supported"),
    ] {
        let error = refused(line);
        assert!(error.contains(said), "{line}: {error}");
    }
}

#[test]
fn kinds_of_connections() {
    let (plain, tls, local) = (tcp("10.1.2.3", false), tcp("10.1.2.3", true), unix());
    for (kind, expected) in [
        ("host", [true, true, false]),
        ("hostssl", [false, true, false]),
        ("hostnossl", [true, false, false]),
        ("hostgssenc", [false, false, false]),
        ("hostnogssenc", [true, true, false]),
    ] {
        let line = format!("{kind} all all all trust");
        assert_eq!([&plain, &tls, &local].map(|peer| matches(&line, peer, "d", "u")), expected, "{kind}");
    }
    assert!(matches("local all all trust", &local, "d", "u") && !matches("local all all trust", &plain, "d", "u"));
    assert!(!matches("host all all all trust", &Peer::default(), "d", "u"), "a peer without an address");
}

#[test]
fn addresses() {
    for (range, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
        ("0.0.0.0/0", "203.0.113.5", "2001:db8::1"),
        ("10.9.9.9/8", "10.0.0.1", "9.9.9.9"),
        ("2001:db8::/32", "2001:db8:5::9", "2001:db9::"),
        ("::/0", "::1", "127.0.0.1"),
        ("127.0.0.1/32", "::ffff:127.0.0.1", "::1"),
    ] {
        let line = format!("host all all {range} trust");
        assert!(matches(&line, &tcp(inside, false), "d", "u"), "{range} {inside}");
        assert!(!matches(&line, &tcp(outside, false), "d", "u"), "{range} {outside}");
    }
    assert!(matches("host all all samehost trust", &tcp("127.0.0.1", false), "d", "u"));
    assert!(matches("host all all samenet trust", &tcp("127.9.9.9", false), "d", "u"));
    assert!(!matches("host all all samehost trust", &tcp("203.0.113.9", false), "d", "u"));
}

#[test]
fn databases_and_users() {
    let peer = unix();
    let is =
        |database: &str, user: &str, d: &str, u: &str| matches(&format!("local {database} {user} trust"), &peer, d, u);
    assert!(is("all", "all", "shop", "ann") && is("shop,bank", "ann", "bank", "ann"));
    assert!(!is("shop", "ann", "Shop", "ann") && !is("shop", "ann", "shop", "Ann"), "case matters");
    assert!(is("sameuser", "all", "ann", "ann") && !is("sameuser", "all", "shop", "ann"));
    assert!(is("samerole", "all", "staff", "ann") && !is("samegroup", "all", "staff", "bob"));
    assert!(is("all", "+staff", "shop", "ann") && is("all", "+staff", "shop", "staff"), "also without INHERIT");
    assert!(!is("all", "+staff", "shop", "bob") && !is("all", "+staff", "shop", "unknown"));
    assert!(!is("all", "+staff", "shop", "holdfast"), "a superuser that was not made a member");
    assert!(!is("replication", "all", "shop", "ann") && is("\"replication\"", "all", "replication", "ann"));
    assert!(!is("\"all\"", "all", "shop", "ann") && is("\"all\"", "all", "all", "ann"));
}

#[test]
fn loopback_ranges_are_known() {
    for (range, is_loopback) in [
        ("127.0.0.1/32", true),
        ("127.0.0.0/8", true),
        ("127.0.0.0/7", false),
        ("::1/128", true),
        ("::1/64", false),
        ("0.0.0.0/0", false),
        ("all", false),
    ] {
        assert_eq!(one(&format!("host all all {range} trust")).addresses.is_loopback(), is_loopback, "{range}");
    }
}
