//! Whoever comes in through the link's door and is no node harms nobody.

use crate::node::{Pair, assert_same, one, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The start-up packet of a link.
const PREAMBLE: [u8; 8] = *b"\0\0\0\x08HFLK";

/// xorshift64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A frame: length of kind and body, kind, body.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 1).unwrap();
    [&length.to_le_bytes(), &[kind][..], body].concat()
}

/// Sends it and reads what comes until the server ends the connection or has nothing more to say.
fn send(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    // The server may have closed it already.
    let _ = stream.write_all(&PREAMBLE).and_then(|()| stream.write_all(bytes));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_harms_nobody() {
    let pair = Pair::start("level = \"hot\"").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int); insert into t values (1)").await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut open = Vec::new();
    for port in [pair.a.port, pair.b.port] {
        for size in [0, 1, 4, 5, 17, 100, 4096, 100_000] {
            send(port, &random.bytes(size));
        }
        for kind in 0..=24 {
            send(port, &frame(kind, &[]));
            send(port, &frame(kind, &random.bytes(40)));
            // A length that is never filled, and one that no memory holds.
            send(port, &[&u32::MAX.to_le_bytes(), &[kind][..], &random.bytes(20)].concat());
            send(port, &[&(60_u32 << 20).to_le_bytes(), &[kind][..], &random.bytes(20)].concat());
        }
        send(port, &0_u32.to_le_bytes());
        // Start-up packets that claim to be of another length.
        for length in [0_u32, 4, 7, 9, 100, u32::MAX] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _ = stream.write_all(&[&length.to_be_bytes()[..], b"HFLK"].concat());
            open.push(stream);
        }
        // Some that say nothing and stay.
        for _ in 0..50 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(&PREAMBLE).unwrap();
            open.push(stream);
        }
        run(&client, "insert into t values (2)").await;
    }
    assert_same(&pair.a, &pair.b).await;
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "3");
    for node in [&pair.a, &pair.b] {
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
    drop(open);
}
