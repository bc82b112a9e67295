//! Base copies whose link has broken, kept so that the next link continues with the same state of the databases.
//!
//! Otherwise each link would begin with a newer state, in which other pages differ: over a link that breaks often, while clients
//! write, a copy would never end. A copy that is kept costs what one under way costs: its snapshots in memory and scratch files,
//! and the trail from where it begins.
//!
//! | event | then |
//! |---|---|
//! | the link of a copy breaks | the copy is kept for [`KEPT_MAX`] under the standby's name; the oldest of more than [`COPIES_MAX`] is dropped |
//! | a standby of that name asks for a copy | it gets the kept one |
//! | the copy is complete, or a page of it cannot be read | it is dropped: a snapshot may be given up for memory |
//! | the server stops or changes its role | all are dropped, and none is kept any longer |
//!
//! Failure: without a kept copy the standby begins with the newest state, and gets the chunks that differ from what it has.

use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::message::{CopyPlan, CopyVolume};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a copy is kept without a link: longer than a standby tries to connect again.
const KEPT_MAX: Duration = Duration::from_secs(300);

/// Copies that are kept at one time.
const COPIES_MAX: usize = 4;

/// The copies of one server.
#[derive(Default)]
pub struct KeptCopies {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    kept: Vec<Kept>,
    /// Numbers the copies in the order in which they were kept.
    last: u64,
    is_stopped: bool,
}

struct Kept {
    number: u64,
    standby: String,
    copy: Box<dyn BaseCopy>,
}

impl KeptCopies {
    /// The copy that is kept for this standby, or a new one. It is kept again when it is dropped before it is complete.
    pub fn take<E>(
        self: &Arc<Self>,
        standby: &str,
        begin: impl FnOnce() -> Result<Box<dyn BaseCopy>, E>,
    ) -> Result<Box<dyn BaseCopy>, E> {
        let kept = self.state.lock().take(|kept| kept.standby == standby);
        let copy = kept.map_or_else(begin, |kept| {
            tracing::info!(target: "holdfast::ship", standby, "a base copy is continued where its link has broken");
            Ok(kept.copy)
        })?;
        let (keeper, standby) = (self.clone(), standby.to_owned());
        let (plan, volumes) = (copy.plan().clone(), copy.volumes().to_vec());
        Ok(Box::new(Lent { keeper, standby, plan, volumes, copy: Some(copy) }))
    }

    /// Drops all copies; from now on none is kept.
    pub fn stop(&self) {
        let kept = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.kept)
        };
        // With the lock released: a snapshot that ends may take a while.
        drop(kept);
    }

    fn keep(self: &Arc<Self>, standby: String, copy: Box<dyn BaseCopy>) {
        // Without a runtime it could not be dropped in time.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state.lock();
        if state.is_stopped {
            drop(state);
            return;
        }
        state.last += 1;
        let number = state.last;
        let replaced = state.take(|kept| kept.standby == standby);
        let oldest = (state.kept.len() >= COPIES_MAX).then(|| state.kept.remove(0));
        state.kept.push(Kept { number, standby, copy });
        drop(state);
        drop((replaced, oldest));
        let keeper = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(KEPT_MAX).await;
            let expired = keeper.upgrade().and_then(|keeper| keeper.state.lock().take(|kept| kept.number == number));
            drop(expired);
        });
    }
}

impl State {
    fn take(&mut self, is_it: impl Fn(&Kept) -> bool) -> Option<Kept> {
        let place = self.kept.iter().position(is_it)?;
        Some(self.kept.remove(place))
    }
}

/// A copy that a link is sending.
struct Lent {
    keeper: Arc<KeptCopies>,
    standby: String,
    plan: CopyPlan,
    volumes: Vec<CopyVolume>,
    /// `None`: it is over, and is not kept.
    copy: Option<Box<dyn BaseCopy>>,
}

impl BaseCopy for Lent {
    fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    fn volumes(&self) -> &[CopyVolume] {
        &self.volumes
    }

    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let Some(copy) = &mut self.copy else { return Err(io::Error::other("the base copy has ended")) };
        copy.read(volume, first_page, pages, into).inspect_err(|_| self.copy = None)
    }

    fn completed(&mut self) {
        self.copy = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            self.keeper.keep(std::mem::take(&mut self.standby), copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_standby::identity::Tip;
    use holdfast_types::Lsn;
    use std::convert::Infallible;

    struct Copy(CopyPlan, bool);

    impl BaseCopy for Copy {
        fn plan(&self) -> &CopyPlan {
            &self.0
        }

        fn volumes(&self) -> &[CopyVolume] {
            &[]
        }

        fn read(&mut self, _: usize, _: u32, _: u32, _: &mut Vec<u8>) -> io::Result<()> {
            if self.1 { Ok(()) } else { Err(io::Error::other("given up")) }
        }
    }

    /// Takes the copy of a standby; a new one begins at `start`.
    fn take(keeper: &Arc<KeptCopies>, standby: &str, start: u64, is_good: bool) -> Box<dyn BaseCopy> {
        let anchor = Tip { lsn: Lsn(9), checksum: 9 };
        let plan = CopyPlan { manifest: String::new(), start: Lsn(start), anchor, volumes: 0 };
        let Ok(copy) = keeper.take(standby, || Ok::<_, Infallible>(Box::new(Copy(plan, is_good)) as Box<dyn BaseCopy>));
        copy
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_continued_until_it_is_complete_unreadable_or_old() {
        let keeper = Arc::new(KeptCopies::default());
        let begins = |start, is_good| take(&keeper, "b", start, is_good);
        drop(begins(1, true));
        drop(begins(2, true));
        assert_eq!(take(&keeper, "c", 7, true).plan().start, Lsn(7), "another standby's");
        let mut complete = begins(3, true);
        assert_eq!(complete.plan().start, Lsn(1), "the first one was kept twice");
        complete.completed();
        drop(complete);
        let mut unreadable = begins(4, false);
        assert_eq!(unreadable.plan().start, Lsn(4));
        assert!(unreadable.read(0, 0, 1, &mut Vec::new()).is_err());
        drop(unreadable);
        drop(begins(5, true));
        tokio::time::sleep(KEPT_MAX * 2).await;
        drop(begins(6, true));
        assert_eq!(begins(8, true).plan().start, Lsn(6), "the one before was too old");
        for other in 0..COPIES_MAX {
            drop(take(&keeper, &format!("s{other}"), 9, true));
        }
        let last = begins(10, true);
        assert_eq!(last.plan().start, Lsn(10), "too many are kept");
        keeper.stop();
        drop(last);
        assert_eq!(begins(11, true).plan().start, Lsn(11));
    }
}
