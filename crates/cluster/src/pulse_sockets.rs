//! The sockets of pulses: UDP, one on each link of this node, to each link of every other node.
//!
//! ```text
//! this node   link 0 ── to link 0 of each other node
//!             link 1 ── to link 1 of each other node, and so on
//! ```
//! A node that has more links than this one is reached there from this node's last link. So the loss of one network leaves the other
//! links. A message that arrives on several counts once.
//!
//! Where a link is a name and not an address, another thread looks it up, again and again: a lookup may wait for a server on the
//! network, and the address of a name may change.
//!
//! Failure: a link without a socket, or a message that cannot be sent, is as a link that is cut. [`PulseSockets::bind`] fails only
//! where no link of this node can be bound.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::datagram::DATAGRAM_BYTES;

/// The links of a node, as in cluster.toml.
const LINKS_MAX: usize = 8;
/// How often names are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(2);
/// Below the limit of a datagram that waits for a cable which is out: the newest pulse counts, not those from before.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Where the other nodes are; none where a name has no address yet.
type Addresses = Vec<[Option<SocketAddr>; LINKS_MAX]>;

/// Bound sockets.
pub struct PulseSockets {
    own: Vec<UdpSocket>,
    /// By slot; the own one is empty. The pulse thread takes a copy when there is a newer one.
    addresses: Addresses,
    newer: Arc<Mutex<Option<Addresses>>>,
}

/// The addresses of links that are no names.
fn written(links: &[String]) -> [Option<SocketAddr>; LINKS_MAX] {
    std::array::from_fn(|at| links.get(at).and_then(|link| link.parse().ok()))
}

/// Looks names up; one that is not found keeps its address.
fn look_up(links: &[String], known: &mut [Option<SocketAddr>; LINKS_MAX]) {
    for (link, known) in links.iter().zip(known) {
        if let Some(found) = link.to_socket_addrs().ok().and_then(|mut found| found.next()) {
            *known = Some(found);
        }
    }
}

impl PulseSockets {
    /// `own`: the links of this node; `others`: those of each slot, none of the own one.
    pub fn bind(own: &[String], others: Vec<Vec<String>>) -> io::Result<PulseSockets> {
        let (mut sockets, mut failed) = (Vec::new(), None);
        for link in own {
            match bind_one(link) {
                Ok(socket) => sockets.push(socket),
                Err(error) => {
                    tracing::warn!("no pulses on {link}: {error}");
                    failed = Some(error);
                }
            }
        }
        if sockets.is_empty() {
            return Err(failed.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()));
        }
        let addresses: Addresses = others.iter().map(|links| written(links)).collect();
        let newer = Arc::new(Mutex::new(None));
        let has_names = others.iter().flatten().any(|link| link.parse::<SocketAddr>().is_err());
        if has_names {
            let (found, known) = (Arc::downgrade(&newer), addresses.clone());
            let keep = move || keep_looking_up(&others, known, &found);
            std::thread::Builder::new().name("pulse-names".to_owned()).spawn(keep)?;
        }
        Ok(PulseSockets { own: sockets, addresses, newer })
    }

    /// Sends a message to the node in that slot, on all links.
    pub fn send(&self, slot: usize, bytes: &[u8; DATAGRAM_BYTES]) {
        let Some(addresses) = self.addresses.get(slot) else { return };
        for (at, address) in addresses.iter().enumerate() {
            let Some(address) = address else { continue };
            let from = &self.own[at.min(self.own.len() - 1)];
            // A message that is not sent is lost like one that does not arrive.
            let _ = from.send_to(bytes, address);
        }
    }

    /// Takes a message that has arrived, if one has; its length. What is longer than a message has another length.
    pub fn receive(&self, bytes: &mut [u8; DATAGRAM_BYTES + 1]) -> Option<usize> {
        // An error of the socket, as the report that an earlier message found no receiver, hides the message behind it until the
        // next turn only.
        self.own.iter().find_map(|socket| socket.recv_from(bytes).ok().map(|(length, _)| length))
    }

    /// Waits until something has arrived, at most for that time. Takes newly found addresses.
    pub fn wait(&mut self, at_most: Duration) {
        // The other thread holds it for a moment, once.
        if let Some(found) = self.newer.try_lock().and_then(|mut newer| newer.take()) {
            self.addresses = found;
        }
        let time = Timespec { tv_sec: at_most.as_secs() as _, tv_nsec: at_most.subsec_nanos().into() };
        // Those behind the last socket are not looked at.
        let socket = |at: usize| &self.own[at.min(self.own.len() - 1)];
        let mut ready: [PollFd<'_>; LINKS_MAX] =
            std::array::from_fn(|at| PollFd::from_borrowed_fd(socket(at).as_fd(), PollFlags::IN));
        // Interrupted or not: the caller looks for messages.
        let _ = poll(&mut ready[..self.own.len().min(LINKS_MAX)], Some(&time));
    }
}

fn bind_one(link: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(link)?;
    socket.set_nonblocking(true)?;
    set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES)?;
    Ok(socket)
}

/// Until the sockets are gone.
fn keep_looking_up(others: &[Vec<String>], mut known: Addresses, found: &Weak<Mutex<Option<Addresses>>>) {
    while let Some(found) = found.upgrade() {
        let before = known.clone();
        others.iter().zip(&mut known).for_each(|(links, known)| look_up(links, known));
        if known != before {
            *found.lock() = Some(known.clone());
        }
        drop(found);
        std::thread::sleep(LOOK_UP_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::{Patience, port};

    fn links(count: usize) -> Vec<String> {
        (0..count).map(|_| format!("127.0.0.1:{}", port())).collect()
    }

    fn received(sockets: &mut PulseSockets) -> Vec<u8> {
        let (mut bytes, mut patience) = ([0; DATAGRAM_BYTES + 1], Patience::new());
        loop {
            sockets.wait(Duration::from_millis(20));
            if let Some(length) = sockets.receive(&mut bytes) {
                return bytes[..length].to_vec();
            }
            patience.look("a message arrives");
        }
    }

    #[test]
    fn a_message_goes_over_every_link_of_the_receiver() {
        let (a, b) = (links(1), links(2));
        let from = PulseSockets::bind(&a, vec![Vec::new(), b.clone()]).unwrap();
        let mut to = PulseSockets::bind(&b, vec![a, Vec::new()]).unwrap();
        from.send(1, &[7; DATAGRAM_BYTES]);
        assert_eq!(received(&mut to), [7; DATAGRAM_BYTES]);
        assert_eq!(received(&mut to), [7; DATAGRAM_BYTES], "over the second link");
        // No node is there, and this one.
        from.send(2, &[7; DATAGRAM_BYTES]);
        from.send(0, &[7; DATAGRAM_BYTES]);
        to.wait(Duration::ZERO);
        assert_eq!(to.receive(&mut [0; DATAGRAM_BYTES + 1]), None);
    }

    #[test]
    fn a_longer_message_is_not_taken_for_one_of_the_right_length() {
        let (a, b) = (links(1), links(1));
        let mut to = PulseSockets::bind(&b, vec![a, Vec::new()]).unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.send_to(&[7; DATAGRAM_BYTES + 9], &b[0]).unwrap();
        assert_eq!(received(&mut to).len(), DATAGRAM_BYTES + 1);
    }

    #[test]
    fn one_link_of_two_is_enough_and_none_is_an_error() {
        let own = links(2);
        let taken = UdpSocket::bind(&own[0]).unwrap();
        let sockets = PulseSockets::bind(&own, Vec::new()).unwrap();
        assert_eq!(sockets.own.len(), 1);
        assert_eq!(PulseSockets::bind(&own[..1], Vec::new()).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        drop(taken);
    }

    #[test]
    fn a_name_is_looked_up() {
        let b = links(1);
        let named = b[0].replace("127.0.0.1", "localhost");
        let mut from = PulseSockets::bind(&links(1), vec![Vec::new(), vec![named]]).unwrap();
        let mut patience = Patience::new();
        while from.addresses[1][0].is_none() {
            from.wait(Duration::from_millis(20));
            patience.look("the name has an address");
        }
        assert_eq!(from.addresses[1][0].unwrap().port().to_string(), b[0].rsplit_once(':').unwrap().1);
    }
}
