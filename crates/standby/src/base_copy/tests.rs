//! Copies in memory, over a link that breaks.

use std::sync::Arc;
use std::time::Duration;

use holdfast_trail::TrailId;
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use tokio::io::DuplexStream;

use super::*;
use crate::error::LinkError;
use crate::identity::Tip;
use crate::limits::LinkOptions;
use crate::link::{Link, take_preamble};
use crate::message::{CopyChunk, Message, Welcome};
use crate::receive::Connect;

struct Source {
    plan: CopyPlan,
    volumes: Vec<CopyVolume>,
    contents: Vec<Vec<u8>>,
}

impl Source {
    /// Volumes with these numbers of pages, each page with different bytes.
    fn of(pages: &[u32], state: u8) -> Source {
        let volumes = (1..).zip(pages).map(|(volume, pages)| CopyVolume {
            volume,
            file: format!("{volume:06}.db"),
            pages: *pages,
        });
        let contents = pages.iter().map(|pages| {
            (0..*pages).flat_map(|page| [(page as u8).wrapping_mul(31) ^ state; PAGE_BYTES]).collect::<Vec<u8>>()
        });
        let anchor = Tip { lsn: Lsn(9), checksum: 9 };
        let plan = CopyPlan { manifest: "m".into(), start: Lsn(4096), anchor, volumes: pages.len() as u32 };
        Source { plan, volumes: volumes.collect(), contents: contents.collect() }
    }
}

impl BaseCopy for Source {
    fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    fn volumes(&self) -> &[CopyVolume] {
        &self.volumes
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let start = bytes_of(first_page) as usize;
        into.extend_from_slice(&self.contents[volume][start..start + bytes_of(pages) as usize]);
        Ok(())
    }
}

#[derive(Default)]
struct Target {
    files: Vec<Vec<u8>>,
    progress: CopyProgress,
    syncs: u32,
    finished: bool,
    /// The number of times that the disk returns other bytes than were written.
    rots: u32,
    full: bool,
}

impl CopyInto for Target {
    fn begin(&mut self, _: &Identity, _: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()> {
        self.files.resize(volumes.len(), Vec::new());
        for (file, volume) in self.files.iter_mut().zip(volumes) {
            file.truncate(bytes_of(volume.pages) as usize);
        }
        Ok(())
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let start = bytes_of(first_page) as usize;
        let there = self.files[volume].get(start..).unwrap_or_default();
        into.extend_from_slice(&there[..there.len().min(bytes_of(pages) as usize)]);
        Ok(())
    }

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()> {
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (start, file) = (bytes_of(first_page) as usize, &mut self.files[volume]);
        file.resize(file.len().max(start + pages.len()), 0);
        file[start..start + pages.len()].copy_from_slice(pages);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.rots > 0 {
            self.rots -= 1;
            self.files[0][5] ^= 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        Ok(())
    }

    fn progress(&mut self, done: CopyProgress) {
        self.progress = done;
    }
}

fn identity() -> Identity {
    Identity { trail_id: TrailId([1; 16]), format: 1, segment_bytes: 64 << 10, epoch: Epoch(1) }
}

/// Serves one copy after the other; each link breaks after a given number of messages from its receiver.
struct Server {
    sources: Arc<Mutex<Vec<(Source, usize)>>>,
}

impl Server {
    fn new(sources: Vec<(Source, usize)>) -> Server {
        Server { sources: Arc::new(Mutex::new(sources.into_iter().rev().collect())) }
    }
}

impl Connect for Server {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(4 << 20);
        let (source, messages) = self.sources.lock().pop().ok_or(io::ErrorKind::ConnectionRefused)?;
        tokio::spawn(serve(far, source, messages));
        Ok(near)
    }
}

async fn serve(mut stream: DuplexStream, mut source: Source, messages: usize) -> Result<(), LinkError> {
    take_preamble(&mut stream).await?;
    let mut link = Link::over(stream, &LinkOptions::default());
    let Message::Hello(hello) = link.reader.next().await? else { panic!() };
    let tip = Tip { lsn: Lsn(0), checksum: 0 };
    let welcome = Welcome {
        version: 1,
        name: hello.name,
        identity: identity(),
        tip,
        follows: None,
        grouped: false,
        masterships: vec![],
    };
    link.writer.send(&Message::Welcome(welcome)).await?;
    if messages == usize::MAX {
        return send(&mut link, &mut source).await;
    }
    // As `send` does, up to the point where the link breaks.
    link.writer.put(&Message::CopyPlan(source.plan.clone()))?;
    source.volumes.iter().try_for_each(|volume| link.writer.put(&Message::CopyVolume(volume.clone())))?;
    link.writer.flush().await?;
    for _ in 0..messages {
        let Message::CopyAsk(ask) = link.answer().await? else { panic!() };
        let chunk = super::send::chunk(&mut source, ask)?;
        link.writer.send(&Message::CopyChunk(chunk)).await?;
    }
    Ok(())
}

async fn copied(server: &Server, target: &mut Target) -> Result<Copied, LinkError> {
    copy(server, "b", 1, target, &LinkOptions::default()).await
}

/// Two full chunks and a part, one short file, one empty file.
const PAGES: [u32; 3] = [600, 3, 0];
const BYTES: u64 = 603 * PAGE_BYTES as u64;

#[tokio::test(start_paused = true)]
async fn a_copy_is_the_same_and_was_read_back() {
    let server = Server::new(vec![(Source::of(&PAGES, 0), usize::MAX)]);
    let mut target = Target::default();
    let copied = copied(&server, &mut target).await.unwrap();
    assert_eq!(target.files, Source::of(&PAGES, 0).contents);
    assert_eq!((copied.sent_bytes, copied.plan.start, copied.master), (BYTES, Lsn(4096), identity()));
    assert!(target.finished && target.syncs == 1);
    let done =
        CopyProgress { compared_bytes: BYTES, sent_bytes: BYTES, total_bytes: BYTES, round: 1, interruptions: 0 };
    assert_eq!(target.progress, done);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_copy_goes_on_with_what_is_there() {
    // The first link breaks after two chunks of the first state; after that the master changes one page of a chunk.
    let mut later = Source::of(&PAGES, 0);
    later.contents[0][7] ^= 1;
    let expected = later.contents.clone();
    let server = Server::new(vec![(Source::of(&PAGES, 0), 2), (later, usize::MAX)]);
    let mut target = Target::default();
    let copied = copied(&server, &mut target).await.unwrap();
    assert_eq!(target.files, expected);
    let chunk = bytes_of(CHUNK_PAGES);
    assert_eq!(copied.sent_bytes, BYTES + chunk, "all once, and the changed chunk again");
}

/// Each link brings one chunk of the same copy: the next one continues after it, also while it verifies.
#[tokio::test(start_paused = true)]
async fn a_link_that_breaks_at_every_chunk_ends_nevertheless() {
    let chunks = PAGES.iter().map(|pages| pages.div_ceil(CHUNK_PAGES) as usize).sum::<usize>();
    let links = (0..2 * chunks).map(|_| (Source::of(&PAGES, 0), 1));
    let server = Server::new(links.chain([(Source::of(&PAGES, 0), usize::MAX)]).collect());
    let mut target = Target::default();
    let copied = tokio::time::timeout(Duration::from_secs(3600), copied(&server, &mut target)).await.unwrap().unwrap();
    assert_eq!(target.files, Source::of(&PAGES, 0).contents);
    assert_eq!((copied.sent_bytes, target.finished), (BYTES, true), "each chunk once");
    assert_eq!(target.progress.interruptions as usize, 2 * chunks - 1, "before the last chunk");
}

/// Another copy is compared from its beginning; a master that keeps none is given up when nothing comes any more.
#[tokio::test(start_paused = true)]
async fn another_copy_begins_again() {
    let state = |number: u64| {
        let mut source = Source::of(&PAGES, 0);
        source.plan.anchor.lsn = Lsn(number);
        source
    };
    let server = Server::new(vec![(state(1), 3), (state(2), 2), (state(3), usize::MAX)]);
    let mut target = Target::default();
    assert_eq!(copied(&server, &mut target).await.unwrap().sent_bytes, BYTES);
    let breaks = (0..1000).map(|number| (state(number), 2));
    let ended = copied(&Server::new(breaks.collect()), &mut target).await;
    assert!(ended.is_err() && !matches!(ended, Err(LinkError::Refused(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn volumes_that_have_shrunk_are_cut() {
    let mut target = Target { files: vec![vec![1; 700 * PAGE_BYTES]], ..Target::default() };
    let server = Server::new(vec![(Source::of(&[5], 0), usize::MAX)]);
    copied(&server, &mut target).await.unwrap();
    assert_eq!(target.files, Source::of(&[5], 0).contents);
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_gives_back_is_verified() {
    let server = Server::new(vec![(Source::of(&PAGES, 0), usize::MAX), (Source::of(&PAGES, 0), usize::MAX)]);
    let mut target = Target { rots: 1, ..Target::default() };
    copied(&server, &mut target).await.unwrap();
    assert_eq!((target.files == Source::of(&PAGES, 0).contents, target.syncs), (true, 2));
    let mut rotten = Target { rots: 99, ..Target::default() };
    let refused = copied(&server, &mut rotten).await;
    assert!(matches!(refused, Err(LinkError::Copy { .. })) && !rotten.finished);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_the_copy() {
    let server = Server::new(vec![(Source::of(&PAGES, 0), usize::MAX)]);
    let refused = copied(&server, &mut Target { full: true, ..Target::default() }).await;
    assert!(matches!(refused, Err(LinkError::Node(_))));
}

/// A chunk that was not requested, or that does not match its hash, is refused and not written.
#[tokio::test(start_paused = true)]
async fn chunks_that_lie_are_refused() {
    let lies: [fn(&mut CopyChunk); 5] = [
        |chunk| chunk.hash[3] ^= 1,
        |chunk| chunk.pages = vec![7; chunk.pages.len()].into(),
        |chunk| chunk.pages = chunk.pages.slice(..PAGE_BYTES),
        |chunk| chunk.pages = bytes::Bytes::new(),
        |chunk| chunk.chunk += 1,
    ];
    for lie in lies {
        let (near, mut far) = tokio::io::duplex(4 << 20);
        tokio::spawn(async move {
            let mut source = Source::of(&[300], 0);
            take_preamble(&mut far).await.unwrap();
            let mut link = Link::over(far, &LinkOptions::default());
            let Ok(Message::Hello(hello)) = link.reader.next().await else { panic!() };
            let tip = Tip { lsn: Lsn(0), checksum: 0 };
            let welcome = Welcome {
                version: 1,
                name: hello.name,
                identity: identity(),
                tip,
                follows: None,
                grouped: false,
                masterships: vec![],
            };
            link.writer.put(&Message::Welcome(welcome)).unwrap();
            link.writer.put(&Message::CopyPlan(source.plan.clone())).unwrap();
            link.writer.put(&Message::CopyVolume(source.volumes[0].clone())).unwrap();
            link.writer.flush().await.unwrap();
            let Ok(Message::CopyAsk(ask)) = link.answer().await else { panic!() };
            let mut chunk = super::send::chunk(&mut source, ask).unwrap();
            lie(&mut chunk);
            link.writer.send(&Message::CopyChunk(chunk)).await.unwrap();
            let _ = link.reader.next().await;
        });
        let once = Once(Mutex::new(Some(near)));
        let mut target = Target::default();
        let options = LinkOptions::default();
        let copying = copy(&once, "b", 1, &mut target, &options);
        let refused = tokio::time::timeout(Duration::from_secs(60), copying).await.expect("it ends");
        assert!(matches!(refused, Err(LinkError::Copy { .. })), "{refused:?}");
        assert!(target.files[0].is_empty());
    }
}

/// One link that was created beforehand.
struct Once(Mutex<Option<DuplexStream>>);

impl Connect for Once {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        self.0.lock().take().ok_or(io::ErrorKind::ConnectionRefused.into())
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_lead_elsewhere_are_refused() {
    for name in ["", "../x", "a/b", ".hidden", "a\0b"] {
        let mut source = Source::of(&[1], 0);
        source.volumes[0].file = name.to_owned();
        let server = Server::new(vec![(source, usize::MAX)]);
        let refused = copied(&server, &mut Target::default()).await;
        assert!(matches!(refused, Err(LinkError::Copy { .. })), "{name:?}");
    }
    let mut source = Source::of(&[1, 1], 0);
    source.volumes[1].file = source.volumes[0].file.clone();
    let refused = copied(&Server::new(vec![(source, usize::MAX)]), &mut Target::default()).await;
    assert!(matches!(refused, Err(LinkError::Copy { .. })), "twice the same file");
}
