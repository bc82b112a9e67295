//! What a node hears over a link, and a base copy from a master that says anything.
//!
//! Input: a byte, then frames. Even: they are read one after the other; what was understood is understood the same when
//! it is sent on. Odd: they are a master's answers to a standby that takes a base copy. Either way file names are plain
//! names, pages are whole, and nothing is written outside of the volumes that were announced.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use holdfast_standby::base_copy::{CopyInto, CopyProgress, copy};
use holdfast_standby::frame::{FrameReader, boxcar_bytes_max};
use holdfast_standby::message::{CopyPlan, CopyVolume, Message};
use holdfast_standby::{Connect, Identity, LinkOptions};
use tokio::io::{Join, Sink, join, sink};
use tokio::sync::Notify;

const SEGMENT_BYTES: u64 = 64 << 10;
const PAGE_BYTES: usize = 4096;

pub fn run(data: &[u8]) {
    let Some((how, frames)) = data.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { if how.is_multiple_of(2) { read(frames).await } else { receive(frames.to_vec()).await } });
}

async fn read(frames: &[u8]) {
    let mut reader = FrameReader::new(frames, Duration::from_secs(60));
    reader.allow_boxcars(SEGMENT_BYTES);
    while let Ok(message) = reader.next().await {
        let mut sent = BytesMut::new();
        message.put(&mut sent, boxcar_bytes_max(SEGMENT_BYTES)).expect("what came in its bounds goes in them");
        let mut again = FrameReader::new(&sent[..], Duration::from_secs(60));
        again.allow_boxcars(SEGMENT_BYTES);
        let again: Message = again.next().await.expect("what was sent can be read");
        assert!(again == message, "{message:?} became {again:?}");
    }
}

/// Connects once.
struct Once {
    frames: Vec<u8>,
    connected: AtomicBool,
    again: Notify,
}

impl Connect for Once {
    type Stream = Join<io::Cursor<Vec<u8>>, Sink>;

    async fn connect(&self) -> io::Result<Self::Stream> {
        if self.connected.swap(true, Ordering::Relaxed) {
            self.again.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(join(io::Cursor::new(self.frames.clone()), sink()))
    }
}

async fn receive(frames: Vec<u8>) {
    let master = Once { frames, connected: AtomicBool::new(false), again: Notify::new() };
    let options = LinkOptions { retry: Duration::ZERO, retry_max: Duration::ZERO, ..LinkOptions::default() };
    let mut into = Memory::default();
    tokio::select! {
        copied = copy(&master, "b", 1, &mut into, &options) => {
            assert!(copied.is_err() || into.finished, "a copy ended that was not finished");
        }
        () = master.again.notified() => {}
    }
}

/// Pages by volume and number.
#[derive(Default)]
struct Memory {
    sizes: Vec<u32>,
    pages: HashMap<(usize, u32), Vec<u8>>,
    finished: bool,
}

impl CopyInto for Memory {
    fn begin(&mut self, _: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()> {
        assert_eq!(plan.volumes as usize, volumes.len());
        for CopyVolume { file, .. } in volumes {
            assert!(std::path::Path::new("volumes").join(file).parent() == Some("volumes".as_ref()), "{file:?}");
        }
        self.sizes = volumes.iter().map(|volume| volume.pages).collect();
        Ok(())
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        for page in (first_page..first_page + pages).map_while(|page| self.pages.get(&(volume, page))) {
            into.extend_from_slice(page);
        }
        Ok(())
    }

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()> {
        assert!(pages.len().is_multiple_of(PAGE_BYTES));
        for (page, bytes) in (first_page..).zip(pages.chunks_exact(PAGE_BYTES)) {
            assert!(page < self.sizes[volume], "page {page} of volume {volume}");
            self.pages.insert((volume, page), bytes.to_vec());
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        Ok(())
    }

    fn progress(&mut self, _: CopyProgress) {}
}
