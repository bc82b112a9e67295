//! Roles, passwords and rules of access on a standby: after its promotion it admits whom its master admitted.

use crate::node::{Node, Pair, one, run, succeeds, until};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

const RULES: &str = "\
local all all peer
host all holdfast 127.0.0.1/32 peer
host all guest 127.0.0.1/32 trust
host all app 127.0.0.1/32 scram-sha-256
";

/// Connects as a role; the SQLSTATE of a refusal.
async fn enters(node: &Node, user: &str, password: &str) -> Result<String, SqlState> {
    let string = format!("host=127.0.0.1 port={} user={user} password={password} dbname=holdfast", node.port);
    match tokio_postgres::connect(&string, NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Ok(one(&client, "select current_user").await)
        }
        Err(error) => Err(error.code().unwrap_or_else(|| panic!("{error}")).clone()),
    }
}

/// Sets the rules of a running server.
fn set_rules(node: &Node, rules: &str) {
    std::fs::write(node.dir.join("pg_hba.conf"), rules).unwrap();
    node.hang_up();
}

/// What the node has noted of the rules in the trail.
fn noted(node: &Node) -> Option<String> {
    std::fs::read_to_string(node.dir.join("shared_rules")).ok()
}

/// Waits until a file of a node is equal to a text.
async fn until_file(node: &Node, text: &str) {
    let same = async || std::fs::read_to_string(node.dir.join("pg_hba.conf")).unwrap() == text;
    until("the rules have come", same).await;
}

#[tokio::test]
async fn a_promoted_standby_has_the_roles_the_passwords_and_the_rules() {
    let mut pair = Pair::start("").await;
    let master = pair.a.connect().await;
    run(&master, "create role app login password 'open sesame'").await;
    run(&master, "create role guest login in role app").await;
    run(&master, "create table t (x int); grant select on t to app").await;
    run(&master, "create role locked login password 'open sesame'").await;
    set_rules(&pair.a, RULES);
    until_file(&pair.b, RULES).await;
    pair.until_equal().await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    // While it changes its role it refuses everyone with 57P03; this waits for the end of that.
    drop(pair.b.connect().await);
    assert_eq!(enters(&pair.b, "app", "'open sesame'").await.as_deref(), Ok("app"));
    assert_eq!(enters(&pair.b, "app", "wrong").await, Err(SqlState::INVALID_PASSWORD));
    assert_eq!(enters(&pair.b, "guest", "x").await.as_deref(), Ok("guest"));
    let no_rule = Err(SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    assert_eq!(enters(&pair.b, "locked", "'open sesame'").await, no_rule, "no rule is for it");
    let promoted = pair.b.connect().await;
    run(&promoted, "set role guest; select * from t; reset role").await;
    let before = noted(&pair.b);
    // Its own rules from now on, and they stay over a start.
    let own = RULES.replace("guest", "locked");
    set_rules(&pair.b, &own);
    until("the new rules are in force", async || enters(&pair.b, "locked", "x").await.is_ok()).await;
    until("the new rules are in the trail", async || noted(&pair.b) != before).await;
    pair.b.kill();
    pair.b.start();
    assert_eq!(std::fs::read_to_string(pair.b.dir.join("pg_hba.conf")).unwrap(), own);
    assert_eq!(enters(&pair.b, "locked", "x").await.as_deref(), Ok("locked"));
    assert_eq!(enters(&pair.b, "guest", "x").await, no_rule);
}

/// A directory that was put back, or a mirror that is served, has no files of rules: those in the trail count.
#[tokio::test]
async fn lost_rules_come_back_from_the_trail() {
    let mut pair = Pair::master("");
    set_rules(&pair.a, RULES);
    let client = pair.a.connect().await;
    run(&client, "create role guest login").await;
    until("the rules are in the trail", async || noted(&pair.a).is_some()).await;
    drop(client);
    pair.a.stop();
    for name in ["pg_hba.conf", "pg_ident.conf", "shared_rules"] {
        std::fs::remove_file(pair.a.dir.join(name)).unwrap();
    }
    pair.a.start();
    assert_eq!(std::fs::read_to_string(pair.a.dir.join("pg_hba.conf")).unwrap(), RULES);
    assert_eq!(enters(&pair.a, "guest", "x").await.as_deref(), Ok("guest"));
}
