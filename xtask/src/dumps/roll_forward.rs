//! The last dump and the archive since: restored, looked at, and one transaction of it undone.

use anyhow::ensure;

use super::load::Load;
use super::table::gigabytes;
use super::{Bed, server};
use crate::server::Address;

/// What must be equal before and after.
const SUMS: &str =
    "SELECT count(*), (SELECT sum(approved_count) FROM terminal), (SELECT sum(n) FROM item) FROM txn_log";

/// A row that one transaction changes, to be found.
const BAD_UPDATE: &str = "UPDATE item SET n = 4711 WHERE id = 4242";

impl Bed<'_> {
    pub fn roll_forward(&mut self) -> anyhow::Result<()> {
        let first = self.ours.dump()?.name;
        self.theirs.incremental()?;
        let load = |address| Load { address, clients: self.of.clients, seconds: self.of.seconds };
        let (count, theirs_load) = load(self.theirs.address).transactions(self.of.transactions)?;
        let (_, ours_load) = load(self.ours.address()).transactions(self.of.transactions)?;
        let rate = |seconds: f64| format!("{seconds:.1} s, {:.0} tx/s", count as f64 / seconds);
        let name = format!("{count} authorizations");
        self.table.row(&name, &rate(theirs_load), &rate(ours_load), theirs_load / ours_load, "rate");
        self.ours.address().sql(server::USER, BAD_UPDATE)?;
        self.theirs.address.sql(server::USER, BAD_UPDATE)?;
        self.theirs.archive_all()?;
        self.ours.archive_all()?;
        let (theirs, ours) = (self.restore_theirs()?, self.restore_ours()?);
        self.table.row(
            "restore and roll-forward, to the first answer",
            &format!("{:.1} s", theirs.all),
            &format!("{:.1} s", ours.all),
            theirs.all / ours.all,
            "speed, goal at least 2",
        );
        self.table.row(
            "the dump's pages alone",
            &format!("{:.1} s", theirs.pages),
            &format!("{:.1} s", ours.pages),
            theirs.pages / ours.pages,
            "speed",
        );
        self.table.row(
            "roll-forward alone",
            &rate(theirs.trail),
            &rate(ours.trail),
            theirs.trail / ours.trail,
            &format!("{:.1} times the load's rate, goal at least 4", ours_load / ours.trail),
        );
        self.look(&first)?;
        self.undo()
    }

    fn restore_theirs(&self) -> anyhow::Result<Times> {
        let restored = self.theirs.restore()?;
        equal(self.theirs.address, restored.address)?;
        let (all, pages) = (restored.seconds, restored.pages_seconds);
        Ok(Times { all, pages, trail: all - pages })
    }

    fn restore_ours(&self) -> anyhow::Result<Times> {
        let (parts, restarted) = self.ours.restore()?;
        equal(self.ours.address(), restarted.address())?;
        println!(
            "Holdfast restored {} and {} of trail in {:.1} s and {:.1} s",
            gigabytes(parts.bytes),
            gigabytes(parts.trail_bytes),
            parts.dump_seconds,
            parts.trail_seconds
        );
        Ok(Times { all: restarted.seconds, pages: parts.dump_seconds, trail: restarted.seconds - parts.dump_seconds })
    }

    /// From the last dump with the load since, and from the first one, with a change on every page since.
    fn look(&mut self, last: &str) -> anyhow::Result<()> {
        let cases = [
            ("look, the load since the dump", last.to_owned()),
            ("look, each 100th row and the load since", self.ours.first_dump()?),
        ];
        for (name, dump) in cases {
            let seconds = self.ours.look(&dump, "SELECT n FROM item WHERE id = 4242")?;
            self.table.row(name, "", &format!("{seconds:.1} s"), f64::NAN, "to the first answer, goal below 2 s");
        }
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let (find, undo) = self.ours.find_and_undo("item", "id = 4242")?;
        let seconds = format!("{find:.1} s + {undo:.1} s");
        self.table.row("find by key, undo", "", &seconds, f64::NAN, "goal below 5 s");
        Ok(())
    }
}

/// Seconds.
struct Times {
    all: f64,
    pages: f64,
    /// From there to the first answer.
    trail: f64,
}

fn equal(one: Address, other: Address) -> anyhow::Result<()> {
    let (one, other) = (one.sql(server::USER, SUMS)?, other.sql(server::USER, SUMS)?);
    ensure!(one == other, "the restored server has {other}, the one before {one}");
    Ok(())
}
