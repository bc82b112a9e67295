//! The commands of a mounted disk: in its control file, and in `--fault`.
//!
//! ```text
//! cut | restore | sync | clear | seed N | capacity BYTES|none
//! fail sync|write|read|name [PATTERN] [after=N] [times=N] [error=eio|enospc]
//! slow sync|write|read [PATTERN] us=N [after=N] [times=N]
//! lie|flip|misdirect [PATTERN] [after=N] [times=N]
//! cut [PATTERN] after=N
//! ```
//! A command that is not understood changes nothing and says what is wrong with it.

use std::fmt;

use rustix::io::Errno;

use crate::faults::{Effect, Operation, Rule};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Cut,
    Restore,
    /// Makes everything durable.
    Sync,
    /// Forgets all rules.
    Clear,
    Seed(u64),
    Capacity(Option<u64>),
    Rule(Rule),
}

/// Why a command was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotUnderstood(String);

const WORDS: &str = "cut, restore, sync, clear, seed, capacity, fail, slow, lie, flip, misdirect";

fn refuse<T>(what: impl Into<String>) -> Result<T, NotUnderstood> {
    Err(NotUnderstood(what.into()))
}

impl std::str::FromStr for Command {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Command, NotUnderstood> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["cut"] => Ok(Command::Cut),
            ["restore"] => Ok(Command::Restore),
            ["sync"] => Ok(Command::Sync),
            ["clear"] => Ok(Command::Clear),
            ["seed", number] => Ok(Command::Seed(parse("seed", number)?)),
            ["capacity", "none"] => Ok(Command::Capacity(None)),
            ["capacity", bytes] => Ok(Command::Capacity(Some(parse("capacity", bytes)?))),
            [] => refuse(format!("an empty command; there are {WORDS}")),
            _ => rule(&words).map(Command::Rule),
        }
    }
}

fn rule(words: &[&str]) -> Result<Rule, NotUnderstood> {
    let (mut rest, operations) = match words {
        ["fail" | "slow", what, rest @ ..] => (rest, vec![operation(what)?]),
        ["fail" | "slow"] => return refuse(format!("{}: of what? sync, write, read or name", words[0])),
        ["lie", rest @ ..] => (rest, vec![Operation::Sync]),
        ["flip" | "misdirect", rest @ ..] => (rest, vec![Operation::Write]),
        ["cut", rest @ ..] => (rest, Vec::new()),
        [word, ..] => return refuse(format!("there is no command {word}; there are {WORDS}")),
        [] => return refuse("an empty rule"),
    };
    let pattern = match rest {
        [first, others @ ..] if !first.contains('=') => {
            rest = others;
            (*first).to_owned()
        }
        _ => "*".to_owned(),
    };
    let mut parameters = Parameters::default();
    for word in rest {
        parameters.take(word)?;
    }
    let effect = match (words[0], parameters.us) {
        ("slow", Some(delay_us)) => Effect::Slow { delay_us },
        ("slow", None) => return refuse("slow needs us=MICROSECONDS"),
        (_, Some(_)) => return refuse("us= is for slow only"),
        ("fail", None) => Effect::Fail(parameters.error.unwrap_or(Errno::IO)),
        ("lie", None) => Effect::Lie,
        ("flip", None) => Effect::Flip,
        ("misdirect", None) => Effect::Misdirect,
        _ => Effect::Cut,
    };
    if parameters.error.is_some() && words[0] != "fail" {
        return refuse("error= is for fail only");
    }
    // A failure that is not said to be sticky happens once; slowness and lies last until they are cleared.
    let once = matches!(effect, Effect::Cut | Effect::Flip | Effect::Misdirect | Effect::Fail(_));
    let times = match parameters.times {
        Some(times) => times,
        None => once.then_some(1),
    };
    Ok(Rule { effect, operations, pattern, after: parameters.after, times })
}

#[derive(Default)]
struct Parameters {
    after: u64,
    times: Option<Option<u64>>,
    us: Option<u64>,
    error: Option<Errno>,
}

impl Parameters {
    fn take(&mut self, word: &str) -> Result<(), NotUnderstood> {
        match word.split_once('=') {
            Some(("after", number)) => self.after = parse("after", number)?,
            Some(("times", "always")) => self.times = Some(None),
            Some(("times", number)) => self.times = Some(Some(parse("times", number)?)),
            Some(("us", number)) => self.us = Some(parse("us", number)?),
            Some(("error", "eio")) => self.error = Some(Errno::IO),
            Some(("error", "enospc")) => self.error = Some(Errno::NOSPC),
            _ => return refuse(format!("what is {word}? after=N, times=N|always, us=N or error=eio|enospc")),
        }
        Ok(())
    }
}

fn operation(word: &str) -> Result<Operation, NotUnderstood> {
    match word {
        "sync" => Ok(Operation::Sync),
        "write" => Ok(Operation::Write),
        "read" => Ok(Operation::Read),
        "name" => Ok(Operation::Name),
        _ => refuse(format!("there is no operation {word}; there are sync, write, read and name")),
    }
}

fn parse(name: &str, number: &str) -> Result<u64, NotUnderstood> {
    number.parse().or_else(|_| refuse(format!("{name}: {number} is not a whole number")))
}

/// As it is written in a command.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operations.first() {
            Some(Operation::Read) => " read",
            Some(Operation::Write) => " write",
            Some(Operation::Sync) => " sync",
            Some(Operation::Name) => " name",
            None => "",
        };
        match self.effect {
            Effect::Fail(_) => write!(f, "fail{operation} {}", self.pattern)?,
            Effect::Slow { delay_us } => write!(f, "slow{operation} {} us={delay_us}", self.pattern)?,
            Effect::Lie => write!(f, "lie {}", self.pattern)?,
            Effect::Flip => write!(f, "flip {}", self.pattern)?,
            Effect::Misdirect => write!(f, "misdirect {}", self.pattern)?,
            Effect::Cut => write!(f, "cut {}", self.pattern)?,
        }
        if self.after > 0 {
            write!(f, " after={}", self.after)?;
        }
        match self.times {
            Some(times) => write!(f, " times={times}")?,
            None => write!(f, " times=always")?,
        }
        if self.effect == Effect::Fail(Errno::NOSPC) { write!(f, " error=enospc") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "fail sync *.segment times=1",
            "fail write * after=3 times=always error=enospc",
            "slow sync * us=300 times=always",
            "lie control times=always",
            "flip *-wal after=2 times=1",
            "misdirect * times=2",
            "cut * after=100 times=1",
        ] {
            match text.parse() {
                Ok(Command::Rule(rule)) => assert_eq!(rule.to_string(), text),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!("cut".parse(), Ok(Command::Cut));
        assert_eq!("capacity 4096".parse(), Ok(Command::Capacity(Some(4096))));
        let Ok(Command::Rule(rule)) = "fail sync".parse() else { panic!() };
        assert_eq!((rule.times, rule.pattern.as_str()), (Some(1), "*"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("explode", "no command explode"),
            ("fail", "of what"),
            ("fail flush", "no operation flush"),
            ("slow sync", "us="),
            ("lie us=3", "slow only"),
            ("cut after=x", "x is not a whole number"),
            ("flip a b", "what is b"),
            ("", "empty"),
        ] {
            let error = text.parse::<Command>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
