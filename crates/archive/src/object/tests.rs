use holdfast_trail::boxcar::{Builder, HEAD_BYTES, Head, SHIPPED};

use super::*;

const ID: TrailId = TrailId(*b"0123456789abcdef");
const SEGMENT_BYTES: u64 = 0x10000;

fn built(kind: BoxcarKind, offset: u64, epoch: u32, previous_checksum: u32, body: &[u8]) -> Shipped {
    let mut builder = Builder::default();
    builder.begin();
    builder.push(body);
    let head = Head {
        proven: Lsn(0x1000),
        incarnation: 3,
        kind,
        epoch: Epoch(epoch),
        trail_id: ID,
        segment: 1,
        lsn: Lsn(SEGMENT_BYTES + offset),
        written_unix_ms: 1_700_000_000_000 + offset,
        body_bytes: 0,
        previous_checksum,
        checksum: 0,
    };
    let bytes: Arc<[u8]> = builder.finish(&head).0[SHIPPED..HEAD_BYTES + body.len()].into();
    Shipped::parse(bytes, ID, SEGMENT_BYTES).unwrap()
}

fn boxcars(body: &[u8]) -> Vec<Shipped> {
    let first = built(BoxcarKind::Data, 0x1000, 7, 0, body);
    let second = built(BoxcarKind::Data, first.end.0 - SEGMENT_BYTES, 8, first.checksum, b"second");
    let end = built(BoxcarKind::SegmentEnd, second.end.0 - SEGMENT_BYTES, 8, second.checksum, b"");
    vec![first, second, end]
}

fn gathered(boxcars: Vec<Shipped>) -> Option<Segment> {
    let boxcars = boxcars.into_iter().map(Ok::<_, ()>);
    Segment::gather(ID, SEGMENT_BYTES, boxcars).unwrap()
}

fn segment() -> Segment {
    gathered(boxcars(b"hello")).unwrap()
}

#[test]
fn golden_bytes() {
    let object = segment().encode(Codec::Raw).unwrap();
    let hex: String = object.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden.hex").trim());
    let last_checksum = segment().manifest.last_checksum;
    let name = ObjectName { trail_id: ID, epoch: Epoch(8), segment: 1, last_checksum };
    assert_eq!(Segment::decode(&name, &object).unwrap(), segment());
    let Manifest { first_epoch, first, end, boxcars, .. } = Manifest::decode(&name, &object[..HEADER_BYTES]).unwrap();
    assert_eq!((first_epoch, first, end, boxcars), (Epoch(7), Lsn(0x11000), Lsn(0x21000), 3));
}

#[test]
fn every_flipped_bit_and_every_other_length_is_noticed() {
    let object = segment().encode(Codec::Raw).unwrap();
    let name = segment().manifest.name();
    for byte in 0..object.len() {
        for bit in 0..8 {
            let mut bytes = object.to_vec();
            bytes[byte] ^= 1 << bit;
            let error = Segment::decode(&name, &bytes).unwrap_err();
            assert!(error.to_string().contains(&name.to_string()), "byte {byte} bit {bit}: {error}");
        }
    }
    for len in 0..object.len() {
        assert!(Segment::decode(&name, &object[..len]).is_err(), "{len} bytes");
    }
    assert!(Segment::decode(&name, &[&object[..], &[0]].concat()).is_err(), "longer");
}

#[test]
fn what_is_coded_is_shorter_and_holds_the_same() {
    let segment = gathered(boxcars(&[7; 20_000])).unwrap();
    let (raw, coded) = (segment.encode(Codec::Raw).unwrap(), segment.encode(Codec::Zstd).unwrap());
    assert!(coded.len() * 10 < raw.len());
    let read = Segment::decode(&segment.manifest.name(), &coded).unwrap();
    assert_eq!((read.manifest.codec, read.difference(&segment)), (Codec::Zstd, None));
    let from: Vec<Shipped> = read.boxcars_from(Lsn(0x12000)).map(Result::unwrap).collect();
    assert_eq!(from, boxcars(&[7; 20_000])[1..]);
    // A length that is claimed and does not come out.
    let mut claims = Manifest::decode(&segment.manifest.name(), &coded).unwrap();
    claims.content_bytes -= 1;
    let forged = [&claims.encode()[..], &coded[HEADER_BYTES..]].concat();
    assert!(Segment::decode(&segment.manifest.name(), &forged).is_err());
}

#[test]
fn another_name_a_newer_format_and_what_is_not_finished_are_refused() {
    let object = segment().encode(Codec::Raw).unwrap();
    for other in [
        ObjectName { epoch: Epoch(7), ..segment().manifest.name() },
        ObjectName { segment: 2, ..segment().manifest.name() },
        ObjectName { last_checksum: 2, ..segment().manifest.name() },
        ObjectName { trail_id: TrailId([1; 16]), ..segment().manifest.name() },
    ] {
        let error = Segment::decode(&other, &object).unwrap_err().to_string();
        assert!(error.contains("by what it says itself"), "{error}");
    }
    let mut newer = object.to_vec();
    newer[8] = 2;
    let sum = crc32c::crc32c(&newer[..124]);
    newer[124..128].copy_from_slice(&sum.to_le_bytes());
    let error = Segment::decode(&segment().manifest.name(), &newer).unwrap_err();
    assert!(matches!(error, ArchiveError::Newer { found: 2, known: 1, .. }), "{error}");
    assert_eq!(gathered(boxcars(b"x")[..2].to_vec()), None);
}

#[test]
fn boxcars_that_do_not_follow_one_another_are_no_segment() {
    let good = boxcars(b"hello");
    let stranger = built(BoxcarKind::Data, 0x2000, 8, 99, b"second");
    let older = built(BoxcarKind::Data, 0x2000, 6, good[0].checksum, b"second");
    for wrong in [
        vec![good[0].clone(), good[2].clone()],
        vec![good[0].clone(), stranger, good[2].clone()],
        vec![good[0].clone(), older, good[2].clone()],
        vec![good[1].clone(), good[0].clone(), good[2].clone()],
    ] {
        // The caller that gathers knows that they are sound; whoever reads does not.
        let Some(forged) = gathered(wrong) else { panic!("it has an end") };
        let object = forged.encode(Codec::Raw).unwrap();
        assert!(Segment::decode(&forged.manifest.name(), &object).is_err());
    }
}

#[test]
fn where_two_segments_part_is_told() {
    let first = built(BoxcarKind::Data, 0x1000, 7, 0, b"hello");
    let second = built(BoxcarKind::Data, 0x2000, 8, first.checksum, b"other!");
    let end = built(BoxcarKind::SegmentEnd, 0x3000, 8, second.checksum, b"");
    let other = gathered(vec![first, second, end]).unwrap();
    assert_eq!(segment().difference(&other).unwrap(), "they part at LSN 73728");
}
