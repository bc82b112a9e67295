//! Every integration test of the trail, in one binary: each further binary would be linked on its own.

mod closed;
mod real_disk;
mod standby;
