//! SQLite under a power-cut test, used by a child process.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::peer::{Peer, READY_WAIT_MAX, Start};
use crate::recorder::{Verdict, judge};

/// Threads that write; more only wait for SQLite's one writer.
const THREADS_MAX: u32 = 4;

pub struct Sqlite {
    synchronous: String,
    file: PathBuf,
    log: PathBuf,
    child: Option<(Child, ChildStdin)>,
    /// What the child says, without the acknowledgements.
    said: Option<Receiver<String>>,
    acknowledged: Arc<Mutex<Vec<i64>>>,
    next_id: i64,
}

impl Sqlite {
    pub fn new(synchronous: &str) -> anyhow::Result<Sqlite> {
        let synchronous = synchronous.to_ascii_lowercase();
        if !["off", "normal", "full", "extra"].contains(&synchronous.as_str()) {
            bail!("--sqlite-synchronous is off, normal, full or extra");
        }
        let (file, log) = (PathBuf::new(), PathBuf::new());
        Ok(Sqlite { synchronous, file, log, child: None, said: None, acknowledged: Arc::default(), next_id: 1 })
    }

    fn log_tail(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }

    /// Gives an order and returns what the child says until it is done.
    fn order(&mut self, order: &str) -> anyhow::Result<Vec<String>> {
        let (_, input) = self.child.as_mut().context("the child is not running")?;
        writeln!(input, "{order}").context("the child has ended")?;
        let said = self.said.as_ref().context("the child is not running")?;
        let mut lines = Vec::new();
        loop {
            match said.recv_timeout(READY_WAIT_MAX) {
                Ok(line) if line == "done" => return Ok(lines),
                Ok(line) => lines.push(line),
                Err(_) => bail!("{order}: the child ended: {}", self.log_tail()),
            }
        }
    }
}

impl Peer for Sqlite {
    fn file_patterns(&self) -> &'static [&'static str] {
        &["*-wal", "*.db", "*"]
    }

    fn fresh(&mut self, mount: &Path, _number: u32) -> anyhow::Result<()> {
        self.file = mount.join("test.db");
        self.log = mount.parent().context("the mount lies in a directory")?.join("sqlite.log");
        self.acknowledged = Arc::default();
        self.next_id = 1;
        Ok(())
    }

    fn start(&mut self, power_off: &dyn Fn() -> bool) -> anyhow::Result<Start> {
        let log = OpenOptions::new().create(true).truncate(true).write(true).open(&self.log)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["power-cut-sqlite", "--synchronous", &self.synchronous, "--file"])
            .arg(&self.file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("starting the child that uses SQLite")?;
        let (input, output) = (child.stdin.take().context("its input")?, child.stdout.take().context("its output")?);
        self.child = Some((child, input));
        let (sender, said) = channel();
        let acknowledged = self.acknowledged.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match line.strip_prefix("ack ").map(str::parse) {
                    Some(Ok(id)) => acknowledged.lock().expect("nobody panics with the list in hand").push(id),
                    // Nobody listens any more once the child was killed.
                    _ => drop(sender.send(line)),
                }
            }
        });
        let said = self.said.insert(said);
        let started = Instant::now();
        loop {
            match said.recv_timeout(Duration::from_millis(5)) {
                Ok(_) => return Ok(Start::Ready),
                Err(RecvTimeoutError::Timeout) if started.elapsed() < READY_WAIT_MAX && !power_off() => {}
                Err(_) if power_off() => return Ok(Start::PowerFailed),
                Err(_) => return Ok(Start::Ended(self.log_tail())),
            }
        }
    }

    fn create_tables(&mut self) -> anyhow::Result<()> {
        self.order("create").map(|_| ())
    }

    fn verify(&mut self) -> anyhow::Result<Verdict> {
        let (mut rows, mut parts, mut accounts) = (Vec::new(), Vec::new(), 0);
        for line in self.order("verify")? {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["row", id, note] => rows.push((id.parse()?, (*note).to_owned())),
                ["part", id, note] => parts.push((id.parse()?, (*note).to_owned())),
                ["sum", sum] => accounts = sum.parse()?,
                _ => bail!("the child says {line}"),
            }
        }
        // An id that was committed and not answered must not be used again.
        self.next_id = rows.iter().map(|(id, _): &(i64, String)| id + 1).max().unwrap_or(1).max(self.next_id);
        let acknowledged = self.acknowledged.lock().expect("nobody panics with the list in hand").clone();
        Ok(Verdict { accounts, ..judge(&acknowledged, &rows, &parts) })
    }

    fn begin_load(&mut self, clients: u32) -> anyhow::Result<()> {
        let (_, input) = self.child.as_mut().context("the child is not running")?;
        writeln!(input, "load {} {}", clients.min(THREADS_MAX), self.next_id).context("the child has ended")
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.lock().expect("nobody panics with the list in hand").len() as u64
    }

    fn client_ended(&mut self) -> Option<String> {
        let ended = !matches!(self.child.as_mut()?.0.try_wait(), Ok(None));
        ended.then(|| self.log_tail())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, input)) = self.child.take() {
            drop(input);
            // It may have ended by itself, as its disk failed.
            let _ = child.kill();
            child.wait()?;
        }
        // Ends when the last acknowledgement has been read.
        if let Some(said) = self.said.take() {
            while said.recv().is_ok() {}
        }
        Ok(())
    }

    fn check(&mut self) -> anyhow::Result<Option<String>> {
        Ok(None)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        let Some((mut child, input)) = self.child.take() else { return Ok(()) };
        drop(input);
        let status = child.wait()?;
        if status.success() { Ok(()) } else { bail!("the child ended with {status}: {}", self.log_tail()) }
    }
}
