//! `cargo xtask coverage`: which lines the crates' tests run, with rustc's own instrumentation and the LLVM tools of the
//! same toolchain.
//!
//! The build has a directory of its own below the target directory. A process that a test kills writes no profile, so what
//! only such servers run is missing from the report.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::paths;
use crate::suites::FEATURES;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  cargo xtask coverage --package holdfast-trail\n\n\
    Needs the toolchain's LLVM tools: rustup component add llvm-tools")]
pub struct Arguments {
    /// Only the tests of this crate
    #[arg(long, value_name = "CRATE")]
    package: Option<String>,
}

/// Prints the table of files and writes an HTML report. True when every test passed.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    let (merge, report) = (llvm_tool("llvm-profdata")?, llvm_tool("llvm-cov")?);
    let target = paths::target().join("coverage");
    let profiles = target.join("profiles");
    if profiles.exists() {
        std::fs::remove_dir_all(&profiles).context("removing the profiles of an earlier run")?;
    }
    std::fs::create_dir_all(&profiles)?;
    let objects = test_binaries(&cargo_test(arguments, &target, &["--no-run", "--message-format=json"]))?;
    let passed = cargo_test(arguments, &target, &["--no-fail-fast"]).status().context("starting cargo")?.success();

    let merged = target.join("coverage.profdata");
    let files: Vec<PathBuf> =
        std::fs::read_dir(&profiles)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    run(Command::new(merge).args(["merge", "-sparse", "-o"]).arg(&merged).args(files))?;
    let with_objects = |what: &[&str]| {
        let mut command = Command::new(&report);
        command.args(what).arg(format!("--instr-profile={}", merged.display()));
        command.arg("--ignore-filename-regex=/(registry|rustc|tests)/");
        objects.iter().for_each(|object| _ = command.arg("--object").arg(object));
        command
    };
    run(&mut with_objects(&["report"]))?;
    let html = target.join("html");
    run(with_objects(&["show", "--format=html"]).arg(format!("--output-dir={}", html.display())))?;
    println!("the lines: {}", html.join("index.html").display());
    Ok(passed)
}

fn cargo_test(arguments: &Arguments, target: &Path, more: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("test").current_dir(paths::root());
    match &arguments.package {
        Some(package) => cargo.args(["--package", package]),
        None => cargo.arg("--workspace").args(FEATURES),
    };
    cargo.args(more).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "-C instrument-coverage");
    cargo.env("LLVM_PROFILE_FILE", target.join("profiles/%p-%m.profraw"));
    cargo
}

/// The programs with coverage in them: those of the tests and those that the tests start.
fn test_binaries(cargo: &Command) -> anyhow::Result<Vec<PathBuf>> {
    let mut build = Command::new(cargo.get_program());
    build.args(cargo.get_args()).stderr(std::process::Stdio::inherit());
    build.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    build.current_dir(paths::root());
    let output = build.output().context("starting cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    Ok(executables.collect())
}

/// A tool of the toolchain that compiles; another version may not read its profiles.
fn llvm_tool(name: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "target-libdir"]).output().context("starting rustc")?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let tool = libraries.with_file_name("bin").join(name);
    if !tool.is_file() {
        bail!("{} does not exist; install it with: rustup component add llvm-tools", tool.display());
    }
    Ok(tool)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    anyhow::ensure!(status.success(), "{:?} ended with {status}", command.get_program());
    Ok(())
}
