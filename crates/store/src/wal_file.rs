//! A checkpoint's `-wal` file: SQLite's own write-ahead log format, so that the database file together with it is a
//! plain SQLite database at every moment (guarantee 3).
//!
//! Header, 32 bytes, big endian (sqlite.org/fileformat2.html, section 4):
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic 0x377f0682: checksums over little-endian words |
//! | 4..8 | format version 3007000 |
//! | 8..12 | page size, 4096 |
//! | 12..16 | checkpoint sequence number: low 32 bits of the batch number that the file will be at |
//! | 16..20 | salt 1: ours is the number of frames |
//! | 20..24 | salt 2: ours is [`signature`] of volume, batch number and frame count |
//! | 24..32 | checksum of bytes 0..24 |
//!
//! Frame, 24 bytes and a page: page number; database size in pages in the last frame (the commit), else 0; both salts;
//! checksum over the first 8 bytes and the page, continued from the frame before.
//!
//! The program that writes the file may choose the salts. Ours distinguish our own file, complete or torn, from one
//! that another program left, and give the number of frames that belong to it:
//!
//! | header | frames | it is | what is done |
//! |---|---|---|---|
//! | missing, short or zero | any | cleared, or torn before anything was copied | cleared |
//! | bad checksum | all valid under the header that the first frame implies | its header is damaged | treated as if the header were good |
//! | bad checksum | else | torn before anything was copied | cleared |
//! | good, ours | all valid up to the commit | a checkpoint that may be half copied | rewritten, synced, copied again |
//! | good, ours | fewer valid, all or none of its pages in the database file | torn, or a finished copy | cleared |
//! | good, ours | fewer valid, only some of its pages in the database file | damaged after copying began ([`crate::wal_damage`]) | refused |
//! | good, ours | valid frames after the commit | written to by another program | refused |
//! | good, not ours | any | another program's | refused |

use crate::pages::{PAGE_BYTES, checksum};
use holdfast_seams::{AlignedBuf, BLOCK_BYTES, DiskFile};
use std::io::{self, IoSlice};

pub(crate) const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
pub(crate) const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Our signature in salt 2.
fn signature(volume: u32, number: u32, frames: u32) -> u32 {
    let mut x = 0x4846_5741u32;
    for part in [volume, number, frames] {
        x = (x ^ part).wrapping_mul(0x85eb_ca6b).rotate_left(13);
    }
    x
}

/// SQLite's running checksum (fileformat2.html, section 4.2).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum(u32, u32);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        for pair in bytes.chunks_exact(8) {
            self.0 = self.0.wrapping_add(word(&pair[..4])).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(word(&pair[4..])).wrapping_add(self.0);
        }
    }

    /// Whether the frame has the header's salts and the next checksum.
    fn continues(&mut self, header: &[u8; HEADER_BYTES], frame: &[u8]) -> bool {
        self.add(&frame[..8]);
        self.add(&frame[FRAME_HEADER_BYTES..]);
        let mut sum_bytes = [0; 8];
        self.put(&mut sum_bytes);
        frame[8..16] == header[16..24] && frame[16..24] == sum_bytes
    }

    fn put(self, to: &mut [u8]) {
        to[..4].copy_from_slice(&self.0.to_be_bytes());
        to[4..8].copy_from_slice(&self.1.to_be_bytes());
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The content of a header that we wrote.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub number: u32,
    pub frames: u32,
}

/// What was found where a header belongs.
enum FoundHeader {
    Ours(Header),
    /// Zeros, too few bytes, or a torn header.
    Nothing,
    Foreign,
}

impl Header {
    /// Encodes the header. Returns its bytes and the checksum that the frames continue.
    fn encode(self, volume: u32) -> ([u8; HEADER_BYTES], Sum) {
        let mark = signature(volume, self.number, self.frames);
        let mut header = [0; HEADER_BYTES];
        for (i, word) in [MAGIC, VERSION, PAGE_BYTES as u32, self.number, self.frames, mark].into_iter().enumerate() {
            header[i * 4..i * 4 + 4].copy_from_slice(&word.to_be_bytes());
        }
        let mut sum = Sum::default();
        sum.add(&header[..24]);
        sum.put(&mut header[24..]);
        (header, sum)
    }

    fn read(blocks: &mut Blocks<'_>, volume: u32) -> io::Result<FoundHeader> {
        let mut bytes = [0; HEADER_BYTES];
        if !blocks.read(&mut bytes)? || bytes == [0; HEADER_BYTES] {
            return Ok(FoundHeader::Nothing);
        }
        if !is_whole(&bytes) {
            let implied = Header::implied(blocks.file, volume)?;
            return Ok(implied.map_or(FoundHeader::Nothing, FoundHeader::Ours));
        }
        let header = Header { number: be32(&bytes, 12), frames: be32(&bytes, 16) };
        let ours = be32(&bytes, 20) == signature(volume, header.number, header.frames);
        Ok(if ours { FoundHeader::Ours(header) } else { FoundHeader::Foreign })
    }

    /// Derives the header from the first frame, which repeats the salts and whose page carries the number.
    fn implied(file: &dyn DiskFile, volume: u32) -> io::Result<Option<Header>> {
        let mut blocks = Blocks::new(file);
        let mut bytes = vec![0; HEADER_BYTES + FRAME_BYTES];
        if !blocks.read(&mut bytes)? {
            return Ok(None);
        }
        let frame = &bytes[HEADER_BYTES..];
        let page = &frame[FRAME_HEADER_BYTES..];
        let header = Header { number: checksum::checkpoint_of(page) as u32, frames: be32(frame, 8) };
        let ours = be32(frame, 12) == signature(volume, header.number, header.frames);
        Ok((ours && checksum::holds(page, be32(frame, 0), volume)).then_some(header))
    }
}

fn is_whole(header: &[u8; HEADER_BYTES]) -> bool {
    let (mut sum, mut sum_bytes) = (Sum::default(), [0; 8]);
    sum.add(&header[..24]);
    sum.put(&mut sum_bytes);
    header[24..] == sum_bytes && be32(header, 0) & !1 == MAGIC
}

/// Reads the header if it is whole and ours; `None` also when it had to be derived from the frames.
pub(crate) fn whole_header(file: &dyn DiskFile, volume: u32) -> io::Result<Option<Header>> {
    let (mut blocks, mut bytes) = (Blocks::new(file), [0; HEADER_BYTES]);
    if !blocks.read(&mut bytes)? || !is_whole(&bytes) {
        return Ok(None);
    }
    let header = Header { number: be32(&bytes, 12), frames: be32(&bytes, 16) };
    Ok((be32(&bytes, 20) == signature(volume, header.number, header.frames)).then_some(header))
}

/// Calls `each` for each frame that `header` announces, with page number, page, and whether all frames so far are
/// valid.
pub(crate) fn frames(
    file: &dyn DiskFile,
    volume: u32,
    header: Header,
    mut each: impl FnMut(u32, &[u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let (head, mut sum) = header.encode(volume);
    let (mut blocks, mut frame) = (Blocks::new(file), vec![0; FRAME_BYTES]);
    let mut valid = blocks.read(&mut [0; HEADER_BYTES])?;
    for _ in 0..header.frames {
        if !blocks.read(&mut frame)? {
            return each(0, &[0; PAGE_BYTES], false);
        }
        valid &= sum.continues(&head, &frame);
        each(be32(&frame, 0), &frame[FRAME_HEADER_BYTES..], valid)?;
    }
    Ok(())
}

/// Offset in the file of the page of frame `index` (from 0).
pub fn frame_offset(index: u64) -> u64 {
    (HEADER_BYTES + FRAME_HEADER_BYTES) as u64 + index * FRAME_BYTES as u64
}

/// Writes frames in order. Nothing is valid until the last frame is on disk.
pub struct WalWriter<'a> {
    file: &'a dyn DiskFile,
    buffer: Vec<u8>,
    offset: u64,
    sum: Sum,
    salts: [u32; 2],
    left: u32,
    pages: u32,
}

impl<'a> WalWriter<'a> {
    /// Begins a file of `frames` frames for a database of `pages` pages at batch `number`.
    pub fn new(file: &'a dyn DiskFile, volume: u32, number: u64, frames: u32, pages: u32) -> WalWriter<'a> {
        let salts = [frames, signature(volume, number as u32, frames)];
        let (header, sum) = Header { number: number as u32, frames }.encode(volume);
        WalWriter { file, buffer: header.to_vec(), offset: 0, sum, salts, left: frames, pages }
    }

    /// Adds the next page; the last announced one becomes the commit.
    pub fn frame(&mut self, page: u32, bytes: &[u8; PAGE_BYTES]) -> io::Result<()> {
        self.left -= 1;
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..4].copy_from_slice(&page.to_be_bytes());
        header[4..8].copy_from_slice(&(if self.left == 0 { self.pages } else { 0 }).to_be_bytes());
        header[8..12].copy_from_slice(&self.salts[0].to_be_bytes());
        header[12..16].copy_from_slice(&self.salts[1].to_be_bytes());
        self.sum.add(&header[..8]);
        self.sum.add(bytes);
        self.sum.put(&mut header[16..]);
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES || self.left == 0 {
            self.file.write_at(&[IoSlice::new(&self.buffer)], self.offset)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// What a found `-wal` file is.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundWal {
    /// Nothing in it is valid.
    Torn,
    /// One whole checkpoint of ours: `frames` pages, database size `pages`.
    Complete { number: u32, frames: u32, pages: u32 },
    /// Another program wrote it or added to it.
    Foreign,
}

/// Sequential reader that also works on a file opened with O_DIRECT.
struct Blocks<'a> {
    file: &'a dyn DiskFile,
    block: AlignedBuf,
    /// Number of valid bytes in `block`; `used` of them are consumed.
    have: usize,
    used: usize,
    offset: u64,
}

impl Blocks<'_> {
    fn new(file: &dyn DiskFile) -> Blocks<'_> {
        Blocks { file, block: AlignedBuf::zeroed(256 * BLOCK_BYTES), have: 0, used: 0, offset: 0 }
    }

    /// Fills `out`. Returns false at the end of the file.
    fn read(&mut self, out: &mut [u8]) -> io::Result<bool> {
        let mut done = 0;
        while done < out.len() {
            if self.used == self.have {
                // A short read means the end of the file, and O_DIRECT would refuse to continue from an unaligned
                // offset.
                if !self.offset.is_multiple_of(BLOCK_BYTES as u64) {
                    return Ok(false);
                }
                self.have = self.file.read_at(self.block.as_mut_slice(), self.offset)?;
                self.offset += self.have as u64;
                self.used = 0;
                if self.have == 0 {
                    return Ok(false);
                }
            }
            let n = (self.have - self.used).min(out.len() - done);
            out[done..done + n].copy_from_slice(&self.block.as_slice()[self.used..self.used + n]);
            self.used += n;
            done += n;
        }
        Ok(true)
    }
}

/// Reads a `-wal` file and passes its pages to `each`, following the table in the module's header. Pages are passed
/// before the commit is seen: call it once to learn what the file is, and again to use it.
pub fn scan(
    file: &dyn DiskFile,
    volume: u32,
    mut each: impl FnMut(u32, &[u8; PAGE_BYTES]) -> io::Result<()>,
) -> io::Result<FoundWal> {
    let mut blocks = Blocks::new(file);
    let header = match Header::read(&mut blocks, volume)? {
        FoundHeader::Ours(header) => header,
        FoundHeader::Nothing => return Ok(FoundWal::Torn),
        FoundHeader::Foreign => return Ok(FoundWal::Foreign),
    };
    let Header { number, frames } = header;
    let (head, mut sum) = header.encode(volume);
    let mut pages = 0;
    let mut frame = vec![0; FRAME_BYTES];
    for i in 1..=u64::from(frames) + 1 {
        let valid = blocks.read(&mut frame)? && sum.continues(&head, &frame);
        match (valid, i.cmp(&u64::from(frames))) {
            (true, std::cmp::Ordering::Greater) => return Ok(FoundWal::Foreign),
            (false, std::cmp::Ordering::Greater) => break,
            (false, _) => return Ok(FoundWal::Torn),
            (true, _) => {
                let page: &[u8; PAGE_BYTES] = frame[FRAME_HEADER_BYTES..].try_into().expect("a frame holds one page");
                each(be32(&frame, 0), page)?;
                if i == u64::from(frames) {
                    pages = be32(&frame, 4);
                    if pages == 0 {
                        return Ok(FoundWal::Torn);
                    }
                }
            }
        }
    }
    Ok(FoundWal::Complete { number, frames, pages })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::FaultDisk;
    use holdfast_seams::{Create, Disk, OpenHow};
    use std::path::Path;

    fn file(disk: &FaultDisk) -> Box<dyn DiskFile> {
        let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
        disk.open(Path::new("/d/x-wal"), &how).unwrap()
    }

    fn write(file: &dyn DiskFile, frames: u32) {
        let mut w = WalWriter::new(file, 3, 77, frames, 9);
        for i in 1..=frames {
            w.frame(i, &[i as u8; PAGE_BYTES]).unwrap();
        }
    }

    fn found(file: &dyn DiskFile) -> FoundWal {
        scan(file, 3, |_, _| Ok(())).unwrap()
    }

    #[test]
    fn golden_header() {
        let disk = FaultDisk::new(1);
        disk.create_dir(Path::new("/d")).unwrap();
        let f = file(&disk);
        write(&*f, 1);
        let mut header = [0; HEADER_BYTES];
        f.read_at(&mut header, 0).unwrap();
        let words: Vec<u32> = (0..6).map(|i| be32(&header, i * 4)).collect();
        assert_eq!(words, [MAGIC, VERSION, 4096, 77, 1, signature(3, 77, 1)]);
        assert_eq!(f.len_bytes().unwrap(), (HEADER_BYTES + FRAME_BYTES) as u64);
    }

    #[test]
    fn table_of_found_files() {
        let disk = FaultDisk::new(1);
        disk.create_dir(Path::new("/d")).unwrap();
        let f = file(&disk);
        assert_eq!(found(&*f), FoundWal::Torn, "empty");
        write(&*f, 600);
        assert_eq!(found(&*f), FoundWal::Complete { number: 77, frames: 600, pages: 9 });
        let mut pages = Vec::new();
        scan(&*f, 3, |n, p| {
            pages.push((n, p[0]));
            Ok(())
        })
        .unwrap();
        assert_eq!(pages.len(), 600);
        assert_eq!(pages[299], (300, 300u32 as u8));
        assert_eq!(scan(&*f, 4, |_, _| Ok(())).unwrap(), FoundWal::Foreign, "another volume's");

        let last = (HEADER_BYTES + 599 * FRAME_BYTES + 100) as u64;
        f.write_at(&[IoSlice::new(&[0xee])], last).unwrap();
        assert_eq!(found(&*f), FoundWal::Torn, "damaged frame");
        write(&*f, 600);
        f.write_at(&[IoSlice::new(&[0xee])], 9).unwrap();
        assert_eq!(found(&*f), FoundWal::Torn, "damaged header");
    }

    #[test]
    fn frames_added_by_another_program_are_noticed() {
        let disk = FaultDisk::new(1);
        disk.create_dir(Path::new("/d")).unwrap();
        let f = file(&disk);
        write(&*f, 2);
        // A third frame with the same salts, as SQLite would append it.
        let mut all = vec![0; HEADER_BYTES + 2 * FRAME_BYTES];
        f.read_at(&mut all, 0).unwrap();
        let mut sum = Sum(be32(&all, HEADER_BYTES + FRAME_BYTES + 16), be32(&all, HEADER_BYTES + FRAME_BYTES + 20));
        let mut frame = vec![5; FRAME_BYTES];
        frame[8..16].copy_from_slice(&all[16..24]);
        sum.add(&frame[..8]);
        sum.add(&frame[FRAME_HEADER_BYTES..]);
        sum.put(&mut frame[16..24]);
        f.write_at(&[IoSlice::new(&frame)], all.len() as u64).unwrap();
        assert_eq!(found(&*f), FoundWal::Foreign);
    }
}
