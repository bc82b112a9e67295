//! The server's trail as the control plane's member sees it from the supervisor's process.
//!
//! Where it ends was sent at most 100 ms ago, and before everything that the server asked for since. What needs the trail itself
//! is asked of the server.
//!
//! Failure: a server that does not answer in [`ANSWER_MAX`], or has gone, gives no answer; the asking member gets the cause.

use crate::message::{Question, ToServer, Told, TrailState};
use futures::future::BoxFuture;
use holdfast_control::{Compared, ComparedTrail, NodeId, Position, TrailTip};
use holdfast_types::Epoch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The questions of one connection that wait for an answer.
#[derive(Default)]
pub struct Questions {
    waiting: Mutex<(u64, BTreeMap<u64, oneshot::Sender<Told>>)>,
}

impl Questions {
    pub fn told(&self, id: u64, told: Told) {
        if let Some(reply) = self.waiting.lock().1.remove(&id) {
            // The asking member may have given up.
            let _ = reply.send(told);
        }
    }

    fn begin(&self) -> (u64, oneshot::Receiver<Told>) {
        let (reply, told) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        waiting.0 += 1;
        let id = waiting.0;
        waiting.1.insert(id, reply);
        (id, told)
    }
}

pub struct RemoteTrail {
    pub state: Mutex<TrailState>,
    pub questions: Arc<Questions>,
    pub outgoing: mpsc::Sender<ToServer>,
}

impl RemoteTrail {
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Told, String>> {
        let (id, told) = self.questions.begin();
        let (questions, sent) = (self.questions.clone(), self.outgoing.try_send(ToServer::Question { id, question }));
        Box::pin(async move {
            let gone = || "its server is not connected to its supervisor".to_owned();
            if sent.is_err() {
                questions.waiting.lock().1.remove(&id);
                return Err(gone());
            }
            let told = tokio::time::timeout(ANSWER_MAX, told).await;
            questions.waiting.lock().1.remove(&id);
            told.map_err(|_| format!("its server has not answered for {ANSWER_MAX:?}"))?.map_err(|_| gone())
        })
    }
}

impl ComparedTrail for RemoteTrail {
    fn tip(&self) -> BoxFuture<'static, Result<TrailTip, String>> {
        let asked = self.ask(Question::Tip);
        Box::pin(async move {
            match asked.await? {
                Told::Tip(tip) => tip,
                Told::Compared(_) => Err("its server answers something else".to_owned()),
            }
        })
    }

    fn compare(&self, other: TrailTip) -> BoxFuture<'static, Result<Compared, String>> {
        let asked = self.ask(Question::Compare(other));
        Box::pin(async move {
            match asked.await? {
                Told::Compared(compared) => compared.map(Compared::from),
                Told::Tip(_) => Err("its server answers something else".to_owned()),
            }
        })
    }

    fn end(&self) -> Position {
        self.state.lock().end
    }

    fn positions(&self, epoch: Epoch) -> BTreeMap<NodeId, u64> {
        let state = self.state.lock();
        if state.end.epoch == epoch { state.positions.clone() } else { BTreeMap::new() }
    }
}
