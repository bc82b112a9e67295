//! Completions from other threads, handed over with one wake-up for many completions.
//!
//! When a boxcar becomes durable, the trail's thread completes every transaction in it. If each completion woke its own
//! task, each would cost a system call (the write to the runtime's eventfd). Instead each worker has one [`Mailbox`]:
//! completions are queued, only the first into an empty queue wakes the worker, and one local task hands them all to
//! the waiting tasks, which costs no system call on the same thread.
//!
//! A [`Completer`] that is dropped unused arrives as `None`, so that no task waits indefinitely.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The part of a mailbox that other threads see.
struct Inbox<T> {
    queue: Mutex<Vec<(usize, Option<T>)>>,
    wake: Notify,
}

/// One wait in progress.
enum Slot<T> {
    Free,
    /// Expected; the waiter's waker once it has been polled.
    Waiting(Option<Waker>),
    /// The waiter has stopped waiting.
    Abandoned,
    Arrived(Option<T>),
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

/// The mailbox of one worker. It lives in the worker's `LocalSet`.
pub struct Mailbox<T> {
    inbox: Arc<Inbox<T>>,
    slots: Rc<RefCell<Slots<T>>>,
}

/// The sender of one completion; it may be moved to any thread.
pub struct Completer<T> {
    inbox: Arc<Inbox<T>>,
    slot: usize,
    completed: bool,
}

/// Waits for its completer on the mailbox's own thread; `None` when it was dropped unused.
pub struct CompletionFuture<T> {
    slots: Rc<RefCell<Slots<T>>>,
    slot: usize,
    taken: bool,
}

impl<T: Send + 'static> Mailbox<T> {
    /// Creates a mailbox for this thread. Must be called within a `LocalSet`, which then runs its task.
    pub fn new() -> Mailbox<T> {
        let inbox = Arc::new(Inbox { queue: Mutex::new(Vec::new()), wake: Notify::new() });
        let slots = Rc::new(RefCell::new(Slots { slots: Vec::new(), free: Vec::new() }));
        tokio::task::spawn_local(hand_out(inbox.clone(), slots.clone()));
        Mailbox { inbox, slots }
    }

    /// Creates a completer and the future that it completes.
    pub fn expect(&self) -> (Completer<T>, CompletionFuture<T>) {
        let mut slots = self.slots.borrow_mut();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.slots.push(Slot::Free);
                slots.slots.len() - 1
            }
        };
        slots.slots[slot] = Slot::Waiting(None);
        let completer = Completer { inbox: self.inbox.clone(), slot, completed: false };
        (completer, CompletionFuture { slots: self.slots.clone(), slot, taken: false })
    }
}

impl<T: Send + 'static> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox::new()
    }
}

/// The local task. It empties the queue each time it is woken.
async fn hand_out<T>(inbox: Arc<Inbox<T>>, slots: Rc<RefCell<Slots<T>>>) {
    let mut arrived = Vec::new();
    loop {
        inbox.wake.notified().await;
        std::mem::swap(&mut *inbox.queue.lock(), &mut arrived);
        let mut slots = slots.borrow_mut();
        for (slot, value) in arrived.drain(..) {
            match std::mem::replace(&mut slots.slots[slot], Slot::Arrived(value)) {
                Slot::Waiting(Some(waker)) => waker.wake(),
                Slot::Abandoned => {
                    slots.slots[slot] = Slot::Free;
                    slots.free.push(slot);
                }
                _ => {}
            }
        }
    }
}

impl<T> Completer<T> {
    /// Completes the wait.
    pub fn complete(mut self, value: T) {
        self.completed = true;
        self.send(Some(value));
    }

    fn send(&self, value: Option<T>) {
        let first = {
            let mut queue = self.inbox.queue.lock();
            queue.push((self.slot, value));
            queue.len() == 1
        };
        if first {
            self.inbox.wake.notify_one();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if !self.completed {
            self.send(None);
        }
    }
}

impl<T> Future for CompletionFuture<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let mut slots = this.slots.borrow_mut();
        let slot = &mut slots.slots[this.slot];
        match slot {
            Slot::Arrived(value) => {
                let value = value.take();
                *slot = Slot::Free;
                slots.free.push(this.slot);
                this.taken = true;
                Poll::Ready(value)
            }
            _ => {
                *slot = Slot::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for CompletionFuture<T> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut slots = self.slots.borrow_mut();
        match slots.slots[self.slot] {
            Slot::Arrived(_) => {
                slots.slots[self.slot] = Slot::Free;
                slots.free.push(self.slot);
            }
            _ => slots.slots[self.slot] = Slot::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_worker<F: Future>(test: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test)
    }

    #[test]
    fn completions_from_another_thread_arrive_each_at_its_own_place() {
        on_a_worker(async {
            let mailbox = Mailbox::new();
            for _ in 0..100 {
                let (completers, completions): (Vec<_>, Vec<_>) = (0..50).map(|_| mailbox.expect()).unzip();
                let sender = std::thread::spawn(move || {
                    for (i, completer) in completers.into_iter().enumerate().rev() {
                        completer.complete(i);
                    }
                });
                for (i, completion) in completions.into_iter().enumerate() {
                    assert_eq!(completion.await, Some(i));
                }
                sender.join().unwrap();
            }
            assert!(mailbox.slots.borrow().slots.len() <= 50, "places are used again");
        });
    }

    #[test]
    fn dropped_completers_and_abandoned_waits() {
        on_a_worker(async {
            let mailbox = Mailbox::new();
            let (completer, completion) = mailbox.expect();
            drop(completer);
            assert_eq!(completion.await, None::<u32>);
            let (completer, completion) = mailbox.expect();
            drop(completion);
            let (other, other_completion) = mailbox.expect();
            completer.complete(1);
            other.complete(2);
            assert_eq!(other_completion.await, Some(2));
        });
    }
}
