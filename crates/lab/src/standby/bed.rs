//! What the parts share: the study's options and sizes, the progress, room on the disk, what must hold afterwards.
//!
//! Failure: a node that cannot be asked is an error; nodes that differ are recorded, and the run fails at its end.

use super::pair::{CATCH_UP_MAX, Pair};
use super::part::Sizes;
use super::results::Results;
use crate::pg_client::Client;
use crate::progress::Progress;
use crate::study_results::Checked;
use crate::{Study, machine};
use std::path::Path;

/// Kept free on the disk.
const RESERVE_BYTES: u64 = 1 << 30;
/// What both nodes must agree on, and what it is called. Sums are of remainders: of the times themselves they would pass
/// 64 bits.
const SAME: [(&str, &str); 3] = [
    ("the log", "select count(*), sum(id), sum(at % 1000000007) from txn_log"),
    ("the terminals", "select count(*), sum(approved_count), sum(last_at % 1000000007) from terminal"),
    ("the large transactions", "select count(*), sum(id % 1000000007) from bulk"),
];

/// See the module's description.
pub struct Bed<'a> {
    pub study: &'a Study,
    pub sizes: &'a Sizes,
    pub scratch: &'a Path,
    pub progress: &'a Progress,
}

impl Bed<'_> {
    /// Fails with advice when the disk is nearly full.
    pub fn room(&self) -> anyhow::Result<()> {
        self.room_for(0)
    }

    /// Requires room for a part that writes this many bytes.
    pub fn room_for(&self, bytes: u64) -> anyhow::Result<()> {
        machine::require_free(self.scratch, bytes + if self.study.quick { 0 } else { RESERVE_BYTES })
    }

    /// Compares the nodes; what differs is a failure of the run. `which` names the pair among several.
    pub fn compare(&self, pair: &mut Pair, which: &str, results: &mut Results) -> anyhow::Result<()> {
        pair.need_standby()?;
        pair.catch_up(CATCH_UP_MAX)?;
        let (mut master, mut standby) = (Client::connect(pair.master()?.addr)?, Client::connect(pair.standby()?.addr)?);
        for (what, sql) in SAME {
            let (here, there) = (master.rows(sql)?, standby.rows(sql)?);
            let show = |rows: &[Vec<Option<String>>]| {
                let cells = rows.iter().flatten().map(|cell| cell.as_deref().unwrap_or("NULL"));
                cells.collect::<Vec<_>>().join(", ")
            };
            results.check(
                pair.name(),
                &format!("master and standby agree on {what}{which}"),
                here == there,
                format!("master {}, standby {}", show(&here), show(&there)),
            );
        }
        let updates = master.number("select sum(approved_count) from terminal")?;
        let found = format!("{} acknowledged, {updates} in the table", pair.answered);
        results.check(
            pair.name(),
            &format!("what was acknowledged is there{which}"),
            updates == pair.answered as f64,
            found,
        );
        Ok(())
    }
}
