//! Asks a server whether it takes connections, in the PostgreSQL protocol and without a library, so that a restart
//! is timed without a client's own start-up.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::USER;

/// True when the server let a connection in and said that it is ready for a query.
pub fn is_ready(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    let limits = stream.set_read_timeout(Some(Duration::from_secs(10))).and_then(|()| stream.set_nodelay(true));
    if limits.is_err() || stream.write_all(&startup("postgres")).is_err() {
        return false;
    }
    let ready = read_until_ready(&mut stream);
    let _ = stream.write_all(b"X\0\0\0\x04"); // Terminate; the answer is known already
    ready
}

/// A StartupMessage: length, protocol 3.0, then name and value pairs, each ended by a zero byte.
fn startup(database: &str) -> Vec<u8> {
    let mut body = vec![0, 3, 0, 0];
    for word in ["user", USER, "database", database] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).expect("a start-up message of a few bytes");
    [length.to_be_bytes().as_slice(), &body].concat()
}

/// Reads messages (type byte, length, body) up to ReadyForQuery; false at an error or the end of the stream.
fn read_until_ready(stream: &mut TcpStream) -> bool {
    loop {
        let mut head = [0; 5];
        if stream.read_exact(&mut head).is_err() {
            return false;
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        if stream.read_exact(&mut body).is_err() || head[0] == b'E' {
            return false;
        }
        if head[0] == b'Z' {
            return true;
        }
    }
}
