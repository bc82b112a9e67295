//! Every integration test of the control plane, in one binary: each further binary would be linked on its own.

mod sigstop;
mod tcp;
