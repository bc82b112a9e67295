//! A private PostgreSQL on a socket of its own. Without one the tests that need it print that and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

pub struct Postgres {
    dir: TempDir,
    bin: PathBuf,
    as_postgres: bool,
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Postgres {
    pub fn start() -> Option<Postgres> {
        let bin = PathBuf::from("/usr/lib/postgresql/15/bin");
        if !bin.join("initdb").exists() {
            eprintln!("skipped: no PostgreSQL 15 found");
            return None;
        }
        // The path of a socket has at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("hf-oracle").tempdir_in("/tmp").unwrap();
        let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"));
        let postgres = Postgres { dir, bin, as_postgres: root };
        if root {
            Command::new("chown").arg("postgres").arg(postgres.dir.path()).status().unwrap();
        }
        let data = postgres.dir.path().join("data");
        let log = postgres.dir.path().join("log");
        let options = format!("-k {} -p 6545 -c listen_addresses='' -c fsync=off", path(postgres.dir.path()));
        let started = postgres.run("initdb", &["-D", path(&data), "-U", "holdfast", "--locale=C", "-E", "UTF8"])
            && postgres.run("pg_ctl", &["-D", path(&data), "-o", &options, "-l", path(&log), "-w", "start"]);
        assert!(started, "PostgreSQL does not start");
        Some(postgres)
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let program = self.bin.join(program);
        let mut command = match self.as_postgres {
            true => {
                let mut c = Command::new("runuser");
                c.args(["-u", "postgres", "--"]).arg(program);
                c
            }
            false => Command::new(program),
        };
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    }

    pub async fn connect(&self) -> Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.dir.path()).port(6545).user("holdfast").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", path(&self.dir.path().join("data")), "-m", "immediate", "stop"]);
        if self.as_postgres {
            // The directory belongs to another user.
            let _ = std::fs::remove_dir_all(self.dir.path().join("data"));
        }
    }
}
