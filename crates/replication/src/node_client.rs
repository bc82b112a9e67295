//! Requests of the commands to a running server, over the same link that standbys use.

use crate::certificates::Certificates;
use crate::dialer::Dialer;
use holdfast_standby::link::Stream;
use holdfast_standby::message::Wants;
use holdfast_standby::{Connect, LinkError, LinkOptions, ask};
use std::time::Duration;

/// The name that commands give in their greeting.
const NAME: &str = "operator";

/// How long an answer may take: a promotion includes a recovery.
const ANSWER_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum NodeClientError {
    #[error("cannot start: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("{at}: {error}")]
    Link { at: String, error: LinkError },
}

/// A client of a running server, for commands.
#[derive(Clone)]
pub struct NodeClient {
    /// HOST:PORT
    pub at: String,
    /// The operator's certificates, where the server is on another machine.
    pub certificates: Option<Certificates>,
}

impl NodeClient {
    /// The server's status, as JSON.
    pub fn status(&self) -> Result<String, NodeClientError> {
        self.ask(async |stream, options| ask::status(stream, NAME, options).await)
    }

    /// Makes the standby the master. Returns what was done, in words.
    pub fn promote(&self, accept_divergence: bool) -> Result<String, NodeClientError> {
        self.command(Wants::Promote { accept_divergence })
    }

    /// Stops shipping to a standby, or to all; a standby stops following. Returns what was done, in words.
    pub fn stop(&self, standby: Option<String>) -> Result<String, NodeClientError> {
        self.command(Wants::Stop { standby })
    }

    /// Starts again what [`NodeClient::stop`] has stopped.
    pub fn start(&self, standby: Option<String>) -> Result<String, NodeClientError> {
        self.command(Wants::Start { standby })
    }

    /// Makes a master keep nothing more for a standby that does not come back.
    pub fn forget(&self, standby: String) -> Result<String, NodeClientError> {
        self.command(Wants::Forget { standby })
    }

    fn command(&self, wants: Wants) -> Result<String, NodeClientError> {
        self.ask(async move |stream, options| ask::command(stream, NAME, wants, options).await)
    }

    fn ask(
        &self,
        ask: impl AsyncFnOnce(Box<dyn Stream>, &LinkOptions) -> Result<String, LinkError>,
    ) -> Result<String, NodeClientError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NodeClientError::Runtime)?;
        let options = LinkOptions { silence_max: ANSWER_MAX, ..LinkOptions::default() };
        let answer = runtime.block_on(async {
            let to = Dialer { address: self.at.clone(), certificates: self.certificates.clone() };
            let connected = tokio::time::timeout(options.greeting_max, to.connect()).await;
            let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
            ask(stream, &options).await
        });
        answer.map_err(|error| NodeClientError::Link { at: self.at.clone(), error })
    }
}
