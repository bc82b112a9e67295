//! `pg_stat_ssl`: how each session's connection is encrypted; and `pg_stat_gssapi`, where nothing is: GSSAPI is not
//! supported. As in PostgreSQL a session is listed only to a role that may see its statistics.

use super::live::SessionRow;
use super::table::{CatalogContext, CatalogTable, boolean, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_ssl",
    columns: &[
        ("pid", oid::INT4),
        ("ssl", oid::BOOL),
        ("version", oid::TEXT),
        ("cipher", oid::TEXT),
        ("bits", oid::INT4),
        ("client_dn", oid::TEXT),
        ("client_serial", oid::NUMERIC),
        ("issuer_dn", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| visible(context, row),
};

pub const GSSAPI: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_gssapi",
    columns: &[
        ("pid", oid::INT4),
        ("gss_authenticated", oid::BOOL),
        ("principal", oid::TEXT),
        ("encrypted", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| visible(context, |s| vec![int(s.pid), boolean(false), Value::Null, boolean(false)]),
};

fn visible(context: &CatalogContext<'_>, row: impl Fn(&SessionRow) -> Vec<Value>) -> Vec<Vec<Value>> {
    let sessions = context.live.sessions();
    sessions.iter().filter(|s| context.viewer.sees_statistics_of(s.role)).map(row).collect()
}

fn row(s: &SessionRow) -> Vec<Value> {
    let mut row = vec![int(s.pid), boolean(s.encryption.is_some())];
    match &s.encryption {
        None => row.extend(std::iter::repeat_n(Value::Null, 6)),
        Some(tls) => {
            row.extend([text(&*tls.version), text(&*tls.cipher), int(tls.bits)]);
            match &tls.client_certificate {
                None => row.extend(std::iter::repeat_n(Value::Null, 3)),
                Some((subject, serial, issuer)) => row.extend([subject, serial, issuer].map(|t| text(t.as_str()))),
            }
        }
    }
    row
}
