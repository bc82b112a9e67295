//! What load balancers ask: 200 or 503, by the server's role at this moment, in the way of Patroni's REST interface.
//!
//! | path | 200 when |
//! |---|---|
//! | `/live` | the process answers |
//! | `/ready`, `/health` | clients are admitted: a master that may acknowledge, or a standby |
//! | `/primary`, `/master`, `/leader`, `/read-write` | clients can write here |
//! | `/replica`, `/standby` | a standby that is connected to its master, and lags by at most `?lag=` |
//! | `/read-only` | either of the last two |
//!
//! `?lag=` takes bytes, or a number with kB, MB or GB. The body is the same JSON for all of them. GET, HEAD and OPTIONS.

use crate::figures::{Health, ServerRole};
use serde_json::{Value, json};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Live,
    Ready,
    Primary,
    Replica,
    ReadOnly,
}

impl Question {
    /// By its path.
    pub fn of(path: &str) -> Option<Question> {
        Some(match path {
            "/live" | "/liveness" => Question::Live,
            "/ready" | "/readiness" | "/health" => Question::Ready,
            "/primary" | "/master" | "/leader" | "/read-write" => Question::Primary,
            "/replica" | "/standby" => Question::Replica,
            "/read-only" => Question::ReadOnly,
            _ => return None,
        })
    }

    /// The answer, with at most this lag of a standby.
    pub fn holds(self, health: &Health, lag_bytes_max: Option<u64>) -> bool {
        let is_near = || lag_bytes_max.is_none_or(|max| health.lag_bytes.is_some_and(|lag| lag <= max));
        match self {
            Question::Live => true,
            Question::Ready => health.is_ready(),
            Question::Primary => health.is_primary(),
            Question::Replica => health.is_replica() && is_near(),
            Question::ReadOnly => health.is_primary() || (health.is_replica() && is_near()),
        }
    }
}

/// The value of `lag` in a query string. `Err`: it is not a number of bytes.
pub fn lag_of(query: Option<&str>) -> Result<Option<u64>, String> {
    let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("lag="));
    given.map(|text| bytes(text).ok_or_else(|| format!("lag = \"{text}\" is not a number of bytes"))).transpose()
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "k" => 10,
        "mb" | "m" => 20,
        "gb" | "g" => 30,
        "tb" | "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The body of each answer.
pub fn json(health: &Health, version: &str) -> Value {
    let standby = health.role == ServerRole::Standby;
    json!({
        "state": match health.serves {
            true => "running",
            false => health.role.name(),
        },
        "role": health.role.name(),
        "name": health.name,
        "version": version,
        "epoch": health.epoch,
        "durable_lsn": health.durable_lsn,
        "applied_lsn": standby.then_some(health.applied_lsn),
        "writable": health.is_primary(),
        "lease_held": health.lease_held,
        "follows": standby.then_some(health.follows),
        "lag_bytes": health.lag_bytes,
        "lag_seconds": health.lag_ms.map(|ms| ms as f64 / 1e3),
        "reason": health.why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(role: ServerRole) -> Health {
        Health { role, serves: true, has_right: true, follows: true, lag_bytes: Some(1 << 20), ..Health::default() }
    }

    #[test]
    fn the_table_of_the_module() {
        let ask = |path: &str, health: &Health| Question::of(path).unwrap().holds(health, None);
        let paths = ["/live", "/ready", "/health", "/primary", "/read-write", "/replica", "/read-only"];
        let answers = |health: &Health| paths.map(|path| u8::from(ask(path, health)));
        assert_eq!(answers(&health(ServerRole::Master)), [1, 1, 1, 1, 1, 0, 1]);
        assert_eq!(answers(&health(ServerRole::Standby)), [1, 1, 1, 0, 0, 1, 1]);
        for role in [ServerRole::Starting, ServerRole::Waiting, ServerRole::Deposed, ServerRole::Stopping] {
            assert_eq!(answers(&health(role)), [1, 0, 0, 0, 0, 0, 0], "{role:?}");
        }
        let without_lease = Health { has_right: false, ..health(ServerRole::Master) };
        assert_eq!(answers(&without_lease), [1, 0, 0, 0, 0, 0, 0]);
        let away = Health { follows: false, ..health(ServerRole::Standby) };
        assert_eq!(answers(&away), [1, 1, 1, 0, 0, 0, 0], "it serves reads, and is not up to date");
        assert_eq!(answers(&Health { serves: false, ..health(ServerRole::Master) }), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Question::of("/primary/"), None);
    }

    #[test]
    fn the_lag_that_a_standby_may_have() {
        let standby = health(ServerRole::Standby);
        let within = |query| Question::Replica.holds(&standby, lag_of(Some(query)).unwrap());
        assert!(within("lag=1MB") && within("lag=1048576") && within("x=1&lag=2gb") && within("lag"));
        assert!(!within("lag=1023kB") && !within("lag=0"));
        assert!(!Question::Replica.holds(&Health { lag_bytes: None, ..standby.clone() }, Some(1 << 40)), "not known");
        for bad in ["lag=much", "lag=1 MB", "lag=99999999999999999999", "lag=-1", "lag=18446744073709551615k"] {
            assert!(lag_of(Some(bad)).is_err(), "{bad}");
        }
        assert!(Question::ReadOnly.holds(&health(ServerRole::Master), Some(0)), "a master lags behind nothing");
    }
}
