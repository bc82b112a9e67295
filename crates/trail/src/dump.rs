//! Reads a trail without opening it: every segment, every boxcar, and where each segment stops being valid. It takes no
//! lock and changes nothing, so it also works on a trail that is in use or refuses to open.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use holdfast_seams::{AlignedBuf, Disk, OpenHow};
use holdfast_types::{Epoch, Lsn};

use crate::boxcar::{BoxcarKind, Flaw};
use crate::control::Control;
use crate::cursor::SegmentCursor;
use crate::error::TrailError;
use crate::layout::{BLOCK, CONTROL, Layout, Name, TrailId, parse_name};
use crate::reader::Boxcar;
use crate::segment::SegmentHeader;

/// What a dump finds, in the order of the trail.
#[derive(Debug)]
pub enum DumpItem {
    Segment {
        path: PathBuf,
        segment: u32,
        /// Epoch in which the segment was put into service; `None` when its header is damaged.
        epoch: Option<Epoch>,
        recycled: bool,
    },
    Boxcar(Boxcar),
    /// No valid boxcar here: the end of the written part, a torn tail, or damage.
    Stop {
        path: PathBuf,
        offset: u64,
        lsn: Lsn,
        flaw: Flaw,
    },
}

/// Iterates over a trail directory.
pub struct Dump<'a> {
    disk: &'a dyn Disk,
    pub trail_id: TrailId,
    /// Epoch of the last open.
    pub epoch: Epoch,
    pub incarnation: u32,
    /// Durable position proven by the control file; boxcars may prove more.
    pub proven: Lsn,
    layout: Layout,
    segments: VecDeque<(u32, PathBuf)>,
    current: Option<(SegmentCursor, u64)>,
}

impl<'a> Dump<'a> {
    pub fn open(disk: &'a dyn Disk, dir: &Path) -> Result<Dump<'a>, TrailError> {
        let control = Control::read(disk, dir)?.ok_or_else(|| TrailError::File {
            file: dir.join(CONTROL),
            what: "it does not exist".to_owned(),
            advice: "Check that this is a trail directory",
        })?;
        let mut segments = BTreeMap::new();
        for name in disk.list(dir).map_err(TrailError::io("list", dir))? {
            if let Name::Segment { segment, epoch } = parse_name(&name) {
                segments.insert((segment, epoch), dir.join(name));
            }
        }
        let segments = segments.into_iter().map(|((segment, _), path)| (segment, path)).collect();
        Ok(Dump {
            disk,
            trail_id: control.trail_id,
            epoch: control.epoch,
            incarnation: control.incarnation,
            proven: control.proven,
            layout: Layout { segment_bytes: control.segment_bytes },
            segments,
            current: None,
        })
    }

    fn step(&mut self) -> Result<Option<DumpItem>, TrailError> {
        let Some((mut cursor, offset)) = self.current.take() else { return self.enter_segment() };
        let boxcar = match cursor.boxcar(offset)? {
            Err(flaw) => {
                let lsn = cursor.lsn(offset);
                return Ok(Some(DumpItem::Stop { path: cursor.path, offset, lsn, flaw }));
            }
            Ok((head, body)) => Boxcar::new(&head, body, self.layout),
        };
        if boxcar.kind != BoxcarKind::SegmentEnd {
            let next = self.layout.offset_of(boxcar.end);
            self.current = Some((cursor, next));
        }
        Ok(Some(DumpItem::Boxcar(boxcar)))
    }

    fn enter_segment(&mut self) -> Result<Option<DumpItem>, TrailError> {
        let Some((segment, path)) = self.segments.pop_front() else { return Ok(None) };
        let file = self.disk.open(&path, &OpenHow::READ_DIRECT).map_err(TrailError::io("open", &path))?;
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        file.read_at(block.as_mut_slice(), 0).map_err(TrailError::io("read", &path))?;
        let header = SegmentHeader::decode(block.as_slice()).ok();
        let cursor = SegmentCursor::open(self.disk, &path, segment, self.layout, self.trail_id)?;
        self.current = Some((cursor, BLOCK));
        let (epoch, recycled) = (header.map(|header| header.epoch), header.is_some_and(|header| header.recycled));
        Ok(Some(DumpItem::Segment { path, segment, epoch, recycled }))
    }
}

impl Iterator for Dump<'_> {
    type Item = Result<DumpItem, TrailError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
