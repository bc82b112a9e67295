//! A subscriber that checks what it is sent: a client of the replication protocol over a plain socket.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for a message; a server that sends nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Subscriber {
    stream: TcpStream,
    relations: HashMap<u32, (String, usize)>,
    open: Option<Transaction>,
    /// The LSN of the last header or keepalive.
    pub seen: u64,
    /// The end of the last whole transaction.
    pub end: u64,
    /// All bytes of the answers to commands and statements.
    pub received: Vec<u8>,
}

/// A transaction as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub start: u64,
    pub end: u64,
    /// `insert t 1 x`, `update t 1 u`, `update t (1) 2 x`, `delete t 1`, with NULL as `-` and unchanged as `u`.
    pub changes: Vec<String>,
}

/// An error's SQLSTATE and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub state: String,
    pub message: String,
}

#[derive(Debug)]
pub enum Event {
    Transaction(Transaction),
    Keepalive,
    Ended(Option<Refused>),
}

impl Subscriber {
    pub fn connect(port: u16) -> Subscriber {
        Subscriber::connect_to(port, "holdfast")
    }

    pub fn connect_to(port: u16, database: &str) -> Subscriber {
        Subscriber::connect_with(port, "holdfast", database).unwrap()
    }

    /// Connects to the database `holdfast`.
    pub fn connect_as(port: u16, user: &str) -> Result<Subscriber, Refused> {
        Subscriber::connect_with(port, user, "holdfast")
    }

    fn connect_with(port: u16, user: &str, database: &str) -> Result<Subscriber, Refused> {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (relations, received) = (HashMap::new(), Vec::new());
        let mut subscriber = Subscriber { stream, relations, open: None, seen: 0, end: 0, received };
        let mut body = b"\0\x03\0\0".to_vec();
        for text in ["user", user, "database", database, "replication", "database", "application_name", "site", ""] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
        packet.extend_from_slice(&body);
        subscriber.stream.write_all(&packet).unwrap();
        subscriber.until_ready().map(|_| subscriber)
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut message = vec![kind];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        self.stream.write_all(&message).unwrap();
    }

    /// `None`: the connection has ended.
    fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing was sent for {PATIENCE:?}"),
            Err(_) => return None,
        }
        let bytes = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; bytes];
        self.stream.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// Rows up to ReadyForQuery, NULL as `-`; of a COPY its lines.
    fn until_ready(&mut self) -> Result<Vec<Vec<String>>, Refused> {
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let Some((kind, body)) = self.message() else {
                return Err(refused.unwrap_or(Refused { state: String::new(), message: "the connection ended".into() }));
            };
            self.received.extend_from_slice(&body);
            match kind {
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'E' => refused = Some(error(&body)),
                b'D' => rows.push(row(&body)),
                b'd' => rows.push(vec![String::from_utf8_lossy(&body).trim_end().to_owned()]),
                _ => {}
            }
        }
    }

    /// A command or a statement: its rows.
    pub fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>, Refused> {
        self.send(b'Q', format!("{text}\0").as_bytes());
        self.until_ready()
    }

    /// A statement without parameters by the extended protocol: its rows.
    pub fn extended(&mut self, text: &str) -> Result<Vec<Vec<String>>, Refused> {
        self.send(b'P', format!("\0{text}\0\0\0").as_bytes());
        self.send(b'B', &[0; 8]);
        self.send(b'E', &[0; 5]);
        self.send(b'S', b"");
        self.until_ready()
    }

    pub fn state(&mut self, text: &str) -> String {
        self.query(text).err().map(|refused| refused.state).unwrap_or_default()
    }

    pub fn create_slot(&mut self, slot: &str) {
        self.query(&format!("CREATE_REPLICATION_SLOT \"{slot}\" LOGICAL pgoutput (SNAPSHOT 'nothing')")).unwrap();
    }

    /// Begins to receive.
    pub fn start(&mut self, slot: &str, lsn: u64, publications: &str) -> Result<(), Refused> {
        let lsn_text = format!("{:X}/{:X}", lsn >> 32, lsn as u32);
        let options = format!("proto_version '3', publication_names '{publications}'");
        self.send(b'Q', format!("START_REPLICATION SLOT \"{slot}\" LOGICAL {lsn_text} ({options})\0").as_bytes());
        (self.relations, self.open) = (HashMap::new(), None);
        self.end = self.end.max(lsn);
        match self.message() {
            Some((b'W', _)) => Ok(()),
            Some((b'E', body)) => {
                let refused = error(&body);
                self.until_ready().unwrap();
                Err(refused)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next whole transaction, keepalive, or the end.
    pub fn next(&mut self) -> Event {
        loop {
            match self.message() {
                None => return Event::Ended(None),
                Some((b'E', body)) => return Event::Ended(Some(error(&body))),
                Some((b'd', body)) => match body[0] {
                    b'k' => {
                        self.see(number(&body[1..]));
                        if body[17] == 1 {
                            self.confirm(self.end);
                        }
                        return Event::Keepalive;
                    }
                    b'w' => {
                        if body[25] == b'C' {
                            self.seen = number(&body[1..]);
                        } else {
                            self.see(number(&body[1..]));
                        }
                        assert_eq!(number(&body[1..]), number(&body[9..]));
                        if let Some(transaction) = self.data(&body[25..]) {
                            return Event::Transaction(transaction);
                        }
                    }
                    other => panic!("{other}"),
                },
                Some((other, _)) => panic!("{}", other as char),
            }
        }
    }

    fn see(&mut self, lsn: u64) {
        assert!(lsn >= self.seen, "headers never go back");
        self.seen = lsn;
        self.check_seen();
    }

    /// A stock subscriber confirms any LSN that it sees: until a transaction's last message none may be behind its beginning.
    fn check_seen(&self) {
        if let Some(open) = &self.open {
            assert!(
                self.seen <= open.start,
                "{:x} is named in the transaction that begins at {:x}",
                self.seen,
                open.start
            );
        }
    }

    /// The next transaction.
    pub fn transaction(&mut self) -> Transaction {
        loop {
            match self.next() {
                Event::Transaction(transaction) => return transaction,
                Event::Keepalive => {}
                Event::Ended(why) => panic!("{why:?}"),
            }
        }
    }

    /// The changes of the next transactions, up to one that has a change which ends so.
    pub fn until(&mut self, last: &str) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        loop {
            let transaction = self.transaction();
            let is_last = transaction.changes.iter().any(|change| change.ends_with(last));
            all.push(transaction.changes);
            if is_last {
                return all;
            }
        }
    }

    /// Says that everything before is durable here.
    pub fn confirm(&mut self, lsn: u64) {
        let mut body = vec![b'r'];
        for value in [lsn, lsn, lsn, 0] {
            body.extend_from_slice(&value.to_be_bytes());
        }
        body.push(0);
        self.send(b'd', &body);
    }

    /// Ends replication; the session stays.
    pub fn finish(&mut self) {
        self.send(b'c', b"");
        let mut tags = Vec::new();
        loop {
            let (kind, body) = self.message().unwrap();
            match kind {
                b'C' => tags.push(String::from_utf8_lossy(&body[..body.len() - 1]).into_owned()),
                b'Z' => break,
                _ => {}
            }
        }
        assert_eq!(tags, ["COPY 0", "START_REPLICATION"]);
    }

    fn data(&mut self, body: &[u8]) -> Option<Transaction> {
        let oid = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        match body[0] {
            b'B' => {
                assert!(self.open.is_none());
                self.open = Some(Transaction { start: number(&body[1..]), end: 0, changes: Vec::new() });
                self.check_seen();
            }
            b'R' => {
                let (namespace, rest) = text(&body[5..]);
                let (name, rest) = text(rest);
                assert_eq!((namespace, rest[0]), ("public", b'd'));
                let columns = u16::from_be_bytes([rest[1], rest[2]]);
                self.relations.insert(oid(1), (name.to_owned(), columns.into()));
            }
            b'I' => {
                let (cells, rest) = cells(&body[6..]);
                assert!(rest.is_empty());
                self.change("insert", oid(1), cells);
            }
            b'U' => {
                let (mut shown, mut rest) = (String::new(), &body[5..]);
                if rest[0] == b'K' {
                    let (key, after) = cells(&rest[1..]);
                    (shown, rest) = (format!("({}) ", known(&key)), after);
                }
                let (cells, _) = cells(&rest[1..]);
                self.change("update", oid(1), vec![format!("{shown}{}", cells.join(" "))]);
            }
            b'D' => {
                let (key, _) = cells(&body[6..]);
                self.change("delete", oid(1), vec![known(&key)]);
            }
            b'C' => {
                let mut transaction = self.open.take().expect("begun");
                assert_eq!(number(&body[2..]), transaction.start, "stock subscribers compare them");
                transaction.end = number(&body[10..]);
                assert!(transaction.start >= self.end, "never twice: {transaction:?} behind {:x}", self.end);
                assert_eq!(self.seen, transaction.end);
                self.end = transaction.end;
                return Some(transaction);
            }
            other => panic!("{}", other as char),
        }
        None
    }

    fn change(&mut self, verb: &str, table: u32, cells: Vec<String>) {
        let (name, _) = &self.relations[&table];
        let text = format!("{verb} {name} {}", cells.join(" "));
        self.open.as_mut().expect("begun").changes.push(text);
    }
}

fn known(cells: &[String]) -> String {
    cells.iter().filter(|cell| *cell != "-").cloned().collect::<Vec<_>>().join(" ")
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

fn text(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    (std::str::from_utf8(&bytes[..end]).unwrap(), &bytes[end + 1..])
}

fn cells(bytes: &[u8]) -> (Vec<String>, &[u8]) {
    let count = u16::from_be_bytes([bytes[0], bytes[1]]);
    let (mut cells, mut rest) = (Vec::new(), &bytes[2..]);
    for _ in 0..count {
        match rest[0] {
            b'n' => (cells.push("-".to_owned()), rest = &rest[1..]).1,
            b'u' => (cells.push("u".to_owned()), rest = &rest[1..]).1,
            b't' => {
                let bytes = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
                cells.push(String::from_utf8(rest[5..5 + bytes].to_vec()).unwrap());
                rest = &rest[5 + bytes..];
            }
            other => panic!("{other}"),
        }
    }
    (cells, rest)
}

fn row(body: &[u8]) -> Vec<String> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut rest = &body[2..];
    let mut row = Vec::new();
    for _ in 0..count {
        let bytes = i32::from_be_bytes(rest[..4].try_into().unwrap());
        rest = &rest[4..];
        if bytes < 0 {
            row.push("-".to_owned());
        } else {
            row.push(String::from_utf8(rest[..bytes as usize].to_vec()).unwrap());
            rest = &rest[bytes as usize..];
        }
    }
    row
}

fn error(body: &[u8]) -> Refused {
    let field = |code: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    Refused { state: field(b'C'), message: field(b'M') }
}
