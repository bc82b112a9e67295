//! The connection to the supervisor, one after the other: asks, takes what the supervisor pushes, answers its questions about
//! the trail.
//!
//! Failure: a connection that ends is made again every [`RETRY`]; see the module above for what waits meanwhile.

use super::{ANSWER_MAX, Shared};
use crate::error::ClusterError;
use crate::message::{
    self, Ask, Caller, ComparedName, Done, Question, ToServer, ToSupervisor, Told, TrailState, VERSION, Welcome,
};
use crate::socket;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_control::{ControlError, Record};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);
/// How often the trail's end is sent.
const TRAIL_EVERY: Duration = Duration::from_millis(100);
/// How often the lease is looked at, for those that wait for its return, and the trail's end and sync are written down.
const LEASE_EVERY: Duration = Duration::from_millis(20);

/// A request of the server.
pub struct Job {
    pub ask: Ask,
    pub reply: oneshot::Sender<Result<Done, ControlError>>,
}

struct Pending {
    job: Job,
    since: Instant,
}

/// Connects, and learns of what cluster this is.
pub async fn connect(shared: &Shared) -> Result<(UnixStream, Welcome), ClusterError> {
    let mut stream = socket::connect(&shared.dir).await?;
    let io = |source| ClusterError::NoSupervisor { path: shared.dir.socket(), source };
    let link = shared.link.lock().clone();
    let from = Caller::Server { pid: shared.identity.pid, start: shared.identity.start, link, takes_lost: true };
    message::send(&mut stream, &ToSupervisor::Hello { version: VERSION, from }).await.map_err(io)?;
    match message::receive(&mut stream).await.map_err(io)? {
        ToServer::Welcome(welcome) => Ok((stream, welcome)),
        ToServer::Refused(why) => Err(ClusterError::Refused(why)),
        _ => Err(ClusterError::Refused("it begins with another message".to_owned())),
    }
}

/// What was asked and not answered.
#[derive(Default)]
struct Asked {
    pending: BTreeMap<u64, Pending>,
    last_id: u64,
}

impl Asked {
    /// Notes a request; returns its message.
    fn begin(&mut self, job: Job) -> ToSupervisor {
        self.last_id += 1;
        let ask = job.ask.clone();
        self.pending.insert(self.last_id, Pending { job, since: Instant::now() });
        ToSupervisor::Ask { id: self.last_id, ask }
    }

    fn answered(&mut self, id: u64, done: Result<Done, ControlError>) {
        if let Some(pending) = self.pending.remove(&id) {
            // The caller may have gone.
            let _ = pending.job.reply.send(done);
        }
    }

    /// Gives up what nobody has answered for too long, and with `lost` what may not be asked twice.
    fn give_up(&mut self, lost: bool) {
        let is_over =
            |pending: &Pending| pending.since.elapsed() > ANSWER_MAX || (lost && !pending.job.ask.is_repeatable());
        let over: Vec<u64> = self.pending.iter().filter(|(_, pending)| is_over(pending)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.answered(id, Err(ControlError::NoQuorum)));
    }
}

/// Keeps a connection as long as the process runs.
pub async fn keep(shared: &Arc<Shared>, first: UnixStream, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut asked = Asked::default();
    let mut next = Some(first);
    let mut is_reported = false;
    loop {
        let stream = match next.take() {
            Some(stream) => stream,
            None => match connect(shared).await {
                Ok((stream, _)) => {
                    if std::mem::take(&mut is_reported) {
                        tracing::info!("the supervisor answers again");
                    }
                    stream
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::warn!("{error}; the lease lasts for {:?}", shared.lease.lock().remaining());
                    }
                    if !wait(shared, &mut jobs, &mut asked).await {
                        return;
                    }
                    continue;
                }
            },
        };
        match speak(shared, stream, &mut jobs, &mut asked).await {
            Ok(()) => return,
            Err(error) => tracing::debug!("the connection to the supervisor has ended: {error}"),
        }
        asked.give_up(true);
    }
}

/// Waits before the next attempt, and takes requests meanwhile. False: the server has ended.
async fn wait(shared: &Shared, jobs: &mut mpsc::UnboundedReceiver<Job>, asked: &mut Asked) -> bool {
    let until = tokio::time::sleep(RETRY);
    tokio::pin!(until);
    loop {
        tokio::select! {
            () = &mut until => break,
            job = jobs.recv() => match job {
                // Sent with the next connection.
                Some(job) => drop(asked.begin(job)),
                None => return false,
            },
        }
    }
    shared.restore_page();
    shared.tell_held();
    shared.tell_progress();
    asked.give_up(false);
    true
}

/// Speaks over one connection until it ends. `Ok`: the server has ended.
async fn speak(
    shared: &Arc<Shared>,
    stream: UnixStream,
    jobs: &mut mpsc::UnboundedReceiver<Job>,
    asked: &mut Asked,
) -> io::Result<()> {
    let (reading, writing) = stream.into_split();
    let (incoming, mut inbox) = mpsc::unbounded_channel();
    let reader = Task(tokio::spawn(read(reading, incoming)));
    let (outgoing, outbox) = mpsc::unbounded_channel();
    let _writer = Task(tokio::spawn(write(writing, outbox)));
    // Errors: the writer has ended, and so does the reader.
    let send = |message: ToSupervisor| drop(outgoing.send(message));
    let mut sent = None;
    send_trail(shared, &mut sent, &send);
    for (id, pending) in &asked.pending {
        send(ToSupervisor::Ask { id: *id, ask: pending.job.ask.clone() });
    }
    let mut told: FuturesUnordered<BoxFuture<'static, (u64, Told)>> = FuturesUnordered::new();
    let (mut trail, mut lease) = (tokio::time::interval(TRAIL_EVERY), tokio::time::interval(LEASE_EVERY));
    for interval in [&mut trail, &mut lease] {
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            job = jobs.recv() => {
                let Some(job) = job else { return Ok(()) };
                // What is asked for follows from where the trail is.
                send_trail(shared, &mut sent, &send);
                send(asked.begin(job));
            }
            message = inbox.recv() => match message {
                Some(message) => match message? {
                    ToServer::Record(record) => take_record(shared, record),
                    ToServer::Leader(leader) => *shared.leader.lock() = leader,
                    ToServer::Lost(nodes) => {
                        shared.lost.send_if_modified(|lost| std::mem::replace(lost, nodes.clone()) != nodes);
                    }
                    ToServer::Answered { id, done } => asked.answered(id, done.map_err(ControlError::from)),
                    ToServer::Question { id, question } => told.push(answer(shared, id, question)),
                    ToServer::Refused(why) => return Err(io::Error::other(why)),
                    ToServer::Welcome(_) => {}
                },
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            },
            Some((id, answer)) = told.next() => send(ToSupervisor::Told { id, told: answer }),
            _ = lease.tick() => {
                shared.tell_held();
                shared.tell_progress();
            }
            _ = trail.tick() => {
                shared.restore_page();
                send_trail(shared, &mut sent, &send);
                asked.give_up(false);
                if reader.0.is_finished() && inbox.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

/// Takes a newer record. A supervisor that has just started may know an older one than its predecessor.
fn take_record(shared: &Shared, record: Option<Box<Record>>) {
    let Some(record) = record else { return };
    shared.record.send_if_modified(|known| {
        let is_newer =
            known.as_ref().is_none_or(|known| known.group != record.group || known.revision < record.revision);
        if is_newer {
            *known = Some(Arc::new(*record));
        }
        is_newer
    });
}

/// A task that ends with its connection.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn read(mut stream: OwnedReadHalf, incoming: mpsc::UnboundedSender<io::Result<ToServer>>) {
    loop {
        let message = message::receive(&mut stream).await;
        let is_end = message.is_err();
        if incoming.send(message).is_err() || is_end {
            return;
        }
    }
}

async fn write(mut stream: OwnedWriteHalf, mut outbox: mpsc::UnboundedReceiver<ToSupervisor>) {
    while let Some(message) = outbox.recv().await {
        // The reader sees the end as well.
        if message::send(&mut stream, &message).await.is_err() {
            return;
        }
    }
}

/// Sends where the trail is, if that has changed.
fn send_trail(shared: &Shared, sent: &mut Option<Option<TrailState>>, send: &impl Fn(ToSupervisor)) {
    let trail = shared.trail.lock().clone();
    let state = trail.map(|trail| {
        let end = trail.end();
        TrailState { end, positions: trail.positions(end.epoch) }
    });
    if sent.as_ref() != Some(&state) {
        *sent = Some(state.clone());
        send(ToSupervisor::Trail(state));
    }
}

/// Answers a question about the trail.
fn answer(shared: &Shared, id: u64, question: Question) -> BoxFuture<'static, (u64, Told)> {
    let trail = shared.trail.lock().clone();
    let none = || "it has no open trail".to_owned();
    match (question, trail) {
        (Question::Tip, Some(trail)) => Box::pin(async move { (id, Told::Tip(trail.tip().await)) }),
        (Question::Tip, None) => Box::pin(async move { (id, Told::Tip(Err(none()))) }),
        (Question::Compare(other), Some(trail)) => {
            Box::pin(async move { (id, Told::Compared(trail.compare(other).await.map(ComparedName::from))) })
        }
        (Question::Compare(_), None) => Box::pin(async move { (id, Told::Compared(Err(none()))) }),
    }
}
