//! A child process that runs a command of this program.
//!
//! Failure: the last line that the command has written to standard error.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// This program, also when its file was replaced by a newer one meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// In a child's environment: the server's process number, with which the child ends.
pub const SCHEDULED_BY: &str = "HOLDFAST_SCHEDULED_BY";

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longer output is cut.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// How a command has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
    /// What an operator would have read last.
    pub error: String,
}

/// Runs a command; `None`: it was stopped. `stops` is called often.
pub fn run(arguments: &[String], stops: impl Fn() -> bool) -> io::Result<Option<Ended>> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env(SCHEDULED_BY, std::process::id().to_string());
    let mut child = command.spawn()?;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = loop {
        if stops() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let (output, errors) = (text(output), text(errors));
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let error = last.strip_prefix("holdfast: ").unwrap_or(last).to_owned();
    Ok(Some(Ended { status, output, error }))
}

/// Reads on a thread, so that the child is never kept waiting.
fn read(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What was read before an error is enough.
            let _ = from.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn text(thread: JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}
