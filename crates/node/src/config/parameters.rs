//! The run-time parameters that the settings give.

use super::Config;
use crate::settings;

impl Config {
    /// Run-time parameters that sessions start with.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("result_rows_max", self.result_rows_max.to_string()),
            ("result_bytes_max", self.result_bytes_max.to_string()),
            ("statement_timeout", self.statement_timeout_ms.to_string()),
            ("idle_session_timeout", self.idle_session_timeout_ms.to_string()),
            ("log_connections", on_or_off(self.log_connections)),
            ("log_disconnections", on_or_off(self.log_disconnections)),
            ("log_lock_waits", on_or_off(self.log_lock_waits)),
            ("log_min_duration_statement", self.log_min_duration_statement.clone()),
            ("log_min_error_statement", self.log_min_error_statement.clone()),
            ("log_statement", self.log_statement.clone()),
            ("pg_stat_statements.max", self.statements_kept.to_string()),
            ("lock_timeout", self.lock_timeout_ms.to_string()),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_session_timeout_ms.to_string()),
            ("auto_transaction", if self.auto_transaction { "on" } else { "off" }.to_owned()),
            ("auto_transaction_time_max_ms", self.auto_transaction_time_max_ms.to_string()),
            ("auto_transaction_rows_max", self.auto_transaction_rows_max.to_string()),
            ("auto_transaction_idle_ms", self.auto_transaction_idle_ms.to_string()),
            ("commit_delay", self.commit_delay_us.to_string()),
            ("commit_siblings", self.commit_siblings.to_string()),
            ("max_connections", self.connections_max.to_string()),
            ("superuser_reserved_connections", self.superuser_reserved_connections.to_string()),
            ("authentication_timeout", settings::shown_time(self.startup_timeout_ms)),
            ("tcp_keepalives_idle", (self.tcp_keepalives_idle_ms / 1000).to_string()),
            ("tcp_keepalives_interval", (self.tcp_keepalives_interval_ms / 1000).to_string()),
            ("tcp_keepalives_count", self.tcp_keepalives_count.to_string()),
            ("client_connection_check_interval", settings::shown_time(self.client_connection_check_interval_ms)),
            ("holdfast.level", self.level.name().to_owned()),
            ("synchronous_standby_names", self.synchronous_standby_names.clone()),
        ]
    }
}

fn on_or_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
