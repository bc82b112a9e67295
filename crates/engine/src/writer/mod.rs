//! The writer: the one connection, on its own thread, that changes a volume.
//!
//! It takes commands ([`WriterCommand`](crate::state::queue::WriterCommand)) from one queue, first in first out:
//!
//! | command | the writer |
//! |---|---|
//! | run a request of bounded statements | runs it, and the bounded requests queued behind it, as one batch ([`batch`]) |
//! | run any other request | runs it as a batch of its own ([`sole_request`]), or publishes its side copy ([`adopt`]) |
//! | begin | serves one exclusive transaction until it ends ([`exclusive`]); others wait elsewhere ([`commands`]) |
//! | participate | commits together with the writers of other databases ([`participant`]) |
//! | prepare, finish prepared | keeps a prepared transaction as rows, or ends it ([`prepared`]) |
//! | vacuum | compacts the database's file ([`vacuum`]) |
//! | stop | ends the thread |
//!
//! A batch is published by COMMIT, its locks are released, and it is handed to the trail ([`publish`]); the writer continues at
//! once. The answers leave when the trail reports that the batch is durable.
//!
//! This floor imports the floors of background work (VACUUM needs a checkpoint), state and statements. It knows no
//! branch and no route: commands come through the queue, and a request that meets a branch's lock goes back through a
//! function that the writer was started with.
//!
//! Failure: an error of one request undoes that request. If an error rolls back the whole batch (SQLite does that
//! on its own when memory or disk fail, RULE 10), all the other requests run again.

mod adopt;
mod batch;
mod commands;
mod connection;
mod exclusive;
mod fragments;
mod merge;
mod participant;
mod prepared;
mod publish;
mod sole_request;
mod thread;
mod throttle;
mod vacuum;
mod watch;

pub use thread::start;
