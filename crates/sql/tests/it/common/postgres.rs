//! A private PostgreSQL 15 on a socket of its own, as the oracle. A test that finds none prints that and passes. Also used by the tests
//! of `crates/cli`.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Postgres {
    dir: PathBuf,
    bin: PathBuf,
    as_postgres: bool,
    /// It listens there on 127.0.0.1 if it was started so; it is also in the name of the socket.
    pub port: u16,
}

/// The port of one that listens on its socket only.
pub const PORT: u16 = 6544;

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
        Postgres::start_at(PORT, "", "")
    }

    /// As [`Postgres::start`], but on 127.0.0.1 as well.
    pub fn start_listening() -> Option<Postgres> {
        Postgres::start_at(free_port(), "127.0.0.1", "")
    }

    /// As [`Postgres::start_listening`], and it can publish.
    pub fn start_publishing() -> Option<Postgres> {
        Postgres::start_at(
            free_port(),
            "127.0.0.1",
            " -c wal_level=logical -c max_replication_slots=30 -c max_wal_senders=30",
        )
    }

    fn start_at(port: u16, listen: &str, more: &str) -> Option<Postgres> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let bin = PathBuf::from("/usr/lib/postgresql/15/bin");
        if !bin.join("initdb").exists() {
            holdfast_seams::testing::skipped(
                "no PostgreSQL 15 found under /usr/lib/postgresql (Debian package postgresql)",
            );
            return None;
        }
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        // The path of a socket has at most 107 bytes, and the user that runs the server must reach it.
        let dir = PathBuf::from(format!("/tmp/hf-oracle-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"));
        let postgres = Postgres { dir, bin, as_postgres: root, port };
        if root {
            assert!(Command::new("chown").arg("postgres").arg(&postgres.dir).status().unwrap().success());
        }
        let (data, log) = (postgres.data(), postgres.dir.join("log"));
        let listen = format!("-p {port} -c listen_addresses='{listen}'");
        let options = format!("-k {} {listen} -c fsync=off -c timezone=UTC{more}", path(&postgres.dir));
        let started = postgres.run("initdb", &["-D", path(&data), "-U", "holdfast", "--locale=C", "-E", "UTF8"])
            && postgres.run("pg_ctl", &["-D", path(&data), "-o", &options, "-l", path(&log), "-w", "start"]);
        assert!(started, "PostgreSQL does not start");
        Some(postgres)
    }

    /// Ends it as a power cut would, and starts it again.
    pub fn crash(&self) {
        let (data, log) = (self.data(), self.dir.join("log"));
        let restarted = self.run("pg_ctl", &["-D", path(&data), "-m", "immediate", "-l", path(&log), "-w", "restart"]);
        assert!(restarted, "PostgreSQL does not start again");
    }

    /// It has read its configuration again.
    pub fn reload(&self) {
        assert!(self.run("pg_ctl", &["-D", path(&self.data()), "reload"]));
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        &self.dir
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let program = self.bin.join(program);
        let mut command = match self.as_postgres {
            true => {
                let mut c = Command::new("runuser");
                c.args(["-u", "postgres", "--"]).arg(program);
                c
            }
            false => Command::new(program),
        };
        command
            .args(args)
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
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
        let mut child = Command::new(self.bin.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-F",
                "|",
                "-h",
                path(&self.dir),
                "-p",
                &self.port.to_string(),
                "-U",
                "holdfast",
                "postgres",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
        let out = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        parse(&String::from_utf8_lossy(&out.stdout))
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", path(&self.data()), "-m", "immediate", "stop"]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
