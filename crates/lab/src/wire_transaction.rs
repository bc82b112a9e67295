//! The authorization as messages: how a client may put it to a server.

use crate::pg_message;
use crate::workload::{self, Request};

/// How the authorization is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// All statements in one simple-protocol message: one implicit transaction.
    OneMessage,
    /// Prepared statements, bound and executed in one pipeline up to Sync: one implicit transaction.
    Pipeline,
}

const SELECT: &str = "select_terminal";
const UPDATE: &str = "update_terminal";
const INSERT: &str = "insert_log";

impl Variant {
    /// Statements to prepare on each connection.
    pub fn statements(self) -> Vec<(&'static str, String)> {
        match self {
            Variant::OneMessage => Vec::new(),
            Variant::Pipeline => vec![
                (SELECT, workload::select_sql("$1", true)),
                (UPDATE, workload::update_sql("$1", "$2")),
                (INSERT, workload::insert_sql(["$1", "$2", "$3", "$4", "$5"])),
            ],
        }
    }

    /// Appends the messages of one authorization; its answer ends with one ReadyForQuery.
    pub fn write(self, r: &Request, out: &mut Vec<u8>) {
        let at = r.at.to_string();
        match self {
            Variant::OneMessage => pg_message::query(out, &one_message(r, &at)),
            Variant::Pipeline => {
                pg_message::bind_execute(out, SELECT, &[&r.term_no]);
                pg_message::bind_execute(out, UPDATE, &[&at, &r.term_no]);
                pg_message::bind_execute(out, INSERT, &[&r.card, &r.term_no, &r.auth_code, &at, &r.body]);
                pg_message::sync(out);
            }
        }
    }
}

/// The text. The values hold no quotes (see [`workload`]).
fn one_message(r: &Request, at: &str) -> String {
    let quoted = |s: &str| format!("'{s}'");
    let term_no = quoted(&r.term_no);
    [
        workload::select_sql(&term_no, true),
        workload::update_sql(at, &term_no),
        workload::insert_sql([&quoted(&r.card), &term_no, &quoted(&r.auth_code), at, &quoted(&r.body)]),
    ]
    .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Requests;

    #[test]
    fn one_message_is_one_query_of_three_statements() {
        let mut out = Vec::new();
        Variant::OneMessage.write(&Requests::new(0, 1, 1).next_request(), &mut out);
        assert_eq!((out[0], u32::from_be_bytes([out[1], out[2], out[3], out[4]]) as usize), (b'Q', out.len() - 1));
        assert_eq!(String::from_utf8_lossy(&out).matches("; ").count(), 2);
    }

    #[test]
    fn a_pipeline_ends_with_one_sync() {
        let mut out = Vec::new();
        Variant::Pipeline.write(&Requests::new(0, 1, 1).next_request(), &mut out);
        let mut kinds = Vec::new();
        let mut at = 0;
        while at < out.len() {
            kinds.push(out[at]);
            at += 1 + u32::from_be_bytes([out[at + 1], out[at + 2], out[at + 3], out[at + 4]]) as usize;
        }
        assert_eq!(kinds, b"BEBEBES");
    }
}
