//! The reply of a statement in an automatic transaction, counting the rows that it changes.

use crate::session::writing::Lent;
use holdfast_types::{Row, Sink, SqlResult, StatementDesc, Tag};
use holdfast_wire::Reply;
use std::sync::Arc;

pub struct Counted {
    reply: Box<Reply>,
    rows: u64,
}

impl Counted {
    pub fn new(reply: Box<Reply>) -> Counted {
        Counted { reply, rows: 0 }
    }
}

impl Lent for Counted {
    type With = u64;

    fn back(self: Box<Counted>) -> (Box<Reply>, u64) {
        (self.reply, self.rows)
    }
}

impl Sink for Counted {
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

    fn keep(&mut self) {
        self.reply.keep();
    }

    fn reset(&mut self) {
        self.rows = 0;
        self.reply.reset();
    }
}
