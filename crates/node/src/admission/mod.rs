//! Who may connect: the rules of `pg_hba.conf`, passwords, local users, certificates, and the limits of sessions.
//!
//! ```text
//! start-up packet --> [decide]: the rule of [hba], then a proof: [`holdfast_seams::socket_owner`] and [users], or SCRAM
//!                        |                                    fails: [failures] delays the answer
//!                        v
//!                     [login]: LOGIN, CONNECT, limits of roles, databases and addresses ([sessions])
//! ```
//!
//! Anchor: PostgreSQL 15, chapter 21 (Client Authentication). Failure: an error with PostgreSQL's SQLSTATE and text, a line in
//! the log, and no session.

mod decide;
mod failures;
mod files;
pub mod hba;
pub mod ident;
mod login;
mod reload;
mod rows;
mod sessions;
mod share;
mod taking;
mod users;

pub use files::{HBA_FILE, IDENT_FILE, RuleFiles, RulesError, SECRET_FILE, SHARED_FILE};
pub use reload::request_reload;
pub use sessions::Places;
pub use share::{share_rules, take_rules};

pub use decide::stored;
use failures::Failures;
use holdfast_seams::socket_owner::{self, OtherEnd};
use holdfast_standby::{Reason, Refusal};
use sessions::Sessions;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;

/// The limits of the settings.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    pub connections_max: usize,
    /// Of these, the places that only superusers take.
    pub reserved: usize,
    /// Sessions of one address; 0: no limit.
    pub per_address_max: usize,
    /// The longest wait before the answer to a failed attempt.
    pub failure_delay_max: Duration,
}

/// Decides about clients, for the life of the server.
pub struct Admission {
    files: RuleFiles,
    limits: AdmissionLimits,
    /// Of mock verifiers.
    secret: [u8; 32],
    failures: Failures,
    sessions: Sessions,
}

impl Admission {
    /// Reads the rules of a data directory; writes those that are missing.
    pub fn open(dir: &Path, limits: AdmissionLimits) -> Result<Admission, RulesError> {
        let (files, secret) = (RuleFiles::open(dir)?, files::secret(dir)?);
        let failures = Failures::new(limits.failure_delay_max);
        // At least one place is for others than superusers.
        let reserved = limits.reserved.min(limits.connections_max.saturating_sub(1));
        let limits = AdmissionLimits { reserved, ..limits };
        Ok(Admission { files, limits, secret, failures, sessions: Sessions::default() })
    }

    /// Refused attempts to log in since the server started.
    pub fn failures(&self) -> u64 {
        self.failures.total()
    }

    /// The files of rules.
    pub fn files(&self) -> &RuleFiles {
        &self.files
    }
}

/// Refuses a link over the clients' port that does not come from this machine, from the user that runs the server or from root.
/// Other local users could otherwise copy every database.
pub fn check_link(stream: &TcpStream) -> Result<(), Refusal> {
    let found = match (stream.peer_addr(), stream.local_addr()) {
        (Ok(client), Ok(server)) => socket_owner::other_end(client, server),
        _ => OtherEnd::Unknown,
    };
    let (reason, message) = match found {
        OtherEnd::User(uid) if socket_owner::is_operator(uid) => return Ok(()),
        OtherEnd::User(uid) => {
            (Reason::NotAdmitted, format!("user {uid} of the operating system may not do this at this server"))
        }
        // It may be known at the next attempt.
        OtherEnd::Unknown => {
            (Reason::Failed, "the server cannot find out which user of the operating system connects".to_owned())
        }
        // No one reads this.
        OtherEnd::Closed => {
            let gone = "the connection was closed before the server came to it";
            return Err(Refusal::new(Reason::Failed, gone.to_owned(), ""));
        }
    };
    tracing::warn!(
        ?found,
        "refused a node's link: it does not come from the user that runs this server, nor from root"
    );
    let advice = "Run the command on the server's machine as the user that runs the server, or as root; or name the server's port \
                  for nodes (node_listen) and --certificates";
    Err(Refusal::new(reason, message, advice))
}
