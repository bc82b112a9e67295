//! What subscriptions do at their publishers.

pub mod publisher;
