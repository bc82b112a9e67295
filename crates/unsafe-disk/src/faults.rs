//! Rules for faults: what goes wrong, at which operation, on which files, how often; and how often each really fired.
//!
//! | rule | what happens |
//! |---|---|
//! | `fail sync` | EIO; what was to be synced counts as written for the page cache and is never written ("fsyncgate") |
//! | `fail write`, `fail read`, `fail name` | EIO (or `error=enospc`), and nothing is done |
//! | `lie` | a sync is acknowledged at once and nothing is written |
//! | `flip` | one bit of a write is stored wrong |
//! | `misdirect` | a write lands one to eight sectors too far, its own place stays as it was |
//! | `slow write`, `slow read`, `slow sync` | the operation takes `us=` longer |
//! | `cut` | the power fails in the middle of the operation |

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// What is done to the disk. `Name`: a file or directory is created, removed, renamed or linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Write,
    Sync,
    Name,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Fail(Errno),
    Lie,
    Flip,
    Misdirect,
    Slow { delay_us: u64 },
    Cut,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub effect: Effect,
    /// Which operations; empty means every one that changes something (reads are left out).
    pub operations: Vec<Operation>,
    /// A file name with `*` and `?`, or a path from the mount point when it has a slash.
    pub pattern: String,
    /// So many matching operations pass first.
    pub after: u64,
    /// How often it fires; without it, always.
    pub times: Option<u64>,
}

/// A rule and what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fired {
    pub rule: String,
    /// Operations that matched.
    pub seen: u64,
    pub fired: u64,
}

#[derive(Default)]
pub struct Faults {
    rules: Vec<(Rule, u64, u64)>,
}

/// What the rules make of one operation.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub fail: Option<Errno>,
    pub lie: bool,
    pub flip: bool,
    pub misdirect: bool,
    pub cut: bool,
    pub delay_us: u64,
}

impl Faults {
    pub fn add(&mut self, rule: Rule) {
        self.rules.push((rule, 0, 0));
    }

    pub fn clear(&mut self) {
        self.rules.clear();
    }

    pub fn fired(&self) -> Vec<Fired> {
        let status =
            |(rule, seen, fired): &(Rule, u64, u64)| Fired { rule: rule.to_string(), seen: *seen, fired: *fired };
        self.rules.iter().map(status).collect()
    }

    /// Holds an operation on the file at `path` (from the mount point, no slash in front) against every rule.
    pub fn judge(&mut self, operation: Operation, path: &str) -> Verdict {
        let mut verdict = Verdict::default();
        for (rule, seen, fired) in &mut self.rules {
            if !rule.matches(operation, path) {
                continue;
            }
            *seen += 1;
            if *seen <= rule.after || rule.times.is_some_and(|times| *fired >= times) {
                continue;
            }
            *fired += 1;
            match rule.effect {
                Effect::Fail(errno) => verdict.fail = Some(errno),
                Effect::Lie => verdict.lie = true,
                Effect::Flip => verdict.flip = true,
                Effect::Misdirect => verdict.misdirect = true,
                Effect::Slow { delay_us } => verdict.delay_us += delay_us,
                Effect::Cut => verdict.cut = true,
            }
        }
        verdict
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl Rule {
    fn matches(&self, operation: Operation, path: &str) -> bool {
        let wanted = match self.operations.as_slice() {
            [] => operation != Operation::Read,
            some => some.contains(&operation),
        };
        let name = if self.pattern.contains('/') { path } else { path.rsplit('/').next().unwrap_or(path) };
        wanted && glob(self.pattern.trim_start_matches('/').as_bytes(), name.as_bytes())
    }
}

/// `*` matches any number of characters, `?` one.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => glob(&pattern[1..], name) || (!name.is_empty() && glob(pattern, &name[1..])),
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &name[1..]),
        (Some(want), Some(have)) if want == have => glob(&pattern[1..], &name[1..]),
        _ => false,
    }
}

/// A byte string with one bit turned over.
pub fn flip_bit(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    let bit = random.below(bytes.len() as u64 * 8);
    if let Some(byte) = flipped.get_mut(bit as usize / 8) {
        *byte ^= 1 << (bit % 8);
    }
    flipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(effect: Effect, operations: &[Operation], pattern: &str, after: u64, times: Option<u64>) -> Rule {
        Rule { effect, operations: operations.to_vec(), pattern: pattern.into(), after, times }
    }

    #[test]
    fn a_rule_fires_where_and_as_often_as_it_says() {
        let mut faults = Faults::default();
        faults.add(rule(Effect::Fail(Errno::IO), &[Operation::Sync], "*.segment", 1, Some(1)));
        let errors: Vec<bool> =
            (0..4).map(|_| faults.judge(Operation::Sync, "trail/1.segment").fail.is_some()).collect();
        assert_eq!(errors, [false, true, false, false]);
        assert_eq!(faults.judge(Operation::Write, "trail/1.segment"), Verdict::default());
        assert_eq!(faults.judge(Operation::Sync, "trail/control"), Verdict::default());
        assert_eq!((faults.fired()[0].seen, faults.fired()[0].fired), (4, 1));
    }

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("*", "a", true),
            ("*.segment", "a.segment", true),
            ("*.segment", "a.segments", false),
            ("?-wal", "a-wal", true),
            ("*-*-*", "a-b", false),
            ("", "a", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
        let with_path = rule(Effect::Lie, &[], "trail/*", 0, None);
        assert!(with_path.matches(Operation::Sync, "trail/control") && !with_path.matches(Operation::Sync, "control"));
    }
}
