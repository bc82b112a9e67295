//! How large one result may be: `result_rows_max` and `result_bytes_max`.
//!
//! A query that forgot its WHERE can keep a server and a network busy for minutes, and its client out of memory. The limits end it
//! with 54000 at the first row too many. What was sent before stays sent: in PostgreSQL's protocol an error can follow rows.

use holdfast_types::{SqlError, SqlState};

/// The limits of each result of a session; the greatest number where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimits {
    rows: u64,
    bytes: u64,
}

impl Default for ResultLimits {
    fn default() -> ResultLimits {
        ResultLimits { rows: u64::MAX, bytes: u64::MAX }
    }
}

impl ResultLimits {
    /// At most `rows` rows, and `bytes` bytes of messages; 0 is no limit.
    pub fn new(rows: u64, bytes: u64) -> ResultLimits {
        let limit = |number| if number == 0 { u64::MAX } else { number };
        ResultLimits { rows: limit(rows), bytes: limit(bytes) }
    }

    /// 54000 for a result that has grown to `rows` rows and `bytes` bytes.
    #[inline]
    pub(crate) fn check(&self, rows: u64, bytes: u64) -> Result<(), SqlError> {
        if rows > self.rows || bytes > self.bytes { Err(self.exceeded(rows)) } else { Ok(()) }
    }

    #[cold]
    fn exceeded(&self, rows: u64) -> SqlError {
        let (what, name, limit) = match rows > self.rows {
            true => (format!("more than {} rows", self.rows), "result_rows_max", self.rows),
            false => (format!("more than {} bytes", self.bytes), "result_bytes_max", self.bytes),
        };
        SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("the result has {what}"))
            .with_detail(format!("{name} is {limit} in this session."))
            .with_hint(format!(
                "Narrow the query, fetch it in parts through a cursor, or SET {name} to a larger number."
            ))
    }
}
