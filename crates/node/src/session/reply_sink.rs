//! The client's reply as a sink for results: a statement that runs on another thread takes it along and hands it back.

use holdfast_types::Sink;
use holdfast_wire::{Client, Reply};
use std::any::Any;

/// A sink with the client's reply in it.
pub(super) trait ReplySink: Sink {
    /// What comes back with the reply.
    type Extra;
    fn into_reply(self: Box<Self>) -> (Box<Reply>, Self::Extra);
}

impl ReplySink for Reply {
    type Extra = ();
    fn into_reply(self: Box<Reply>) -> (Box<Reply>, ()) {
        (self, ())
    }
}

/// Gives the client the reply back that was lent as a sink; `None` when it was lost: the client gets an empty one then.
pub(super) fn reclaim<T: ReplySink>(sink: Box<dyn Sink>, client: &mut Client) -> Option<T::Extra> {
    let sink: Box<dyn Any> = sink;
    match sink.downcast::<T>() {
        Ok(sink) => {
            let (reply, extra) = sink.into_reply();
            client.return_reply(reply);
            Some(extra)
        }
        Err(_) => {
            client.replace_reply();
            None
        }
    }
}
