//! Runs a script's transactions with a number of clients for a time.
//!
//! A transaction that fails with a serialization failure or a deadlock is run again, and its time continues; any other
//! error ends the measurement, as its figures would mean nothing.

use super::script::{Script, Step, Transaction, with_values};
use crate::interrupt;
use crate::pg_client::Client;
use crate::pg_message::ServerError;
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Serialization failure and deadlock: PostgreSQL's advice is to run the transaction again.
const AGAIN: [&str; 2] = ["40001", "40P01"];

/// The time before a point's measuring begins, in which caches fill, as part of its own.
const WARM_UP: f64 = 0.2;

/// Runs what comes before the first transaction.
pub fn set_up(addr: SocketAddr, script: &Script) -> anyhow::Result<()> {
    let mut client = Client::connect(addr)?;
    script.set_up.iter().try_for_each(|message| client.run(message))
}

/// Runs the script with `clients` clients for `time`.
pub fn measure(addr: SocketAddr, script: &Script, clients: usize, time: Duration) -> anyhow::Result<Counted> {
    let failed = AtomicBool::new(false);
    let began = Instant::now();
    let (measured_from, end) = (began + time.mul_f64(WARM_UP), began + time.mul_f64(1.0 + WARM_UP));
    let live = |number: usize| {
        let done = Live::new(addr, number).and_then(|mut live| live.run(script, measured_from, end, &failed));
        // The others need not continue: there will be no figure.
        done.inspect_err(|_| failed.store(true, Ordering::Relaxed))
    };
    let all: Vec<anyhow::Result<Counted>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || live(number))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))).collect()
    });
    interrupt::check()?;
    let mut sum = Counted::default();
    for counted in all {
        let counted = counted?;
        sum.samples_us.extend(counted.samples_us);
        sum.retries += counted.retries;
    }
    anyhow::ensure!(!sum.samples_us.is_empty(), "no transaction ended within {time:?}: give more --seconds");
    Ok(sum)
}

/// How long each transaction took, and how many had to be run again.
#[derive(Default)]
pub struct Counted {
    pub samples_us: Vec<u32>,
    pub retries: u64,
}

/// A client at work.
struct Live {
    client: Client,
    number: i64,
    random: u64,
}

impl Live {
    fn new(addr: SocketAddr, number: usize) -> anyhow::Result<Live> {
        // Any start but 0 does; clients differ.
        let random = 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Ok(Live { client: Client::connect(addr)?, number: number as i64, random })
    }

    fn run(&mut self, script: &Script, from: Instant, end: Instant, failed: &AtomicBool) -> anyhow::Result<Counted> {
        let mut counted = Counted::default();
        while Instant::now() < end && !failed.load(Ordering::Relaxed) {
            interrupt::check()?;
            let transaction = self.pick(script);
            let started = Instant::now();
            let mut retries = 0;
            while !self.attempt(transaction)? {
                retries += 1;
            }
            let now = Instant::now();
            if started >= from && now <= end {
                counted.samples_us.push(u32::try_from((now - started).as_micros()).unwrap_or(u32::MAX));
                counted.retries += retries;
            }
        }
        Ok(counted)
    }

    fn pick<'a>(&mut self, script: &'a Script) -> &'a Transaction {
        let total: u64 = script.transactions.iter().map(|transaction| transaction.weight).sum();
        let mut left = self.next() % total;
        let found = script.transactions.iter().find(|transaction| {
            let hit = left < transaction.weight;
            left = left.saturating_sub(transaction.weight);
            hit
        });
        found.unwrap_or(&script.transactions[0])
    }

    /// One attempt at a transaction; false when it has to be run again.
    fn attempt(&mut self, transaction: &Transaction) -> anyhow::Result<bool> {
        let mut values = vec![("client", self.number)];
        for step in &transaction.steps {
            match step {
                Step::Set(name, least, most) => values.push((name, self.between(*least, *most))),
                Step::Message(message) => {
                    let message = with_values(message, &values);
                    let Err(error) = self.client.run(&message) else { continue };
                    let again = error.downcast_ref::<ServerError>().is_some_and(|e| AGAIN.contains(&e.state.as_str()));
                    // The error says what failed; a ROLLBACK outside a transaction is only a warning.
                    self.client.run("ROLLBACK").context("after a failed statement")?;
                    return if again { Ok(false) } else { Err(error) };
                }
            }
        }
        Ok(true)
    }

    /// xorshift64: repeatable, and random enough for choosing rows.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn between(&mut self, least: i64, most: i64) -> i64 {
        let width = (most as u64).wrapping_sub(least as u64);
        let offset = if width == u64::MAX { self.next() } else { self.next() % (width + 1) };
        least.wrapping_add(offset as i64)
    }
}
