//! The programs the client tests need: found on the machine, or installed below the target directory.
//!
//! System packages are `.ci/run`'s business, since they need root. What an unprivileged user can install (Python
//! packages, the JDBC driver, the Go module) is installed here, once, and again when its list changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

pub use holdfast_testbed::find;

use crate::paths;

/// Fails with the names of the programs that are missing.
pub fn require(programs: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { bail!("not installed: {}", missing.join(", ")) }
}

/// A Python interpreter with psycopg 3.
pub fn python_with_psycopg() -> anyhow::Result<PathBuf> {
    require(&["python3"])?;
    let environment = paths::tools().join("python");
    let python = environment.join("bin/python");
    let requirements = paths::client("psycopg").join("requirements.txt");
    once(&environment, &requirements, || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements))
    })?;
    Ok(python)
}

/// A class path with the driver and the compiled client.
pub fn jdbc_class_path() -> anyhow::Result<String> {
    require(&["java", "javac", "mvn"])?;
    let directory = paths::tools().join("jdbc");
    let source = paths::client("jdbc");
    let (libraries, classes) = (directory.join("lib"), directory.join("classes"));
    once(&directory, &source.join("pom.xml"), || {
        run(Command::new("mvn")
            .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
            .arg(format!("-DoutputDirectory={}", libraries.display()))
            .current_dir(&source))
    })?;
    let class_path = format!("{}/*:{}", libraries.display(), classes.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(source.join("src/main/java/holdfast"))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    run(Command::new("javac").args(["-encoding", "UTF-8", "-cp", &class_path, "-d"]).arg(&classes).args(&files))?;
    Ok(class_path)
}

/// The directory with the Node.js client and its packages, pinned by package-lock.json.
pub fn node_client() -> anyhow::Result<PathBuf> {
    require(&["node", "npm"])?;
    let (directory, source) = (paths::tools().join("node"), paths::client("node"));
    once(&directory, &source.join("package-lock.json"), || {
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(file), directory.join(file))?;
        }
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&directory))
    })?;
    std::fs::copy(source.join("access.js"), directory.join("access.js"))?;
    Ok(directory)
}

/// The compiled Go client.
pub fn pgx_client() -> anyhow::Result<PathBuf> {
    go_program("pgx")
}

/// The compiled program that records histories and judges them.
pub fn histories_judge() -> anyhow::Result<PathBuf> {
    go_program("histories")
}

/// Builds the Go program in a directory below `tests/clients`, its modules pinned by go.sum.
fn go_program(name: &str) -> anyhow::Result<PathBuf> {
    require(&["go"])?;
    let program = paths::tools().join(format!("{name}-client"));
    std::fs::create_dir_all(paths::tools())?;
    run(Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(paths::client(name)))?;
    Ok(program)
}

/// Does the work unless the directory already holds what this version of `list` asked for.
fn once(directory: &Path, list: &Path, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let wanted = std::fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let done = directory.with_extension("done");
    if std::fs::read_to_string(&done).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("  installing what {} lists", list.display());
    std::fs::create_dir_all(directory)?;
    work()?;
    std::fs::write(&done, wanted).with_context(|| format!("writing {}", done.display()))
}

/// Runs a command to its end; its output is shown only when it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&text).trim());
    }
    Ok(())
}
