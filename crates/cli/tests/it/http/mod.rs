//! What operators see over HTTP: metrics, health, the console. Requests are written as bytes, answers read as bytes.

mod attacks;
mod health;
mod metrics;
mod prometheus;

use crate::node::Node;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Serves HTTP at any free port.
pub const ON: &str = "http_listen = \"127.0.0.1:0\"";

/// Longer than any answer takes, and far shorter than a test may hang.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Where a node that was started with [`ON`] serves HTTP, from its log.
pub fn port_of(node: &Node) -> u16 {
    let log = node.log();
    let (_, rest) = log.rsplit_once("listening for HTTP").unwrap_or_else(|| panic!("no HTTP listener: {log}"));
    rest.split_once("address=127.0.0.1:").unwrap().1.split_whitespace().next().unwrap().parse().unwrap()
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The value of a header; names are in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends bytes and reads until the server closes, or the whole answer is there. `None`: closed without an answer.
pub fn send(port: u16, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    // The server may have closed before it has read everything.
    let _ = stream.write_all(bytes);
    read(&mut stream)
}

/// Reads one answer.
pub fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")).map(str::trim);
            let length: usize = length.map_or(0, |text| text.parse().unwrap());
            let is_whole = bytes.len() >= at + 4 + length;
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            if is_whole {
                let body = String::from_utf8_lossy(&bytes[at + 4..]).into_owned();
                return Some(Answer { status, head, body });
            }
        }
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A request with these header lines, each ended by a line break.
pub fn ask(port: u16, method: &str, path: &str, lines: &str, body: &str) -> Answer {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{length}{lines}\r\n{body}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    if method == "HEAD" {
        // Its answer tells a length and has no body.
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut one = [0];
            stream.read_exact(&mut one).unwrap();
            bytes.push(one[0]);
        }
        let head = String::from_utf8(bytes).unwrap();
        return Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: String::new() };
    }
    read(&mut stream).unwrap_or_else(|| panic!("{method} {path}: no answer"))
}

pub fn get(port: u16, path: &str) -> Answer {
    ask(port, "GET", path, "", "")
}

/// The value of a metric, with its labels as they are written; `None`: it is not there.
pub fn metric(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
}
