//! Connections that have not completed their start-up, and a bound on their number.
//!
//! A client that connects and sends nothing, or sends its start-up packet byte by byte, holds a descriptor until the time
//! for the start-up has passed. Such connections are counted apart from sessions, so they take no place of a session, and
//! there are at most `half_open_max` of them. When a further client connects, one is closed for it:
//!
//! - of the address that has most of them (of an IPv6 network of 64 bits, of a user of the Unix socket) the oldest;
//! - after the server has waited for it for at least [`UNDISTURBED`], so that a crowd of honest clients that connect at once is not
//!   cut, nor what they have sent left unread by a busy server; until then new clients wait in the system's queue;
//! - at once for a client of another address when one address has more than half of the places.
//!
//! Failure: a client that is slower than the attack is quick is closed without a message; the log counts such connections.

use crate::peer::PeerAddress;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// The time that a new connection has before it may be closed for another one.
const UNDISTURBED: Duration = Duration::from_millis(500);

/// The least time between two lines in the log about closed connections.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

/// What connections of one origin share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    V4([u8; 4]),
    /// The first 64 bits: one customer's or one machine's network.
    V6([u8; 8]),
    User(u32),
    Unknown,
}

impl Origin {
    fn of(peer: Option<PeerAddress>) -> Origin {
        match peer {
            Some(PeerAddress::Tcp { client, .. }) => match client.ip().to_canonical() {
                IpAddr::V4(address) => Origin::V4(address.octets()),
                IpAddr::V6(address) => {
                    let [a, b, c, d, e, f, g, h, ..] = address.octets();
                    Origin::V6([a, b, c, d, e, f, g, h])
                }
            },
            Some(PeerAddress::Unix { uid, .. }) => Origin::User(uid),
            None => Origin::Unknown,
        }
    }
}

/// Whether a connection has to make room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    No,
    /// When the server has waited for its client for [`UNDISTURBED`].
    Undisturbed,
    Now,
}

struct Entry {
    origin: Origin,
    since: Instant,
    leave: Arc<watch::Sender<Leave>>,
}

impl Entry {
    fn is_leaving(&self) -> bool {
        *self.leave.borrow() != Leave::No
    }
}

#[derive(Default)]
struct State {
    /// By age.
    all: BTreeMap<u64, Entry>,
    last: u64,
    closed: u64,
    reported: Option<Instant>,
}

/// The connections of a server that have not completed their start-up.
pub(crate) struct Newcomers {
    max: usize,
    state: Mutex<State>,
    left: Notify,
}

/// One such connection. Dropping it ends its start-up, in success or not.
pub(crate) struct Newcomer {
    all: Arc<Newcomers>,
    id: u64,
    leave: Arc<watch::Sender<Leave>>,
    deadline: Instant,
    /// When the server first waited for this client.
    waits_since: OnceLock<Instant>,
}

/// Why a start-up was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// It took longer than `startup_timeout`.
    Late,
    /// A newer connection has its place.
    Displaced,
}

impl Newcomers {
    pub fn new(max: usize) -> Arc<Newcomers> {
        Arc::new(Newcomers { max: max.max(1), state: Mutex::default(), left: Notify::new() })
    }

    /// Waits for a place, closes another connection for it where that is necessary, and takes it. The start-up must be complete
    /// after `limit`.
    pub async fn admit(self: &Arc<Newcomers>, peer: Option<PeerAddress>, limit: Duration) -> Newcomer {
        let origin = Origin::of(peer);
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            let wait = {
                let mut state = self.state.lock();
                if state.all.len() < self.max {
                    return self.enter(&mut state, origin, limit);
                }
                state.displace(origin, self.max)
            };
            tokio::select! {
                () = left => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn enter(self: &Arc<Newcomers>, state: &mut State, origin: Origin, limit: Duration) -> Newcomer {
        let (since, leave) = (Instant::now(), Arc::new(watch::Sender::new(Leave::No)));
        state.last += 1;
        let id = state.last;
        state.all.insert(id, Entry { origin, since, leave: leave.clone() });
        Newcomer { all: self.clone(), id, leave, deadline: since + limit, waits_since: OnceLock::new() }
    }
}

impl State {
    /// Asks one connection to leave, if one may be asked. Returns when to look again.
    fn displace(&mut self, newcomer: Origin, max: usize) -> Duration {
        let mut counts: HashMap<Origin, usize> = HashMap::new();
        self.all.values().for_each(|entry| *counts.entry(entry.origin).or_default() += 1);
        let most = counts.values().copied().max().unwrap_or(0);
        let is_crowd = |entry: &Entry| counts.get(&entry.origin) == Some(&most);
        let Some(oldest) = self.all.values().find(|entry| !entry.is_leaving() && is_crowd(entry)) else {
            return UNDISTURBED;
        };
        let at_once = most > max / 2 && oldest.origin != newcomer;
        let age = oldest.since.elapsed();
        if age < UNDISTURBED && !at_once {
            return UNDISTURBED - age;
        }
        oldest.leave.send_replace(if at_once { Leave::Now } else { Leave::Undisturbed });
        self.closed += 1;
        if self.reported.is_none_or(|at| at.elapsed() >= REPORT_PAUSE) {
            let closed = std::mem::take(&mut self.closed);
            self.reported = Some(Instant::now());
            tracing::warn!(
                closed,
                "connections that did not complete their start-up are closed for new ones: {max} are open (half_open_max)"
            );
        }
        UNDISTURBED
    }
}

impl Newcomer {
    /// Runs a part of the start-up.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, LeftOut> {
        let undisturbed_until = *self.waits_since.get_or_init(Instant::now) + UNDISTURBED;
        let displaced = async {
            let mut leave = self.leave.subscribe();
            // The sender is this connection's own, so the wait does not fail.
            let asked = leave.wait_for(|leave| *leave != Leave::No).await.map_or(Leave::Now, |leave| *leave);
            if asked == Leave::Undisturbed {
                tokio::time::sleep_until(undisturbed_until.into()).await;
            }
        };
        tokio::select! {
            biased;
            done = tokio::time::timeout_at(self.deadline.into(), work) => done.map_err(|_| LeftOut::Late),
            () = displaced => Err(LeftOut::Displaced),
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.all.state.lock().all.remove(&self.id);
        self.all.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn tcp(address: &str) -> Option<PeerAddress> {
        let client = format!("{address}:1000").parse().unwrap();
        Some(PeerAddress::Tcp { client, server: client })
    }

    /// Whether it was asked to leave.
    fn is_displaced(newcomer: &Newcomer) -> bool {
        newcomer.all.state.lock().all[&newcomer.id].is_leaving()
    }

    #[tokio::test]
    async fn the_oldest_of_the_largest_crowd_leaves() {
        let all = Newcomers::new(4);
        let mut crowd = Vec::new();
        let other = all.admit(tcp("10.0.0.9"), LIMIT).await;
        for _ in 0..3 {
            crowd.push(all.admit(tcp("10.0.0.1"), LIMIT).await);
        }
        // A client of a third address does not wait.
        let third = tokio::spawn({
            let all = all.clone();
            async move { all.admit(tcp("10.0.0.3"), LIMIT).await }
        });
        assert_eq!(crowd[0].within(std::future::pending::<()>()).await, Err(LeftOut::Displaced));
        drop(crowd.remove(0));
        let third = third.await.unwrap();
        assert!(!is_displaced(&other) && !is_displaced(&third) && !is_displaced(&crowd[0]));
        assert_eq!(all.state.lock().all.len(), 4);
    }

    /// A busy server comes to a connection when others wait already.
    #[tokio::test]
    async fn what_a_client_has_sent_is_read_before_it_is_closed() {
        let all = Newcomers::new(1);
        let first = all.admit(None, LIMIT).await;
        let second = tokio::spawn({
            let all = all.clone();
            async move { all.admit(None, LIMIT).await }
        });
        while !is_displaced(&first) {
            tokio::task::yield_now().await;
        }
        let arrives = async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(first.within(arrives).await, Ok(()));
        assert_eq!(first.within(std::future::pending::<()>()).await, Err(LeftOut::Displaced), "it sends nothing more");
        drop(first);
        second.await.unwrap();
    }

    #[tokio::test]
    async fn a_start_up_has_its_time() {
        let all = Newcomers::new(1);
        let first = all.admit(None, Duration::from_millis(10)).await;
        assert_eq!(first.within(std::future::pending::<()>()).await, Err(LeftOut::Late));
    }

    #[test]
    fn networks_of_ipv6_are_one_origin() {
        let origin = |address: &str| {
            let client = address.parse().unwrap();
            Origin::of(Some(PeerAddress::Tcp { client, server: client }))
        };
        assert_eq!(origin("[2001:db8:1:2::1]:5"), origin("[2001:db8:1:2:ffff::7]:9"));
        assert_ne!(origin("[2001:db8:1:2::1]:5"), origin("[2001:db8:1:3::1]:5"));
        assert_eq!(origin("[::ffff:10.0.0.1]:5"), origin("10.0.0.1:6"));
    }
}
