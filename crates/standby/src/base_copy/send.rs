//! The master's side of a base copy: answers requests until the receiver is done.

use bytes::Bytes;

use crate::base_copy::{BaseCopy, bytes_of, chunk_pages, hash};
use crate::error::LinkError;
use crate::limits::COPY_SILENCE_MAX;
use crate::link::{Link, Stream};
use crate::message::{CopyAsk, CopyChunk, Message};

pub(crate) async fn send<S: Stream>(link: &mut Link<S>, copy: &mut dyn BaseCopy) -> Result<(), LinkError> {
    link.reader.set_silence_max(COPY_SILENCE_MAX);
    link.writer.put(&Message::CopyPlan(copy.plan().clone()))?;
    for volume in copy.volumes() {
        link.writer.put(&Message::CopyVolume(volume.clone()))?;
    }
    link.writer.flush().await?;
    loop {
        match link.answer().await? {
            Message::CopyAsk(ask) => {
                let chunk = chunk(copy, ask)?;
                link.writer.send(&Message::CopyChunk(chunk)).await?;
            }
            Message::CopyDone => {
                copy.completed();
                return Ok(());
            }
            Message::Stop(_) => return Ok(()),
            other => return Err(LinkError::Unexpected { kind: other.kind(), expected: "a CopyAsk" }),
        }
    }
}

/// The requested chunk, without its pages if the receiver has them.
pub(super) fn chunk(copy: &mut dyn BaseCopy, ask: CopyAsk) -> Result<CopyChunk, LinkError> {
    let place = copy.volumes().get(ask.volume as usize).and_then(|volume| chunk_pages(volume, ask.chunk));
    let Some((first_page, pages)) = place else {
        let what = format!("chunk {} of volume {} was requested, but the plan does not have it", ask.chunk, ask.volume);
        return Err(LinkError::Copy { what });
    };
    let mut bytes = Vec::with_capacity(bytes_of(pages) as usize);
    copy.read(ask.volume as usize, first_page, pages, &mut bytes)
        .map_err(|error| LinkError::Node(format!("cannot read a page for the base copy: {error}")))?;
    let hash = hash(&bytes);
    let pages = if ask.have == Some(hash) { Bytes::new() } else { bytes.into() };
    Ok(CopyChunk { volume: ask.volume, chunk: ask.chunk, hash, pages })
}
