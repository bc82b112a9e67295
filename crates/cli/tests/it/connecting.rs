//! Who may connect: rules, passwords, local users, and the limits of sessions, with real clients.

mod matrix;
mod tls;

use crate::server::{Running, fails_to_start, one, run, state, until};
use holdfast_seams::testing::skipped;
use std::process::Command;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// What a refused client gets.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    state: String,
    message: String,
}

/// Connects; `how`: user, password, database as a connection string has them.
async fn try_to_connect(server: &Running, how: &str) -> Result<Client, Refused> {
    let config = format!("host=127.0.0.1 port={} dbname=holdfast {how}", server.port);
    match tokio_postgres::connect(&config, NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Ok(client)
        }
        Err(error) => {
            let said = error.as_db_error().map(|e| (e.code().code().to_owned(), e.message().to_owned()));
            let (state, message) = said.unwrap_or_else(|| (String::new(), error.to_string()));
            Err(Refused { state, message })
        }
    }
}

async fn refused(server: &Running, how: &str) -> (String, String) {
    match try_to_connect(server, how).await {
        Ok(_) => panic!("{how} was admitted"),
        Err(Refused { state, message }) => (state, message),
    }
}

/// Settings without delays after failures, and `more`.
fn directory(more: &str, hba: Option<&str>) -> TempDir {
    let dir = TempDir::new().unwrap();
    let settings = format!("authentication_failure_delay_max_ms = 0\n{more}\n");
    std::fs::write(dir.path().join("holdfast.toml"), settings).unwrap();
    if let Some(hba) = hba {
        std::fs::write(dir.path().join("pg_hba.conf"), hba).unwrap();
    }
    dir
}

/// psql as another user of the operating system; `None` where this process cannot become one, or there is no psql.
fn psql_as(os_user: &str, port: u16, role: &str, password: Option<&str>) -> Option<(bool, String)> {
    if !rustix::process::geteuid().is_root() || !["/usr/bin/psql", "/usr/local/bin/psql"].iter().any(exists) {
        skipped("needs root, to become another user, and psql");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", os_user, "--clear-groups", "psql", "-X", "-A", "-t", "-w", "-h", "127.0.0.1", "-p"]);
    command.arg(port.to_string()).args(["-U", role, "-c", "select current_user", "holdfast"]);
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/local/bin").env("PGPASSFILE", "/nonexistent").current_dir("/");
    command.envs(password.map(|password| ("PGPASSWORD", password)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), said.trim().to_owned()))
}

fn exists(path: &&str) -> bool {
    std::path::Path::new(path).exists()
}

#[tokio::test]
async fn the_operator_needs_no_password_and_other_local_users_do() {
    let server = Running::start_in(directory("", None));
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT current_user").await, "holdfast");
    let Some((admitted, said)) = psql_as("nobody", server.port, "holdfast", None) else { return };
    assert!(!admitted && said.contains("no password supplied"), "{said}");
    let wrong = "password authentication failed for user \"holdfast\"";
    let (admitted, said) = psql_as("nobody", server.port, "holdfast", Some("guess")).unwrap();
    assert!(!admitted && said.contains(wrong), "holdfast has no password yet: {said}");
    run(&client, "ALTER ROLE holdfast PASSWORD 'correct horse'").await;
    assert_eq!(psql_as("nobody", server.port, "holdfast", Some("correct horse")).unwrap(), (true, "holdfast".into()));
    let (admitted, said) = psql_as("nobody", server.port, "holdfast", Some("guess")).unwrap();
    assert!(!admitted && said.contains(wrong), "{said}");
    // A local user connects as the role of its own name.
    run(&client, "CREATE ROLE nobody LOGIN").await;
    assert_eq!(psql_as("nobody", server.port, "nobody", None).unwrap(), (true, "nobody".into()));
    assert!(!psql_as("daemon", server.port, "nobody", None).unwrap().0);
}

/// Commands that use the link between nodes, which copies every database, are for the server's user and root.
#[tokio::test]
async fn commands_of_another_local_user_are_refused_with_the_next_step() {
    let server = Running::start_in(directory("", None));
    if !rustix::process::geteuid().is_root() {
        return skipped("needs root, to become another user");
    }
    // Where the other user can read it.
    let scratch = TempDir::new().unwrap();
    let program = scratch.path().join("holdfast");
    std::fs::copy(env!("CARGO_BIN_EXE_holdfast"), &program).unwrap();
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).unwrap();
    for path in [scratch.path(), &place] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let at = format!("127.0.0.1:{}", server.port);
    for arguments in [
        &["standby", "status", "--at", &at][..],
        &["dump", "create", "--at", &at, "--to", place.to_str().unwrap()],
        &["standby", "stop", "--at", &at],
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "nobody", "--clear-groups"]).arg(&program).args(arguments).current_dir("/");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = said.contains("of the operating system may not do this at this server");
        assert!(!output.status.success() && is_refused && said.contains("as the user that runs the server"), "{said}");
    }
    // Of the server's own user.
    let output = Command::new(&program).args(["standby", "status", "--at", &at]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn an_unknown_user_is_refused_like_a_wrong_password() {
    let hba = "local all all peer\nhost all all samehost scram-sha-256\n";
    let operator = "host all holdfast 127.0.0.1/32 peer\n";
    let server = Running::start_in(directory("", Some(&format!("{operator}{hba}"))));
    let client = server.connect().await;
    run(&client, "CREATE ROLE app LOGIN PASSWORD 'secret'; CREATE ROLE bare LOGIN").await;
    run(&client, "CREATE ROLE late LOGIN PASSWORD 'secret' VALID UNTIL '2001-01-01'").await;
    assert!(try_to_connect(&server, "user=app password=secret").await.is_ok());
    for (user, password) in [("app", "Secret"), ("app", "x"), ("bare", "x"), ("late", "secret"), ("ghost", "secret")] {
        let said = refused(&server, &format!("user={user} password={password}")).await;
        assert_eq!(said, ("28P01".into(), format!("password authentication failed for user \"{user}\"")));
    }
    let log = server.log();
    for (user, why) in [
        ("app", "wrong password"),
        ("bare", "the role has no password"),
        ("late", "expired (VALID UNTIL)"),
        ("ghost", "the role does not exist"),
    ] {
        let is_it =
            |line: &&str| line.contains(&format!("{user:?}")) && line.contains(why) && line.contains("127.0.0.1");
        let line = log.lines().find(is_it).unwrap_or_else(|| panic!("{user}: {why}: {log}"));
        assert!(line.contains("line=3") && line.contains("scram-sha-256"), "{line}");
    }
    assert!(!log.contains("secret\"") && !log.contains("SCRAM-SHA-256$"), "never a password or verifier");
}

#[tokio::test]
async fn a_password_changes_for_the_next_connection() {
    let server = Running::start_in(directory("", None));
    let client = server.connect().await;
    run(&client, "CREATE ROLE app LOGIN PASSWORD 'one'").await;
    let open = try_to_connect(&server, "user=app password=one").await.unwrap();
    run(&client, "ALTER ROLE app PASSWORD 'two'").await;
    assert_eq!(refused(&server, "user=app password=one").await.0, "28P01");
    assert!(try_to_connect(&server, "user=app password=two").await.is_ok());
    assert_eq!(one(&open, "SELECT current_user").await, "app", "the open session stays");
    // A verifier is carried over as it is: PostgreSQL's of RFC 7677's example.
    run(
        &client,
        "ALTER ROLE app PASSWORD 'SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
         wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU='",
    )
    .await;
    assert!(try_to_connect(&server, "user=app password=pencil").await.is_ok());
}

#[tokio::test]
async fn roles_and_databases_have_conditions_of_their_own() {
    let server = Running::start_in(directory("", Some("host all all 127.0.0.1/32 trust\n")));
    let client = server.connect().await;
    let said = |state: &str, message: &str| (state.to_owned(), message.to_owned());
    assert_eq!(refused(&server, "user=ghost").await, said("28000", "role \"ghost\" does not exist"));
    run(&client, "CREATE ROLE staff").await;
    assert_eq!(refused(&server, "user=staff").await, said("28000", "role \"staff\" is not permitted to log in"));
    run(&client, "CREATE ROLE few LOGIN CONNECTION LIMIT 1").await;
    let first = try_to_connect(&server, "user=few").await.unwrap();
    assert_eq!(refused(&server, "user=few").await, said("53300", "too many connections for role \"few\""));
    drop(first);
    until("the place is given back", async || try_to_connect(&server, "user=few").await.is_ok()).await;
    run(&client, "CREATE ROLE app LOGIN").await;
    run(&client, "CREATE DATABASE shop").await;
    run(&client, "REVOKE CONNECT ON DATABASE shop FROM PUBLIC").await;
    let denied = said("42501", "permission denied for database \"shop\"");
    assert_eq!(refused(&server, "user=app dbname=shop").await, denied);
    run(&client, "GRANT CONNECT ON DATABASE shop TO app").await;
    let first = try_to_connect(&server, "user=app dbname=shop").await.unwrap();
    run(&client, "ALTER DATABASE shop CONNECTION LIMIT 1").await;
    let full = said("53300", "too many connections for database \"shop\"");
    assert_eq!(refused(&server, "user=app dbname=shop").await, full);
    assert!(try_to_connect(&server, "user=holdfast dbname=shop").await.is_ok(), "superusers are not limited");
    assert_eq!(one(&first, "SELECT 1").await, "1");
}

#[tokio::test]
async fn the_last_places_are_for_superusers() {
    let settings = "connections_max = 5\nsuperuser_reserved_connections = 2";
    let server = Running::start_in(directory(settings, Some("host all all 127.0.0.1/32 trust\n")));
    let operator = server.connect().await;
    run(&operator, "CREATE ROLE app LOGIN").await;
    assert_eq!(one(&operator, "SHOW superuser_reserved_connections").await, "2");
    let apps = [try_to_connect(&server, "user=app").await.unwrap(), try_to_connect(&server, "user=app").await.unwrap()];
    let reserved = "remaining connection slots are reserved for non-replication superuser connections";
    assert_eq!(refused(&server, "user=app").await, ("53300".into(), reserved.into()));
    let superusers = [server.connect().await, server.connect().await];
    let full = ("53300".into(), "sorry, too many clients already".into());
    assert_eq!(refused(&server, "user=holdfast").await, full);
    drop((apps, superusers));
}

#[tokio::test]
async fn an_address_has_so_many_sessions() {
    let server = Running::start_in(directory("connections_per_address_max = 2", None));
    let sessions = [server.connect().await, server.connect().await];
    let (state, message) = refused(&server, "user=holdfast").await;
    assert_eq!((state.as_str(), message.as_str()), ("53300", "too many connections from this address"));
    drop(sessions);
    until("the places are given back", async || try_to_connect(&server, "user=holdfast").await.is_ok()).await;
}

#[tokio::test]
async fn the_first_rule_that_matches_decides() {
    let hba = "host all holdfast 127.0.0.1/32 peer\n\
               host all app 127.0.0.1/32 reject\n\
               hostssl all secure 127.0.0.1/32 trust\n\
               host shop \"guest\" 127.0.0.1/32 trust\n";
    let server = Running::start_in(directory("", Some(hba)));
    let client = server.connect().await;
    run(&client, "CREATE ROLE app LOGIN; CREATE ROLE secure LOGIN; CREATE ROLE guest LOGIN").await;
    run(&client, "CREATE DATABASE shop").await;
    let on = |user: &str| format!("host \"127.0.0.1\", user \"{user}\", database \"holdfast\", no encryption");
    let rejected = format!("pg_hba.conf rejects connection for {}", on("app"));
    assert_eq!(refused(&server, "user=app").await, ("28000".into(), rejected));
    for user in ["secure", "guest", "ghost"] {
        let no_entry = format!("no pg_hba.conf entry for {}", on(user));
        assert_eq!(refused(&server, &format!("user={user}")).await, ("28000".into(), no_entry));
    }
    assert!(try_to_connect(&server, "user=guest dbname=shop").await.is_ok());
}

#[tokio::test]
async fn a_broken_file_does_not_take_effect() {
    let server = Running::start_in(directory("", None));
    let client = server.connect().await;
    let hba = server.dir.path().join("pg_hba.conf");
    assert_eq!(one(&client, "SHOW hba_file").await, hba.display().to_string());
    let rules = "SELECT count(*) FROM pg_hba_file_rules WHERE error IS NULL";
    assert_eq!(one(&client, rules).await, "4");
    std::fs::write(&hba, "host all all 127.0.0.1/32 trust\nhost all all nowhere\n").unwrap();
    assert_eq!(one(&client, "SELECT pg_reload_conf()").await, "t");
    until("the mistake is logged", async || server.log().contains("pg_hba.conf stays as it is")).await;
    let log = server.log();
    assert!(log.contains("line 2: host name \"nowhere\": host names are not supported"), "{log}");
    let broken = "SELECT line_number || ': ' || error FROM pg_hba_file_rules WHERE error IS NOT NULL";
    assert!(one(&client, broken).await.starts_with("2: host name"), "the view shows the file");
    run(&client, "CREATE ROLE app LOGIN").await;
    assert_eq!(refused(&server, "user=app").await.0, "28000", "the old rules are in force");
    std::fs::write(&hba, "host all all 127.0.0.1/32 trust\n").unwrap();
    server.hang_up();
    until("the rules take effect", async || try_to_connect(&server, "user=app").await.is_ok()).await;
    let app = try_to_connect(&server, "user=app").await.unwrap();
    let error = app.batch_execute("SELECT pg_reload_conf()").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
    let fields = "SELECT type || auth_method || address || netmask || user_name[1] FROM pg_hba_file_rules";
    assert_eq!(one(&client, fields).await, "hosttrust127.0.0.1255.255.255.255all");
}

#[test]
fn a_broken_file_refuses_the_start() {
    let dir = directory("", Some("local all all peer\nhost all all 10.0.0.0/33 trust\n"));
    let (status, said) = fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(!status.success());
    assert!(said.contains("pg_hba.conf") && said.contains("line 2: invalid CIDR mask"), "{said}");
    std::fs::write(dir.path().join("pg_hba.conf"), "local all all peer\n").unwrap();
    std::fs::write(dir.path().join("pg_ident.conf"), "os /( x\n").unwrap();
    let (_, said) = fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("pg_ident.conf") && said.contains("line 1: invalid regular expression"), "{said}");
}

#[tokio::test]
async fn a_map_says_which_users_are_which_roles() {
    let hba = "host all all 127.0.0.1/32 peer map=os\n";
    let dir = directory("", Some(hba));
    std::fs::write(dir.path().join("pg_ident.conf"), "os root holdfast\nos /^(no)body$ \\1\n").unwrap();
    let server = Running::start_in(dir);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let client = server.connect().await;
    run(&client, "CREATE ROLE no LOGIN; CREATE ROLE nobody LOGIN").await;
    let Some((admitted, said)) = psql_as("nobody", server.port, "no", None) else { return };
    assert!(admitted && said == "no", "{said}");
    assert!(!psql_as("nobody", server.port, "nobody", None).unwrap().0, "the map decides, not the name");
    let mapped = "SELECT string_agg(map_name || sys_name || pg_username, ' ') FROM pg_ident_file_mappings";
    assert_eq!(one(&client, mapped).await, "osrootholdfast os/^(no)body$\\1");
}

#[tokio::test]
async fn a_failure_is_answered_later_each_time() {
    let dir = TempDir::new().unwrap();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    run(&client, "CREATE ROLE app LOGIN PASSWORD 'secret'").await;
    for _ in 0..3 {
        assert_eq!(refused(&server, "user=app password=x").await.0, "28P01");
    }
    // Meanwhile, and afterwards, the right password is not delayed by any rule: it is admitted.
    assert!(try_to_connect(&server, "user=app password=secret").await.is_ok());
    assert_eq!(
        server.log().lines().filter(|line| line.contains("authentication failed")).count(),
        3,
        "a line for each"
    );
}

/// As in PostgreSQL 15: the session stays, with the rights of PUBLIC and no others.
#[tokio::test]
async fn the_session_of_a_dropped_role_has_the_rights_of_public() {
    let server = Running::start_in(directory("", Some("host all all 127.0.0.1/32 trust\n")));
    let client = server.connect().await;
    run(&client, "CREATE TABLE open(x int); CREATE TABLE closed(x int); GRANT SELECT ON open TO PUBLIC").await;
    for attributes in ["LOGIN", "LOGIN SUPERUSER"] {
        run(&client, &format!("CREATE ROLE app {attributes}; CREATE ROLE team; GRANT team TO app")).await;
        run(&client, "GRANT SELECT ON closed TO team").await;
        let app = try_to_connect(&server, "user=app").await.unwrap();
        assert_eq!(one(&app, "SELECT count(*) FROM closed").await, "0");
        run(&client, "REVOKE ALL ON closed FROM team; DROP ROLE team").await;
        run(&client, "DROP ROLE app").await;
        assert_eq!(one(&app, "SELECT count(*) FROM open").await, "0");
        for statement in
            ["SELECT * FROM closed", "INSERT INTO open VALUES (1)", "SET ROLE holdfast", "CREATE ROLE again"]
        {
            let state = state(&app, statement).await.map(|state| state.code().to_owned());
            assert_eq!(state.as_deref(), Some("42501"), "{attributes}: {statement}");
        }
        assert_eq!(refused(&server, "user=app").await.0, "28000");
    }
}
