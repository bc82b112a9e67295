//! Reads the trail forward while it is being written: for redo, catch-up and archiving.

use std::sync::Arc;

use holdfast_types::{Epoch, Lsn};

use crate::boxcar::{BoxcarKind, Flaw, HEAD_BYTES, Head};
use crate::cursor::SegmentCursor;
use crate::error::TrailError;
use crate::layout::Layout;
use crate::shared::Shared;
use crate::shipped::Shipped;

/// A boxcar that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boxcar {
    pub lsn: Lsn,
    /// LSN at which the next boxcar starts; after a segment end, this is in the next segment.
    pub end: Lsn,
    pub kind: BoxcarKind,
    pub epoch: Epoch,
    /// Number of the open of the trail on this node that wrote it.
    pub incarnation: u32,
    /// All bytes below this LSN were durable on this node when it was written.
    pub proven: Lsn,
    pub written_unix_ms: u64,
    pub checksum: u32,
    pub previous_checksum: u32,
    /// Whole records; empty unless the kind is `Data`.
    pub body: Vec<u8>,
}

impl Boxcar {
    pub(crate) fn new(head: &Head, body: &[u8], layout: Layout) -> Boxcar {
        Boxcar {
            lsn: head.lsn,
            end: head.next(layout),
            kind: head.kind,
            epoch: head.epoch,
            incarnation: head.incarnation,
            proven: head.proven,
            written_unix_ms: head.written_unix_ms,
            checksum: head.checksum,
            previous_checksum: head.previous_checksum,
            body: body.to_vec(),
        }
    }
}

/// Iterates over boxcars of every kind up to the durable position, where it ends. A later call of `next` continues with
/// boxcars that have become durable since.
pub struct Reader {
    shared: Arc<Shared>,
    cursor: Option<SegmentCursor>,
    start: Lsn,
    position: Lsn,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Lsn) -> Result<Reader, TrailError> {
        let first = shared.first();
        if from < first {
            return Err(TrailError::Gone { lsn: from, first });
        }
        Ok(Reader { shared, cursor: None, start: from, position: from })
    }

    /// LSN at which the next boxcar will start.
    pub(crate) fn position(&self) -> Lsn {
        self.position
    }

    /// Continues after a boxcar that was obtained elsewhere.
    pub(crate) fn skip_to(&mut self, end: Lsn) {
        self.position = end;
    }

    /// Reads the next boxcar; `make` converts its head and its bytes (head and body) into the result.
    pub(crate) fn read_as<T>(&mut self, make: impl FnOnce(&Head, &[u8]) -> T) -> Result<Option<T>, TrailError> {
        let durable = self.shared.durable();
        if self.position >= durable {
            return Ok(None);
        }
        let layout = self.shared.layout;
        let (segment, offset) = (layout.segment_of(self.position), layout.offset_of(self.position));
        let mut cursor = match self.cursor.take() {
            Some(cursor) if cursor.segment == segment => cursor,
            _ => self.open(segment)?,
        };
        let durable_here = durable.0 - layout.lsn(segment, 0).0;
        cursor.set_limit(durable_here.min(layout.segment_bytes));
        let (next, made) = match cursor.whole(offset)? {
            Err(flaw) => return Err(self.damaged(&cursor, offset, durable, flaw)),
            Ok((head, whole)) => (head.next(layout), make(&head, whole)),
        };
        self.position = next;
        self.cursor = Some(cursor);
        Ok(Some(made))
    }

    fn open(&self, segment: u32) -> Result<SegmentCursor, TrailError> {
        let shared = &self.shared;
        let path = shared.state.lock().segments.get(&segment).cloned();
        let Some(path) = path else {
            return Err(TrailError::Gone { lsn: self.position, first: shared.first() });
        };
        SegmentCursor::open(&*shared.disk, &path, segment, shared.layout, shared.trail_id)
    }

    fn damaged(&self, cursor: &SegmentCursor, offset: u64, proven: Lsn, flaw: Flaw) -> TrailError {
        let recycled = !self.shared.state.lock().segments.contains_key(&cursor.segment);
        if recycled {
            return TrailError::Gone { lsn: self.position, first: self.shared.first() };
        }
        if self.position == self.start && matches!(flaw, Flaw::NoBoxcar | Flaw::Zero) {
            return TrailError::NotABoundary { lsn: self.position };
        }
        let (file, what) = (cursor.path.clone(), flaw.to_string());
        TrailError::Damaged { file, offset, lsn: self.position, proven, what }
    }
}

/// Iterates over shipped boxcars up to the durable position, for the archive.
pub struct ShippedReader(Reader);

impl ShippedReader {
    pub(crate) fn new(reader: Reader) -> ShippedReader {
        ShippedReader(reader)
    }
}

impl Iterator for ShippedReader {
    type Item = Result<Shipped, TrailError>;

    fn next(&mut self) -> Option<Self::Item> {
        let layout = self.0.shared.layout;
        self.0.read_as(|head, whole| Shipped::new(head, whole, layout)).transpose()
    }
}

impl Iterator for Reader {
    type Item = Result<Boxcar, TrailError>;

    fn next(&mut self) -> Option<Self::Item> {
        let layout = self.shared.layout;
        self.read_as(|head, whole| Boxcar::new(head, &whole[HEAD_BYTES..], layout)).transpose()
    }
}
