//! Rules x connections, here and at PostgreSQL: the same lines of `pg_hba.conf` admit and refuse the same clients, with the same
//! SQLSTATE and message. A machine without PostgreSQL prints that, and the test passes.

use super::directory;
use crate::server::{Running, run, until};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A private PostgreSQL.
struct Postgres {
    dir: TempDir,
    bin: PathBuf,
    port: u16,
}

impl Postgres {
    fn start() -> Option<Postgres> {
        let mut all = (15..=18).map(|v| PathBuf::from(format!("/usr/lib/postgresql/{v}/bin")));
        let Some(bin) = all.find(|bin| bin.join("initdb").exists()) else {
            eprintln!("skipped: no PostgreSQL found under /usr/lib/postgresql");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let postgres = Postgres { dir: TempDir::new().unwrap(), bin, port };
        if rustix::process::geteuid().is_root() {
            Command::new("chown").arg("postgres").arg(postgres.dir.path()).status().unwrap();
        }
        let (data, socket) = (postgres.data(), postgres.dir.path().display());
        let options = format!("-k {socket} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off");
        let log = postgres.dir.path().join("log");
        let started = postgres
            .run("initdb", &["-D", &data, "-U", "holdfast", "--locale=C", "-E", "UTF8", "-A", "trust"])
            && postgres.run("pg_ctl", &["-D", &data, "-o", &options, "-l", &log.display().to_string(), "-w", "start"]);
        if !started {
            eprintln!("skipped: PostgreSQL does not start");
            return None;
        }
        Some(postgres)
    }

    fn data(&self) -> String {
        self.dir.path().join("data").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(self.bin.join(program));
                command
            }
            false => Command::new(self.bin.join(program)),
        };
        let quiet = command.args(arguments).current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"]);
    }
}

/// What a server answers to a client that connects.
async fn answer(port: u16, user: &str, database: &str, password: &str) -> String {
    let config = format!("host=127.0.0.1 port={port} user={user} dbname={database} password={password}");
    match tokio_postgres::connect(&config, NoTls).await {
        Ok(_) => "admitted".into(),
        Err(error) => match error.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => format!("no answer: {error}"),
        },
    }
}

async fn admin(port: u16) -> Client {
    let config = format!("host=127.0.0.1 port={port} user=holdfast dbname=postgres");
    let connected = match tokio_postgres::connect(&config, NoTls).await {
        Ok(connected) => connected,
        Err(_) => tokio_postgres::connect(&config.replace("=postgres", "=holdfast"), NoTls).await.unwrap(),
    };
    tokio::spawn(connected.1);
    connected.0
}

const SCHEMA: &[&str] = &[
    "CREATE ROLE staff",
    "CREATE ROLE ann LOGIN PASSWORD 'secret'",
    "CREATE ROLE bob LOGIN",
    "CREATE ROLE late LOGIN PASSWORD 'secret' VALID UNTIL '2001-01-01'",
    "CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'secret'",
    "GRANT staff TO ann",
    "CREATE DATABASE shop",
    "CREATE DATABASE ann",
    "CREATE DATABASE staff",
    "CREATE DATABASE closed",
    "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
];

const RULES: &[&str] = &[
    "",
    "host all all 127.0.0.1/32 trust",
    "host all all all scram-sha-256",
    "host all all 127.0.0.0/8 reject",
    "host all all 127.0.0.2/32 trust",
    "host all all 126.0.0.0/7 scram-sha-256",
    "host all all 127.0.0.1 255.255.255.255 trust",
    "host all all ::1/128 trust",
    "host all all 0.0.0.0/0 trust",
    "host shop all samehost trust",
    "host all all samenet scram-sha-256",
    "host shop,ann ann,bob all trust",
    "host shop, ann ann, bob all trust",
    "host sameuser all all trust",
    "host samerole all all trust",
    "host samegroup all all scram-sha-256",
    "host all +staff all trust",
    "host all \"+staff\" all trust",
    "host \"all\" all all trust",
    "host all \"all\" all trust",
    "host replication all all trust",
    "hostnossl all all all trust",
    "hostnogssenc all ann all scram-sha-256",
    "local all all trust",
    "host all bob all reject\nhost all all all trust",
    "host shop ann all scram-sha-256\nhost all all all trust",
    "host all all 127.0.0.1/32 trust # host all all all reject\nhost all all all reject",
    "host shop \\\n all all \\\n trust",
    "host\tshop\tann\t127.0.0.1/32\ttrust",
];

/// Sets the rules of a server after one for the test's own superuser, and waits until they are in force.
async fn set_rules(file: &Path, port: u16, rules: &str, number: usize) {
    let own = "local all all trust\nhost all holdfast 127.0.0.1/32 trust\n";
    let text = format!("{own}host all marker_{number} 127.0.0.1/32 reject\n{rules}\n");
    std::fs::write(file, text).unwrap();
    run(&admin(port).await, "SELECT pg_reload_conf()").await;
    let marker = format!("marker_{number}");
    until("the rules are in force", async || {
        answer(port, &marker, "shop", "x").await.contains("pg_hba.conf rejects connection")
    })
    .await;
}

#[tokio::test]
async fn the_same_rules_decide_as_in_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    let server = Running::start_in(directory("", Some("host all holdfast 127.0.0.1/32 trust\n")));
    for port in [postgres.port, server.port] {
        let admin = admin(port).await;
        for statement in SCHEMA {
            run(&admin, statement).await;
        }
    }
    let files = [postgres.dir.path().join("data/pg_hba.conf"), server.dir.path().join("pg_hba.conf")];
    let mut compared = 0;
    for (number, rules) in RULES.iter().enumerate() {
        set_rules(&files[0], postgres.port, rules, number).await;
        set_rules(&files[1], server.port, rules, number).await;
        for user in ["ann", "bob", "late", "staff", "boss", "ghost"] {
            for database in ["shop", "ann", "staff", "closed", "nowhere"] {
                for password in ["secret", "guess"] {
                    let theirs = answer(postgres.port, user, database, password).await;
                    let ours = answer(server.port, user, database, password).await;
                    assert_eq!(ours, theirs, "{rules:?}: {user} {database} {password}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, RULES.len() * 60);
}
