//! The user that owns the client's end of a TCP connection over loopback.
//!
//! The kernel is asked by inet_diag for the socket whose own address is the client's and whose peer is the server's. Where a
//! container or a filter forbids that, `/proc/net/tcp` and `/proc/net/tcp6` are read, which costs time for each socket of the
//! machine.
//!
//! A socket that its program has closed has no owner any more, and the kernel then reports user 0: a client could send its
//! statements, close the socket, and be taken for root. So only an established socket counts, and it is asked for twice: one that
//! is established the second time, with the same cookie, had its owner at the first.
//!
//! | bytes | request: `nlmsghdr`, `inet_diag_req_v2` |
//! |---|---|
//! | 16 | length, type 20, flags 1, sequence, 0 |
//! | 4 | family, protocol 6 (TCP), 0, 0 |
//! | 4 | states: all |
//! | 2 + 2 | source and destination port, big-endian |
//! | 16 + 16 | source and destination address |
//! | 4 + 8 | interface 0, cookie -1: any |
//!
//! | bytes | answer: `nlmsghdr`, `inet_diag_msg` |
//! |---|---|
//! | 16 | type 20, or 2 with an error number |
//! | 4 | family, state (1 is established), timer, retransmissions |
//! | 48 | ports, addresses, interface, cookie |
//! | 12 | expiry, queues |
//! | 4 + 4 | user, inode |
//!
//! A socket that is not found is looked for again. If this process's own end is not established either, the other end has closed;
//! if it is, the other end's user cannot be found.
//!
//! Failure: `None`, and the connection is not trusted. Source: linux/inet_diag.h, sock_diag(7).

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, SocketAddr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const ENOENT: i32 = 2;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;
const REQUEST_BYTES: usize = 72;
const ANSWER_BYTES_MAX: usize = 4096;

/// The largest `/proc/net/tcp` that is read: some 400,000 sockets.
const PROC_BYTES_MAX: u64 = 64 << 20;

/// How often a socket is looked for: sockets that come and go while `/proc/net/tcp` is read may hide a line of it.
const LOOKS: usize = 3;

/// An established socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owned {
    uid: u32,
    /// The same for the same socket only.
    identity: u64,
}

/// Whether it is the user that runs this process, or root.
pub fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The user that owns the client's end, where both ends are on this machine's loopback.
pub fn owner(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let (client, server) = (canonical(client), canonical(server));
    if !client.ip().is_loopback() || !server.ip().is_loopback() || client.is_ipv4() != server.is_ipv4() {
        return None;
    }
    (0..LOOKS).find_map(|_| look(client, server))
}

/// Whose the other end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    User(u32),
    /// It has closed the connection, so it has no owner any more. A process that was stopped finds many such connections, whose
    /// clients have given up, when it continues.
    Closed,
    /// It is not on this machine's loopback, or the kernel does not say.
    Unknown,
}

/// Finds out whose the other end of this process's own connection is.
pub fn other_end(peer: SocketAddr, own: SocketAddr) -> OtherEnd {
    match owner(peer, own) {
        Some(uid) => OtherEnd::User(uid),
        // This process's own end is found as long as it is established, which it is until the other end closes.
        None if peer.ip().to_canonical().is_loopback() && owner(own, peer).is_none() => OtherEnd::Closed,
        None => OtherEnd::Unknown,
    }
}

fn look(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let found = ask_kernel(client, server).or_else(|error| {
        tracing::debug!("inet_diag: {error}; reading /proc/net/tcp");
        read_proc(client, server)
    });
    match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("the owner of a socket cannot be found: {error}; the connection is not trusted");
            None
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn ask_kernel(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let request = request(client, server);
    let ask = || ask(&socket, &request, (client, server));
    let (first, second) = (ask()?, ask()?);
    Ok(first.filter(|first| Some(*first) == second).map(|owned| owned.uid))
}

fn ask(socket: &OwnedFd, request: &[u8], ends: (SocketAddr, SocketAddr)) -> io::Result<Option<Owned>> {
    rustix::net::sendto(socket, request, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0))?;
    let mut buffer = [0u8; ANSWER_BYTES_MAX];
    // The kernel has answered before the send returns.
    let (_, bytes) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
    answer(buffer.get(..bytes).unwrap_or(&buffer), ends)
}

fn request(client: SocketAddr, server: SocketAddr) -> [u8; REQUEST_BYTES] {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend((REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([if client.is_ipv4() { FAMILY_V4 } else { FAMILY_V6 }, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(client.port().to_be_bytes());
    bytes.extend(server.port().to_be_bytes());
    bytes.extend(address(client.ip()));
    bytes.extend(address(server.ip()));
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    let mut request = [0; REQUEST_BYTES];
    request.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    request
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Reads the kernel's answer; `None`: there is no such socket, or it is not established.
fn answer(bytes: &[u8], ends: (SocketAddr, SocketAddr)) -> io::Result<Option<Owned>> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is too short");
    let at = |from: usize| bytes.get(from..from + 4).and_then(|b| b.first_chunk::<4>()).copied().ok_or_else(short);
    let kind = bytes.get(4..6).and_then(|b| b.first_chunk::<2>()).copied().map(u16::from_ne_bytes).ok_or_else(short)?;
    match kind {
        NLMSG_ERROR => match -i32::from_ne_bytes(at(16)?) {
            ENOENT => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        },
        SOCK_DIAG_BY_FAMILY => {
            let (uid, inode) = (u32::from_ne_bytes(at(80)?), u32::from_ne_bytes(at(84)?));
            let cookie = bytes.get(60..68).and_then(|b| b.first_chunk::<8>()).copied().ok_or_else(short)?;
            let is_owned = bytes.get(17) == Some(&ESTABLISHED) && inode != 0 && socket_of(bytes) == Some(ends);
            Ok(is_owned.then_some(Owned { uid, identity: u64::from_ne_bytes(cookie) }))
        }
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the kernel's answer has type {other}"))),
    }
}

/// The addresses of the socket in an answer. A socket of IPv6 may talk to one of IPv4.
fn socket_of(bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let family = *bytes.get(16)?;
    let end = |port: usize, ip: usize| {
        let port = u16::from_be_bytes(*bytes.get(port..)?.first_chunk()?);
        let ip = match family {
            FAMILY_V4 => IpAddr::from(*bytes.get(ip..)?.first_chunk::<4>()?),
            FAMILY_V6 => IpAddr::from(*bytes.get(ip..)?.first_chunk::<16>()?),
            _ => return None,
        };
        Some(canonical(SocketAddr::new(ip, port)))
    };
    Some((end(20, 24)?, end(22, 40)?))
}

/// Looks the socket up in `/proc/net`. A socket of IPv6 may talk to one of IPv4.
fn read_proc(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let look = || -> io::Result<Option<Owned>> {
        let v4 = if client.is_ipv4() { search(&read("/proc/net/tcp")?, client, server) } else { None };
        // A kernel without IPv6 has no such file.
        Ok(v4.or_else(|| search(&read("/proc/net/tcp6").unwrap_or_default(), client, server)))
    };
    let (first, second) = (look()?, look()?);
    Ok(first.filter(|first| Some(*first) == second).map(|owned| owned.uid))
}

fn read(path: &str) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(PROC_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The line of an established socket: `sl local remote state queues timer retransmissions uid timeout inode`.
fn search(table: &str, client: SocketAddr, server: SocketAddr) -> Option<Owned> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (columns.next()?, columns.next()?, columns.next()?);
        if hex_address(local)? != client || hex_address(remote)? != server || state != "01" {
            return None;
        }
        let uid = columns.nth(3)?.parse().ok()?;
        let identity = columns.nth(1)?.parse().ok().filter(|inode| *inode != 0)?;
        Some(Owned { uid, identity })
    })
}

/// `0100007F:1234`: words of four bytes in the machine's order, then the port.
fn hex_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in 0..ip.len() / 8 {
        let word = u32::from_str_radix(ip.get(word * 8..word * 8 + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match (<[u8; 4]>::try_from(bytes.as_slice()), <[u8; 16]>::try_from(bytes.as_slice())) {
        (Ok(v4), _) => IpAddr::from(v4),
        (_, Ok(v6)) => IpAddr::from(v6).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Both ways find this process's own client, also one of IPv6 that talks to IPv4.
    #[test]
    fn the_owner_of_a_client_is_found() {
        for (listen, connect) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
            ("127.0.0.2:0", "127.0.0.2"),
        ] {
            let server = TcpListener::bind(listen).unwrap();
            let port = server.local_addr().unwrap().port();
            let client = TcpStream::connect(SocketAddr::new(connect.parse().unwrap(), port)).unwrap();
            let (accepted, from) = server.accept().unwrap();
            let (from, to) = (canonical(from), canonical(accepted.local_addr().unwrap()));
            assert_eq!(owner(from, to), Some(own()), "{listen} {connect}");
            assert_eq!(ask_kernel(from, to).unwrap(), Some(own()), "{listen} {connect}");
            assert_eq!(read_proc(from, to).unwrap(), Some(own()), "{listen} {connect}");
            drop(client);
            // A closed socket has no owner: not user 0.
            for _ in 0..3 {
                assert_eq!(ask_kernel(from, to).unwrap(), None, "{listen} {connect}");
                assert_eq!(read_proc(from, to).unwrap(), None, "{listen} {connect}");
            }
        }
    }

    /// Connects again and again in several threads, and calls this with both ends of each connection while they live.
    fn many(connections: usize, look: impl Fn(SocketAddr, SocketAddr) + Sync) {
        const THREADS: usize = 8;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let server = TcpListener::bind("127.0.0.1:0").unwrap();
                    for _ in 0..connections {
                        let _client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
                        let (accepted, from) = server.accept().unwrap();
                        look(from, accepted.local_addr().unwrap());
                    }
                });
            }
        });
    }

    #[test]
    fn both_ends_are_found_while_other_sockets_come_and_go() {
        many(200, |client, server| {
            assert_eq!(owner(client, server), Some(own()));
            assert_eq!(other_end(server, client), OtherEnd::User(own()));
        });
    }

    /// A busy kernel hands the end of a connection over to its other end a little later.
    fn until_closed(peer: SocketAddr, own: SocketAddr) {
        let began = std::time::Instant::now();
        while other_end(peer, own) != OtherEnd::Closed {
            assert!(began.elapsed().as_secs() < 60, "{:?}", other_end(peer, own));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_that_was_closed_is_known_as_closed() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (own, peer) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        // It is established, and no process has accepted it yet.
        assert_eq!(other_end(peer, own), OtherEnd::Unknown);
        let (accepted, _) = server.accept().unwrap();
        assert_eq!(other_end(peer, own), OtherEnd::User(super::tests::own()));
        drop(accepted);
        until_closed(peer, own);
        // A client that has given up before the server comes to its connection.
        drop(TcpStream::connect(peer).unwrap());
        let (accepted, from) = server.accept().unwrap();
        until_closed(from, accepted.local_addr().unwrap());
        let far: SocketAddr = "192.0.2.1:5".parse().unwrap();
        assert_eq!(other_end(far, far), OtherEnd::Unknown);
    }

    #[test]
    fn other_addresses_are_not_asked_for() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(owner(at("10.0.0.1:5"), at("10.0.0.1:6")), None);
        assert_eq!(owner(at("127.0.0.1:5"), at("[::1]:6")), None);
        assert_eq!(owner(at("127.0.0.1:1"), at("127.0.0.1:1")), None, "no such socket");
    }

    #[test]
    fn hostile_answers_are_refused() {
        let (client, server) = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        let request = request(client, server);
        let ends = (client, server);
        let mut good = [0u8; 88];
        good[16] = FAMILY_V4;
        good[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        good[17] = ESTABLISHED;
        good[20..56].copy_from_slice(&request[24..60]);
        good[80..84].copy_from_slice(&7u32.to_ne_bytes());
        good[84] = 1;
        assert_eq!(answer(&good, ends).unwrap().map(|o| o.uid), Some(7));
        for cut in 0..88 {
            assert!(answer(&good[..cut], ends).is_err(), "cut at {cut}");
        }
        let with = |at: usize, byte: u8| {
            let mut changed = good;
            changed[at] = byte;
            answer(&changed, ends).ok().flatten()
        };
        assert_eq!(with(17, 6), None, "TIME_WAIT");
        assert_eq!(with(84, 0), None, "no inode");
        assert_eq!(with(21, 9), None, "another socket");
        assert_eq!(with(16, 1), None, "another family");
        assert_eq!(with(4, 3), None, "another kind of message");
    }

    #[test]
    fn lines_of_proc() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1539 0100007F:0005 06 00000000:00000000 03:00000000 00000000     0        0 0 3 00\n\
            1: 0100007F:0005 0100007F:1539 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 00\n\
            2: bad\n3: 0100007F:000G 0100007F:1539 01\n";
        let at = |port: u16| SocketAddr::new([127, 0, 0, 1].into(), port);
        if cfg!(target_endian = "little") {
            assert_eq!(search(table, at(5), at(5433)), Some(Owned { uid: 1000, identity: 4242 }));
            assert_eq!(search(table, at(5433), at(5)), None, "TIME_WAIT");
        }
        assert_eq!(hex_address("00000000:1"), Some(SocketAddr::new([0, 0, 0, 0].into(), 1)));
        assert_eq!(hex_address("0000:1"), None);
        assert_eq!(hex_address("é0000000:1"), None);
    }
}
