//! Identifiers that appear in formats. Each is a number with a type of its own, so that, for example, an LSN is never
//! taken for a transaction id.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $repr);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Log sequence number: a byte position in the trail, counted from the trail's beginning, never reused within
    /// one epoch. Padding between boxcars counts.
    Lsn,
    u64
);
id!(
    /// Raised by every open of the trail for writing and by every promotion. A position is (epoch, LSN).
    Epoch,
    u32
);
id!(
    /// One SQLite database under the node's trail. Never reused, not even after DROP DATABASE.
    VolumeId,
    u32
);
id!(
    /// The node on which a change was first made.
    SiteId,
    u16
);
id!(
    /// A transaction, unique within a trail.
    TxnId,
    u64
);
id!(
    /// A table's id, which ALTER TABLE ... RENAME and VACUUM do not change; unique within a volume, never reused.
    TableId,
    u32
);

impl TxnId {
    /// The epoch in which it was begun.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> 32) as u32)
    }
}

/// Hybrid logical clock (Kulkarni and others, 2014): 48 bits of milliseconds since 1970, 16 bits of counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Hlc(pub u64);

impl Hlc {
    /// The next reading after `self` when the wall clock reads `unix_ms`. It never goes back, and two readings always
    /// differ.
    pub fn next(self, unix_ms: u64) -> Hlc {
        let wall = Hlc(unix_ms << 16);
        if wall > self { wall } else { Hlc(self.0 + 1) }
    }

    /// The last reading of a millisecond.
    pub fn last_of(unix_ms: u64) -> Hlc {
        Hlc(unix_ms << 16 | 0xffff)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub fn unix_ms(self) -> u64 {
        self.0 >> 16
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.unix_ms(), self.0 & 0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::Hlc;

    #[test]
    fn hlc_never_repeats_nor_goes_back() {
        let a = Hlc::default().next(1000);
        let b = a.next(1000);
        let c = b.next(999);
        let d = c.next(1001);
        assert!(a < b && b < c && c < d);
        assert_eq!(d.unix_ms(), 1001);
    }
}
