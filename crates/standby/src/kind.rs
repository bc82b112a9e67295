//! The kinds of the link's frames; [`crate::frame`] says what each holds.

/// The kinds by number; a frame's kind is known before its body is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MessageKind {
    Hello = 1,
    Welcome,
    Refused,
    Ask,
    Answer,
    Start,
    Boxcar,
    Durable,
    Ack,
    Ping,
    Pong,
    Stop,
    CopyPlan,
    CopyVolume,
    CopyAsk,
    CopyChunk,
    CopyDone,
    Status,
    Done,
    Packed,
}

impl MessageKind {
    /// Every kind, by number.
    pub const ALL: [MessageKind; 20] = [
        MessageKind::Hello,
        MessageKind::Welcome,
        MessageKind::Refused,
        MessageKind::Ask,
        MessageKind::Answer,
        MessageKind::Start,
        MessageKind::Boxcar,
        MessageKind::Durable,
        MessageKind::Ack,
        MessageKind::Ping,
        MessageKind::Pong,
        MessageKind::Stop,
        MessageKind::CopyPlan,
        MessageKind::CopyVolume,
        MessageKind::CopyAsk,
        MessageKind::CopyChunk,
        MessageKind::CopyDone,
        MessageKind::Status,
        MessageKind::Done,
        MessageKind::Packed,
    ];

    /// The kind of this number.
    pub fn from_code(code: u8) -> Option<MessageKind> {
        MessageKind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}
