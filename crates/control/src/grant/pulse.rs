//! The pulse: what each node sends to every other one, every [`PULSE_EVERY_MS`], over all links; and the answer to one,
//! which has the same form. Of a fixed size, so that it is read and written without an allocation. Little-endian:
//!
//! ```text
//! offset length
//!      0      4  magic "HFPU"
//!      4      1  version of the format, 1
//!      5      1  kind: 1 pulse, 2 answer
//!      6      2  flags: 1 asks for its lease, 2 granted (answers only), 4 silent: the sender counts silence of the master of
//!                `epoch`, 8 the server is ready, 16 its disk moves, 32 the sender's clock differs from those of all others,
//!                64 the report is present
//!      8      8  cluster: the random number of the group
//!     16     16  node: the name of the sender, zeros behind it
//!     32      8  incarnation: a random number of this run of the sender
//!     40      8  sequence: counts the pulses of this incarnation from 1; an answer's is 0
//!     48      4  epoch: the newest that the sender has applied
//!     52      4  lease left, in milliseconds; 0 if there is none
//!     56      2  peers heard lately: bit n is the node of slot n
//!     58      1  record: the newest version of the record that the sender can write
//!     59      1  zero
//!     60      4  epoch of the trail's tip
//!     64      8  LSN of the trail's tip: what is durable
//!     72      8  disk: grows while syncs complete
//!     80      8  CLOCK_BOOTTIME of the sender, nanoseconds
//!     88      8  CLOCK_MONOTONIC_RAW of the sender, nanoseconds
//!     96     32  the newest voter set in the sender's log: term 8, leader 16, index 8
//!    128     32  report: the ending entry that is durable here, as above; zeros without a report
//!    160      8  report: time since the last grant, nanoseconds
//!    168      8  answer: incarnation of the pulse; zero in a pulse
//!    176      8  answer: sequence of the pulse; zero in a pulse
//!    184      8  zero
//! ```
//! The transport adds its proof of the sender behind it. What does not have exactly this form is not a pulse.

use holdfast_types::Epoch;

use super::time::Reading;
use super::voters::{LogPosition, NodeSet};
use crate::id::{NODE_NAME_BYTES_MAX, NodeId};

/// The interval of pulses.
pub const PULSE_EVERY_MS: u64 = 25;
/// The length of a pulse and of an answer.
pub const PULSE_BYTES: usize = 192;

const MAGIC: [u8; 4] = *b"HFPU";
const VERSION: u8 = 1;
const ASKS: u16 = 1;
const GRANTED: u16 = 2;
const SILENT: u16 = 4;
const SERVER_READY: u16 = 8;
const DISK_MOVES: u16 = 16;
const CLOCK_OFF: u16 = 32;
const REPORTS: u16 = 64;
const FLAGS_ALL: u16 = 127;

/// A pulse, or the answer to one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pulse {
    pub cluster: u64,
    pub node: NodeId,
    /// A random number of this run of the sender: a grant for a pulse of an earlier run counts for nothing.
    pub incarnation: u64,
    /// Counts the pulses of this incarnation from 1; 0 in an answer.
    pub sequence: u64,
    /// The newest epoch that the sender has applied.
    pub epoch: Epoch,
    /// The sender is the master of `epoch` and asks for its lease.
    pub asks: bool,
    pub lease_left_ms: u32,
    /// The nodes that the sender has heard within [`super::HEARD_NS`].
    pub heard: NodeSet,
    /// The newest version of the record that the sender can write.
    pub record_version: u8,
    /// The sender, as a voter, counts silence of the master of `epoch`.
    pub silent: bool,
    pub server_ready: bool,
    pub disk_moves: bool,
    /// The sender's clock differs from those of all others by more than [`super::CLOCK_OFF_PPM`].
    pub clock_off: bool,
    /// The end of what is durable in the sender's trail.
    pub tip_epoch: Epoch,
    pub tip_lsn: u64,
    /// Grows while the sender's syncs complete.
    pub disk: u64,
    pub clock: Reading,
    /// The newest voter set in the sender's log.
    pub voters_at: LogPosition,
    pub report: Option<Report>,
    /// The pulse that this is the answer to; `None` in a pulse.
    pub answers: Option<Answers>,
}

/// Which ending entry is durable in the sender's log, and how long before this message it granted the lease that the entry
/// ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    pub ending: LogPosition,
    pub age_ns: u64,
}

/// What an answer says about the pulse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answers {
    pub incarnation: u64,
    pub sequence: u64,
    pub granted: bool,
}

impl Pulse {
    /// The bytes to be sent.
    pub fn encode(&self) -> [u8; PULSE_BYTES] {
        let mut bytes = [0; PULSE_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(4, &[VERSION, if self.answers.is_some() { 2 } else { 1 }]);
        put(6, &self.flags().to_le_bytes());
        put(8, &self.cluster.to_le_bytes());
        put(16, self.node.as_str().as_bytes());
        put(32, &self.incarnation.to_le_bytes());
        put(40, &self.sequence.to_le_bytes());
        put(48, &self.epoch.0.to_le_bytes());
        put(52, &self.lease_left_ms.to_le_bytes());
        put(56, &self.heard.0.to_le_bytes());
        put(58, &[self.record_version]);
        put(60, &self.tip_epoch.0.to_le_bytes());
        put(64, &self.tip_lsn.to_le_bytes());
        put(72, &self.disk.to_le_bytes());
        put(80, &self.clock.boot_ns.to_le_bytes());
        put(88, &self.clock.raw_ns.to_le_bytes());
        put(96, &position(&self.voters_at));
        if let Some(report) = &self.report {
            put(128, &position(&report.ending));
            put(160, &report.age_ns.to_le_bytes());
        }
        if let Some(answers) = &self.answers {
            put(168, &answers.incarnation.to_le_bytes());
            put(176, &answers.sequence.to_le_bytes());
        }
        bytes
    }

    fn flags(&self) -> u16 {
        let granted = self.answers.is_some_and(|answers| answers.granted);
        let table = [
            (self.asks, ASKS),
            (granted, GRANTED),
            (self.silent, SILENT),
            (self.server_ready, SERVER_READY),
            (self.disk_moves, DISK_MOVES),
            (self.clock_off, CLOCK_OFF),
            (self.report.is_some(), REPORTS),
        ];
        table.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
    }

    /// Reads a message; `None` if it is not one of this format. Who sent it is the transport's to prove.
    pub fn decode(bytes: &[u8]) -> Option<Pulse> {
        let bytes: &[u8; PULSE_BYTES] = bytes.try_into().ok()?;
        let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
        let has = |flag: u16| flags & flag != 0;
        let is_zero = |from: usize, to: usize| bytes[from..to].iter().all(|byte| *byte == 0);
        if bytes[..4] != MAGIC || bytes[4] != VERSION || flags & !FLAGS_ALL != 0 || bytes[59] != 0 || !is_zero(184, 192)
        {
            return None;
        }
        let answers = match bytes[5] {
            1 if !has(GRANTED) && is_zero(168, 184) => None,
            2 => Some(Answers { incarnation: word(bytes, 168), sequence: word(bytes, 176), granted: has(GRANTED) }),
            _ => return None,
        };
        let report = match has(REPORTS) {
            true => Some(Report { ending: read_position(bytes, 128)?, age_ns: word(bytes, 160) }),
            false if is_zero(128, 168) => None,
            false => return None,
        };
        Some(Pulse {
            cluster: word(bytes, 8),
            node: read_name(bytes, 16).filter(|node| *node != NodeId::default())?,
            incarnation: word(bytes, 32),
            sequence: word(bytes, 40),
            epoch: Epoch(half(bytes, 48)),
            asks: has(ASKS),
            lease_left_ms: half(bytes, 52),
            heard: NodeSet(u16::from_le_bytes([bytes[56], bytes[57]])),
            record_version: bytes[58],
            silent: has(SILENT),
            server_ready: has(SERVER_READY),
            disk_moves: has(DISK_MOVES),
            clock_off: has(CLOCK_OFF),
            tip_epoch: Epoch(half(bytes, 60)),
            tip_lsn: word(bytes, 64),
            disk: word(bytes, 72),
            clock: Reading { boot_ns: word(bytes, 80), raw_ns: word(bytes, 88) },
            voters_at: read_position(bytes, 96)?,
            report,
            answers,
        })
    }
}

fn position(position: &LogPosition) -> [u8; 32] {
    let mut bytes = [0; 32];
    let leader = position.leader.as_str().as_bytes();
    bytes[..8].copy_from_slice(&position.term.to_le_bytes());
    bytes[8..8 + leader.len()].copy_from_slice(leader);
    bytes[24..].copy_from_slice(&position.index.to_le_bytes());
    bytes
}

fn word(bytes: &[u8; PULSE_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half(bytes: &[u8; PULSE_BYTES], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

fn read_position(bytes: &[u8; PULSE_BYTES], at: usize) -> Option<LogPosition> {
    Some(LogPosition { term: word(bytes, at), leader: read_name(bytes, at + 8)?, index: word(bytes, at + 24) })
}

/// A name with zeros behind it; only zeros are the name of no node.
fn read_name(bytes: &[u8; PULSE_BYTES], at: usize) -> Option<NodeId> {
    let field = &bytes[at..at + NODE_NAME_BYTES_MAX];
    let len = field.iter().position(|byte| *byte == 0).unwrap_or(NODE_NAME_BYTES_MAX);
    if field[len..].iter().any(|byte| *byte != 0) {
        return None;
    }
    let name = std::str::from_utf8(&field[..len]).ok()?;
    if name.is_empty() { Some(NodeId::default()) } else { NodeId::from_ascii(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse() -> Pulse {
        let node = |name: &str| name.parse::<NodeId>().unwrap();
        Pulse {
            cluster: 0x0102_0304_0506_0708,
            node: node("oslo-1"),
            incarnation: 9,
            sequence: 10,
            epoch: Epoch(11),
            asks: true,
            lease_left_ms: 575,
            heard: NodeSet(0b110),
            record_version: 2,
            silent: false,
            server_ready: true,
            disk_moves: true,
            clock_off: false,
            tip_epoch: Epoch(11),
            tip_lsn: 4096,
            disk: 13,
            clock: Reading { boot_ns: 14, raw_ns: 15 },
            voters_at: LogPosition { term: 3, leader: node("w"), index: 16 },
            report: None,
            answers: None,
        }
    }

    fn answer() -> Pulse {
        let ending = LogPosition { term: 4, leader: pulse().node, index: 17 };
        Pulse {
            sequence: 0,
            asks: false,
            silent: true,
            report: Some(Report { ending, age_ns: 600_000_000 }),
            answers: Some(Answers { incarnation: 9, sequence: 10, granted: true }),
            ..pulse()
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_pulse() {
        let golden = [
            "4846505501011900",
            "0807060504030201",
            "6f736c6f2d310000",
            "0000000000000000",
            "0900000000000000",
            "0a00000000000000",
            "0b0000003f020000",
            "060002000b000000",
            "0010000000000000",
            "0d00000000000000",
            "0e00000000000000",
            "0f00000000000000",
            "0300000000000000",
            "7700000000000000",
            "0000000000000000",
            "1000000000000000",
        ];
        let bytes = pulse().encode();
        assert_eq!(hex(&bytes), golden.concat() + &"00".repeat(64));
        assert_eq!(Pulse::decode(&bytes), Some(pulse()));
    }

    #[test]
    fn golden_answer() {
        let bytes = answer().encode();
        assert_eq!(hex(&bytes[..8]), "4846505501025e00");
        let golden = [
            "0400000000000000",
            "6f736c6f2d310000",
            "0000000000000000",
            "1100000000000000",
            "0046c32300000000",
            "0900000000000000",
            "0a00000000000000",
            "0000000000000000",
        ];
        assert_eq!(hex(&bytes[128..]), golden.concat());
        assert_eq!(Pulse::decode(&bytes), Some(answer()));
    }

    #[test]
    fn what_is_read_is_what_would_be_written() {
        for bytes in [pulse().encode(), answer().encode()] {
            for bit in 0..PULSE_BYTES * 8 {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                if let Some(read) = Pulse::decode(&changed) {
                    assert_eq!(read.encode(), changed, "bit {bit}");
                }
            }
            assert!((0..PULSE_BYTES).all(|len| Pulse::decode(&bytes[..len]).is_none()));
        }
        assert_eq!(Pulse::decode(&[0xff; PULSE_BYTES]), None);
        assert_eq!(Pulse::decode(&[b'a'; PULSE_BYTES + 1]), None);
    }
}
