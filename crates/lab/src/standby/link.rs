//! The link between two nodes as a port of its own: counts what goes over it, lets no more through than is asked for, and
//! takes as long as a distance would.
//!
//! A standby that is configured to follow this port follows the master behind it. Towards the standby a limit in bytes a second
//! holds; the way back is free. So a standby of known capacity is made: the limit is exact and the same in every run,
//! which neither a busy processor nor a process that is stopped and continued would be. A delay holds each way, and is
//! independent of the limit: see [`super::delay_line`].
//!
//! Failure: a connection that breaks on one side is closed on the other.

use super::delay_line::DelayLine;
use anyhow::Context;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between looks for a connection.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const BUFFER_BYTES: usize = 64 << 10;
/// A limited link passes pieces of this time.
const PIECE: Duration = Duration::from_millis(5);
/// Where there was something to pass, as much lateness as this is made good: on a busy machine a sleep of a few
/// milliseconds takes many, and a link that lost those would be slower than it was asked to be.
const LATE_MAX: Duration = Duration::from_secs(1);

/// See the module's description.
pub struct Link {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    master: Mutex<SocketAddr>,
    /// Bytes a second towards the standby; 0 is as many as there are.
    limit_bytes_rate: AtomicU64,
    /// What each way takes.
    delay_us: AtomicU64,
    /// Bytes that have gone towards the standby.
    passed: AtomicU64,
    /// Since [`Link::mark`]: bytes that had gone by then, and when the first of those after it went.
    mark: Mutex<(u64, Option<Instant>)>,
    ended: AtomicBool,
}

impl Link {
    /// Opens the port; connections to it go to `master`.
    pub fn open(master: SocketAddr) -> anyhow::Result<Link> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot open a link's port")?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            master: Mutex::new(master),
            limit_bytes_rate: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            mark: Mutex::new((0, None)),
            ended: AtomicBool::new(false),
        });
        let (addr, of_thread) = (listener.local_addr()?, shared.clone());
        std::thread::spawn(move || of_thread.accept(&listener));
        Ok(Link { addr, shared })
    }

    /// Connections from now on go there.
    pub fn lead_to(&self, master: SocketAddr) {
        *self.shared.master.lock().unwrap_or_else(PoisonError::into_inner) = master;
    }

    /// Limits the bytes a second to the standby; 0 lifts the limit.
    pub fn limit(&self, bytes_rate: u64) {
        self.shared.limit_bytes_rate.store(bytes_rate, Ordering::Relaxed);
    }

    /// Delivers what comes in from now on so much later, in each direction.
    pub fn delay(&self, one_way: Duration) {
        self.shared.delay_us.store(one_way.as_micros() as u64, Ordering::Relaxed);
    }

    /// Bytes that have gone to the standby so far.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    /// Counts from here.
    pub fn mark(&self) {
        *self.shared.mark.lock().unwrap_or_else(PoisonError::into_inner) = (self.passed(), None);
    }

    /// Bytes since the mark, and when the first of them went.
    pub fn since_mark(&self) -> (u64, Option<Instant>) {
        let (before, first) = *self.shared.mark.lock().unwrap_or_else(PoisonError::into_inner);
        (self.passed() - before, first)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        while !self.ended.load(Ordering::Relaxed) {
            match listener.accept() {
                // A master that is not there: the standby sees its connection close, as it would without the link.
                Ok((standby, _)) => drop(self.join(standby)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK_AGAIN),
                Err(_) => return,
            }
        }
    }

    /// Two threads carry what comes from either side to the other.
    fn join(self: &Arc<Shared>, standby: TcpStream) -> std::io::Result<()> {
        let master = TcpStream::connect(*self.master.lock().unwrap_or_else(PoisonError::into_inner))?;
        standby.set_nonblocking(false)?;
        for stream in [&standby, &master] {
            stream.set_nodelay(true)?;
        }
        let (from_standby, to_master) = (standby.try_clone()?, master.try_clone()?);
        let of_thread = self.clone();
        std::thread::spawn(move || of_thread.carry(master, standby, true));
        let of_thread = self.clone();
        std::thread::spawn(move || of_thread.carry(from_standby, to_master, false));
        Ok(())
    }

    /// Carries until one side closes; then, when what was on its way has arrived, closes both.
    fn carry(&self, from: TcpStream, to: TcpStream, to_standby: bool) {
        let line = DelayLine::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                line.deliver(|piece| {
                    let delivered = self.pass(&to, piece, to_standby);
                    if !delivered {
                        // Wakes the thread that waits for more to carry.
                        let _ = from.shutdown(Shutdown::Both);
                    }
                    delivered
                });
            });
            self.take(&from, &to, &line, to_standby);
            line.close();
        });
        // One that is closed already needs nothing.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Takes in what comes, no faster than the limit, and passes it on or puts it on the line.
    fn take(&self, mut from: &TcpStream, to: &TcpStream, line: &DelayLine, to_standby: bool) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut free_at = Instant::now();
        while !self.ended.load(Ordering::Relaxed) {
            let limit = if to_standby { self.limit_bytes_rate.load(Ordering::Relaxed) } else { 0 };
            let piece = (limit as f64 * PIECE.as_secs_f64()) as usize;
            let size = if limit == 0 { BUFFER_BYTES } else { piece.clamp(1, BUFFER_BYTES) };
            // Something waits: if it is late, that is the link's doing.
            let waits = limit > 0 && rustix::io::ioctl_fionread(from).is_ok_and(|bytes| bytes > 0);
            let n = match from.read(&mut buffer[..size]) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if limit > 0 {
                let now = Instant::now();
                free_at = free_again(free_at, now, waits, Duration::from_secs_f64(n as f64 / limit as f64));
                std::thread::sleep(free_at.saturating_duration_since(now));
            }
            let delay = Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
            let goes_on = if delay.is_zero() && line.is_idle() {
                self.pass(to, &buffer[..n], to_standby)
            } else {
                line.put(&buffer[..n], Instant::now(), delay)
            };
            if !goes_on {
                break;
            }
        }
    }

    /// Passes a piece on and counts it; false when the other side is gone.
    fn pass(&self, mut to: &TcpStream, piece: &[u8], to_standby: bool) -> bool {
        let passed = to.write_all(piece).is_ok();
        if passed && to_standby {
            self.mark.lock().unwrap_or_else(PoisonError::into_inner).1.get_or_insert_with(Instant::now);
            self.passed.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        passed
    }
}

/// When the link is free again after a piece that takes this time. Time that passed without use is not made good beyond one
/// piece; lateness is.
fn free_again(free_at: Instant, now: Instant, waits: bool, takes: Duration) -> Instant {
    let made_good = if waits { LATE_MAX } else { PIECE };
    free_at.max(now - made_good) + takes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends `bytes` to each client that connects, and returns what it received.
    fn sender(bytes: usize) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![7; bytes]).unwrap();
            // Before its own end: the link closes both ways when one side has closed.
            let mut got = vec![0; 3];
            stream.read_exact(&mut got).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            got
        });
        (addr, thread)
    }

    #[test]
    fn lateness_is_made_good_and_idleness_is_not() {
        let (free_at, ms) = (Instant::now() + LATE_MAX, Duration::from_millis);
        let again = |late, waits| free_again(free_at, free_at + late, waits, PIECE);
        assert_eq!(again(ms(100), true), free_at + PIECE, "the next piece goes at once");
        assert_eq!(again(ms(100), false), free_at + ms(100));
        assert_eq!(again(LATE_MAX + ms(100), true), free_at + ms(100) + PIECE, "a second at most");
        assert_eq!(again(ms(0), false), free_at + PIECE);
    }

    #[test]
    fn what_goes_through_is_counted_limited_and_late() {
        let (none, ms) = (Duration::ZERO, Duration::from_millis);
        // A limit, a delay each way, and both: the delay comes once, not for each piece.
        for (limit, delay, least) in
            [(0, none, none), (1_000_000, none, ms(150)), (0, ms(20), ms(20)), (1_000_000, ms(20), ms(170))]
        {
            let (addr, thread) = sender(200_000);
            let link = Link::open("127.0.0.1:1".parse().unwrap()).unwrap();
            link.lead_to(addr);
            link.limit(limit);
            link.delay(delay);
            let start = Instant::now();
            let mut stream = TcpStream::connect(link.addr).unwrap();
            stream.write_all(b"ack").unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!((got.len(), link.passed()), (200_000, 200_000));
            // The only timing: a limit and a delay hold at least this long, however slow the machine is.
            assert!(start.elapsed() >= least);
            assert_eq!(thread.join().unwrap(), b"ack");
        }
    }
}
