//! The protocol over a real socket, message by message.

mod fake;

use fake::{Running, start};
use holdfast_wire::Limits;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A time that is longer than any of these tests takes.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// A client that sends and receives bytes.
struct Raw(TcpStream);

/// A message received: its type and body.
type Message = (char, Vec<u8>);

impl Raw {
    fn connect(server: &Running) -> Raw {
        let mut raw = Raw::open(server);
        raw.send_startup(b"\0\x03\0\0user\0ann\0\0");
        assert_eq!(raw.until('Z').0, "RSSSK");
        raw
    }

    fn open(server: &Running) -> Raw {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        Raw(stream)
    }

    fn send_startup(&mut self, body: &[u8]) {
        self.0.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
        self.0.write_all(body).unwrap();
    }

    fn send(&mut self, messages: &[(char, &[u8])]) {
        let mut all = Vec::new();
        for (kind, body) in messages {
            all.push(*kind as u8);
            all.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            all.extend_from_slice(body);
        }
        self.0.write_all(&all).unwrap();
    }

    fn read(&mut self) -> Option<Message> {
        let mut header = [0; 5];
        self.0.read_exact(&mut header).ok()?;
        let mut body = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4];
        self.0.read_exact(&mut body).unwrap();
        Some((header[0] as char, body))
    }

    /// The letters of all messages before one of type `last`, and its body.
    fn until(&mut self, last: char) -> (String, Vec<u8>) {
        let mut letters = String::new();
        loop {
            let (kind, body) = self.read().expect("connection closed early");
            if kind == last {
                return (letters, body);
            }
            letters.push(kind);
        }
    }

    fn error(&mut self) -> String {
        let (_, body) = self.until('E');
        let at = body.windows(2).position(|w| w == b"\0C").unwrap();
        String::from_utf8(body[at + 2..at + 7].to_vec()).unwrap()
    }

    fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0]).map_or(true, |n| n == 0)
    }
}

fn bind(portal: &str, statement: &str, param: Option<&str>) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0\0\0").into_bytes();
    match param {
        Some(text) => {
            body.extend(b"\0\x01");
            body.extend((text.len() as u32).to_be_bytes());
            body.extend(text.as_bytes());
        }
        None => body.extend(b"\0\0"),
    }
    body.extend(b"\0\0");
    body
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    format!("{name}\0{sql}\0\0\0").into_bytes()
}

fn execute(portal: &str, rows_max: u32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend(rows_max.to_be_bytes());
    body
}

#[test]
fn answers_come_in_the_order_of_the_messages() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[
        ('P', &parse("e", "echo $1")),
        ('D', b"Se\0"),
        ('B', &bind("", "e", Some("7"))),
        ('D', b"P\0"),
        ('E', &execute("", 0)),
        ('B', &bind("", "e", Some("8"))),
        ('E', &execute("", 0)),
        ('C', b"Se\0"),
        ('S', b""),
    ]);
    assert_eq!(raw.until('Z').0, "1tT2TDC2DC3");
    raw.send(&[('B', &bind("", "e", Some("7"))), ('S', b"")]);
    assert_eq!(raw.error(), "26000");
    assert_eq!(raw.until('Z').1, b"I");
}

#[test]
fn an_error_skips_to_sync_and_answers_what_came_before() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[
        ('P', &parse("r", "rows 2")),
        ('B', &bind("", "r", None)),
        ('E', &execute("", 0)),
        ('P', &parse("", "fail")),
        ('B', &bind("", "", None)),
        ('E', &execute("", 0)),
        ('B', &bind("", "r", None)),
        ('E', &execute("", 0)),
        ('S', b""),
    ]);
    assert_eq!(raw.until('Z').0, "12DDC12E");
    // An error that the protocol finds: the step before it is still answered.
    raw.send(&[
        ('B', &bind("", "r", None)),
        ('E', &execute("", 0)),
        ('P', &parse("", "bad")),
        ('D', b"S\0"),
        ('S', b""),
    ]);
    assert_eq!(raw.until('Z').0, "2DDCE");
    raw.send(&[('P', &parse("x", "echo $1")), ('B', &bind("", "x", Some("seven"))), ('S', b"")]);
    assert_eq!(raw.until('Z').0, "1E");
}

#[test]
fn a_parse_may_need_what_the_batch_does() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[
        ('P', &parse("", "make")),
        ('B', &bind("", "", None)),
        ('E', &execute("", 0)),
        ('P', &parse("", "need")),
        ('B', &bind("", "", None)),
        ('E', &execute("", 0)),
        ('S', b""),
    ]);
    assert_eq!(raw.until('Z').0, "12C12C");
}

#[test]
fn what_a_cursor_returns_is_told_after_its_declaration_has_run() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[
        ('P', &parse("", "rows 1")),
        ('B', &bind("", "", None)),
        ('E', &execute("", 0)),
        ('D', b"Prows 1\0"),
        ('P', &parse("l", "last")),
        ('D', b"Sl\0"),
        ('B', &bind("", "l", None)),
        ('D', b"P\0"),
        ('E', &execute("", 0)),
        ('D', b"Sl\0"),
        ('S', b""),
    ]);
    assert_eq!(raw.until('Z').0, "12DCT1tT2TCtn");
    raw.send(&[('D', b"Pnever\0"), ('S', b"")]);
    assert_eq!(raw.error(), "34000");
}

#[test]
fn portals_are_fetched_in_pieces() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"begin\0")]);
    assert_eq!(raw.until('Z').1, b"T");
    raw.send(&[('P', &parse("", "rows 5")), ('B', &bind("p", "", None)), ('E', &execute("p", 2)), ('S', b"")]);
    assert_eq!(raw.until('Z').0, "12DDs");
    raw.send(&[('E', &execute("p", 2)), ('H', b"")]);
    assert_eq!(raw.until('s').0, "DD");
    raw.send(&[('E', &execute("p", 2)), ('E', &execute("p", 2)), ('S', b"")]);
    assert_eq!(raw.until('Z').0, "DCC");
    raw.send(&[('Q', b"commit\0")]);
    raw.until('Z');
    raw.send(&[('E', &execute("p", 2)), ('S', b"")]);
    assert_eq!(raw.error(), "34000");
}

#[test]
fn a_failed_parse_is_answered_without_a_sync() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('P', &parse("", "need")), ('H', b"")]);
    assert_eq!(raw.until('E').0, "", "the error comes before any Sync");
    raw.send(&[('S', b"")]);
    assert_eq!(raw.until('Z').0, "");
}

#[test]
fn flush_answers_before_sync() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('P', &parse("", "rows 1")), ('B', &bind("", "", None)), ('E', &execute("", 0)), ('H', b"")]);
    assert_eq!(raw.until('C').0, "12D");
    raw.send(&[('S', b"")]);
    assert_eq!(raw.until('Z').0, "");
}

#[test]
fn simple_queries_and_their_errors() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"rows 2; make; rows 1\0")]);
    assert_eq!(raw.until('Z').0, "TDDCCTDC");
    raw.send(&[('Q', b"rows 1; fail; rows 1\0")]);
    assert_eq!(raw.until('Z').0, "TDCE");
    raw.send(&[('Q', b"begin; fail\0")]);
    assert_eq!(raw.until('Z').1, b"E");
}

#[test]
fn copy_in_to_its_end_or_its_failure() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"copy\0")]);
    raw.until('G');
    raw.send(&[('d', b"1\tx\n2"), ('d', b"\t\\N\n"), ('c', b"")]);
    assert_eq!(raw.until('Z').0, "C");
    raw.send(&[('Q', b"log\0")]);
    assert_eq!(raw.until('Z').0, "TDDDDC");
    // CopyFail, bad data with more to follow, and the extended protocol with its two Syncs.
    raw.send(&[('Q', b"copy\0"), ('d', b"1\tx\n"), ('f', b"changed my mind\0")]);
    assert_eq!(raw.until('Z').0, "GE");
    raw.send(&[('Q', b"copy\0"), ('d', b"1\n"), ('d', b"2\n"), ('c', b""), ('Q', b"rows 1\0")]);
    assert_eq!(raw.until('Z').0, "GE");
    assert_eq!(raw.until('Z').0, "TDC");
    raw.send(&[('P', &parse("", "copy")), ('B', &bind("", "", None)), ('E', &execute("", 0)), ('S', b"")]);
    assert_eq!(raw.until('G').0, "12");
    raw.send(&[('d', b"1\tx\n"), ('c', b""), ('S', b"")]);
    assert_eq!(raw.until('Z').0, "C");
    raw.send(&[('Q', b"rows 1\0")]);
    assert_eq!(raw.until('Z').0, "TDC");
}

#[test]
fn a_client_that_dies_in_mid_copy_ends_only_itself() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"copy\0"), ('d', b"1\tx\n")]);
    raw.until('G');
    drop(raw);
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"rows 1\0")]);
    assert_eq!(raw.until('Z').0, "TDC");
}

#[test]
fn malformed_messages_end_the_connection_with_08p01() {
    let server = start(Limits { message_bytes_max: 1 << 20, ..Limits::default() });
    let cases: [&[u8]; 8] = [
        b"z\0\0\0\x04",
        b"Q\0\0\0\x03",
        b"Q\x7f\xff\xff\xff",
        b"Q\xff\xff\xff\xff",
        b"B\0\0\0\x06\0\0",
        b"P\0\0\0\x05\0",
        b"Q\0\0\0\x06\xff\0",
        b"D\0\0\0\x06X\0",
    ];
    for case in cases {
        let mut raw = Raw::connect(&server);
        raw.0.write_all(case).unwrap();
        assert_eq!(raw.error(), "08P01", "{case:?}");
        assert!(raw.is_closed());
    }
}

#[test]
fn start_up_oddities() {
    let server = start(Limits::default());
    let mut raw = Raw::open(&server);
    raw.send_startup(&80_877_103u32.to_be_bytes());
    let mut answer = [0];
    raw.0.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    raw.send_startup(&80_877_104u32.to_be_bytes());
    raw.0.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    raw.send_startup(b"\0\x03\0\x02user\0ann\0_pq_.new\0on\0\0");
    let (letters, body) = raw.until('v');
    assert_eq!((letters.as_str(), &body[..]), ("", &b"\0\0\0\0\0\0\0\x01_pq_.new\0"[..]));
    raw.until('Z');

    let mut raw = Raw::open(&server);
    raw.send_startup(b"\0\x03\0\0user\0ann\0database\0nowhere\0\0");
    assert_eq!(raw.error(), "3D000");
    let mut raw = Raw::open(&server);
    raw.0.write_all(&[0, 0, 0x30, 0, 0, 3, 0, 0]).unwrap();
    assert_eq!(raw.error(), "08P01");
}

#[test]
fn cancel_needs_the_right_key() {
    let server = start(Limits::default());
    let mut raw = Raw::open(&server);
    raw.send_startup(b"\0\x03\0\0user\0ann\0\0");
    let (_, key_data) = raw.until('K');
    raw.until('Z');
    raw.send(&[('Q', b"wait\0")]);
    let cancel = |key: &[u8]| {
        let mut other = Raw::open(&server);
        let mut body = 80_877_102u32.to_be_bytes().to_vec();
        body.extend_from_slice(key);
        other.send_startup(&body);
        assert!(other.is_closed());
    };
    let mut wrong = key_data.clone();
    wrong[7] ^= 1;
    cancel(&wrong);
    raw.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(raw.0.read(&mut [0]).is_err(), "still waiting");
    raw.0.set_read_timeout(Some(WAIT_MAX)).unwrap();
    cancel(&key_data);
    assert_eq!(raw.error(), "57014");
    assert_eq!(raw.until('Z').1, b"I");
}

/// No client has cancelled it: as in PostgreSQL, the answer is the end of the session.
#[test]
fn what_a_stopping_server_cancels_is_answered_with_the_end_of_the_session() {
    let server = start(Limits::default());
    let mut raw = Raw::connect(&server);
    raw.send(&[('Q', b"wait\0")]);
    raw.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(raw.0.read(&mut [0]).is_err(), "it runs");
    raw.0.set_read_timeout(Some(WAIT_MAX)).unwrap();
    server.stop();
    assert_eq!(raw.error(), "57P01");
    assert!(raw.is_closed());
}

#[test]
fn limits_are_reported_by_name() {
    let limits = Limits { prepared_statements_max: 2, connections_max: 2, ..Limits::default() };
    let server = start(limits);
    let mut raw = Raw::connect(&server);
    raw.send(&[('P', &parse("a", "rows 1")), ('P', &parse("b", "rows 1")), ('P', &parse("c", "rows 1")), ('S', b"")]);
    assert_eq!(raw.error(), "54000");
    raw.until('Z');
    raw.send(&[('P', &parse("a", "rows 1")), ('S', b"")]);
    assert_eq!(raw.error(), "42P05");
    raw.until('Z');
    let _second = Raw::connect(&server);
    let mut third = Raw::open(&server);
    third.send_startup(b"\0\x03\0\0user\0ann\0\0");
    assert_eq!(third.error(), "53300");
}

#[test]
fn idle_in_transaction_and_a_stopping_server_close_with_a_reason() {
    let server = start(Limits::default());
    let mut raw = Raw::open(&server);
    raw.send_startup(b"\0\x03\0\0user\0ann\0database\0hasty\0\0");
    raw.until('Z');
    let mut other = Raw::connect(&server);
    raw.send(&[('Q', b"begin\0")]);
    raw.until('Z');
    assert_eq!(raw.error(), "25P03");
    assert!(raw.is_closed());
    server.stop();
    assert_eq!(other.error(), "57P01");
    assert!(other.is_closed());
}

#[test]
fn a_start_up_that_never_ends_is_cut_off() {
    let server = start(Limits { startup_timeout: Duration::from_millis(100), ..Limits::default() });
    let mut raw = Raw::open(&server);
    raw.0.write_all(&[0, 0, 0]).unwrap();
    assert!(raw.is_closed());
}

#[test]
fn without_tls_only_loopback_is_listened_on() {
    let mut sockets = holdfast_wire::Sockets::default();
    sockets.tcp("0.0.0.0:0".parse().unwrap()).unwrap();
    let none = holdfast_wire::TlsSlot::none();
    let refused = holdfast_wire::Server::new(sockets, Limits::default(), none, |_, _, _, _| {});
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("without TLS") && message.contains("holdfast cert server"), "{message}");
}

#[test]
fn bytes_at_random_neither_panic_nor_hang_the_server() {
    let server = start(Limits { message_bytes_max: 1 << 16, ..Limits::default() });
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut raw = Raw::connect(&server);
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let kind = b"QPBDECSHdcfp"[random() as usize % 12];
            let length = random() % 40;
            bytes.push(kind);
            bytes.extend((length as u32 + 4).to_be_bytes());
            bytes.extend((0..length).map(|_| [0, 1, b'S', b'P', 0, 255, b'a'][random() as usize % 7]));
        }
        bytes.extend(b"X\0\0\0\x04");
        raw.0.write_all(&bytes).unwrap();
        let mut answers = Vec::new();
        // A reset is also an accepted end: the server closed the socket with bytes of the client unread.
        let _ = raw.0.read_to_end(&mut answers);
        let mut next = Raw::connect(&server);
        next.send(&[('Q', b"rows 1\0")]);
        assert_eq!(next.until('Z').0, "TDC", "after round {round}");
    }
}
