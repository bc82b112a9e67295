//! Every integration test of volumes, in one binary: each further binary would be linked on its own.

mod adopted;
mod images;
mod volume;
