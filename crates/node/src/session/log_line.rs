//! A line of the log about a session, with the names of PostgreSQL's JSON log as fields.

use holdfast_sql::without_secrets;
use std::net::SocketAddr;

/// The session that a line is about.
pub(super) struct LogAuthor {
    pub user: String,
    pub database: String,
    pub pid: i32,
    pub client: Option<SocketAddr>,
    pub session_id: String,
    pub query_id: i64,
    pub application_name: String,
}

impl LogAuthor {
    /// Writes a line. Passwords in the statement are masked.
    pub fn line(&self, severity: &str, state: &str, message: &str, statement: Option<&str>, detail: Option<&str>) {
        let statement = statement.map(without_secrets);
        tracing::info!(
            target: "holdfast::session",
            user = self.user,
            dbname = self.database,
            pid = self.pid,
            remote_host = self.client.map_or_else(|| "[local]".to_owned(), |c| c.ip().to_string()),
            remote_port = self.client.map(|c| c.port()),
            session_id = self.session_id,
            error_severity = severity,
            state_code = state,
            detail,
            query_id = self.query_id,
            statement = statement.as_deref(),
            application_name = self.application_name,
            backend_type = "client backend",
            "{message}"
        );
    }
}
