//! Marks of commands at work in a place, so that no chunk is removed that a dump under way uses.
//!
//! | command | puts its mark, then finds | then |
//! |---|---|---|
//! | create | the mark of a removal at work | waits for its end |
//! | create | anything else | continues |
//! | forget | the mark of a create at work | leaves all chunks: the next forget removes them |
//! | forget | anything else | removes the chunks that no manifest uses |
//!
//! Each puts its mark before it looks for others, so at least one of two sees the other's. A create that waits has no chunk
//! yet that counts.
//!
//! Failure: a command that was killed leaves its mark. A command on the same machine sees that the process has ended and
//! removes the mark; from another machine nothing shows that, so it stays, and chunks with it, until a command runs on that
//! machine or the operator removes the object, which the message names.

use crate::error::DumpError;
use crate::moment::show_moment;
use crate::repository::Repository;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DIRECTORY: &str = "running";
const BYTES_MAX: u64 = 4096;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a create waits for a removal.
const WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    Create,
    Forget,
}

/// What a mark says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Mark {
    work: Work,
    since_unix_ms: u64,
    host: String,
    /// The machine's run, and the process in it.
    boot: String,
    pid: u32,
    /// The process's start in that run, so that a later process of that number is not taken for it.
    started: u64,
}

/// The mark of this process; removed with it.
pub struct Running<'a> {
    repository: &'a Repository,
    name: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // One that stays is removed by the next command.
        if let Err(error) = self.repository.remove(&self.name) {
            tracing::warn!("the mark of this command stays: {error}");
        }
    }
}

/// 64 random bits of the system.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Milliseconds since 1970-01-01 UTC.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Marks a create as under way; waits for a removal at work.
pub fn begin_create(repository: &Repository) -> Result<Running<'_>, DumpError> {
    let running = put(repository, Work::Create)?;
    let began = std::time::Instant::now();
    while let Some((name, mark)) = others(repository, Work::Forget)?.pop() {
        if began.elapsed() > WAIT_MAX {
            return Err(DumpError::Running(format!(
                "chunks are being removed: {}",
                described(repository, &name, &mark)
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(running)
}

/// Marks a removal of chunks as under way; an error that says why there must be none now.
pub fn begin_forget(repository: &Repository) -> Result<Result<Running<'_>, String>, DumpError> {
    let running = put(repository, Work::Forget)?;
    Ok(match others(repository, Work::Create)?.pop() {
        Some((name, mark)) => Err(format!("a dump is being made: {}", described(repository, &name, &mark))),
        None => Ok(running),
    })
}

fn described(repository: &Repository, name: &str, mark: &Mark) -> String {
    format!(
        "by process {} on {} since {}. If that process has ended, run the command there again, or remove {name} from {}",
        mark.pid,
        mark.host,
        show_moment(mark.since_unix_ms),
        repository.place()
    )
}

fn put(repository: &Repository, work: Work) -> Result<Running<'_>, DumpError> {
    let failed = |e: io::Error| DumpError::Running(format!("cannot describe this process: {e}"));
    let (boot, pid) = (boot(), std::process::id());
    let mark = Mark { work, since_unix_ms: now_unix_ms(), host: host(), boot, pid, started: started(pid).unwrap_or(0) };
    let name = format!("{DIRECTORY}/{:016x}.json", random().map_err(failed)?);
    let text = serde_json::to_vec(&mark).map_err(|e| failed(e.into()))?;
    // Before it is known to be there: a put that fails may have been done.
    let running = Running { repository, name };
    repository.put(&running.name, text.into())?;
    Ok(running)
}

/// The marks of processes that are, or may be, at work. Marks of processes of this machine that have ended are removed.
fn others(repository: &Repository, work: Work) -> Result<Vec<(String, Mark)>, DumpError> {
    let mut found = Vec::new();
    for listed in repository.list(DIRECTORY)?.into_iter().filter(|listed| listed.name.ends_with(".json")) {
        // One that has just been removed.
        let Some(bytes) = repository.get(&listed.name, BYTES_MAX)? else { continue };
        let mark: Mark = serde_json::from_slice(&bytes).map_err(|e| DumpError::Damaged {
            name: listed.name.clone(),
            what: format!("it is not the mark of a command: {e}"),
        })?;
        if mark.boot == boot() && started(mark.pid) != Some(mark.started) {
            repository.remove(&listed.name)?;
        } else if mark.work == work {
            found.push((listed.name, mark));
        }
    }
    Ok(found)
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn host() -> String {
    line("/proc/sys/kernel/hostname")
}

/// The machine's run: containers on one machine share it, but not their processes' numbers, so the name of the process
/// namespace is part of it.
fn boot() -> String {
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", line("/proc/sys/kernel/random/boot_id"), space.display())
}

/// When a process has started, in ticks of the machine's run; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything, come the state and then numbers: the 20th of all is the start.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    // A process that was killed and whose parent has not asked for its end does nothing any more.
    if matches!(words.next()?, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a mark as another command would.
    fn put_mark(repository: &Repository, name: &str, mark: &Mark) {
        let text = serde_json::to_vec(mark).unwrap();
        repository.put(&format!("{DIRECTORY}/{name}.json"), text.into()).unwrap();
    }

    fn own_mark(work: Work) -> Mark {
        let pid = std::process::id();
        Mark { work, since_unix_ms: 0, host: host(), boot: boot(), pid, started: started(pid).unwrap() }
    }

    fn names(repository: &Repository) -> Vec<String> {
        repository.list(DIRECTORY).unwrap().into_iter().map(|listed| listed.name).collect()
    }

    #[test]
    fn chunks_stay_while_a_dump_is_made_and_a_mark_goes_with_its_command() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::open(dir.path().to_str().unwrap()).unwrap();
        let create = begin_create(&repository).unwrap();
        let second = begin_create(&repository).unwrap();
        let why = begin_forget(&repository).unwrap().err().unwrap();
        assert!(why.contains(&format!("process {}", std::process::id())), "{why}");
        drop(create);
        assert!(begin_forget(&repository).unwrap().is_err(), "the second one is still at work");
        drop(second);
        let forget = begin_forget(&repository).unwrap().unwrap();
        assert!(begin_forget(&repository).unwrap().is_ok(), "two removals do not meet");
        drop(forget);
        assert_eq!(names(&repository), [""; 0], "no mark is left");
    }

    #[test]
    fn only_marks_of_processes_that_have_surely_ended_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::open(dir.path().to_str().unwrap()).unwrap();
        let own = own_mark(Work::Create);
        // The process of that number is another one than the one that has put the mark.
        put_mark(&repository, "ended", &Mark { started: own.started + 1, ..own.clone() });
        put_mark(&repository, "here", &own);
        put_mark(&repository, "elsewhere", &Mark { boot: "another machine".to_owned(), started: 1, ..own.clone() });
        let mut found: Vec<_> = others(&repository, Work::Create).unwrap().into_iter().map(|(name, _)| name).collect();
        found.sort();
        assert_eq!(found, ["running/elsewhere.json", "running/here.json"]);
        assert_eq!(names(&repository).len(), 2, "the mark of the process that has ended is gone");
        assert!(others(&repository, Work::Forget).unwrap().is_empty(), "these are no removals");
        repository.put("running/bad.json", "{}".into()).unwrap();
        assert!(matches!(others(&repository, Work::Create), Err(DumpError::Damaged { .. })));
    }
}
