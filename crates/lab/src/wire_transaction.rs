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
    /// The statements of the pipeline, each with a Sync of its own, as of a program that starts no transactions. The session has
    /// automatic ones.
    Automatic,
}

const SELECT: &str = "select_terminal";
const UPDATE: &str = "update_terminal";
const INSERT: &str = "insert_log";

impl Variant {
    /// Statements to prepare on each connection.
    pub fn statements(self) -> Vec<(&'static str, String)> {
        match self {
            Variant::OneMessage => Vec::new(),
            Variant::Pipeline | Variant::Automatic => vec![
                (SELECT, workload::select_sql("$1", true)),
                (UPDATE, workload::update_sql("$1", "$2")),
                (INSERT, workload::insert_sql(["$1", "$2", "$3", "$4", "$5"])),
            ],
        }
    }

    /// What the session asks for when it starts.
    pub fn options(self) -> Option<&'static str> {
        (self == Variant::Automatic).then_some("-c auto_transaction=on")
    }

    /// So many ReadyForQuery end the answer to one authorization.
    pub fn answers(self) -> usize {
        if self == Variant::Automatic { 3 } else { 1 }
    }

    /// Appends the messages of one authorization.
    pub fn write(self, r: &Request, out: &mut Vec<u8>) {
        let at = r.at.to_string();
        match self {
            Variant::OneMessage => pg_message::query(out, &one_message(r, &at)),
            Variant::Pipeline | Variant::Automatic => {
                let apart = |out: &mut Vec<u8>| {
                    if self == Variant::Automatic {
                        pg_message::sync(out);
                    }
                };
                pg_message::bind_execute(out, SELECT, &[&r.term_no]);
                apart(out);
                pg_message::bind_execute(out, UPDATE, &[&at, &r.term_no]);
                apart(out);
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

    /// The types of the messages that a variant sends for one authorization.
    fn kinds(variant: Variant) -> Vec<u8> {
        let mut out = Vec::new();
        variant.write(&Requests::new(0, 1, 1).next_request(), &mut out);
        let mut kinds = Vec::new();
        let mut at = 0;
        while at < out.len() {
            kinds.push(out[at]);
            at += 1 + u32::from_be_bytes([out[at + 1], out[at + 2], out[at + 3], out[at + 4]]) as usize;
        }
        kinds
    }

    #[test]
    fn a_pipeline_ends_with_one_sync_and_automatic_statements_with_one_each() {
        assert_eq!(kinds(Variant::Pipeline), b"BEBEBES");
        assert_eq!(kinds(Variant::Automatic), b"BESBESBES");
        for variant in [Variant::Pipeline, Variant::Automatic] {
            assert_eq!(kinds(variant).iter().filter(|k| **k == b'S').count(), variant.answers());
        }
    }
}
