//! The reply of a statement in an automatic transaction, counting the rows that it changes.

use crate::session::reply_sink::ReplySink;
use holdfast_types::{Row, Sink, SqlResult, StatementDesc, Tag};
use holdfast_wire::Reply;
use std::sync::Arc;

pub struct CountedReply {
    reply: Box<Reply>,
    rows: u64,
}

impl CountedReply {
    pub fn new(reply: Box<Reply>) -> CountedReply {
        CountedReply { reply, rows: 0 }
    }
}

impl ReplySink for CountedReply {
    type Extra = u64;

    fn into_reply(self: Box<CountedReply>) -> (Box<Reply>, u64) {
        (self.reply, self.rows)
    }
}

impl Sink for CountedReply {
    fn begin(&mut self, step: usize, desc: &Arc<StatementDesc>) {
        self.reply.begin(step, desc);
    }

    fn row(&mut self, row: &dyn Row) -> SqlResult<()> {
        self.reply.row(row)
    }

    fn end(&mut self, tag: &Tag) {
        if tag.verb != "SELECT" {
            self.rows += tag.rows.unwrap_or(0);
        }
        self.reply.end(tag);
    }

    fn recorded(&mut self, bytes: u64, images: u64) {
        self.reply.recorded(bytes, images);
    }

    fn keep(&mut self) {
        self.reply.keep();
    }

    fn reset(&mut self) {
        self.rows = 0;
        self.reply.reset();
    }
}
