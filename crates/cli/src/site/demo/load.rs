//! The load at head office, and how long its commits take to reach the sites.

use super::server::connect;
use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How often a beat is written, and how often a site is asked for it.
const BEAT_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A description as the study writes them: 300 characters of prose.
const PROSE: &str = "Served as supply sergeant of a forward support company, accountable for property worth 4.2 million dollars \
    with no loss in two inspections; trained eleven soldiers, of whom three were promoted; requalified on the unit's vehicles; \
    recommended for the advanced course and for assignment to a brigade staff at the next";

/// What the tasks of the load share.
pub struct Load {
    pub commits: AtomicU64,
    stop: AtomicBool,
    /// When each beat was committed.
    beats: parking_lot::Mutex<Vec<Instant>>,
}

impl Load {
    pub fn new() -> Arc<Load> {
        Arc::new(Load {
            commits: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            beats: parking_lot::Mutex::default(),
        })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Updates descriptions until it is stopped; connects again when the server was killed.
    pub async fn clerk(self: Arc<Load>, port: u16, people: u64, seed: u64) {
        let (mut state, mut count) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, 0_u64);
        while !self.stopped() {
            let Ok(client) = connect(port, "holdfast").await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            while !self.stopped() {
                // A small generator: which person is next need not be unpredictable.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                count += 1;
                let id = (state % people + 1) as i32;
                let text = format!("{count} {PROSE}");
                let update = "UPDATE per SET dscrptn_text = $1 WHERE id = $2";
                if client.execute(update, &[&text.get(..300).unwrap_or(&text), &id]).await.is_err() {
                    break;
                }
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes the beats by which the way to the sites is measured, until it is stopped.
    pub async fn drum(self: Arc<Load>, port: u16) -> anyhow::Result<()> {
        let client = connect(port, "holdfast").await?;
        while !self.stopped() {
            let number = self.beats.lock().len() as i64;
            client.execute("UPDATE beat SET n = $1", &[&number]).await.context("a beat")?;
            self.beats.lock().push(Instant::now());
            tokio::time::sleep(BEAT_EVERY).await;
        }
        Ok(())
    }

    /// Notes when a site has each beat; the latencies, sorted.
    pub async fn listens(self: Arc<Load>, client: Client) -> anyhow::Result<Vec<Duration>> {
        let (mut latencies, mut seen) = (Vec::new(), -1_i64);
        while !self.stopped() {
            let row = client.query_opt("SELECT n FROM beat", &[]).await.context("a site does not answer")?;
            let now = Instant::now();
            let number: i64 = row.map_or(-1, |row| row.get(0));
            if number > seen
                && let Some(at) = usize::try_from(number).ok().and_then(|at| self.beats.lock().get(at).copied())
            {
                seen = number;
                latencies.push(now.saturating_duration_since(at));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        latencies.sort_unstable();
        Ok(latencies)
    }
}
