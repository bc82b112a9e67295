//! What a session's statements have taken: counted for `pg_stat_statements` and `pg_stat_database`, and logged.
//!
//! The reply measures each statement that the engine runs, from its first begin to its end, with its waits for locks; a command
//! takes the time of the session. Statements that fail are not counted, as in PostgreSQL.

use super::lock_waits::LockWatch;
use super::log_line::LogAuthor;
use super::node_session::NodeSession;
use crate::activity::{Cost, Done, Key};
use crate::plan::Extra;
use crate::settings::LogStatements;
use holdfast_sql::{Entry, Kind, LogGroup, Scan, log_group, normalized, without_secrets};
use holdfast_types::access::Privileges;
use holdfast_types::access::needs::{Access, Need};
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::{Client, Failure};
use std::time::Duration;

/// The text under which a statement is counted: without constants, or a command's without passwords.
fn counted_text(text: &str, dialect: Dialect, kind: &Kind) -> String {
    if kind.is_planned()
        && let Ok(scan) = Scan::new(text, dialect)
        && let Some(piece) = scan.pieces().next()
    {
        return normalized(&piece);
    }
    without_secrets(text).into_owned()
}

/// Whether a statement of this group is logged.
fn is_logged(which: LogStatements, group: LogGroup) -> bool {
    match which {
        LogStatements::None => false,
        LogStatements::Ddl => group == LogGroup::Ddl,
        LogStatements::Mod => group != LogGroup::Other,
        LogStatements::All => true,
    }
}

impl NodeSession {
    /// Counts statement `step` of the message, if it has ended. `command_time` is used where the engine has not measured it.
    pub(super) fn count_statement(
        &mut self,
        step: usize,
        entry: &Entry<Extra>,
        text: &str,
        command_time: Duration,
        client: &mut Client,
    ) {
        let Some(measured) = client.reply().measured(step) else { return };
        let kind = &entry.translated.kind;
        if kind.is_planned() || measured.verb == "COPY" {
            self.done.statement(measured.verb, measured.rows);
            self.count_table(&entry.translated.access, measured.verb, measured.rows);
        }
        let statements = self.activity.statements();
        if !statements.is_on() || matches!(kind, Kind::Execute { .. } | Kind::Prepare { .. } | Kind::Deallocate(_)) {
            return;
        }
        self.last_query_id = entry.query_id;
        let key = Key { role: self.identity.current_role, database: self.served.db.oid(), query: entry.query_id };
        let time = measured.time.filter(|_| kind.is_planned()).unwrap_or(command_time);
        let dialect = self.served.db.dialect();
        let (wal_bytes, wal_records) = measured.recorded;
        let cost = Cost { rows: measured.rows, wal_records, wal_bytes };
        statements.count(key, time, &cost, || counted_text(text, dialect, kind));
    }

    /// Counts rows that a statement has changed for the table that it names first for that.
    fn count_table(&self, access: &Access, verb: &'static str, rows: u64) {
        let privilege = match verb {
            "INSERT 0" | "COPY" => Privileges::INSERT,
            "UPDATE" => Privileges::UPDATE,
            "DELETE" => Privileges::DELETE,
            _ => return,
        };
        let changed = access.needs.iter().find_map(|need| match need {
            Need::Table(need) if need.privileges.contains(privilege) => Some(need.table),
            _ => None,
        });
        if let (Some(table), true) = (changed, rows > 0) {
            let mut done = Done::default();
            done.statement(verb, rows);
            self.activity.count_table(self.served.db.oid(), table, &done);
        }
    }

    /// A message has ended with this outcome: a transaction of its own is counted.
    pub(super) fn count_message(&mut self, outcome: &Result<(), Failure>) {
        if let Err(failure) = outcome {
            self.activity.totals().error(failure.error.state());
            self.done.deadlocks += u64::from(failure.error.state() == SqlState::DEADLOCK_DETECTED);
        }
        if self.state.is_idle() && self.done.commits + self.done.rollbacks == 0 {
            match outcome {
                Ok(()) => self.done.commits += 1,
                Err(_) => self.done.rollbacks += 1,
            }
        }
    }

    /// Logs the message's statements before they run, where `log_statement` says so.
    pub(super) fn log_begin(&self, text: &str) {
        let which = self.settings.logging().statements;
        if which == LogStatements::None {
            return;
        }
        let scan = Scan::new(text, self.served.db.dialect());
        let logged = scan.is_ok_and(|scan| scan.pieces().any(|piece| is_logged(which, log_group(&piece))));
        if logged || which == LogStatements::All {
            self.log_line("LOG", "00000", "statement", Some(text), None);
        }
    }

    /// Logs a message that took long, or failed, where the settings say so.
    pub(super) fn log_end(&self, time: Duration, outcome: &Result<(), Failure>) {
        let logging = self.settings.logging();
        if let Err(failure) = outcome
            && logging.errors
        {
            let severity = if failure.fatal { "FATAL" } else { "ERROR" };
            self.log_error(severity, &failure.error);
        }
        if logging.min_duration.is_some_and(|min| time >= min) {
            self.activity.totals().slow_statement();
            let message = format!("duration: {:.3} ms", time.as_secs_f64() * 1e3);
            self.log_line("LOG", "00000", &message, Some(&self.activity.query_text()), None);
        }
    }

    fn log_error(&self, severity: &str, error: &SqlError) {
        let detail = error.parts().detail.as_deref();
        self.log_line(severity, error.state().0, error.message(), Some(&self.activity.query_text()), detail);
    }

    /// Writes a line about this session.
    pub(super) fn log_line(
        &self,
        severity: &str,
        state: &str,
        message: &str,
        statement: Option<&str>,
        detail: Option<&str>,
    ) {
        self.log_author().line(severity, state, message, statement, detail);
    }

    fn log_author(&self) -> LogAuthor {
        LogAuthor {
            user: self.identity.user.clone(),
            database: self.identity.database.clone(),
            pid: self.identity.pid,
            client: self.identity.peer.client(),
            session_id: self.activity.session_id(),
            query_id: self.last_query_id,
            application_name: self.settings.get("application_name").map_or("", |(_, v)| v).to_owned(),
        }
    }

    /// What logs the waits for locks of the message that begins; `None` where they are not logged.
    pub(super) fn lock_watch(&self) -> Option<LockWatch> {
        if !self.settings.logging().lock_waits {
            return None;
        }
        let after = self.settings.timeouts().deadlock;
        (!after.is_zero()).then(|| LockWatch {
            databases: self.databases.clone(),
            author: self.log_author(),
            statement: self.activity.query_text(),
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_follows_the_group() {
        let logged = |group| {
            [LogStatements::None, LogStatements::Ddl, LogStatements::Mod, LogStatements::All]
                .map(|which| is_logged(which, group))
        };
        assert_eq!(logged(LogGroup::Ddl), [false, true, true, true]);
        assert_eq!(logged(LogGroup::Mod), [false, false, true, true]);
        assert_eq!(logged(LogGroup::Other), [false, false, false, true]);
    }

    #[test]
    fn a_counted_text_has_no_constants_and_no_passwords() {
        assert_eq!(counted_text("select 1, 'a'", Dialect::Postgres, &Kind::Query), "select $1, $2");
        let text = counted_text("alter role a password 'x'", Dialect::Postgres, &Kind::Ddl);
        assert_eq!(text, "alter role a password <hidden>");
    }
}
