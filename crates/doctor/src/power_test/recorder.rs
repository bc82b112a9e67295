//! The recorder: listens, and keeps the last number of each run in memory.
//!
//! It must not be on the machine whose plug is pulled. When it ends itself, what it knew is gone, and `verify` says so.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};

use super::conversation::{GREETING, LINE_BYTES_MAX};

/// A recorder that listens.
pub struct Recorder {
    listener: TcpListener,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    numbers: HashMap<u64, u64>,
    last_run: u64,
}

impl Recorder {
    pub fn listen(address: &str) -> anyhow::Result<Recorder> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        Ok(Recorder { listener, known: Arc::default() })
    }

    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Takes writers and verifiers until the process ends. Each thing worth telling goes to `tell`.
    pub fn serve(&self, tell: impl Fn(&str) + Send + Sync + 'static) -> anyhow::Result<()> {
        let tell = Arc::new(tell);
        for stream in self.listener.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("taking a connection"),
            };
            let (known, tell) = (self.known.clone(), tell.clone());
            std::thread::spawn(move || {
                let who = stream.peer_addr().map_or("?".to_owned(), |address| address.to_string());
                let run = talk(stream, &known, |what| tell(&format!("{who}: {what}")));
                if let Err(error) = run {
                    tell(&format!("{who}: {error:#}"));
                }
            });
        }
        Ok(())
    }
}

fn talk(mut stream: TcpStream, known: &Mutex<Known>, tell: impl Fn(&str)) -> anyhow::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut run = None;
    loop {
        let mut line = String::new();
        let got = (&mut lines).take(LINE_BYTES_MAX).read_line(&mut line);
        // A line cut short was never sent whole; its number may have lost a digit.
        if !matches!(got, Ok(count) if count > 0) || !line.ends_with('\n') {
            if let Some(run) = run {
                let last = lock(known).numbers.get(&run).copied().unwrap_or_default();
                tell(&format!("run {run:016x} is silent after number {last}"));
            }
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            _ if line.trim_end() == GREETING => writeln!(stream, "{GREETING}")?,
            ["run", id] => {
                let id: u64 = id.parse()?;
                let mut known = lock(known);
                known.numbers.insert(id, 0);
                known.last_run = id;
                run = Some(id);
                tell(&format!("run {id:016x} begins; pull the plug when you like"));
            }
            ["synced", number] => {
                let id = run.context("a number before its run")?;
                lock(known).numbers.insert(id, number.parse()?);
            }
            ["ask"] => {
                let known = lock(known);
                let number = known.numbers.get(&known.last_run).copied().unwrap_or_default();
                writeln!(stream, "run {} {number}", known.last_run)?;
            }
            _ => bail!("not understood: {:?}", line.trim_end()),
        }
    }
}

fn lock(known: &Mutex<Known>) -> std::sync::MutexGuard<'_, Known> {
    // No thread leaves the numbers half changed, so a panic elsewhere does not matter.
    known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
