//! Words that one thread writes and others read as they were at one moment, without a lock.
//!
//! The version is odd while words change. A reader that meets a change gets nothing and looks again later, in its next turn.
//!
//! Failure: a reader that always meets a change reads nothing; the writers change the words a few times a second, or once in each
//! turn of a loop.

use super::log::Word;

/// `N` words with a version. One thread writes, or several under a lock of their own.
pub struct Board<W: Word, const N: usize> {
    version: W,
    words: [W; N],
}

impl<W: Word, const N: usize> Default for Board<W, N> {
    fn default() -> Board<W, N> {
        Board { version: W::new(0), words: std::array::from_fn(|_| W::new(0)) }
    }
}

impl<W: Word, const N: usize> Board<W, N> {
    /// Shows these words in place of the ones that it shows.
    pub fn show(&self, shown: &[u64; N], words: &[u64; N]) {
        let version = self.version.load();
        self.version.store(version + 1);
        W::fence();
        for at in (0..N).filter(|at| words[*at] != shown[*at]) {
            self.words[at].store(words[at]);
        }
        self.version.store(version + 2);
        W::fence();
    }

    /// The words and their version; `None` while they change.
    pub fn look(&self) -> Option<(u64, [u64; N])> {
        let version = self.version.load();
        let words = std::array::from_fn(|at| self.words[at].load());
        let is_one = version.is_multiple_of(2) && self.version.load() == version;
        is_one.then_some((version, words))
    }

    /// Differs from that of an earlier look when something has changed, or is changing.
    pub fn version(&self) -> u64 {
        self.version.load()
    }
}
