//! Whether a client may connect: finds the rule for it, and has the client prove what the rule asks for.
//!
//! | method | the client is admitted when |
//! |---|---|
//! | `trust` | always |
//! | `reject` | never |
//! | `scram-sha-256` | it proves the role's password |
//! | `peer` | its end of the connection belongs to a local user that may be the role; otherwise as `scram-sha-256` |
//! | `cert` | the name in its verified certificate may be the role |
//!
//! A role that does not exist, has no password or an expired one takes the same way as a wrong password: a mock verifier is
//! sent, and the answer is the same. The reason is in the log only.
//!
//! How it fails: 28P01 after a password was asked for, 28000 otherwise, with PostgreSQL's texts. Each failure is one line in
//! the log, and the answer waits, see [`super::failures`].

use super::failures::Origin;
use super::files::Rules;
use super::hba::{Attempt, ClientCert, ClientName, Method, Rule};
use super::{Admission, users};
use crate::clock::now_us;
use holdfast_scram::Verifier;
use holdfast_seams::socket_owner::{self, is_operator};
use holdfast_types::access::predefined::BOOTSTRAP_OID;
use holdfast_types::access::{Role, Roles};
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::{Peer, PeerAddress, Prover, Startup, Unproven};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A failed attempt: the error for the client, and the reason for the log.
struct Failed {
    error: SqlError,
    why: String,
}

/// How a proof ended without success.
enum Ended {
    Failed(Failed),
    Unproven(Unproven),
}

impl From<Unproven> for Ended {
    fn from(unproven: Unproven) -> Ended {
        Ended::Unproven(unproven)
    }
}

impl Admission {
    /// Has the client prove what its rule asks for.
    pub async fn authenticate(
        &self,
        startup: &Startup,
        roles: &Roles,
        prover: &mut Prover<'_>,
    ) -> Result<(), Unproven> {
        let rules = self.files.current();
        let attempt = Attempt { peer: &startup.peer, database: &startup.database, user: &startup.user, roles };
        let rule = rules.find(&attempt);
        let ended = match rule {
            None => Err(no_entry(&rules, &attempt).into()),
            Some(rule) => self.prove(rule, &rules, startup, roles, prover).await,
        };
        let failed = match ended {
            Ok(()) => return Ok(()),
            Err(Ended::Failed(failed)) => failed,
            Err(Ended::Unproven(Unproven::Lost)) => return Err(Unproven::Lost),
            Err(Ended::Unproven(Unproven::Refused(error))) => Failed { why: error.message().to_owned(), error },
        };
        let line = rule.map_or(0, |rule| rule.line);
        let method = rule.map_or("none", |rule| rule.method.word());
        let (address, user, database) = (shown(&startup.peer), &startup.user, &startup.database);
        let state = failed.error.state().0;
        tracing::warn!(address, ?user, ?database, line, method, state, "authentication failed: {}", failed.why);
        let delay = self.failures.record(Origin::of(startup.peer.address), Instant::now());
        tokio::time::sleep(delay).await;
        Err(Unproven::Refused(failed.error))
    }

    /// A login on the console failed: it is logged and counted like that of a client. The console limits the attempts of an
    /// address itself.
    pub fn console_failed(&self, user: &str, client: IpAddr, why: &str) {
        let state = SqlState::INVALID_PASSWORD.0;
        tracing::warn!(address = %client, ?user, method = "console", state, "authentication failed: {why}");
        let _ = self.failures.record(Origin::of_ip(client), Instant::now());
    }

    async fn prove(
        &self,
        rule: &Rule,
        rules: &Rules,
        startup: &Startup,
        roles: &Roles,
        prover: &mut Prover<'_>,
    ) -> Result<(), Ended> {
        let certificate = startup.peer.tls.as_ref().and_then(|tls| tls.client_certificate.as_ref());
        if rule.client_cert != ClientCert::Optional && certificate.is_none() {
            let error = SqlError::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "connection requires a valid client certificate",
            );
            return Err(Failed { error, why: "no client certificate".into() }.into());
        }
        match rule.method {
            Method::Trust | Method::Cert => {}
            Method::Reject => return Err(rejected(startup).into()),
            Method::ScramSha256 => self.password(startup, roles, prover).await?,
            Method::Peer => self.peer(rule, rules, startup, roles, prover).await?,
        }
        if let (ClientCert::VerifyFull, Some(certificate)) = (rule.client_cert, certificate) {
            let name = match rule.client_name {
                ClientName::CommonName => certificate.common_name.as_deref(),
                ClientName::DistinguishedName => Some(certificate.distinguished_name.as_str()),
            };
            let name = name.filter(|name| !name.is_empty());
            if !name.is_some_and(|name| rules.allows(rule.map.as_deref(), name, &startup.user)) {
                let why = match name {
                    None => "client certificate contains no user name".to_owned(),
                    Some(name) => format!("the certificate's name {name:?} may not be this role"),
                };
                return Err(Failed { error: failure(rule.method, &startup.user), why }.into());
            }
        }
        Ok(())
    }

    /// Asks for the role's password.
    async fn password(&self, startup: &Startup, roles: &Roles, prover: &mut Prover<'_>) -> Result<(), Ended> {
        let role = roles.by_name(&startup.user);
        let (verifier, why) = match stored(role) {
            Ok(verifier) => (Some(verifier), "wrong password"),
            Err(why) => (None, why),
        };
        let doomed = verifier.is_none();
        let verifier = verifier.unwrap_or_else(|| Verifier::mock(&startup.user, &self.secret));
        if prover.scram(verifier, doomed).await? {
            return Ok(());
        }
        Err(Failed { error: failure(Method::ScramSha256, &startup.user), why: why.to_owned() }.into())
    }

    /// Looks at the local user that has made the connection.
    async fn peer(
        &self,
        rule: &Rule,
        rules: &Rules,
        startup: &Startup,
        roles: &Roles,
        prover: &mut Prover<'_>,
    ) -> Result<(), Ended> {
        let role = roles.by_name(&startup.user);
        let Some(uid) = local_user(&startup.peer) else { return self.password(startup, roles, prover).await };
        let is_operator = is_operator(uid);
        if is_operator && rule.map.is_none() && role.is_some_and(|role| role.oid == BOOTSTRAP_OID) {
            return Ok(());
        }
        let name = users::name(uid).await;
        if name.is_some_and(|name| rules.allows(rule.map.as_deref(), &name, &startup.user)) {
            return Ok(());
        }
        // The operator can read every role and needs no disguise of what exists.
        let user = &startup.user;
        if is_operator && role.is_none() {
            let error = unknown_role(user).with_hint("Create it as holdfast: CREATE ROLE ... LOGIN PASSWORD '...'.");
            return Err(Failed { error, why: "the role does not exist".into() }.into());
        }
        if is_operator && stored(role).is_err() {
            let error = failure(Method::Peer, user)
                .with_hint("Connect as holdfast, or give the role a password: ALTER ROLE ... PASSWORD '...'.");
            return Err(
                Failed { error, why: format!("the role has no valid password; the client is user {uid}") }.into()
            );
        }
        self.password(startup, roles, prover).await
    }
}

impl From<Failed> for Ended {
    fn from(failed: Failed) -> Ended {
        Ended::Failed(failed)
    }
}

/// The verifier of a role that can prove a password, or why it has none.
pub fn stored(role: Option<&Arc<Role>>) -> Result<Verifier, &'static str> {
    let role = role.ok_or("the role does not exist")?;
    let password = role.password.as_deref().ok_or("the role has no password")?;
    if role.valid_until_us.is_some_and(|until| until < now_us()) {
        return Err("the role's password has expired (VALID UNTIL)");
    }
    Verifier::parse(password).ok_or("the role's stored password is not a SCRAM verifier")
}

/// The user of the operating system at the client's end, on this machine.
fn local_user(peer: &Peer) -> Option<u32> {
    match peer.address? {
        PeerAddress::Unix { uid, .. } => Some(uid),
        PeerAddress::Tcp { client, server } => socket_owner::owner(client, server),
    }
}

/// The error of a failed proof.
fn failure(method: Method, user: &str) -> SqlError {
    let (state, what) = match method {
        Method::ScramSha256 => (SqlState::INVALID_PASSWORD, "password authentication failed"),
        Method::Trust => (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "\"trust\" authentication failed"),
        Method::Peer => (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "Peer authentication failed"),
        Method::Cert => (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "certificate authentication failed"),
        Method::Reject => (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "authentication failed"),
    };
    SqlError::new(state, format!("{what} for user \"{user}\""))
}

/// The error for a role that does not exist, where the client was admitted as that.
pub(super) fn unknown_role(user: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, format!("role \"{user}\" does not exist"))
}

/// `host "...", user "...", database "...", no encryption`.
fn described(peer: &Peer, user: &str, database: &str) -> String {
    let encryption = if peer.tls.is_some() { "SSL encryption" } else { "no encryption" };
    format!("host \"{}\", user \"{user}\", database \"{database}\", {encryption}", shown(peer))
}

fn no_entry(rules: &Rules, attempt: &Attempt<'_>) -> Failed {
    let Attempt { peer, user, database, .. } = *attempt;
    let message = format!("no pg_hba.conf entry for {}", described(peer, user, database));
    let error = SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message);
    let hint = if peer.tls.is_none() && rules.find_encrypted(attempt) {
        "Connect with TLS: sslmode=require, or verify-full with sslrootcert."
    } else {
        "Add a line for this connection to pg_hba.conf in the data directory, and reload it: SELECT pg_reload_conf()."
    };
    Failed { error: error.with_hint(hint), why: "no entry in pg_hba.conf".into() }
}

fn rejected(startup: &Startup) -> Failed {
    let connection = described(&startup.peer, &startup.user, &startup.database);
    let error = SqlError::new(
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        format!("pg_hba.conf rejects connection for {connection}"),
    );
    Failed { error, why: "rejected by its rule".into() }
}

/// The client's address as messages name it.
fn shown(peer: &Peer) -> String {
    match peer.address {
        Some(PeerAddress::Tcp { client, .. }) => client.ip().to_canonical().to_string(),
        Some(PeerAddress::Unix { .. }) | None => "[local]".to_owned(),
    }
}
