//! The account that PostgreSQL runs as: it refuses to run as root, so root runs it as the user `postgres`, or `nobody`
//! where there is none.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// User and group; none: those of this process.
#[derive(Clone, Copy, Debug)]
pub struct Account(Option<(u32, u32)>);

impl Account {
    pub fn choose() -> anyhow::Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account(None));
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let ids = |name: &str| {
            let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2).map(str::parse::<u32>);
            Some((fields.next()?.ok()?, fields.next()?.ok()?))
        };
        let ids = ids("postgres").or_else(|| ids("nobody")).context(
            "PostgreSQL refuses to run as root, and neither the user postgres nor the user nobody exists to run it as",
        )?;
        Ok(Account(Some(ids)))
    }

    /// Gives it a file or a directory.
    pub fn own(self, path: &Path) -> anyhow::Result<()> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        chown(path, Some(user), Some(group)).with_context(|| format!("cannot change the owner of {}", path.display()))
    }

    /// Makes a directory and gives it to the account.
    pub fn make_dir(self, path: &Path) -> anyhow::Result<()> {
        std::fs::create_dir(path).with_context(|| format!("cannot create {}", path.display()))?;
        self.own(path)
    }

    /// Lets the account pass through a directory, not read it: its name cannot be guessed, and nothing in it is secret.
    pub fn pass_through(self, path: &Path) -> anyhow::Result<()> {
        if self.0.is_some() {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711))?;
        }
        Ok(())
    }

    /// A program to be run as it, in `directory`.
    pub fn command(self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).stdin(Stdio::null());
        if let Some((user, group)) = self.0 {
            // Of the groups of root none is left either.
            command.uid(user).gid(group);
        }
        command
    }
}
