//! Addresses for links, which one node reports and another uses.
//!
//! A node knows its own address as it was configured: `0.0.0.0`, or an address of its own machine that is useless on another.
//!
//! Failure: an address that the other node cannot use is `None`; the caller keeps the one that it has.

use std::net::ToSocketAddrs;

/// The address `reported` by a node, seen from here, where the node is reached at `known` as well (on any port). `None`: it is
/// of no use here, because the node is on another machine and reports an address that only its own machine can reach.
pub fn seen_from_here(known: &str, reported: &str) -> Option<String> {
    let (host, port) = reported.rsplit_once(':')?;
    let is_any = matches!(host, "0.0.0.0" | "[::]");
    if is_any {
        let (host, _) = known.rsplit_once(':')?;
        return Some(format!("{host}:{port}"));
    }
    (!is_loopback(reported) || is_loopback(known)).then(|| reported.to_owned())
}

/// Whether both lead to the same port of the same machine, as far as names can be resolved here.
pub fn is_same(left: &str, right: &str) -> bool {
    let resolved = |address: &str| address.to_socket_addrs().map(|found| found.collect::<Vec<_>>()).unwrap_or_default();
    left == right || resolved(left).iter().any(|address| resolved(right).contains(address))
}

fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut found| found.all(|address| address.ip().is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::{is_same, seen_from_here};

    #[test]
    fn what_a_node_reports_is_used_where_it_can_be() {
        for (known, reported, seen) in [
            ("127.0.0.1:7101", "127.0.0.1:5433", Some("127.0.0.1:5433")),
            ("10.0.0.1:7101", "10.1.0.1:5443", Some("10.1.0.1:5443")),
            ("10.0.0.1:7101", "0.0.0.0:5443", Some("10.0.0.1:5443")),
            ("[fe80::1]:7101", "[::]:5443", Some("[fe80::1]:5443")),
            ("10.0.0.1:7101", "127.0.0.1:5433", None),
            ("10.0.0.1:7101", "nonsense", None),
        ] {
            assert_eq!(seen_from_here(known, reported).as_deref(), seen, "{known} {reported}");
        }
        assert!(is_same("localhost:1", "127.0.0.1:1") && is_same("x.invalid:1", "x.invalid:1"));
        assert!(!is_same("127.0.0.1:1", "127.0.0.1:2") && !is_same("x.invalid:1", "y.invalid:1"));
    }
}
