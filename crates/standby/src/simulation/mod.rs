//! Ship and receive over a network that delays, holds back, loses links and lets their two ends learn of it at different
//! times; real trails on simulated disks that lose power. A seed decides what happens when, in paused time.

mod histories;
mod hub;
mod net;
mod nodes;
mod refusals;
