//! The longest pause of other clients while one transaction of 174 MiB is copied in and committed, and shortly after.
//!
//! A pause is a time in which none of forty clients that run authorizations has an answer, looked at every
//! millisecond. Failure: a transaction or a load that fails is an error of this turn.

use crate::drive::Span;
use crate::interactive::Stand;
use crate::pg_client::Client;
use crate::schedule::Load;
use crate::wire_drive::{Connections, Watch};
use crate::wire_transaction::Variant;
use crate::workload;
use anyhow::Context;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between looks.
const EVERY: Duration = Duration::from_millis(1);
/// How long the others work before the transaction begins, and how long pauses are looked for after its commit.
const AROUND: Duration = Duration::from_secs(2);
/// The load ends earlier, when the transaction is done.
const LOAD_MAX: Duration = Duration::from_secs(600);
/// Bytes of a row's other columns, about.
const KEY_BYTES: u64 = 12;

/// The longest pause in seconds; `epoch` is a number no earlier run on these rows has used.
pub fn measure(stand: &Stand, bytes: u64, clients: usize, epoch: u64) -> anyhow::Result<f64> {
    let mut client = Client::connect(stand.peer.addr)?;
    // A turn that failed may have left it.
    client.run("drop table if exists bulk")?;
    client.run("create table bulk (id bigint primary key, body text not null)")?;
    let mut connections = Connections::open(stand.peer.addr, Variant::OneMessage, clients)?;
    let watch = Watch::default();
    let span = Span { warm_up: Duration::ZERO, measured: LOAD_MAX };
    let longest = std::thread::scope(|scope| {
        let driving = scope.spawn(|| connections.drive_watched(Load::Closed { clients }, span, epoch, &watch));
        std::thread::sleep(AROUND);
        let looking = scope.spawn(|| longest_pause(&watch));
        let done = commit(&mut client, bytes);
        if done.is_ok() {
            std::thread::sleep(AROUND);
        }
        watch.stop.store(true, Ordering::Relaxed);
        let longest = looking.join().map_err(|_| anyhow::anyhow!("the watching panicked"))?;
        driving.join().map_err(|_| anyhow::anyhow!("the load panicked"))?.context("the load of the others failed")?;
        done.map(|()| longest)
    })?;
    client.run("drop table bulk")?;
    Ok(longest.as_secs_f64())
}

fn commit(client: &mut Client, bytes: u64) -> anyhow::Result<()> {
    let body = workload::log_body();
    let rows = bytes / (body.len() as u64 + KEY_BYTES);
    client.run("begin")?;
    client.copy_in("copy bulk from stdin", (0..rows).map(|row| format!("{row}\t{body}")))?;
    client.run("commit")
}

/// The longest time without an answer until the load is stopped.
fn longest_pause(watch: &Watch) -> Duration {
    let (mut pauses, start) = (Pauses::default(), Instant::now());
    while !watch.stop.load(Ordering::Relaxed) {
        pauses.look(start.elapsed(), watch.answered.load(Ordering::Relaxed));
        std::thread::sleep(EVERY);
    }
    pauses.look(start.elapsed(), watch.answered.load(Ordering::Relaxed));
    pauses.longest
}

/// What looks at a counter of answers have shown.
#[derive(Default)]
struct Pauses {
    longest: Duration,
    answered: u64,
    /// When the counter was first seen at its value.
    since: Duration,
}

impl Pauses {
    /// A look at a time: the answer that ends a pause came no later.
    fn look(&mut self, at: Duration, answered: u64) {
        self.longest = self.longest.max(at - self.since);
        if answered != self.answered {
            (self.answered, self.since) = (answered, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_an_answer_is_the_pause() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::default();
        for (at, answered) in [(1, 5), (2, 9), (3, 9), (4, 9), (40, 10), (41, 11), (60, 11)] {
            pauses.look(ms(at), answered);
        }
        assert_eq!(pauses.longest, ms(38), "from 2 to 40");
    }
}
