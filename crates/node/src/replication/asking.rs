//! What the commands ask of a running server, over the same link that standbys use.

use super::following::Tcp;
use holdfast_standby::link::{Link, greet};
use holdfast_standby::message::{Message, Wants};
use holdfast_standby::receive::Connect;
use holdfast_standby::{LinkError, LinkOptions};
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
    #[error("cannot reach {at}: {source}")]
    Link { at: String, source: LinkError },
    #[error("{at} answered with something else than was asked for")]
    Answer { at: String },
}

/// The status of the server at HOST:PORT: JSON.
pub fn ask_status(at: &str) -> Result<String, AskError> {
    match ask(at, Wants::Status)? {
        Message::Status(json) => Ok(json),
        _ => Err(AskError::Answer { at: at.to_owned() }),
    }
}

/// Makes the standby at HOST:PORT the master; says what was done.
pub fn ask_promotion(at: &str, accept_divergence: bool) -> Result<String, AskError> {
    match ask(at, Wants::Promote { accept_divergence })? {
        Message::Promoted(done) => Ok(done),
        _ => Err(AskError::Answer { at: at.to_owned() }),
    }
}

fn ask(at: &str, wants: Wants) -> Result<Message, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Runtime)?;
    let asked = runtime.block_on(async {
        let options = LinkOptions { silence_max: ANSWER_MAX, ..LinkOptions::default() };
        let to = Tcp { address: at.to_owned() };
        let stream = tokio::time::timeout(options.greeting_max, to.connect()).await;
        let stream = stream.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
        let (mut link, _): (Link<TcpStream>, _) = greet(stream, NAME, 0, wants, &options).await?;
        let answer = link.answer().await?;
        link.end(&Ok(())).await;
        Ok(answer)
    });
    asked.map_err(|source| AskError::Link { at: at.to_owned(), source })
}
