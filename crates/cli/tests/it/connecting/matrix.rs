//! Rules x connections, here and at PostgreSQL: the same lines of `pg_hba.conf` admit and refuse the same clients, with the same
//! SQLSTATE and message. A machine without PostgreSQL prints that, and the test passes.

use super::directory;
use crate::server::{Running, run, until};
use holdfast_testbed::oracle::Postgres;
use std::path::Path;
use tokio_postgres::{Client, NoTls};

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

/// User, database and password of each client: every user in every database, and two with a wrong password.
fn attempts() -> Vec<(&'static str, &'static str, &'static str)> {
    let users = ["ann", "bob", "late", "staff", "boss", "ghost"];
    let databases = ["shop", "ann", "staff", "closed", "nowhere"];
    let each = users.iter().flat_map(|user| databases.iter().map(move |database| (*user, *database, "secret")));
    each.chain([("ann", "shop", "guess"), ("boss", "shop", "guess")]).collect()
}

/// Sets the rules of a server after one for the test's own superuser, and waits until they are in force.
async fn set_rules(file: &Path, port: u16, rules: &str, number: usize) {
    let own = "local all all trust\nhost all holdfast 127.0.0.1/32 trust\n";
    // Rules before these may reject every role, or trust every one: two marks, so that only the new rules answer so.
    let marks = format!("host all marker_{number} 127.0.0.1/32 reject\nhost marker_{number} all 127.0.0.1/32 trust\n");
    let text = format!("{own}{marks}{rules}\n");
    std::fs::write(file, text).unwrap();
    run(&admin(port).await, "SELECT pg_reload_conf()").await;
    let marker = format!("marker_{number}");
    until("the rules are in force", async || {
        answer(port, &marker, "shop", "x").await.contains("pg_hba.conf rejects connection")
            && answer(port, "ann", &marker, "x").await.starts_with("3D000")
    })
    .await;
}

#[tokio::test]
async fn the_same_rules_decide_as_in_postgresql() {
    let Some(postgres) = Postgres::start_listening() else { return };
    let server = Running::start_in(directory("", Some("host all holdfast 127.0.0.1/32 trust\n")));
    for port in [postgres.port, server.port] {
        let admin = admin(port).await;
        for statement in SCHEMA {
            run(&admin, statement).await;
        }
    }
    let files = [postgres.data().join("pg_hba.conf"), server.dir.path().join("pg_hba.conf")];
    let mut compared = 0;
    for (number, rules) in RULES.iter().enumerate() {
        set_rules(&files[0], postgres.port, rules, number).await;
        set_rules(&files[1], server.port, rules, number).await;
        for (user, database, password) in attempts() {
            let theirs = answer(postgres.port, user, database, password).await;
            let ours = answer(server.port, user, database, password).await;
            assert_eq!(ours, theirs, "{rules:?}: {user} {database} {password}");
            compared += 1;
        }
    }
    assert_eq!(compared, RULES.len() * 32);
}
