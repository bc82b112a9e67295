//! Publishers that do not keep to the protocol: what they send changes nothing here, the error is shown, a stop does not wait for
//! them, and the subscription continues with a good one.

use super::bed::{Bed, figure};
use crate::server::{one, run, state, until, until_settled};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// How a publisher is bad.
#[derive(Clone)]
enum Bad {
    /// It takes the connection and says nothing.
    Silent,
    /// It answers nothing once the session has begun.
    Deaf,
    /// What it sends in place of a feed; then it waits.
    Sends(Vec<u8>),
    /// The same, and it closes the connection.
    SendsAndCloses(Vec<u8>),
    /// A COPY that ends in the middle of a row with the connection.
    CutsTheCopy,
}

/// Starts a publisher; returns the CONNECTION to it. It ends with the test's process.
fn publisher(bad: Bad) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let bad = bad.clone();
            // The subscriber may close at any time.
            std::thread::spawn(move || drop(serve(stream.unwrap(), &bad)));
        }
    });
    format!("host=127.0.0.1 port={port} dbname=holdfast user=holdfast sslmode=disable")
}

fn serve(mut stream: TcpStream, bad: &Bad) -> std::io::Result<()> {
    if matches!(bad, Bad::Silent) {
        return wait(&mut stream);
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut startup)?;
    stream.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat())?;
    if matches!(bad, Bad::Deaf) {
        return wait(&mut stream);
    }
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
        stream.read_exact(&mut body)?;
        let sql = String::from_utf8_lossy(&body).into_owned();
        match bad {
            _ if head[0] != b'Q' => return Ok(()),
            Bad::Sends(feed) | Bad::SendsAndCloses(feed) if sql.starts_with("START_REPLICATION") => {
                stream.write_all(&[message(b'W', &[0; 3]), feed.clone()].concat())?;
                return if matches!(bad, Bad::Sends(_)) { wait(&mut stream) } else { Ok(()) };
            }
            Bad::CutsTheCopy if sql.starts_with("COPY") => {
                return stream.write_all(&[message(b'H', &[0; 3]), message(b'd', b"1\ta\n2\tb")].concat());
            }
            _ => stream.write_all(&[answer(&sql), message(b'C', b"OK\0"), message(b'Z', b"I")].concat())?,
        }
    }
}

/// Reads until the other side closes.
fn wait(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// The row that a copy needs of its queries.
fn answer(sql: &str) -> Vec<u8> {
    let cells: &[Option<&str>] = if sql.starts_with("CREATE_REPLICATION_SLOT") {
        &[Some("s"), Some("0/10")]
    } else if sql.contains("relreplident") {
        &[Some("5"), Some("d"), Some("r")]
    } else if sql.contains("attnames") {
        &[Some("{id,v}")]
    } else if sql.contains("pg_get_expr") {
        &[None]
    } else {
        return Vec::new();
    };
    let mut row = (cells.len() as u16).to_be_bytes().to_vec();
    for cell in cells {
        row.extend(cell.map_or(-1, |text| text.len() as i32).to_be_bytes());
        row.extend(cell.unwrap_or_default().as_bytes());
    }
    message(b'D', &row)
}

/// Messages of pgoutput in their frames.
fn feed(messages: &[&[u8]]) -> Vec<u8> {
    let frame = |body: &&[u8]| message(b'd', &[b"w", &[0; 24][..], body].concat());
    messages.iter().flat_map(frame).collect()
}

const BEGIN: &[u8] = b"B\x7f\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
const COMMIT: &[u8] = b"C\0\x7f\0\0\0\0\0\0\0\x7f\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0";
const RELATION: &[u8] =
    b"R\0\0\0\x05public\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff";
const ROW: &[u8] = b"I\0\0\0\x05N\0\x02t\0\0\0\x0277t\0\0\0\x01a";

#[tokio::test]
async fn what_a_bad_publisher_sends_changes_nothing() {
    let mut bed = Bed::start();
    bed.both("create table t(id int primary key, v text)").await;
    bed.publish("create publication p for table t; insert into t values (1, 'x')").await;
    bed.subscribe("").await;
    let all = "select * from t order by id";
    bed.until_equal(all, all).await;
    let client = bed.subscriber.connect().await;
    let (begun, sends) = ([BEGIN, RELATION, ROW], |messages: &[&[u8]]| Bad::Sends(feed(messages)));
    let after = |more: &[&'static [u8]]| Bad::Sends(feed(&[&begun[..], more].concat()));
    let cut = [feed(&begun), vec![b'd', 0, 0, 0, 100, b'w', 0]].concat();
    for (bad, part) in [
        (Bad::Sends(b"\0\xff\xfe\xfd\xfcgarbage".to_vec()), "a message of 4294901244 bytes"),
        (Bad::Sends(b"d\x7f\xff\xff\xff".to_vec()), "a message of 2147483647 bytes"),
        (Bad::SendsAndCloses(cut), "closed the connection"),
        (sends(&[COMMIT]), "the end of no transaction"),
        (sends(&[RELATION, ROW]), "a change outside a transaction"),
        (sends(&[BEGIN, ROW, COMMIT]), "a table that it did not describe"),
        (after(&[BEGIN]), "the beginning of a transaction inside another"),
        (after(&[b"I\0\0\0\x05N\0\x03t\0\0\0\x0278t\0\0\0\x01at\0\0\0\x01a", COMMIT]), "has not its 2 columns"),
        (after(&[b"U\0\0\0\x05N\0\x01t\0\0\0\x0277", COMMIT, COMMIT]), "a row of \"public.t\" that has not"),
        (after(&[b"U\0\0\0\x05K\0\x01t\0\0\0\x0277N\0\x02t\0\0\0\x0278n", COMMIT, BEGIN, BEGIN]), "columns"),
        (after(&[b"I\0\0\0\x05N\0\x02t\0\0\0\x0278t\0\0\0\x02\xff\xfe", COMMIT]), "not UTF-8"),
        (after(&[b"I\0\0\0\x05N\0\x02t\0\0\0\x0278t\xff\xff\xff\xff\xff", COMMIT]), "cut off"),
        (after(&[b"I\0\0\0\x05N\0\x02z", COMMIT]), "a column of kind 0x7a"),
        (after(&[b"T\xff\xff\xff\xff\0\0\0\0\x05", COMMIT]), "cut off"),
        (after(&[b"?", COMMIT]), "a message of kind 0x3f"),
        (Bad::Sends(message(b'd', b"?")), "a frame of kind 0x3f"),
        (Bad::Sends(message(b'E', b"C53300\0Mtoo busy\0\0")), "too busy"),
    ] {
        run(&client, &format!("alter subscription s connection '{}'", publisher(bad))).await;
        until_settled(&format!("{part} is reported"), async || {
            let error = figure(&client, "last_error").await;
            (!error.contains(part)).then_some(error)
        })
        .await;
        assert_eq!(one(&client, "select string_agg(id || v, ' ') from t").await, "1x", "{part}");
    }
    for bad in [Bad::Silent, Bad::Deaf] {
        run(&client, &format!("alter subscription s connection '{}'", publisher(bad))).await;
        until("it waits", async || figure(&client, "state").await == "connecting").await;
    }
    let begun = Instant::now();
    assert!(bed.subscriber.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    bed.subscriber.start();
    let client = bed.subscriber.connect().await;
    run(&client, &format!("alter subscription s connection '{}'", bed.connection())).await;
    bed.publish("insert into t values (2, 'y')").await;
    bed.until_equal(all, all).await;
    assert!(!bed.subscriber.log().contains("panicked"));
}

#[tokio::test]
async fn a_statement_does_not_wait_for_a_publisher_longer_than_it_may() {
    let bed = Bed::start();
    let client = bed.subscriber.connect().await;
    run(&client, "create table t(id int primary key)").await;
    run(&client, "set statement_timeout = '300ms'").await;
    for bad in [Bad::Silent, Bad::Deaf] {
        let create = format!("create subscription s connection '{}' publication p", publisher(bad));
        assert_eq!(state(&client, &create).await, Some(SqlState::QUERY_CANCELED));
    }
    run(&client, "set statement_timeout = 0").await;
    let token = client.cancel_token();
    let create = format!("create subscription s connection '{}' publication p", publisher(Bad::Deaf));
    let canceling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    };
    let (state, ()) = tokio::join!(state(&client, &create), canceling);
    assert_eq!(state, Some(SqlState::QUERY_CANCELED));
    assert_eq!(one(&client, "select count(*) from pg_subscription").await, "0");
}

#[tokio::test]
async fn a_copy_that_is_cut_off_leaves_nothing_and_begins_again() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key, v text)").await;
    bed.publish("create publication p for table t; insert into t select g, 'x' from generate_series(1, 100) g").await;
    bed.subscribe(" with (enabled = false)").await;
    let client = bed.subscriber.connect().await;
    let fake = publisher(Bad::CutsTheCopy);
    run(&client, &format!("alter subscription s connection '{fake}'")).await;
    run(&client, "alter subscription s enable").await;
    until_settled("the cut is reported", async || {
        let error = figure(&client, "last_error").await;
        (!error.contains("closed the connection")).then_some(error)
    })
    .await;
    assert_eq!(one(&client, "select count(*) from t").await, "0");
    run(&client, &format!("alter subscription s connection '{}'", bed.connection())).await;
    let all = "select * from t order by id";
    bed.until_equal(all, all).await;
}
