//! A line on which everything takes the same time: a piece is delivered a fixed time after it came in, in the order in which
//! they came, however many are on their way at once. As light in a cable, and not as a messenger who is back before he
//! takes the next.
//!
//! Failure: where the far end is gone, what is on the line is lost, and the sender of more gets an error.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes on their way at once, about: the sender of more waits. Enough that 100 ms let through more than a disk takes.
const ON_THE_WAY_MAX: usize = 16 << 20;

/// See the module's description.
#[derive(Default)]
pub struct DelayLine {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When each piece is due.
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// A piece that is no longer on its way is being handed over.
    handing_over: bool,
    /// Nothing more comes.
    closed: bool,
    /// The far end takes nothing more.
    broken: bool,
}

impl DelayLine {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is on the line: a piece without a delay may be handed over directly.
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.on_the_way.is_empty() && !state.handing_over
    }

    /// Puts a piece that came in `now` on the line; false when the far end is gone. Without a delay it waits until the
    /// pieces before are delivered, so that a slow receiver slows the sender.
    pub fn put(&self, piece: &[u8], now: Instant, delay: Duration) -> bool {
        let most = if delay.is_zero() { 0 } else { ON_THE_WAY_MAX };
        let mut state = self.lock();
        while state.bytes > most && !state.broken {
            state = self.wait(state);
        }
        state.on_the_way.push_back((now + delay, piece.to_vec()));
        state.bytes += piece.len();
        self.changed.notify_all();
        !state.broken
    }

    /// Nothing more comes; what is on its way is still delivered.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Hands over each piece when it is due, until the line is closed and empty, or `take` says that it takes no more.
    pub fn deliver(&self, mut take: impl FnMut(&[u8]) -> bool) {
        // A sleep ends when it is due, not fifty microseconds later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while let Some((due, piece)) = self.next() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let taken = take(&piece);
            let mut state = self.lock();
            state.bytes -= piece.len();
            state.handing_over = false;
            state.broken = !taken;
            self.changed.notify_all();
            if !taken {
                return;
            }
        }
    }

    fn next(&self) -> Option<(Instant, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if let Some(first) = state.on_the_way.pop_front() {
                state.handing_over = true;
                return Some(first);
            }
            if state.closed {
                return None;
            }
            state = self.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn pieces_come_in_order_whatever_the_delays_are() {
        let line = DelayLine::default();
        let pieces: Vec<Vec<u8>> = (0..300usize).map(|i| vec![i as u8; 1 + i * 7 % 50]).collect();
        let mut got = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (i, piece) in pieces.iter().enumerate() {
                    let delay = Duration::from_millis([3, 0, 1][i % 3]);
                    assert!(line.put(piece, Instant::now(), delay));
                }
                line.close();
            });
            line.deliver(|piece| {
                got.extend_from_slice(piece);
                true
            });
        });
        assert_eq!(got, pieces.concat());
        assert!(line.is_idle());
    }

    #[test]
    fn pieces_are_on_their_way_together() {
        let (line, now) = (DelayLine::default(), Instant::now());
        (0..100).for_each(|i| assert!(line.put(&[i], now, LONG)));
        let state = line.lock();
        assert!(state.on_the_way.iter().all(|(due, _)| *due == now + LONG), "none waits for the one before");
        assert_eq!((state.on_the_way.len(), state.bytes), (100, 100));
    }

    #[test]
    fn nothing_is_delivered_before_its_time() {
        let (line, start, delay) = (DelayLine::default(), Instant::now(), Duration::from_millis(20));
        assert!(line.put(b"late", start, delay));
        line.close();
        let mut at = None;
        line.deliver(|_| {
            at = Some(Instant::now());
            true
        });
        assert!(at.unwrap() >= start + delay);
    }

    #[test]
    fn what_was_on_its_way_when_the_line_was_closed_arrives() {
        let line = DelayLine::default();
        for piece in [b"first", b"other"] {
            assert!(line.put(piece, Instant::now(), Duration::from_millis(1)));
        }
        line.close();
        let mut got = Vec::new();
        line.deliver(|piece| {
            got.push(piece.to_vec());
            true
        });
        assert_eq!(got, [b"first", b"other"]);
    }

    #[test]
    fn who_puts_more_on_a_line_without_an_end_is_told() {
        let line = DelayLine::default();
        assert!(line.put(b"first", Instant::now(), Duration::ZERO));
        line.deliver(|_| false);
        assert!(!line.put(b"second", Instant::now(), Duration::ZERO));
    }
}
