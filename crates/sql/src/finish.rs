//! Puts a bound statement together: its text, the parameters that it uses, and what it returns.

use crate::bind::scope::Column;
use crate::bind::{Binder, Settings};
use crate::command::Kind;
use crate::params::Param;
use crate::translated::Translated;
use crate::types::Type;
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use std::sync::Arc;

/// Result columns as clients see them.
pub fn describe(columns: &[Column]) -> Vec<ColumnDesc> {
    columns
        .iter()
        .map(|c| ColumnDesc {
            name: c.name.clone(),
            type_oid: if c.ty == Type::UNKNOWN { oid::TEXT } else { c.ty.oid },
            typmod: c.ty.typmod,
            table_oid: c.table_oid,
            attnum: c.attnum,
        })
        .collect()
}

/// Puts a bound statement together. A parameter without a type is text.
pub fn finish(binder: Binder<'_>, sql: String, columns: &[Column], kind: Kind, verb: &'static str) -> Translated {
    let types = binder.client_types.iter().map(|t| if *t == 0 { oid::TEXT } else { *t }).collect();
    let access = binder.access();
    let (sql, params) = used_params(sql, binder.params);
    let empty_rows = kind == Kind::Query && columns.is_empty();
    Translated {
        kind,
        steps: vec![sql.into()],
        params,
        desc: Arc::new(StatementDesc { params: types, columns: describe(columns), empty_rows }),
        verb,
        counts: true,
        locks: binder.locks || binder.advisory,
        advisory: binder.advisory,
        settings: binder.settings != Settings::Unused,
        temporary: binder.temporary,
        row_locks: binder.row_locks,
        access,
        cacheable: true,
        ..Translated::default()
    }
}

/// Removes the parameters that the text does not use, because their expression was dropped, and renumbers the others.
fn used_params(sql: String, params: Vec<Param>) -> (String, Vec<Param>) {
    let mut uses: Vec<(usize, usize, usize)> = Vec::new();
    let (bytes, mut at) = (sql.as_bytes(), 0);
    while let Some(found) = memchr::memchr3(b'?', b'\'', b'"', &bytes[at..]) {
        let start = at + found;
        if bytes[start] != b'?' {
            at = memchr::memchr(bytes[start], &bytes[start + 1..]).map_or(bytes.len(), |n| start + n + 2);
            continue;
        }
        let digits = bytes[start + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        at = start + 1 + digits;
        if let Ok(n) = sql[start + 1..at].parse::<usize>() {
            uses.push((start + 1, at, n - 1));
        }
    }
    let mut used = vec![false; params.len()];
    for (.., n) in &uses {
        if let Some(used) = used.get_mut(*n) {
            *used = true;
        }
    }
    if used.iter().all(|u| *u) {
        return (sql, params);
    }
    let kept: Vec<usize> = (0..params.len()).filter(|i| used[*i]).collect();
    let mut out = sql.clone();
    for (start, end, n) in uses.into_iter().rev() {
        let place = kept.iter().position(|k| *k == n).unwrap_or(0);
        out.replace_range(start..end, &(place + 1).to_string());
    }
    (out, kept.into_iter().map(|i| params[i].clone()).collect())
}
