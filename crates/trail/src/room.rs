//! How many bytes can be appended without allocating more on the disk.
//!
//! The writer reserves before it executes, because a full disk must be detected before a change is published, never after.
//! Only prepared space counts as room: written once, synced, renamed to its final name. A reservation is charged its
//! worst case: a boxcar of its own, followed by a proof. Sharing a boxcar costs less, and the difference is credited
//! when the boxcar is written. In every segment, the length of one largest boxcar does not count, because that much may
//! stay empty at its end. So the charges never exceed the prepared space, however the appends are batched.

use crate::boxcar::disk_bytes;
use crate::layout::{BLOCK, Layout};

#[derive(Clone, Debug)]
pub struct Room {
    layout: Layout,
    /// Bytes that may stay empty at a segment's end.
    waste_bytes: u64,
    kept_back_bytes: u64,
    /// Bytes left in the segment being written, without the block that its end needs.
    current_bytes: u64,
    /// Number of whole segments ready after it.
    ready: u64,
    /// Bytes charged for reservations and for appends that are not yet written.
    charged_bytes: u64,
}

/// Worst-case cost of an append of that many bytes.
pub fn charge_bytes(body_bytes: u64) -> u64 {
    disk_bytes(body_bytes) + BLOCK
}

impl Room {
    pub fn new(layout: Layout, boxcar_bytes_max: u64, kept_back_bytes: u64, current_bytes: u64) -> Room {
        let waste_bytes = disk_bytes(boxcar_bytes_max);
        Room { layout, waste_bytes, kept_back_bytes, current_bytes, ready: 0, charged_bytes: 0 }
    }

    fn prepared_bytes(&self) -> u64 {
        let per_segment = self.layout.usable_bytes() - self.waste_bytes;
        self.current_bytes.saturating_sub(self.waste_bytes) + self.ready * per_segment
    }

    /// Takes a charge if that leaves the kept-back room untouched.
    pub fn try_charge(&mut self, charge: u64) -> bool {
        let fits = self.charged_bytes + charge + self.kept_back_bytes <= self.prepared_bytes();
        if fits {
            self.charged_bytes += charge;
        }
        fits
    }

    /// Takes a charge, from the kept-back room if necessary.
    pub fn charge_kept(&mut self, charge: u64) {
        self.charged_bytes += charge;
    }

    pub fn release(&mut self, charge: u64) {
        debug_assert!(charge <= self.charged_bytes, "more room returned than was taken");
        self.charged_bytes = self.charged_bytes.saturating_sub(charge);
    }

    pub fn used(&mut self, bytes: u64) {
        self.current_bytes = self.current_bytes.saturating_sub(bytes);
    }

    pub fn segment_ready(&mut self) {
        self.ready += 1;
    }

    /// Whether the segment being written can be left now: a next one is ready, and what was charged fits without the rest of
    /// this one.
    pub fn can_leave_segment(&self) -> bool {
        let per_segment = self.layout.usable_bytes() - self.waste_bytes;
        self.ready > 0 && self.charged_bytes + self.kept_back_bytes <= self.ready * per_segment
    }

    /// The rest of the segment being written will not be used.
    pub fn leave_segment(&mut self) {
        self.current_bytes = 0;
    }

    pub fn segment_entered(&mut self) {
        self.ready = self.ready.saturating_sub(1);
        self.current_bytes = self.layout.usable_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prepared_room_is_given_out_and_some_is_kept_back() {
        let layout = Layout { segment_bytes: 64 << 10 };
        let mut room = Room::new(layout, 8192 - 96, 8192, layout.usable_bytes());
        let charge = charge_bytes(4000);
        assert_eq!(charge, 8192);
        // 56 KiB usable, 8 KiB may be wasted, 8 KiB are kept back: five times 8 KiB.
        let given = (0..100).take_while(|_| room.try_charge(charge)).count();
        assert_eq!(given, 5);
        room.charge_kept(charge);
        room.release(2 * charge);
        assert!(room.try_charge(charge) && !room.try_charge(charge));
        room.segment_ready();
        assert!(room.try_charge(charge));
        // Six charges are out: they do not fit into the next segment alone.
        assert!(!room.can_leave_segment());
        room.release(charge);
        assert!(room.can_leave_segment());
        room.segment_entered();
        assert!(!room.can_leave_segment() && !room.try_charge(charge), "no other segment is ready");
    }
}
