//! A PostgreSQL 15 that tests ask what is right. A test that finds none is skipped.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_seams::testing::skipped;

use crate::{Address, Programs, USER};

/// The port of one that listens on its socket only: it is in the socket's name.
pub const PORT: u16 = 6544;

const VERSION: u32 = 15;

/// See the module. Everything here panics where it fails.
#[derive(Debug)]
pub struct Postgres {
    server: crate::Postgres,
    /// It listens there on 127.0.0.1 if it was started so; it is also in the name of the socket.
    pub port: u16,
}

/// PostgreSQL's answer to one statement.
#[derive(Debug)]
pub struct Said {
    /// `00000` if it succeeded.
    pub state: String,
    /// Column names and types of a query.
    pub columns: Vec<(String, String)>,
    pub lines: Vec<String>,
}

impl Postgres {
    pub fn start() -> Option<Postgres> {
        Postgres::start_at(Address { port: PORT }, &["listen_addresses="])
    }

    /// As [`Postgres::start`], but on 127.0.0.1 as well.
    pub fn start_listening() -> Option<Postgres> {
        Postgres::start_at(Address::free(), &[])
    }

    /// As [`Postgres::start_listening`], and it can publish.
    pub fn start_publishing() -> Option<Postgres> {
        Postgres::start_at(Address::free(), &["wal_level=logical", "max_replication_slots=30", "max_wal_senders=30"])
    }

    fn start_at(address: Address, settings: &[&str]) -> Option<Postgres> {
        let Some(programs) = Programs::of_version(VERSION).expect("an account for PostgreSQL") else {
            skipped("no PostgreSQL 15 found under /usr/lib/postgresql (Debian package postgresql)");
            return None;
        };
        let server = crate::Postgres::start(programs, address, &["--locale=C"], settings, |_, _| Ok(()));
        Some(Postgres { server: server.expect("PostgreSQL starts"), port: address.port })
    }

    /// Ends it as a power cut would, and starts it again.
    pub fn crash(&self) {
        self.server.crash().expect("PostgreSQL starts again");
    }

    /// It reads its configuration again.
    pub fn reload(&self) {
        self.server.reload().expect("PostgreSQL runs");
    }

    /// The directory of its socket, with its log.
    pub fn socket(&self) -> &Path {
        self.server.socket()
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.server.data()
    }

    /// Runs statements one after another in one session.
    pub fn ask(&self, statements: &[&str]) -> Vec<Said> {
        let mut script = String::from("\\set VERBOSITY sqlstate\n\\pset null NULL\n");
        for statement in statements {
            script.push_str("\\echo @types\n");
            if is_query(statement) {
                script.push_str(&format!("{statement} \\gdesc\n"));
            }
            script.push_str(&format!("\\echo @rows\n{statement};\n\\echo @state :SQLSTATE\n"));
        }
        let mut child = Command::new(self.server.programs().file("psql"))
            .args(["-X", "-q", "-A", "-t", "-F", "|", "-p", &self.port.to_string(), "-U", USER, "-h"])
            .arg(self.socket())
            .arg("postgres")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql starts");
        let mut stdin = child.stdin.take().expect("its input");
        let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
        let out = child.wait_with_output().expect("psql ends");
        writer.join().expect("the writer does not panic").expect("psql reads everything");
        parse(&String::from_utf8_lossy(&out.stdout))
    }
}

pub fn is_query(statement: &str) -> bool {
    let lower = statement.trim_start().to_ascii_lowercase();
    lower.starts_with("select")
        || lower.starts_with("table ")
        || lower.starts_with("values")
        || lower.starts_with("with")
        || lower.contains(" returning ")
}

fn parse(out: &str) -> Vec<Said> {
    let mut said = Vec::new();
    let (mut columns, mut lines, mut in_rows) = (Vec::new(), Vec::new(), false);
    for line in out.lines() {
        if line == "@types" {
            in_rows = false;
        } else if line == "@rows" {
            in_rows = true;
        } else if let Some(state) = line.strip_prefix("@state ") {
            let (columns, lines) = (std::mem::take(&mut columns), std::mem::take(&mut lines));
            said.push(Said { state: state.to_owned(), columns, lines });
        } else if in_rows {
            lines.push(line.to_owned());
        } else if let Some((name, ty)) = line.rsplit_once('|') {
            columns.push((name.to_owned(), ty.to_owned()));
        }
    }
    said
}
