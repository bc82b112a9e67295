//! Lists the files of a trail directory, before any boxcar is read.
//!
//! Every file is synced and then read past the page cache: after a failed sync the cache looks valid while the disk
//! does not have the bytes, and a position may be called durable only when its bytes are on the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_seams::{AlignedBuf, Disk, OpenHow};

use crate::control::Control;
use crate::error::TrailError;
use crate::layout::{BLOCK, CONTROL_NEW, Layout, Name, parse_name};
use crate::segment::{self, HeaderFlaw, SegmentHeader};

pub struct SegmentFile {
    pub path: PathBuf,
    pub len_bytes: u64,
    pub header: Result<SegmentHeader, HeaderFlaw>,
}

pub struct Survey {
    pub control: Option<Control>,
    pub segments: BTreeMap<u32, SegmentFile>,
    pub spares: Vec<PathBuf>,
    /// A number that no spare has.
    pub next_spare: u32,
}

impl Survey {
    /// Lists, syncs and reads the files, and removes an unfinished control file. Refuses two files for one segment.
    pub fn take(disk: &dyn Disk, dir: &Path) -> Result<Survey, TrailError> {
        let unfinished = dir.join(CONTROL_NEW);
        if disk.metadata(&unfinished).map_err(TrailError::io("read the metadata of", &unfinished))?.is_some() {
            disk.remove(&unfinished).map_err(TrailError::io("remove", &unfinished))?;
        }
        Survey::look(disk, dir)
    }

    /// Lists, syncs and reads the files without removing anything.
    pub fn look(disk: &dyn Disk, dir: &Path) -> Result<Survey, TrailError> {
        disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))?;
        let control = Control::read(disk, dir)?;
        let mut survey = Survey { control, segments: BTreeMap::new(), spares: Vec::new(), next_spare: 0 };
        for name in disk.list(dir).map_err(TrailError::io("list", dir))? {
            let path = dir.join(&name);
            match parse_name(&name) {
                Name::Segment { segment, .. } => survey.add_segment(disk, segment, path)?,
                Name::Spare(number) => {
                    survey.spares.push(path);
                    survey.next_spare = survey.next_spare.max(number.saturating_add(1));
                }
                Name::Other => {}
            }
        }
        Ok(survey)
    }

    fn add_segment(&mut self, disk: &dyn Disk, segment: u32, path: PathBuf) -> Result<(), TrailError> {
        let file = disk.open(&path, &OpenHow::READ_DIRECT).map_err(TrailError::io("open", &path))?;
        file.sync_all().map_err(TrailError::io("sync", &path))?;
        let len_bytes = file.len_bytes().map_err(TrailError::io("measure", &path))?;
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        file.read_at(block.as_mut_slice(), 0).map_err(TrailError::io("read", &path))?;
        let header = SegmentHeader::decode(block.as_slice());
        if let Some(other) = self.segments.get(&segment) {
            return Err(TrailError::File {
                file: path,
                what: format!("{} has the same segment number", other.path.display()),
                advice: "Nothing was changed. Move away the one that does not belong to this trail",
            });
        }
        self.segments.insert(segment, SegmentFile { path, len_bytes, header });
        Ok(())
    }
}

impl SegmentFile {
    /// Whether the file is what its name says; `Ok(Err(what))` when it is damaged.
    pub fn check(&self, number: u32, control: &Control, layout: Layout) -> Result<Result<(), String>, TrailError> {
        let header = match &self.header {
            Err(HeaderFlaw::Newer(found)) => {
                let (found, known) = (*found, segment::FORMAT_VERSION);
                return Err(TrailError::Newer { file: self.path.clone(), found, known });
            }
            Err(HeaderFlaw::Damaged) => return Ok(Err("the segment header is damaged".to_owned())),
            Ok(header) => header,
        };
        if header.trail_id != control.trail_id {
            return Err(TrailError::OtherTrail {
                file: self.path.clone(),
                found: header.trail_id.to_string(),
                expected: control.trail_id.to_string(),
            });
        }
        if header.segment != number {
            return Ok(Err(format!("the header has segment number {}, the file name {number}", header.segment)));
        }
        if header.segment_bytes != layout.segment_bytes || self.len_bytes != layout.segment_bytes {
            let (len, want) = (self.len_bytes, layout.segment_bytes);
            return Ok(Err(format!("the file is {len} bytes long instead of {want}")));
        }
        Ok(Ok(()))
    }
}
