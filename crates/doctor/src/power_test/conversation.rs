//! One side's end of a conversation with the recorder.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// The first line of both sides.
pub const GREETING: &str = "holdfast-power-test 1";

/// A line is a few numbers; a peer that sends more speaks another protocol.
pub const LINE_BYTES_MAX: u64 = 100;

/// Only a recorder that hangs, or is no recorder, meets it.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

pub struct Conversation {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Conversation {
    /// Connects, and makes sure that a recorder answers.
    pub fn begin(recorder: &str) -> anyhow::Result<Conversation> {
        let address = recorder.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = address.with_context(|| format!("{recorder} is no HOST:PORT that can be found"))?;
        let stream = TcpStream::connect_timeout(&address, ANSWER_WAIT_MAX)
            .with_context(|| format!("no recorder answers at {recorder}; start it there first"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        let mut conversation = Conversation { answers: BufReader::new(stream.try_clone()?), stream };
        conversation.say(GREETING)?;
        if conversation.answer()? != GREETING {
            bail!("{recorder} is not a recorder of this version");
        }
        Ok(conversation)
    }

    pub fn say(&mut self, line: &str) -> anyhow::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).context("telling the recorder")
    }

    pub fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let mut limited = std::io::Read::take(&mut self.answers, LINE_BYTES_MAX);
        if limited.read_line(&mut line).context("cannot receive the recorder's answer")? == 0 {
            bail!("the recorder ended the conversation");
        }
        Ok(line.trim_end().to_owned())
    }
}
