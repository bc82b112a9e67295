//! Shipping and receiving over a simulated network that delays messages, holds them back and loses links, which the two
//! ends notice at different times; real trails on simulated disks that lose power. A seed decides what happens when, in
//! paused time.

mod deposed;
mod histories;
mod hub;
mod net;
mod nodes;
mod refusals;
