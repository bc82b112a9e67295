//! A simulated disk for tests.
