//! The receiver's side of a base copy.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::base_copy::{CopyInto, CopyProgress, bytes_of, chunk_pages, chunks, hash};
use crate::error::LinkError;
use crate::identity::Identity;
use crate::limits::{CHUNKS_AHEAD, LinkOptions};
use crate::link::{Link, Stream, greet};
use crate::message::{CopyAsk, CopyChunk, CopyPlan, CopyVolume, Message, Wants};
use crate::receive::Connect;

/// The number of verification rounds after which a difference is an error.
const ROUNDS_MAX: u32 = 3;

/// The largest number of databases in a copy.
const VOLUMES_MAX: u32 = 100_000;

/// What a finished copy was taken from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    pub master: Identity,
    pub plan: CopyPlan,
    pub sent_bytes: u64,
}

/// The longest time in which links may fail without a page received over any of them.
const NO_PROGRESS_MAX: Duration = Duration::from_secs(60);

/// Fetches a base copy under the name that the standby will have. Reconnects after a broken link as long as the copy makes
/// progress. The next attempt uses what is on the disk, even after the future was dropped.
pub async fn copy<C: Connect>(
    connect: &C,
    name: &str,
    instance: u64,
    into: &mut dyn CopyInto,
    options: &LinkOptions,
) -> Result<Copied, LinkError> {
    fetch(connect, (name, instance, Wants::BaseCopy), into, options).await
}

/// Fetches a copy for a dump under a name that only this dump has. As [`copy`], but in one round: a dump reads back what it
/// has written by itself.
pub async fn dump<C: Connect>(
    connect: &C,
    name: &str,
    into: &mut dyn CopyInto,
    options: &LinkOptions,
) -> Result<Copied, LinkError> {
    fetch(connect, (name, 0, Wants::Dump), into, options).await
}

/// The receiver's name and instance, and whether it wants a base copy or a dump.
type Greeting<'a> = (&'a str, u64, Wants);

async fn fetch<C: Connect>(
    connect: &C,
    greeting: Greeting<'_>,
    into: &mut dyn CopyInto,
    options: &LinkOptions,
) -> Result<Copied, LinkError> {
    let mut pause = options.retry;
    let mut at = Position::default();
    let mut progressed = Instant::now();
    loop {
        let before = at.steps;
        let attempt = attempt(connect, &greeting, into, options, &mut at).await;
        match attempt {
            // The operator must see the master's refusal at once.
            Err(error @ LinkError::Refused(_)) => return Err(error),
            Err(error) if at.steps == before && progressed.elapsed() > NO_PROGRESS_MAX => return Err(error),
            Err(error) if error.may_pass() => tracing::warn!(%error, "the base copy was interrupted; connecting again"),
            done => return done,
        }
        at.interruptions += 1;
        if at.steps > before {
            pause = options.retry;
            progressed = Instant::now();
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(options.retry_max);
    }
}

/// How far a copy is, over all links.
#[derive(Default)]
struct Position {
    /// The copy that the rest is about; `None` before the first plan.
    of: Option<(Identity, CopyPlan, Vec<CopyVolume>)>,
    /// 0 while copying, then the number of the verification round.
    round: u32,
    /// Chunks that were compared in this round, and how many of them differed.
    compared: u64,
    differing: u64,
    sent_bytes: u64,
    interruptions: u32,
    /// This link continues the copy, or is the first one. One that begins another copy repeats comparisons.
    is_continued: bool,
    /// Chunks that brought the copy forward.
    steps: u64,
}

impl Position {
    /// Prepares for a copy: from its beginning, unless it is the one that was under way.
    fn begin(
        &mut self,
        master: Identity,
        plan: CopyPlan,
        volumes: Vec<CopyVolume>,
        into: &mut dyn CopyInto,
    ) -> Result<(), LinkError> {
        let found = Some((master, plan, volumes));
        self.is_continued = self.of.is_none() || self.of == found;
        if self.of != found {
            // Until this one is prepared for, none is under way.
            self.of = None;
            self.begin_round(0);
            if let Some((master, plan, volumes)) = &found {
                into.begin(master, plan, volumes).map_err(disk)?;
            }
            self.of = found;
        }
        Ok(())
    }

    fn begin_round(&mut self, round: u32) {
        (self.round, self.compared, self.differing) = (round, 0, 0);
    }
}

async fn attempt<C: Connect>(
    connect: &C,
    (name, instance, wants): &Greeting<'_>,
    into: &mut dyn CopyInto,
    options: &LinkOptions,
    at: &mut Position,
) -> Result<Copied, LinkError> {
    let connected = tokio::time::timeout(options.greeting_max, connect.connect()).await;
    let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
    let (mut link, welcome) = greet(stream, name, *instance, wants.clone(), options).await?;
    let (plan, volumes) = take_plan(&mut link).await?;
    at.begin(welcome.identity, plan.clone(), volumes.clone(), into)?;
    while at.round <= ROUNDS_MAX {
        Fetch { link: &mut link, into, volumes: &volumes, at }.all().await?;
        let is_verified = at.differing == 0 && at.round > 0;
        if *wants == Wants::Dump {
            into.sync().map_err(disk)?;
        }
        if is_verified || *wants == Wants::Dump {
            link.writer.send(&Message::CopyDone).await?;
            into.finish().map_err(disk)?;
            return Ok(Copied { master: welcome.identity, plan, sent_bytes: at.sent_bytes });
        }
        into.sync().map_err(disk)?;
        at.begin_round(at.round + 1);
    }
    let what = format!("the disk returns other pages than were written, after {ROUNDS_MAX} rounds of verification");
    Err(LinkError::Copy { what })
}

/// Converts an error of this node's disk.
fn disk(error: io::Error) -> LinkError {
    LinkError::Node(format!("cannot write the copy: {error}"))
}

async fn take_plan<S: Stream>(link: &mut Link<S>) -> Result<(CopyPlan, Vec<CopyVolume>), LinkError> {
    let plan = match link.answer().await? {
        Message::CopyPlan(plan) => plan,
        other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a CopyPlan" }),
    };
    if plan.volumes > VOLUMES_MAX {
        return Err(LinkError::Copy { what: format!("it has {} databases; the limit is {VOLUMES_MAX}", plan.volumes) });
    }
    let mut volumes: Vec<CopyVolume> = Vec::new();
    for _ in 0..plan.volumes {
        let volume = match link.answer().await? {
            Message::CopyVolume(volume) => volume,
            other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a CopyVolume" }),
        };
        check_file_name(&volume.file)?;
        if volumes.iter().any(|other| other.file == volume.file || other.volume == volume.volume) {
            return Err(LinkError::Copy { what: format!("it has the file {:?} twice", volume.file) });
        }
        volumes.push(volume);
    }
    Ok((plan, volumes))
}

/// Refuses anything but the plain name of a file in the directory of volumes.
fn check_file_name(name: &str) -> Result<(), LinkError> {
    let plain = !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\\', '\0']) && !name.starts_with('.');
    if plain { Ok(()) } else { Err(LinkError::Copy { what: format!("{name:?} is not a plain file name") }) }
}

/// One round over all chunks, or what is left of it.
struct Fetch<'a, S> {
    link: &'a mut Link<S>,
    into: &'a mut dyn CopyInto,
    volumes: &'a [CopyVolume],
    at: &'a mut Position,
}

/// A request that has been sent.
struct Asked {
    volume: u32,
    chunk: u32,
    have: Option<[u8; 16]>,
}

impl<S: Stream> Fetch<'_, S> {
    /// Requests every chunk that was not compared yet in this round, several at a time.
    async fn all(&mut self) -> Result<(), LinkError> {
        let total_bytes = self.volumes.iter().map(|volume| bytes_of(volume.pages)).sum();
        let (round, interruptions) = (self.at.round, self.at.interruptions);
        let mut progress = CopyProgress { total_bytes, round, interruptions, ..CopyProgress::default() };
        let volumes = self.volumes;
        let mut places = (0u32..).zip(volumes).flat_map(|(i, volume)| (0..chunks(volume)).map(move |chunk| (i, chunk)));
        for _ in 0..self.at.compared {
            let Some((volume, chunk)) = places.next() else { break };
            progress.compared_bytes += bytes_of(self.place(volume, chunk)?.1);
        }
        let mut asked: VecDeque<Asked> = VecDeque::new();
        loop {
            while asked.len() < CHUNKS_AHEAD
                && let Some((volume, chunk)) = places.next()
            {
                let question = self.question(volume, chunk)?;
                let Asked { volume, chunk, have } = question;
                self.link.writer.put(&Message::CopyAsk(CopyAsk { volume, chunk, have }))?;
                asked.push_back(question);
            }
            if !self.link.writer.is_empty() {
                self.link.writer.flush().await?;
            }
            let Some(question) = asked.pop_front() else { return Ok(()) };
            let (pages, came) = self.take(&question).await?;
            self.at.differing += u64::from(came);
            self.at.compared += 1;
            self.at.steps += u64::from(came || self.at.is_continued);
            progress.compared_bytes += bytes_of(pages);
            progress.sent_bytes = self.at.sent_bytes;
            self.into.progress(progress);
        }
    }

    /// A request for a chunk, with the hash of what the disk has if it has the whole chunk.
    fn question(&mut self, volume: u32, chunk: u32) -> Result<Asked, LinkError> {
        let (first_page, pages) = self.place(volume, chunk)?;
        let mut there = Vec::new();
        self.into.read(volume as usize, first_page, pages, &mut there).map_err(disk)?;
        let have = (there.len() as u64 == bytes_of(pages)).then(|| hash(&there));
        Ok(Asked { volume, chunk, have })
    }

    /// Reads the answer to a request and writes its pages. Returns the number of pages of the chunk, and true if they
    /// were sent.
    async fn take(&mut self, question: &Asked) -> Result<(u32, bool), LinkError> {
        let refuse = |what: String| Err(LinkError::Copy { what });
        let chunk: CopyChunk = match self.link.answer().await? {
            Message::CopyChunk(chunk) => chunk,
            other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a CopyChunk" }),
        };
        if (chunk.volume, chunk.chunk) != (question.volume, question.chunk) {
            return refuse(format!("chunk {} of volume {} was not requested", chunk.chunk, chunk.volume));
        }
        let (first_page, pages) = self.place(question.volume, question.chunk)?;
        if chunk.pages.is_empty() {
            if question.have == Some(chunk.hash) {
                return Ok((pages, false));
            }
            return refuse(format!("chunk {} of volume {} arrived without its pages", chunk.chunk, chunk.volume));
        }
        if chunk.pages.len() as u64 != bytes_of(pages) || hash(&chunk.pages) != chunk.hash {
            return refuse(format!("chunk {} of volume {} does not match its hash", chunk.chunk, chunk.volume));
        }
        self.into.write(question.volume as usize, first_page, &chunk.pages).map_err(disk)?;
        self.at.sent_bytes += chunk.pages.len() as u64;
        Ok((pages, true))
    }

    fn place(&self, volume: u32, chunk: u32) -> Result<(u32, u32), LinkError> {
        let place = self.volumes.get(volume as usize).and_then(|volume| chunk_pages(volume, chunk));
        place.ok_or_else(|| LinkError::Copy { what: format!("volume {volume} has no chunk {chunk}") })
    }
}
