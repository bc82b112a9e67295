//! The files of rules as `pg_hba_file_rules` and `pg_ident_file_mappings` show them.

use super::Admission;
use super::hba::{ClientCert, Connection, Rule};
use holdfast_sql::catalogue::{HbaRow, HbaRule, IdentRow};

impl Admission {
    /// The lines of `pg_hba.conf` as it is now; of a file that cannot be read one row with the error.
    pub fn hba_rows(&self) -> Vec<HbaRow> {
        match self.files().hba_entries() {
            Ok(entries) => entries.into_iter().map(|e| hba_row(e.line, e.rule)).collect(),
            Err(error) => vec![HbaRow { error: Some(error.to_string()), ..HbaRow::default() }],
        }
    }

    /// The lines of `pg_ident.conf` as it is now; of a file that cannot be read one row with the error.
    pub fn ident_rows(&self) -> Vec<IdentRow> {
        let entries = match self.files().ident_entries() {
            Ok(entries) => entries,
            Err(error) => return vec![IdentRow { error: Some(error.to_string()), ..IdentRow::default() }],
        };
        let row = |entry: super::ident::Entry| match entry.mapping {
            Ok(m) => IdentRow { line: entry.line, mapping: Some((m.map, m.system, m.role)), error: None },
            Err(error) => IdentRow { line: entry.line, mapping: None, error: Some(error) },
        };
        entries.into_iter().map(row).collect()
    }
}

fn hba_row(line: u32, rule: Result<Rule, String>) -> HbaRow {
    let (rule, error) = match rule {
        Ok(rule) => (Some(columns(rule)), None),
        Err(error) => (None, Some(error)),
    };
    HbaRow { line, rule, error }
}

fn columns(rule: Rule) -> HbaRule {
    let kind = match rule.connection {
        Connection::Local => "local",
        Connection::Host => "host",
        Connection::HostSsl => "hostssl",
        Connection::HostNoSsl => "hostnossl",
        Connection::HostGssEnc => "hostgssenc",
        Connection::HostNoGssEnc => "hostnogssenc",
    };
    let client_cert = match rule.client_cert {
        ClientCert::Optional => None,
        ClientCert::VerifyCa => Some("clientcert=verify-ca".to_owned()),
        ClientCert::VerifyFull => Some("clientcert=verify-full".to_owned()),
    };
    let map = rule.map.map(|map| format!("map={map}"));
    HbaRule {
        kind,
        databases: rule.shown.databases,
        users: rule.shown.users,
        address: rule.shown.address,
        netmask: rule.shown.netmask,
        method: rule.method.word(),
        options: map.into_iter().chain(client_cert).collect(),
    }
}
