//! tokio as the nodes see it in the simulation: every task belongs to a node, which can be stopped and killed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use openraft::AsyncRuntime;
use openraft::async_runtime::TokioOneShotSender;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::AbortHandle;

tokio::task_local! {
    static GATE: Arc<Gate>;
}

/// All tasks of one run of one node.
pub struct Gate {
    state: Mutex<State>,
}

struct State {
    paused: bool,
    waiting: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    seed: u64,
}

impl Gate {
    pub fn new(seed: u64) -> Arc<Gate> {
        let state = State { paused: false, waiting: Vec::new(), tasks: Vec::new(), seed };
        Arc::new(Gate { state: Mutex::new(state) })
    }

    /// Starts a task of this node; those that it starts belong to the node, too.
    pub fn spawn<F>(self: &Arc<Gate>, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = tokio::spawn(Gated { gate: self.clone(), future: Box::pin(future) });
        self.state.lock().tasks.push(task.abort_handle());
        task
    }

    /// As SIGSTOP does.
    pub fn pause(&self) {
        self.state.lock().paused = true;
    }

    /// As SIGCONT does.
    pub fn resume(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.paused = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// As SIGKILL does.
    pub fn kill(&self) {
        self.state.lock().tasks.drain(..).for_each(|task| task.abort());
    }

    fn draw(&self) -> u64 {
        let mut state = self.state.lock();
        state.seed += 1;
        state.seed
    }
}

struct Gated<F> {
    gate: Arc<Gate>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let gate = self.gate.clone();
        {
            let mut state = gate.state.lock();
            if state.paused {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        GATE.sync_scope(gate, || self.future.as_mut().poll(context))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SimRuntime;

impl AsyncRuntime for SimRuntime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: Send + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = tokio::time::Instant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + Send> = tokio::time::Timeout<T>;
    type ThreadLocalRng = StdRng;
    type OneshotSender<T: Send> = TokioOneShotSender<T>;
    type OneshotReceiver<T: Send> = tokio::sync::oneshot::Receiver<T>;
    type OneshotReceiverError = tokio::sync::oneshot::error::RecvError;

    fn spawn<T>(future: T) -> tokio::task::JoinHandle<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        match GATE.try_with(Arc::clone) {
            Ok(gate) => gate.spawn(future),
            Err(_) => tokio::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> tokio::time::Sleep {
        tokio::time::sleep(duration)
    }

    fn sleep_until(deadline: tokio::time::Instant) -> tokio::time::Sleep {
        tokio::time::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + Send>(duration: Duration, future: F) -> tokio::time::Timeout<F> {
        tokio::time::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(
        deadline: tokio::time::Instant,
        future: F,
    ) -> tokio::time::Timeout<F> {
        tokio::time::timeout_at(deadline, future)
    }

    fn is_panic(error: &tokio::task::JoinError) -> bool {
        error.is_panic()
    }

    fn thread_rng() -> StdRng {
        StdRng::seed_from_u64(GATE.try_with(|gate| gate.draw()).unwrap_or_default())
    }

    fn oneshot<T: Send>() -> (TokioOneShotSender<T>, tokio::sync::oneshot::Receiver<T>) {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        (TokioOneShotSender(sender), receiver)
    }
}
