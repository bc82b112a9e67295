//! A network in memory. Bytes of a link arrive in pieces and late. A link can be cut; each end notices that at a
//! different time or never. A direction can be held; then nothing arrives and no end is notified.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_seams::testing::Seeded;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use crate::receive::Connect;

/// The number of bytes in transit at one time.
const PIPE_BYTES: usize = 64 << 10;

#[derive(Clone)]
pub struct Net(Arc<Shared>);

struct Shared {
    random: Mutex<Seeded>,
    listener: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
    /// The number of cuts: a link with a lower count is cut.
    cuts: watch::Sender<u64>,
    held: [watch::Sender<bool>; 2],
    unreachable: watch::Sender<bool>,
}

/// The direction from the connecting side to the listener, or back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    There,
    Back,
}

impl Net {
    pub fn new(seed: u64) -> Net {
        let off = || watch::channel(false).0;
        Net(Arc::new(Shared {
            random: Mutex::new(Seeded::new(seed)),
            listener: Mutex::new(None),
            cuts: watch::channel(0).0,
            held: [off(), off()],
            unreachable: off(),
        }))
    }

    /// Replaces the listener; an earlier listener gets no more connections.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<DuplexStream> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.0.listener.lock() = Some(sender);
        receiver
    }

    /// Cuts all existing links.
    pub fn cut(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds back one direction, or releases it.
    pub fn hold(&self, direction: Direction, held: bool) {
        self.0.held[direction as usize].send_replace(held);
    }

    /// Whether connecting fails.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.0.unreachable.send_replace(unreachable);
    }

    /// Repairs the network.
    pub fn heal(&self) {
        self.set_unreachable(false);
        self.hold(Direction::There, false);
        self.hold(Direction::Back, false);
    }

    fn below(&self, bound: u64) -> u64 {
        self.0.random.lock().below(bound)
    }

    /// Moves bytes one way until the link is cut or the sender has closed.
    async fn pump(self, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, direction: Direction) {
        let mut cuts = self.0.cuts.subscribe();
        let mut held = self.0.held[direction as usize].subscribe();
        let moving = async {
            let mut piece = vec![0; PIPE_BYTES];
            loop {
                let most = 1 + self.below(PIPE_BYTES as u64) as usize;
                let Ok(bytes @ 1..) = from.read(&mut piece[..most]).await else { return };
                tokio::time::sleep(Duration::from_micros(self.below(2_000))).await;
                let _ = held.wait_for(|held| !held).await;
                if to.write_all(&piece[..bytes]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = moving => {}
            _ = cuts.changed() => {
                // This end notices it soon, late, or only by the silence.
                let wait_ms = [0, 500, 3_000, 60_000][self.below(4) as usize];
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
        }
        let _ = to.shutdown().await;
    }
}

impl Connect for Net {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        tokio::time::sleep(Duration::from_micros(self.below(2_000))).await;
        let listener = self.0.listener.lock().clone();
        let Some(listener) = listener.filter(|_| !*self.0.unreachable.borrow()) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (near, near_end) = tokio::io::duplex(PIPE_BYTES);
        let (far, far_end) = tokio::io::duplex(PIPE_BYTES);
        let (near_read, near_write) = tokio::io::split(near_end);
        let (far_read, far_write) = tokio::io::split(far_end);
        tokio::spawn(self.clone().pump(near_read, far_write, Direction::There));
        tokio::spawn(self.clone().pump(far_read, near_write, Direction::Back));
        listener.send(far).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(near)
    }
}
