//! What a new user meets: the directory that a server is given, the options that it is started with.

use crate::server::{Running, fails_to_start, one, until};
use holdfast_store::sqlite::{Conn, OpenFlags};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Of a file that a running server has removed meanwhile: none.
fn mode(path: &Path) -> u32 {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => 0,
        metadata => metadata.unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o777,
    }
}

/// Every file and directory from `path` on down that another user has a right to.
fn open_to_others(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    if mode(path) & 0o077 != 0 {
        found.push(format!("{} {:o}", path.display(), mode(path)));
    }
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        found.extend(entries.filter(|entry| entry.exists()).flat_map(|entry| open_to_others(&entry)));
    }
    found
}

fn holdfast(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A SQLite file that other users may read.
fn sqlite_file(path: &Path) {
    let flags = OpenFlags { write: true, create: true };
    let mut file = Conn::open(path.to_str().unwrap(), flags, Some(c"unix")).unwrap();
    file.exec("create table t(id integer primary key, v text); insert into t values(1, 'a')").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

#[tokio::test]
async fn only_its_owner_can_read_a_data_directory() {
    let dir = TempDir::new().unwrap();
    let (data, mirror, file) = (dir.path().join("new/data"), dir.path().join("mirror"), dir.path().join("shop.db"));
    sqlite_file(&file);
    let (code, _, error) = holdfast(&["import", file.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(open_to_others(&data), [""; 0], "an import makes private files");
    fs::write(data.join("holdfast.toml"), format!("log_directory = \"logs\"\nmirror = \"{}\"\n", mirror.display()))
        .unwrap();
    let server = Running::start_on(&data);
    let client = server.connect_to("shop").await;
    client.batch_execute("create table big(x int); insert into big values (1), (2)").await.unwrap();
    client.batch_execute("vacuum").await.unwrap();
    assert_eq!(open_to_others(&data), [""; 0], "a VACUUM, a log, a start make private files");
    assert_eq!(open_to_others(&mirror), [""; 0]);
}

#[tokio::test]
async fn a_directory_of_an_earlier_version_is_tightened() {
    let (status, dir) = tokio::task::spawn_blocking(|| Running::start().stop()).await.unwrap();
    assert!(status.success());
    for entry in ["", "volumes", "trail"] {
        fs::set_permissions(dir.path().join(entry), Permissions::from_mode(0o755)).unwrap();
    }
    for entry in ["databases.toml", "trail/control"] {
        fs::set_permissions(dir.path().join(entry), Permissions::from_mode(0o644)).unwrap();
    }
    let server = Running::start_in(dir);
    assert_eq!(open_to_others(server.dir.path()), [""; 0]);
    let log = server.log();
    assert!(log.contains(" INFO ") && log.contains("5 entries had permissions for other users"), "{log}");
}

#[test]
fn a_directory_of_other_files_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("photo.jpg"), "of the sea").unwrap();
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["import", "/dev/null"][..]] {
        let (code, _, error) = holdfast(&[arguments, &["--data", dir.path().to_str().unwrap()]].concat());
        assert_eq!(code, Some(1), "{arguments:?}");
        let says = error.contains("is not empty and is not a data directory") && error.contains("photo.jpg");
        assert!(says && error.contains("--data"), "{arguments:?}: {error}");
    }
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["photo.jpg"]);
}

#[test]
fn a_failed_first_start_leaves_nothing_behind() {
    let server = Running::start();
    let dir = TempDir::new().unwrap();
    let listen = format!("127.0.0.1:{}", server.port);
    let (status, message) = fails_to_start(&dir.path().join("deep/data"), &listen);
    assert_eq!(status.code(), Some(1));
    assert!(message.contains("another program uses port") && message.contains("--listen"), "{message}");
    assert!(!dir.path().join("deep").exists(), "it made the directory and both are gone");
    let (_, _) = fails_to_start(dir.path(), &listen);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a directory that was there stays, empty");
}

#[tokio::test]
async fn a_host_name_is_listened_on() {
    let server = Running::start_with(&["--listen", "localhost:0"]);
    assert_eq!(one(&server.connect().await, "select 1").await, "1");
    let dir = TempDir::new().unwrap();
    for (listen, says) in [("localhost", "the port is missing"), ("nosuch.invalid:5433", "nosuch.invalid:5433")] {
        let (status, message) = fails_to_start(dir.path(), listen);
        assert!(!status.success() && message.contains(says), "{listen}: {message}");
    }
}

#[test]
fn a_setting_that_is_wrong_is_explained() {
    let dir = TempDir::new().unwrap();
    for (text, says) in [
        ("connection_max = 3", "line 1: there is no setting \"connection_max\"; did you mean \"connections_max\"?"),
        ("workers = 100000", "workers = 100000 is too large, the most is 512"),
        (
            "memory_bytes_max = \"lots\"",
            "it must be a size in bytes such as 268435456, or one with a unit such as \"256MB\"",
        ),
        ("log = \"verbose\"", "levels are error, warn, info"),
    ] {
        fs::write(dir.path().join("holdfast.toml"), text).unwrap();
        let (status, message) = fails_to_start(dir.path(), "127.0.0.1:0");
        assert_eq!(status.code(), Some(1));
        assert!(message.contains(says), "{text}: {message}");
        assert!(message.lines().count() == 1, "one line: {message}");
    }
}

#[tokio::test]
async fn units_the_version_and_the_archive_at_a_start() {
    let dir = TempDir::new().unwrap();
    let text = "workers = 3\nmemory_bytes_max = \"64MB\"\nstatement_timeout_ms = \"10s\"\narchive = \"/nonexistent/archive\"\n";
    fs::write(dir.path().join("holdfast.toml"), text).unwrap();
    let server = Running::start_in(dir);
    assert_eq!(one(&server.connect().await, "show statement_timeout").await, "10000");
    let log = server.log();
    let version = format!("holdfast {} starts", env!("CARGO_PKG_VERSION"));
    assert!(log.contains(&version), "{log}");
    let warning = log.lines().find(|line| line.contains("/nonexistent/archive")).unwrap_or_default();
    assert!(
        warning.contains("WARN") && warning.contains("does not exist") && warning.contains("nothing is archived"),
        "{log}"
    );
    let (_, version, _) = holdfast(&["--version"]);
    assert_eq!(version.trim(), format!("holdfast {}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn what_is_logged_is_a_setting_and_read_again_at_sighup() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("holdfast.toml"), "log = \"warn\"\n").unwrap();
    let server = Running::start_in(dir);
    assert!(!server.log().contains("data directory opened"), "that is INFO");
    fs::write(server.dir.path().join("holdfast.toml"), "log = \"info\"\n").unwrap();
    server.hang_up();
    until("the new level is in force", async || server.log().contains("log = \"info\"")).await;
    fs::write(server.dir.path().join("holdfast.toml"), "log = \"loud\"\n").unwrap();
    server.hang_up();
    until("a wrong one is a warning", async || server.log().contains("the log levels stay as they are")).await;
    assert_eq!(one(&server.connect().await, "select 1").await, "1");
}

#[test]
fn every_command_has_an_example_and_the_exit_codes_are_one_table() {
    let (_, help, _) = holdfast(&["--help"]);
    for code in ["0 ", "1 ", "2 ", "141 "] {
        assert!(help.contains(&format!("\n  {code}")), "{code}: {help}");
    }
    let mut commands = vec![vec![]];
    while let Some(command) = commands.pop() {
        let (code, help, _) = holdfast(&[&command[..], &["--help"]].concat());
        assert_eq!(code, Some(0), "{command:?}");
        let has_example = help.contains("Example") && help.contains("\n  holdfast ") || help.contains("  mkdir mnt");
        assert!(has_example, "{command:?} has no example:\n{help}");
        let below = help.split("Commands:\n").nth(1).unwrap_or_default();
        for line in below.lines().take_while(|line| line.starts_with("  ")) {
            let name = line.split_whitespace().next().unwrap_or_default();
            // A long description continues on the next line, further to the right. The lab is a program of its own.
            if line.starts_with("   ") || matches!(name, "help" | "lab") || command.len() > 2 {
                continue;
            }
            let name: &'static str = name.to_owned().leak();
            commands.push([&command[..], &[name]].concat());
        }
    }
    let quiet =
        Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("serve").arg("--nosuch").stderr(Stdio::null()).status();
    assert_eq!(quiet.unwrap().code(), Some(2));
}
