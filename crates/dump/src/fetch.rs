//! Fetches a dump's copy of a running server; [`DumpPlan`](crate::send::DumpPlan) says what is in it.
//!
//! Failure: after a broken link the fetch continues with the same copy, which the server keeps for a while.

use holdfast_replication::{Certificates, Dialer};
use holdfast_standby::base_copy::{Copied, CopyInto, dump};
use holdfast_standby::{Connect, LinkError, LinkOptions};
use std::io;

/// Why a copy could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot start: {0}")]
    Runtime(#[source] io::Error),
    #[error("the copy from {from} failed: {error}")]
    Link { from: String, error: LinkError },
}

/// Fetches a copy of the server at HOST:PORT. Blocks. `name` is this dump's own: while its link is broken, the server keeps the
/// copy under that name.
pub fn fetch(
    from: &str,
    name: &str,
    certificates: Option<Certificates>,
    into: &mut dyn CopyInto,
) -> Result<Copied, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let connect = Dialer { address: from.to_owned(), certificates };
    let failed = |error| FetchError::Link { from: from.to_owned(), error };
    // A server that is not there is reported at once.
    runtime.block_on(connect.connect()).map_err(|error| failed(LinkError::Io(error)))?;
    runtime.block_on(dump(&connect, name, into, &LinkOptions::default())).map_err(failed)
}
