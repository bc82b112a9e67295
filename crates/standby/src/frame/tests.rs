//! Golden bytes, and frames that must be refused.

use super::*;
use crate::identity::{Ack, Identity, Tip};
use crate::mastership::Mastership;
use crate::message::{Answer, CopyAsk, CopyPlan, CopyVolume, Hello, Position, Stop, Wants, Welcome};
use crate::refusal::{Reason, Refusal};
use holdfast_trail::TrailId;
use holdfast_types::{Epoch, Lsn};

const BOXCAR_MAX: usize = 64 << 10;

fn identity() -> Identity {
    Identity { trail_id: TrailId(*b"0123456789abcdef"), format: 1, segment_bytes: 64 << 20, epoch: Epoch(7) }
}

fn tip() -> Tip {
    Tip { lsn: Lsn(0x4001000), checksum: 0xdead_beef }
}

/// One message of each kind, with its bytes in version 1 of the protocol.
fn golden() -> Vec<(Message, &'static str)> {
    let hello = Hello {
        newest: 1,
        oldest: 1,
        name: "b".into(),
        instance: 5,
        wants: Wants::Follow(identity()),
        unpacks: true,
        grouped: false,
    };
    let welcome = Welcome {
        version: 1,
        name: "a".into(),
        identity: identity(),
        tip: tip(),
        follows: None,
        grouped: true,
        masterships: vec![Mastership { node: "a".into(), mark: 300, accepted: true }],
    };
    let refusal = Refusal::new(Reason::Gone, "m", "a");
    let plan = CopyPlan { manifest: "x".into(), start: Lsn(0x4001000), anchor: tip(), volumes: 2 };
    let volume = CopyVolume { volume: 3, file: "f".into(), pages: 300 };
    let chunk = CopyChunk { volume: 1, chunk: 2, hash: [9; 16], pages: Bytes::new() };
    vec![
        (Message::Hello(hello), "1f00000001010101620500303132333435363738396162636465660180808020070100"),
        (
            Message::Welcome(welcome),
            "2b000000020101613031323334353637383961626364656601808080200780a08020effdb6f50d0001010161ac0201",
        ),
        (Message::Refused(refusal), "060000000307016d0161"),
        (Message::Ask(tip()), "0a0000000480a08020effdb6f50d"),
        (Message::Answer(Answer::Gone), "020000000502"),
        (Message::Start(tip()), "0a0000000680a08020effdb6f50d"),
        (Message::Boxcar(Bytes::from_static(b"abc")), "0400000007616263"),
        (Message::Durable(Position { lsn: Lsn(300) }), "0300000008ac02"),
        (Message::Ack(Ack { received: Lsn(3), durable: Lsn(2), applied: Lsn(1) }), "0400000009030201"),
        (Message::Ping(5), "020000000a05"),
        (Message::Pong(5), "020000000b05"),
        (Message::Stop(Stop { orderly: true, why: "w".into() }), "040000000c010177"),
        (Message::CopyPlan(plan), "110000000d017880a0802080a08020effdb6f50d02"),
        (Message::CopyVolume(volume), "060000000e030166ac02"),
        (Message::CopyAsk(CopyAsk { volume: 1, chunk: 2, have: None }), "040000000f010200"),
        (Message::CopyChunk(chunk), "1900000010010000000200000009090909090909090909090909090909"),
        (Message::CopyDone, "0100000011"),
        (Message::Status("{}".into()), "0400000012027b7d"),
        (Message::Done("p".into()), "03000000130170"),
    ]
}

fn framed(message: &Message) -> BytesMut {
    let mut out = BytesMut::new();
    message.put(&mut out, BOXCAR_MAX).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Message, LinkError> {
    let (kind, body) = read_head(bytes, BOXCAR_MAX)?.ok_or(LinkError::Closed)?;
    let body = bytes.get(HEAD_BYTES..HEAD_BYTES + body).ok_or(LinkError::Closed)?;
    Message::parse(kind, Bytes::copy_from_slice(body))
}

#[test]
fn golden_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (message, expected) in golden() {
        assert_eq!(hex(&framed(&message)), expected, "{:?}", message.kind());
    }
    assert_eq!(golden().len() + 1, MessageKind::ALL.len(), "one of each kind; that of Packed stands in its module");
    assert_eq!(hex(&PREAMBLE), "0000000848464c4b");
}

#[test]
fn what_was_written_is_read_back() {
    for (message, _) in golden() {
        assert_eq!(read(&framed(&message)).unwrap(), message);
    }
}

/// Every truncated message is an error or waits for more bytes; it never panics, and is never read as another message
/// of its kind.
#[test]
fn truncated_messages_are_refused() {
    for (message, _) in golden() {
        let whole = framed(&message);
        for cut in HEAD_BYTES..whole.len() {
            let mut frame = whole[..cut].to_vec();
            assert!(matches!(read(&frame), Err(LinkError::Closed)), "an incomplete frame is waited for");
            let length = (cut - 4) as u32;
            frame[..4].copy_from_slice(&length.to_le_bytes());
            let raw = message.kind() == MessageKind::Boxcar;
            assert!(raw || read(&frame).is_err(), "{:?} cut at {cut}", message.kind());
        }
    }
}

#[test]
fn bytes_left_over_are_refused_except_where_a_newer_release_may_add_them() {
    for (message, _) in golden() {
        let mut frame = framed(&message).to_vec();
        frame.push(0);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        match message.kind() {
            MessageKind::Boxcar => {}
            MessageKind::Hello | MessageKind::Refused => assert_eq!(read(&frame).unwrap(), message),
            kind => assert!(read(&frame).is_err(), "{kind:?}"),
        }
    }
}

#[test]
fn lengths_and_kinds_are_checked_before_the_body_comes() {
    let frame = |length: u32, kind: u8| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(kind);
        read_head(&bytes, BOXCAR_MAX)
    };
    assert!(matches!(frame(1, 0), Err(LinkError::UnknownKind { code: 0 })));
    assert!(matches!(frame(1, 21), Err(LinkError::UnknownKind { code: 21 })));
    assert!(matches!(frame(0, 1), Err(LinkError::Malformed { .. })));
    assert!(matches!(frame(u32::MAX, 7), Err(LinkError::TooLong { kind: MessageKind::Boxcar, .. })));
    assert!(frame(BOXCAR_MAX as u32 + 1, 7).is_ok() && frame(BOXCAR_MAX as u32 + 2, 7).is_err());
    assert!(frame(CONTROL_BYTES_MAX as u32 + 2, 1).is_err());
    assert!(frame(2, MessageKind::CopyDone as u8).is_err());
    let mut out = BytesMut::from(&b"before"[..]);
    let long = Message::Stop(Stop { orderly: true, why: "x".repeat(CONTROL_BYTES_MAX) });
    assert!(matches!(long.put(&mut out, BOXCAR_MAX), Err(LinkError::TooLong { .. })));
    assert_eq!(&out[..], b"before", "nothing of it goes out");
}

/// A text with a claimed length of 4 GB within a body of a few bytes.
#[test]
fn lengths_within_a_body_are_not_believed() {
    let mut body = vec![1, 1];
    body.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(matches!(Message::parse(MessageKind::Hello, body.into()), Err(LinkError::Malformed { .. })));
}

/// Changing any byte leads to a refusal or another message, never to a panic.
#[test]
fn forged_bytes_never_panic() {
    for (message, _) in golden() {
        let whole = framed(&message);
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut frame = whole.to_vec();
                frame[at] = value;
                let _ = read(&frame);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn frames_come_out_whole_whatever_pieces_they_come_in() {
    let (near, far) = tokio::io::duplex(3);
    let sender = async move {
        let mut writer = FrameWriter::new(near);
        writer.allow_boxcars(BOXCAR_MAX as u64);
        for (message, _) in golden() {
            writer.put(&message).unwrap();
        }
        writer.flush().await.unwrap();
        writer
    };
    let receiver = async move {
        let mut reader = FrameReader::new(far, Duration::from_secs(5));
        reader.allow_boxcars(BOXCAR_MAX as u64);
        for (message, _) in golden() {
            assert_eq!(reader.next().await.unwrap(), message);
        }
        reader
    };
    let (writer, mut reader) = tokio::join!(sender, receiver);
    assert!(matches!(reader.next().await, Err(LinkError::Silent { .. })), "the sender holds the link and is silent");
    drop(writer);
    assert!(matches!(reader.next().await, Err(LinkError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn no_boxcar_before_pairing() {
    let (mut near, far) = tokio::io::duplex(64);
    near.write_all(&framed(&Message::Boxcar(Bytes::from_static(b"abc")))).await.unwrap();
    let mut reader = FrameReader::new(far, Duration::from_secs(5));
    assert!(matches!(reader.next().await, Err(LinkError::TooLong { kind: MessageKind::Boxcar, bytes_max: 0, .. })));
}
