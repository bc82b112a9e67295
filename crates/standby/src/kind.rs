//! The kinds of the link's frames; [`crate::frame`] says what each holds.

/// The kinds by number; a frame's kind is known before its body is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
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

impl Kind {
    /// Every kind, by number.
    pub const ALL: [Kind; 20] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Refused,
        Kind::Ask,
        Kind::Answer,
        Kind::Start,
        Kind::Boxcar,
        Kind::Durable,
        Kind::Ack,
        Kind::Ping,
        Kind::Pong,
        Kind::Stop,
        Kind::CopyPlan,
        Kind::CopyVolume,
        Kind::CopyAsk,
        Kind::CopyChunk,
        Kind::CopyDone,
        Kind::Status,
        Kind::Done,
        Kind::Packed,
    ];

    /// The kind of this number.
    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}
