//! What the commands ask of a running server, over the same link that standbys use.

use super::following::Tcp;
use holdfast_standby::{Connect, LinkError, LinkOptions, ask};
use std::time::Duration;
use tokio::net::TcpStream;

/// The name under which commands introduce themselves.
const NAME: &str = "operator";

/// How long an answer may take: a promotion recovers first.
const ANSWER_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("cannot start: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("{at}: {error}")]
    Link { at: String, error: LinkError },
}

/// The status of the server at HOST:PORT: JSON.
pub fn ask_status(at: &str) -> Result<String, AskError> {
    asked(at, async |stream, options| ask::status(stream, NAME, options).await)
}

/// Makes the standby at HOST:PORT the master; says what was done.
pub fn ask_promotion(at: &str, accept_divergence: bool) -> Result<String, AskError> {
    asked(at, async |stream, options| ask::promote(stream, NAME, accept_divergence, options).await)
}

fn asked(
    at: &str,
    ask: impl AsyncFnOnce(TcpStream, &LinkOptions) -> Result<String, LinkError>,
) -> Result<String, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Runtime)?;
    let options = LinkOptions { silence_max: ANSWER_MAX, ..LinkOptions::default() };
    let answer = runtime.block_on(async {
        let to = Tcp { address: at.to_owned() };
        let connected = tokio::time::timeout(options.greeting_max, to.connect()).await;
        let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
        ask(stream, &options).await
    });
    answer.map_err(|error| AskError::Link { at: at.to_owned(), error })
}
