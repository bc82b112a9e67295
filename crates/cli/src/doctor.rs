//! `holdfast doctor`: whether a machine keeps what it acknowledges. Examines and measures it, or runs the power test with
//! two machines. The exit code is 1 for a bad verdict (or a lost record) and 2 when the machine could not be examined.

use crate::exit::Exit;
use anyhow::Context;
use clap::ValueEnum;
use holdfast_doctor::power_test::{Recorder, WriterOptions, verify, write};
use holdfast_doctor::{Delay, Mirror, Report, Root, Settings, examine, measure, survey};
use holdfast_engine::{CommitDelay, Options};
use holdfast_node::Config;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Examine the machine under a data directory: does its disk keep what it acknowledges?
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast doctor --data /srv/holdfast
  holdfast doctor --data /srv/holdfast --json
  holdfast doctor --data /srv/holdfast --workload mine.sql --clients 1,8,40

Pulling the plug, with a second machine:
  other$   holdfast doctor --power-test recorder --listen 0.0.0.0:5440
  machine$ holdfast doctor --power-test writer --recorder other:5440 --data /srv/holdfast
  (pull the plug; when the power is back:)
  machine$ holdfast doctor --power-test verify --recorder other:5440 --data /srv/holdfast

A running server is not disturbed: a probe file of 1 MiB is written for about two seconds and removed. Exit codes: 0 no
bad verdict, 1 a bad one (or lost records), 2 wrong usage, or the machine could not be examined.")]
pub struct Arguments {
    /// Data directory; if it does not exist, its parent is measured
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// The mirror's directory, as for `holdfast serve` [default: from holdfast.toml]
    #[arg(long, value_name = "DIR")]
    mirror: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Run your own transactions with every sync method and without commit delay, and recommend settings (docs/doctor.md
    /// describes the script)
    #[arg(long, value_name = "FILE", conflicts_with = "power_test")]
    workload: Option<PathBuf>,
    /// --workload: numbers of clients
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,4,16,40", requires = "workload")]
    clients: Vec<usize>,
    /// Pull the plug: which side of the test this is
    #[arg(long, value_enum, value_name = "ROLE")]
    power_test: Option<Role>,
    /// recorder: where it listens
    #[arg(long, value_name = "HOST:PORT", required_if_eq("power_test", "recorder"), requires = "power_test")]
    listen: Option<String>,
    /// writer, verify: where the recorder listens
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_if_eq_any([("power_test", "writer"), ("power_test", "verify")]),
        requires = "power_test"
    )]
    recorder: Option<String>,
    /// writer: end after N seconds [default: when the power goes]; --workload: seconds to measure each point [default: 3]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// On another machine: stores the number of the last acknowledged record.
    Recorder,
    /// On the machine to be tested: writes records until the power goes.
    Writer,
    /// On the machine to be tested, afterwards: checks that it has every acknowledged record.
    Verify,
}

pub fn run(arguments: Arguments) -> ExitCode {
    if let Some(script) = &arguments.workload {
        let Err(error) = workload(&arguments, script);
        eprintln!("holdfast: {}", crate::told(&error));
        return Exit::Usage.into();
    }
    match go(&arguments) {
        Ok(good) => Exit::of_check(good).into(),
        Err(error) => {
            eprintln!("holdfast: {}", crate::told(&error));
            Exit::Usage.into()
        }
    }
}

fn go(arguments: &Arguments) -> anyhow::Result<bool> {
    match (arguments.power_test, &arguments.listen, &arguments.recorder) {
        (Some(Role::Recorder), Some(listen), _) => record(listen),
        (Some(Role::Writer), _, Some(recorder)) => write_until_the_end(arguments, recorder),
        (Some(Role::Verify), _, Some(recorder)) => verified(arguments, recorder),
        _ => {
            let report = examined(&arguments.data, arguments.mirror.as_deref())?;
            if arguments.json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                print!("{}", report.text());
            }
            Ok(!report.has_bad())
        }
    }
}

fn examined(data: &Path, mirror: Option<&Path>) -> anyhow::Result<Report> {
    let directory = existing(data)?;
    let path = directory.to_str().with_context(|| format!("{} is not a name in UTF-8", directory.display()))?;
    let survey = survey(&Root::new("/"), path);
    let mut settings = settings(data);
    if let Some(mirror) = mirror {
        settings.mirror = Some(look_at_mirror(mirror));
    }
    Ok(examine(&survey, &settings, Some(measure(&directory)?)))
}

fn look_at_mirror(mirror: &Path) -> Mirror {
    let directory = existing(mirror).ok();
    let survey = directory.as_deref().and_then(Path::to_str).map(|path| survey(&Root::new("/"), path));
    Mirror { path: mirror.display().to_string(), survey }
}

/// The data directory, or its parent if it does not exist, without links.
fn existing(data: &Path) -> anyhow::Result<PathBuf> {
    let parent = || match data.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        parent => parent,
    };
    let found = if data.exists() { Some(data) } else { parent() };
    let found = found.filter(|directory| directory.is_dir());
    let found = found.with_context(|| format!("neither {} nor its parent exists", data.display()))?;
    found.canonicalize().with_context(|| format!("looking for {}", found.display()))
}

/// Reads the configuration if there is one, and writes none.
fn settings(data: &Path) -> Settings {
    let file = data.join(holdfast_node::config::FILE_NAME);
    let (source, config, problem) = match std::fs::read_to_string(&file) {
        Ok(text) => match Config::parse(&text) {
            Ok(config) => (file.display().to_string(), config, None),
            Err(problem) => (file.display().to_string(), Config::default(), Some(problem)),
        },
        Err(_) => ("the defaults: there is no holdfast.toml".to_owned(), Config::default(), None),
    };
    let Options { sync_method, segment_bytes, redo_bytes_max, commit_delay, .. } = config.options();
    let commit_delay = match commit_delay {
        CommitDelay::Auto => Delay::Auto,
        CommitDelay::Off => Delay::Off,
        CommitDelay::Fixed { delay, .. } => Delay::Fixed { us: delay.as_micros() as u64 },
    };
    let segments_ready = holdfast_trail::TrailOptions::new(data).segments_ready as u64;
    let mirror = config.has_mirror().then(|| look_at_mirror(&config.mirror));
    Settings { source, problem, sync_method, segment_bytes, segments_ready, redo_bytes_max, commit_delay, mirror }
}

/// Becomes the lab's program, which runs the script; its exit codes are those of this command.
fn workload(arguments: &Arguments, script: &Path) -> anyhow::Result<Infallible> {
    let clients = arguments.clients.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut words: Vec<OsString> = vec!["workload".into(), "--clients".into(), clients.into()];
    words.extend(["--data".into(), existing(&arguments.data)?.into()]);
    if let Some(seconds) = arguments.seconds {
        words.extend(["--seconds".into(), seconds.to_string().into()]);
    }
    if arguments.json {
        words.push("--json".into());
    }
    words.extend(["--".into(), script.into()]);
    crate::lab::replace_process(&words)
}

fn record(listen: &str) -> anyhow::Result<bool> {
    let recorder = Recorder::listen(listen)?;
    println!("holdfast: recording on {}", recorder.address()?);
    recorder.serve(|what| println!("{what}"))?;
    Ok(true)
}

fn write_until_the_end(arguments: &Arguments, recorder: &str) -> anyhow::Result<bool> {
    let options = WriterOptions {
        directory: existing(&arguments.data)?,
        recorder: recorder.to_owned(),
        sync_method: settings(&arguments.data).sync_method,
        time_max: arguments.seconds.map(Duration::from_secs),
    };
    println!("writing to {} with {}", options.directory.display(), options.sync_method.name());
    let last = write(&options, |number| println!("{number} records acknowledged; pull the plug when you like"))?;
    println!("{last} records acknowledged, and ended by itself");
    Ok(true)
}

fn verified(arguments: &Arguments, recorder: &str) -> anyhow::Result<bool> {
    let outcome = verify(&existing(&arguments.data)?, recorder)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
        return Ok(outcome.lost == 0);
    }
    let (told, found, looked_for) = (outcome.acknowledged, outcome.found, outcome.looked_for);
    println!("acknowledged up to {told}, found up to {found}, looked for the last {looked_for}");
    match outcome.first_lost {
        None => println!("lost 0: nothing that was acknowledged is gone"),
        Some(first) => println!(
            "LOST {} acknowledged records, the first is {first}: some layer acknowledges what it does not have",
            outcome.lost
        ),
    }
    Ok(outcome.lost == 0)
}
