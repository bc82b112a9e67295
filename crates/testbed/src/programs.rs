//! PostgreSQL's programs, found on the PATH or where Debian keeps them, and the account that they run as.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{Account, Address, USER};

/// See the module.
#[derive(Clone, Debug)]
pub struct Programs {
    bin: PathBuf,
    pub account: Account,
}

impl Programs {
    /// Those on the PATH, else the newest that Debian's packages have brought.
    pub fn find() -> anyhow::Result<Programs> {
        let initdb = find("initdb").context(
            "there is no PostgreSQL here: neither the PATH nor /usr/lib/postgresql/*/bin has initdb; install the \
             postgresql package",
        )?;
        // Other programs are taken from the same version.
        let real = initdb.canonicalize()?;
        let bin = real.parent().context("initdb has no parent directory")?.to_owned();
        Ok(Programs { bin, account: Account::choose()? })
    }

    /// Those of one version, as Debian's packages have them.
    pub fn of_version(version: u32) -> anyhow::Result<Option<Programs>> {
        let bin = PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
        let there = bin.join("initdb").is_file();
        there.then(|| Ok(Programs { bin, account: Account::choose()? })).transpose()
    }

    /// A program's file.
    pub fn file(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }

    /// A program, run as the account in `directory`.
    pub fn command(&self, program: &str, directory: &Path) -> Command {
        self.account.command(&self.file(program), directory)
    }

    /// Makes a data directory, unsynced. The directory in which it is belongs to the account.
    pub fn initdb(&self, data: &Path, options: &[&str]) -> anyhow::Result<()> {
        let home = data.parent().context("the data directory lies in one of ours")?;
        let mut command = self.command("initdb", home);
        command.arg("-D").arg(data).args(["-U", USER, "--auth=trust", "--encoding=UTF8", "--no-sync"]).args(options);
        run(command).context("cannot create PostgreSQL's data directory").map(drop)
    }

    /// The server on a data directory. `sockets`: the directory of its socket; none: it has none, as not every file system has
    /// them.
    pub fn server<S: AsRef<str>>(
        &self,
        data: &Path,
        address: Address,
        sockets: Option<&Path>,
        settings: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.command("postgres", data.parent().unwrap_or(data));
        command.arg("-D").arg(data).args(["-p", &address.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        let sockets = sockets.map(|directory| directory.display().to_string()).unwrap_or_default();
        command.arg("-c").arg(format!("unix_socket_directories={sockets}"));
        for setting in settings {
            command.args(["-c", setting.as_ref()]);
        }
        command
    }
}

/// A program on the PATH or among PostgreSQL's own, which Debian keeps off the PATH: there the newest.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let packages = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = packages
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    let debian = versions.into_iter().map(|(_, bin)| bin);
    std::env::split_paths(&path).chain(debian).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Runs a command to its end; its output is part of the error when it fails.
pub fn run(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{} failed ({}):\n{text}{}",
        Path::new(command.get_program()).display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}
