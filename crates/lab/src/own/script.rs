//! A script of a person's own transactions.
//!
//! ```text
//! CREATE TABLE account (id int PRIMARY KEY, v int);       what comes first is run once
//! INSERT INTO account SELECT g, 0 FROM generate_series(1, 1000) g;
//! \transaction 3                                          three times as often as the next
//! \set id random(1, 1000)                                 a value for each round
//! BEGIN;
//! UPDATE account SET v = v + 1 WHERE id = :id;
//! COMMIT;
//! \transaction
//! SELECT v FROM account WHERE id = 1;
//! ```
//!
//! A message is everything up to a line that ends with `;`: two statements on one line travel together, as with
//! pgbench's `\;`. `:client` is the client's number from 0. Comments are lines that begin with `--`.

use anyhow::{Context, bail};
use std::path::Path;

#[derive(Debug, Default, PartialEq)]
pub struct Script {
    /// Messages run once.
    pub set_up: Vec<String>,
    pub transactions: Vec<Transaction>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Transaction {
    pub weight: u64,
    pub steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
pub enum Step {
    /// A variable and the bounds of its value.
    Set(String, i64, i64),
    Message(String),
}

impl Script {
    pub fn read(path: &Path) -> anyhow::Result<Script> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Script::parse(&text).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str) -> anyhow::Result<Script> {
        let mut script = Script::default();
        let mut message = String::new();
        for (number, line) in text.lines().enumerate() {
            let at = || format!("line {}: {line}", number + 1);
            let trimmed = line.trim();
            if trimmed.starts_with("--") || trimmed.is_empty() {
                continue;
            }
            if let Some(command) = trimmed.strip_prefix('\\') {
                if !message.is_empty() {
                    bail!("{}: the statement before it does not end with ;", at());
                }
                script.command(command).with_context(at)?;
                continue;
            }
            message += line;
            message.push('\n');
            if trimmed.ends_with(';') {
                script.add(std::mem::take(&mut message).trim_end().to_owned());
            }
        }
        if !message.is_empty() {
            bail!("the last statement does not end with ;");
        }
        if script.transactions.is_empty() {
            bail!("the script has no \\transaction line; put one before the statements that are measured");
        }
        if script.transactions.iter().any(|transaction| transaction.is_empty()) {
            bail!("a \\transaction has no statement");
        }
        Ok(script)
    }

    fn command(&mut self, command: &str) -> anyhow::Result<()> {
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match word {
            "transaction" => {
                let weight = if rest.trim().is_empty() { Ok(1) } else { rest.trim().parse() };
                let weight = weight.ok().filter(|weight| (1..=1000).contains(weight));
                let weight = weight.context("a weight is a number from 1 to 1000")?;
                self.transactions.push(Transaction { weight, steps: Vec::new() });
            }
            "set" => {
                let (name, value) = rest.trim().split_once(char::is_whitespace).context("expected \\set NAME VALUE")?;
                let (least, most) = bounds(value.trim())?;
                let last = self.transactions.last_mut().context("\\set belongs in a \\transaction")?;
                last.steps.push(Step::Set(name.to_owned(), least, most));
            }
            _ => bail!("unknown command; the commands are \\transaction [WEIGHT] and \\set NAME random(LEAST, MOST)"),
        }
        Ok(())
    }

    fn add(&mut self, message: String) {
        match self.transactions.last_mut() {
            Some(transaction) => transaction.steps.push(Step::Message(message)),
            None => self.set_up.push(message),
        }
    }
}

impl Transaction {
    fn is_empty(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Message(_)))
    }
}

/// `5` or `random(1, 100)`.
fn bounds(value: &str) -> anyhow::Result<(i64, i64)> {
    if let Ok(number) = value.parse() {
        return Ok((number, number));
    }
    let inner = value.strip_prefix("random(").and_then(|rest| rest.strip_suffix(')'));
    let (least, most) =
        inner.and_then(|inner| inner.split_once(',')).context("a value is a number or random(LEAST, MOST)")?;
    let (least, most): (i64, i64) = (least.trim().parse()?, most.trim().parse()?);
    if least > most {
        bail!("random({least}, {most}) is empty: the first number is larger");
    }
    Ok((least, most))
}

/// Puts values in for `:name`. A `::type` and a `:name` that is not set stay as they are.
pub fn with_values(message: &str, values: &[(&str, i64)]) -> String {
    let mut text = String::with_capacity(message.len() + 16);
    let mut rest = message;
    while let Some(at) = rest.find(':') {
        let after = &rest[at + 1..];
        let length = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
        let value = values.iter().rev().find(|(name, _)| *name == &after[..length]);
        let is_cast = rest[..at].ends_with(':') || text.ends_with(':') && at == 0;
        text += &rest[..at];
        match value.filter(|_| !is_cast) {
            Some((_, value)) => text += &value.to_string(),
            None => text += &rest[at..at + 1 + length],
        }
        rest = &after[length..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_set_up_and_weighted_transactions() {
        let text = "-- mine\nCREATE TABLE t (a int);\n\\transaction 3\n\\set a random(1, 9)\nBEGIN;\nINSERT INTO t\n\
                    VALUES (:a);\nCOMMIT;\n\\transaction\n\\set b 7\nSELECT 1; SELECT :b;\n";
        let script = Script::parse(text).unwrap();
        assert_eq!(script.set_up, ["CREATE TABLE t (a int);"]);
        assert_eq!(script.transactions[0].weight, 3);
        assert_eq!(script.transactions[0].steps[0], Step::Set("a".into(), 1, 9));
        assert_eq!(script.transactions[0].steps[2], Step::Message("INSERT INTO t\nVALUES (:a);".into()));
        assert_eq!(
            script.transactions[1].steps,
            [Step::Set("b".into(), 7, 7), Step::Message("SELECT 1; SELECT :b;".into())]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, part) in [
            ("SELECT 1;", "no \\transaction line"),
            ("\\transaction\n", "no statement"),
            ("\\transaction\nSELECT 1", "does not end with ;"),
            ("\\transaction 0\nSELECT 1;", "line 1"),
            ("\\set a 1\n", "belongs in a"),
            ("\\transaction\n\\set a random(2, 1)\nSELECT 1;", "random(2, 1) is empty"),
            ("\\transaction\n\\set a x\nSELECT 1;", "line 2"),
            ("\\transaction\n\\sleep 1\nSELECT 1;", "unknown command"),
            ("\\transaction\nSELECT\n\\set a 1\n", "line 3"),
        ] {
            let message = format!("{:#}", Script::parse(text).unwrap_err());
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    #[test]
    fn values_are_put_in_and_casts_are_left_alone() {
        let values = [("a", 1), ("ab", 2), ("a", 3)];
        assert_eq!(with_values("SELECT :a, :ab, :abc, x::a, ':b' :", &values), "SELECT 3, 2, :abc, x::a, ':b' :");
    }
}
