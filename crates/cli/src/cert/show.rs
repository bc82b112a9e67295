//! `holdfast cert show`: what certificates say, and when they expire.

use anyhow::{Context, bail};
use holdfast_types::calendar::civil_from_days;
use holdfast_wire::tls::{CertificateText, certificates_in};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::Exit;

const SECONDS_OF_A_DAY: i64 = 86_400;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cert show ./holdfast-data/tls
  holdfast cert show --json ./holdfast-data/certificates/node.crt

Ends with exit code 1 when one of them has expired.")]
pub struct Show {
    /// A certificate in PEM, or a directory with files *.crt
    #[arg(value_name = "PATH", default_value = "./holdfast-data/tls")]
    path: PathBuf,
    /// Print JSON, one array
    #[arg(long)]
    json: bool,
}

/// A certificate and its file.
struct Found {
    path: PathBuf,
    text: CertificateText,
}

impl Found {
    /// Whole days until it expires; negative when it has.
    fn days_left(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.text.not_after_unix_s.saturating_sub_unsigned(now).div_euclid(SECONDS_OF_A_DAY)
    }

    fn json(&self) -> Value {
        let CertificateText { subject, issuer, serial, hosts, .. } = &self.text;
        json!({
            "file": self.path.display().to_string(),
            "subject": subject,
            "issuer": issuer,
            "serial": serial,
            "hosts": hosts,
            "not_before": date(self.text.not_before_unix_s),
            "not_after": date(self.text.not_after_unix_s),
            "days_left": self.days_left(),
            "expired": self.days_left() < 0,
        })
    }

    fn line(&self) -> String {
        let CertificateText { subject, hosts, .. } = &self.text;
        let hosts = if hosts.is_empty() { String::new() } else { format!(" for {}", hosts.join(", ")) };
        let end = date(self.text.not_after_unix_s);
        let left = match self.days_left() {
            ..0 => format!("expired on {end}"),
            days => format!("valid until {end}, {days} days"),
        };
        format!("holdfast: {}: {subject}{hosts}, {left}", self.path.display())
    }
}

/// The UTC date of a time.
fn date(unix_s: i64) -> String {
    let (year, month, day) = civil_from_days(unix_s.div_euclid(SECONDS_OF_A_DAY));
    format!("{year:04}-{month:02}-{day:02}")
}

pub fn run(arguments: &Show) -> anyhow::Result<ExitCode> {
    let found = find(&arguments.path)?;
    if arguments.json {
        println!("{}", Value::Array(found.iter().map(Found::json).collect()));
    } else {
        found.iter().for_each(|found| println!("{}", found.line()));
    }
    Ok(Exit::of_check(found.iter().all(|found| found.days_left() >= 0)).into())
}

/// Prints what is in a directory, after a command has written it.
pub fn show_dir(dir: &Path) -> anyhow::Result<()> {
    find(dir)?.iter().for_each(|found| println!("{}", found.line()));
    Ok(())
}

fn find(path: &Path) -> anyhow::Result<Vec<Found>> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        paths = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "crt"))
            .collect();
        paths.sort();
    }
    let mut found = Vec::new();
    for path in paths {
        for certificate in certificates_in(&path)? {
            let text =
                CertificateText::parse(&certificate).with_context(|| format!("cannot read {}", path.display()))?;
            found.push(Found { path: path.clone(), text });
        }
    }
    if found.is_empty() {
        bail!("{} has no certificate; make one with: holdfast cert server", path.display());
    }
    Ok(found)
}
