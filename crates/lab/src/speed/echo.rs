//! A server that does nothing: it reads the messages that a client of PostgreSQL sends and answers each as briefly as a
//! server could, whatever is asked. Its rate is what the client, the kernel and the loopback leave to any server.
//!
//! One thread serves all connections with one epoll. Failure: a message that no benchmark sends ends its connection.

use super::echo_session::Session;
use crate::process_cpu;
use anyhow::Context;
use rustix::event::epoll;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The listening socket among the connections.
const LISTENER: u64 = u64::MAX;
/// Longest wait before looking whether to stop.
const LOOK_UP: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Events taken at a time.
const EVENTS_MAX: usize = 256;

/// See the module's description. It ends when dropped.
pub struct Echo {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Processor time of the thread so far.
    cpu_us: AtomicU64,
}

impl Echo {
    /// Listens on a port of its own.
    pub fn start() -> anyhow::Result<Echo> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen for the echo")?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll")?;
        epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let shared = Arc::<Shared>::default();
        let mut server = Server { listener, poll, sessions: HashMap::new(), next: 0 };
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || server.serve(&of_thread));
        Ok(Echo { addr, shared, thread: Some(thread) })
    }

    /// Processor time used so far, to within the time between two looks of an idle server.
    pub fn cpu(&self) -> Duration {
        Duration::from_micros(self.shared.cpu_us.load(Ordering::Relaxed))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has served nothing since; the run that used it has failed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    listener: TcpListener,
    poll: OwnedFd,
    sessions: HashMap<u64, Session>,
    next: u64,
}

impl Server {
    fn serve(&mut self, shared: &Shared) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !shared.stop.load(Ordering::Relaxed) {
            events.clear();
            let found = epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&LOOK_UP));
            match found {
                Ok(0) => shared.cpu_us.store(process_cpu::this_thread().as_micros() as u64, Ordering::Relaxed),
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    of => self.answer(of),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let at = self.next;
            let ready = stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok();
            if ready && epoll::add(&self.poll, &stream, epoll::EventData::new_u64(at), epoll::EventFlags::IN).is_ok() {
                self.next += 1;
                self.sessions.insert(at, Session::new(stream));
            }
        }
    }

    /// Answers what a connection has sent; a connection that ends is closed, which takes it out of the epoll.
    fn answer(&mut self, at: u64) {
        if self.sessions.get_mut(&at).is_some_and(|session| session.answer().is_err()) {
            self.sessions.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg_client::Client;

    #[test]
    fn a_client_is_answered_and_nothing_is_asked() {
        let echo = Echo::start().unwrap();
        let mut client = Client::connect(echo.addr).unwrap();
        assert_eq!(client.rows("select anything").unwrap().len(), 1);
        assert_eq!(client.rows("begin; select 1; update nothing; select 2; commit").unwrap().len(), 2);
        client.prepare("read", "select nothing").unwrap();
        client.prepare("write", "insert into nothing values ($1)").unwrap();
        client.execute("read", &[]).unwrap();
        client.execute("write", &["1"]).unwrap();
        drop(client);
        Client::connect(echo.addr).unwrap().run("commit").unwrap();
    }
}
