//! What the commands ask of a running server, over the same link that standbys use.

use super::Certificates;
use super::reach::Reach;
use holdfast_standby::link::Stream;
use holdfast_standby::message::Wants;
use holdfast_standby::{Connect, LinkError, LinkOptions, ask};
use std::time::Duration;

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

/// A running server that a command is about.
#[derive(Clone)]
pub struct Asking {
    /// HOST:PORT
    pub at: String,
    /// The operator's, where the server is not on this machine.
    pub certificates: Option<Certificates>,
}

impl Asking {
    /// The server's status: JSON.
    pub fn status(&self) -> Result<String, AskError> {
        self.ask(async |stream, options| ask::status(stream, NAME, options).await)
    }

    /// Makes the standby the master; says what was done.
    pub fn promote(&self, accept_divergence: bool) -> Result<String, AskError> {
        self.command(Wants::Promote { accept_divergence })
    }

    /// Stops shipping to a standby, or to all; of a standby, following. Says what was done.
    pub fn stop(&self, standby: Option<String>) -> Result<String, AskError> {
        self.command(Wants::Stop { standby })
    }

    /// The contrary of [`Asking::stop`].
    pub fn start(&self, standby: Option<String>) -> Result<String, AskError> {
        self.command(Wants::Start { standby })
    }

    /// Has a master keep nothing more for a standby that does not come back.
    pub fn forget(&self, standby: String) -> Result<String, AskError> {
        self.command(Wants::Forget { standby })
    }

    fn command(&self, wants: Wants) -> Result<String, AskError> {
        self.ask(async move |stream, options| ask::command(stream, NAME, wants, options).await)
    }

    fn ask(
        &self,
        ask: impl AsyncFnOnce(Box<dyn Stream>, &LinkOptions) -> Result<String, LinkError>,
    ) -> Result<String, AskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Runtime)?;
        let options = LinkOptions { silence_max: ANSWER_MAX, ..LinkOptions::default() };
        let answer = runtime.block_on(async {
            let to = Reach { address: self.at.clone(), certificates: self.certificates.clone() };
            let connected = tokio::time::timeout(options.greeting_max, to.connect()).await;
            let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
            ask(stream, &options).await
        });
        answer.map_err(|error| AskError::Link { at: self.at.clone(), error })
    }
}
