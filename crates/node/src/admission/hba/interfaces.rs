//! The addresses of this machine, for `samehost` and `samenet`. They are asked for at each comparison, as PostgreSQL does,
//! because they change.
//!
//! Failure: if they cannot be read, that is logged and nothing matches.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{SockaddrLike as _, SockaddrStorage};
use std::net::IpAddr;

/// Whether an address of this machine, with its network mask, passes the test.
pub fn any(test: impl Fn(IpAddr, IpAddr) -> bool) -> bool {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!("the addresses of this machine cannot be read for samehost and samenet: {error}");
            return false;
        }
    };
    let mut pairs = interfaces.filter_map(|i| Some((ip(&i.address?)?, ip(&i.netmask?)?)));
    pairs.any(|(address, mask)| test(address, mask))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    match address.family()? {
        nix::sys::socket::AddressFamily::Inet => address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())),
        nix::sys::socket::AddressFamily::Inet6 => address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_network() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(any(|address, mask| address == loopback && mask == IpAddr::from([255, 0, 0, 0])));
        assert!(!any(|address, _| address == IpAddr::from([203, 0, 113, 9])));
    }
}
