//! A standby's handle: it takes boxcars in, and reports how far they are applied.

use crate::api::engine::Engine;
use crate::background::follow::read_ahead::read_ahead;
use crate::state::follow::OnApplied;
use holdfast_trail::{ReceiveError, Shipped};
use holdfast_types::Lsn;

impl Engine {
    pub fn is_standby(&self) -> bool {
        self.0.engine.follow.is_some()
    }

    /// Takes boxcars of the master in; blocks until they are durable here. All but the last are then known to be durable
    /// at the master. Only on a standby.
    pub fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        let engine = &self.0.engine;
        engine.trail.receive(boxcars)?;
        if let (Some(follow), Some(last)) = (&engine.follow, boxcars.last()) {
            follow.allow(last.lsn);
        }
        Ok(())
    }

    /// The master says that everything below is durable there. Only on a standby.
    pub fn allow_apply(&self, lsn: Lsn) {
        self.0.engine.follow.iter().for_each(|follow| follow.allow(lsn));
    }

    /// Reads the pages that these boxcars will change, by this many threads, where reads are slow: before they are received, or
    /// while earlier ones are applied.
    pub fn read_ahead<'a>(&self, boxcars: impl Iterator<Item = &'a Shipped>, threads: usize) {
        read_ahead(&self.0.engine, &self.0.registry, boxcars, threads);
    }

    /// Everything below is applied, and seen by every reader that begins now. On a master: is durable.
    pub fn applied(&self) -> Lsn {
        let engine = &self.0.engine;
        engine.follow.as_ref().map_or_else(|| engine.trail.durable(), |follow| follow.state.lock().applied)
    }

    /// Everything below is in this node's databases, or may be seen by its readers: a trail that is cut back below cannot
    /// be followed on from. More than [`Engine::applied`] after a restart, when applying begins where the oldest file is.
    pub fn settled(&self) -> Lsn {
        let engine = &self.0.engine;
        let Some(follow) = &engine.follow else { return engine.trail.durable() };
        let (listed_to, in_files) = engine
            .checkpoint_file
            .lock()
            .as_ref()
            .map_or((Lsn(0), Lsn(0)), |local| (local.listed_to, local.files_end()));
        let end = engine.trail.durable();
        let state = follow.state.lock();
        // A base copy that is not whole is settled by what it was taken at; a list may be ahead of the trail only there.
        let copied = state.whole_from > end;
        let whole = if copied { Lsn(0) } else { state.whole_from.max(listed_to) };
        state.applied.max(state.allowed.min(end)).max(whole).max(in_files)
    }

    /// Sets what is called when more has been applied. Only on a standby.
    pub fn on_applied(&self, tell: OnApplied) {
        self.0.engine.follow.iter().for_each(|follow| follow.state.lock().on_applied = Some(tell.clone()));
    }

    /// Waits until everything below `lsn` is applied. False: the time is up, or applying has ended.
    pub fn wait_applied(&self, lsn: Lsn, timeout: std::time::Duration) -> bool {
        let Some(follow) = &self.0.engine.follow else { return true };
        let until = std::time::Instant::now() + timeout;
        let mut state = follow.state.lock();
        while state.applied < lsn && state.failure.is_none() && !state.stop {
            if follow.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.applied >= lsn
    }

    /// Why nothing more is applied.
    pub fn apply_failure(&self) -> Option<String> {
        self.0.engine.follow.as_ref().and_then(|follow| follow.state.lock().failure.clone())
    }
}
