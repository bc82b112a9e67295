//! SCRAM over a real socket, message by message, with the client of another implementation and with hostile ones.

#[allow(dead_code)]
mod fake;

use fake::{Running, start};
use holdfast_wire::Limits;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A time that is longer than any of these tests takes.
const WAIT_MAX: Duration = Duration::from_secs(600);

struct Raw(TcpStream);

impl Raw {
    /// Connects as a user, and reads the mechanisms that are offered.
    fn asked(server: &Running, user: &str) -> Raw {
        let mut raw = Raw::startup(server, user);
        let offered = raw.expect('R', 10);
        assert_eq!(offered, b"SCRAM-SHA-256\0\0", "without TLS there is no channel binding");
        raw
    }

    fn startup(server: &Running, user: &str) -> Raw {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let mut raw = Raw(stream);
        let body = format!("\0\x03\0\0user\0{user}\0\0");
        raw.0.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
        raw.0.write_all(body.as_bytes()).unwrap();
        raw
    }

    fn send(&mut self, kind: char, body: &[u8]) {
        let mut message = vec![kind as u8];
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend(body);
        self.0.write_all(&message).unwrap();
    }

    fn select(&mut self, mechanism: &str, response: &[u8]) {
        let length = (response.len() as u32).to_be_bytes();
        self.send('p', &[mechanism.as_bytes(), b"\0", &length, response].concat());
    }

    fn read(&mut self) -> Option<(char, Vec<u8>)> {
        let mut header = [0; 5];
        self.0.read_exact(&mut header).ok()?;
        let mut body = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4];
        self.0.read_exact(&mut body).unwrap();
        Some((header[0] as char, body))
    }

    /// The rest of a message of this type that begins with this number.
    fn expect(&mut self, kind: char, number: u32) -> Vec<u8> {
        let (found, body) = self.read().unwrap();
        assert_eq!((found, &body[..4]), (kind, &number.to_be_bytes()[..]), "{}", String::from_utf8_lossy(&body));
        body[4..].to_vec()
    }

    /// The SQLSTATE of the error that comes next; the connection is closed after it.
    fn refused(&mut self) -> String {
        let (kind, body) = self.read().unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(kind, 'E', "{text}");
        assert!(text.starts_with("SFATAL"), "{text}");
        assert!(self.read().is_none(), "closed");
        text.split('\0').find_map(|field| field.strip_prefix('C')).unwrap().to_owned()
    }
}

/// What a client and a server have said to each other.
struct Recorded {
    first: Vec<u8>,
    last: Vec<u8>,
    raw: Raw,
}

/// The exchange up to the client's final message.
fn exchange(server: &Running, user: &str, password: &str) -> (ScramSha256, Recorded) {
    let mut raw = Raw::asked(server, user);
    let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    let first = client.message().to_vec();
    raw.select("SCRAM-SHA-256", &first);
    client.update(&raw.expect('R', 11)).unwrap();
    let last = client.message().to_vec();
    raw.send('p', &last);
    (client, Recorded { first, last, raw })
}

#[test]
fn a_password_opens_a_session() {
    let server = start(Limits::default());
    let (mut client, mut recorded) = exchange(&server, "carl", "pencil");
    client.finish(&recorded.raw.expect('R', 12)).unwrap();
    assert_eq!(recorded.raw.expect('R', 0), b"");
    recorded.raw.send('X', b"");
}

#[test]
fn a_wrong_password_and_an_unknown_user_have_the_same_answer() {
    let server = start(Limits::default());
    for (user, password) in [("carl", "Pencil"), ("ghost", "pencil"), ("carl", "")] {
        assert_eq!(exchange(&server, user, password).1.raw.refused(), "28P01", "{user} {password}");
    }
}

#[test]
fn recorded_messages_open_no_second_session() {
    let server = start(Limits::default());
    let (_, Recorded { first, last, mut raw }) = exchange(&server, "carl", "pencil");
    raw.expect('R', 12);
    let mut again = Raw::asked(&server, "carl");
    again.select("SCRAM-SHA-256", &first);
    again.expect('R', 11);
    again.send('p', &last);
    assert_eq!(again.refused(), "08P01");
}

#[test]
fn an_empty_first_response_is_asked_for_again() {
    let server = start(Limits::default());
    let mut raw = Raw::asked(&server, "carl");
    raw.send('p', b"SCRAM-SHA-256\0\xff\xff\xff\xff");
    assert_eq!(raw.expect('R', 11), b"");
    raw.send('p', b"n,,n=,r=abc");
    let answer = String::from_utf8(raw.expect('R', 11)).unwrap();
    assert!(answer.starts_with("r=abc") && answer.ends_with("i=4096"), "{answer}");
}

#[test]
fn hostile_messages_are_refused() {
    let server = start(Limits::default());
    let first: &[u8] = b"n,,n=,r=abc";
    let cases: &[(&str, char, &[u8])] = &[
        ("a query before the proof", 'Q', b"log\0"),
        ("no such mechanism", 'p', b"PLAIN\0\0\0\0\0"),
        ("channel binding without TLS", 'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\x01n"),
        ("a length beyond the message", 'p', b"SCRAM-SHA-256\0\x7f\xff\xff\xff"),
        ("bytes after the response", 'p', b"SCRAM-SHA-256\0\0\0\0\x01nn"),
        ("an empty body", 'p', b""),
        ("a plain password", 'p', b"pencil\0"),
        ("an empty response", 'p', b"SCRAM-SHA-256\0\0\0\0\0"),
        ("more than the limit", 'p', &[b'a'; 1025]),
    ];
    for (what, kind, body) in cases {
        let mut raw = Raw::asked(&server, "carl");
        raw.send(*kind, body);
        assert_eq!(raw.refused(), "08P01", "{what}");
    }
    let mut raw = Raw::asked(&server, "carl");
    raw.select("SCRAM-SHA-256", first);
    raw.expect('R', 11);
    raw.send('p', b"c=biws,r=abc,p=AAAA");
    assert_eq!(raw.refused(), "08P01", "a nonce without the server's part");
    let mut raw = Raw::asked(&server, "carl");
    raw.send('p', &[b'a'; 20_000]);
    assert_eq!(raw.refused(), "08P01", "more than any message of start-up has");
}

#[test]
fn a_client_that_proves_nothing_takes_no_place() {
    let server = start(Limits { connections_max: 1, ..Limits::default() });
    let waiting: Vec<Raw> = (0..5).map(|_| Raw::asked(&server, "carl")).collect();
    drop(Raw::asked(&server, "carl"));
    let mut session = Raw::startup(&server, "ann");
    session.expect('R', 0);
    assert_eq!(Raw::startup(&server, "ann").refused(), "53300");
    drop(waiting);
}
