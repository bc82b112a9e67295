//! A network in memory: each direction between two nodes has its delay and can be cut by itself. What is on the way
//! when a direction is cut waits, as TCP sends it again, and the connection breaks when that lasts. The answers to what a
//! node asks can be late while its questions, and the questions of the others, are as quick as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_seams::testing::Seeded;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::id::NodeId;
use crate::transport::{BoxStream, Incoming, Transport};

const BUFFER_BYTES: usize = 64 << 10;
const DELAY_MS_MAX: u64 = 25;
const TCP_GIVES_UP: Duration = Duration::from_secs(6);

pub struct Network {
    state: Mutex<State>,
}

/// From where to where something goes, and whether it is an answer: it goes to the node that has made the connection.
#[derive(Clone, Copy)]
struct Way {
    from: NodeId,
    to: NodeId,
    answers: bool,
}

struct State {
    cut: BTreeSet<(NodeId, NodeId)>,
    /// By how much the answers to a node are late.
    late: BTreeMap<NodeId, Duration>,
    listening: BTreeMap<NodeId, UnboundedSender<BoxStream>>,
    random: Seeded,
}

impl Network {
    pub fn new(seed: u64) -> Arc<Network> {
        let state = State {
            cut: BTreeSet::new(),
            late: BTreeMap::new(),
            listening: BTreeMap::new(),
            random: Seeded::new(seed),
        };
        Arc::new(Network { state: Mutex::new(state) })
    }

    /// Nothing arrives at `to` from `from` any more.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.state.lock().cut.insert((from, to));
    }

    /// What this node asks is answered that much later.
    pub fn answer_late(&self, asks: NodeId, by: Duration) {
        self.state.lock().late.insert(asks, by);
    }

    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        state.late.clear();
    }

    /// The node's way into the network, for one run of it.
    pub fn join(self: &Arc<Network>, me: NodeId) -> Arc<SimTransport> {
        let (sender, incoming) = unbounded_channel();
        self.state.lock().listening.insert(me, sender);
        Arc::new(SimTransport { me, network: self.clone(), incoming: tokio::sync::Mutex::new(incoming) })
    }

    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.state.lock().cut.contains(&(from, to))
    }

    fn delay(&self, way: Way) -> Duration {
        let mut state = self.state.lock();
        let late = state.late.get(&way.to).copied().filter(|_| way.answers);
        Duration::from_millis(state.random.below(DELAY_MS_MAX)) + late.unwrap_or_default()
    }

    /// Waits until something gets from here to there; an error when it takes too long.
    async fn pass(&self, way: Way) -> io::Result<()> {
        sleep(self.delay(way)).await;
        let mut waited = Duration::ZERO;
        while self.is_cut(way.from, way.to) {
            let step = Duration::from_millis(20);
            sleep(step).await;
            waited += step;
            if waited > TCP_GIVES_UP {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    async fn carry<A, B>(self: Arc<Network>, way: Way, mut out: ReadHalf<A>, mut inn: WriteHalf<B>)
    where
        A: tokio::io::AsyncRead,
        B: tokio::io::AsyncWrite,
    {
        let mut bytes = vec![0; BUFFER_BYTES];
        while let Ok(len @ 1..) = out.read(&mut bytes).await {
            if self.pass(way).await.is_err() || inn.write_all(&bytes[..len]).await.is_err() {
                return;
            }
        }
        // The other side may have gone before.
        let _ = inn.shutdown().await;
    }

    async fn connect(self: &Arc<Network>, from: NodeId, to: NodeId) -> io::Result<BoxStream> {
        let there = Way { from, to, answers: false };
        let back = Way { from: to, to: from, answers: true };
        self.pass(there).await?;
        self.pass(back).await?;
        let listening = self.state.lock().listening.get(&to).cloned();
        let listening = listening.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (client, near) = duplex(BUFFER_BYTES);
        let (far, server) = duplex(BUFFER_BYTES);
        let ((near_out, near_in), (far_out, far_in)) = (split(near), split(far));
        listening.send(Box::new(server)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        tokio::spawn(self.clone().carry(there, near_out, far_in));
        tokio::spawn(self.clone().carry(back, far_out, near_in));
        Ok(Box::new(client))
    }
}

pub struct SimTransport {
    me: NodeId,
    network: Arc<Network>,
    incoming: tokio::sync::Mutex<UnboundedReceiver<BoxStream>>,
}

impl Transport for SimTransport {
    fn connect(&self, to: NodeId) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(self.network.connect(self.me, to))
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Incoming>> {
        Box::pin(async {
            let stream = self.incoming.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
            let ready: Incoming = Box::pin(async move { Ok((stream, None)) });
            Ok(ready)
        })
    }
}
