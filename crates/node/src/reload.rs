//! What is read again while the server runs: at SIGHUP, and when a client asks for it with pg_reload_conf().
//!
//! Each part has a hook that reads its files and puts the result in force for what begins afterwards; sessions stay.
//!
//! How it fails: a hook that cannot use its files changes nothing and says why; the log has it, and the other parts are read
//! nevertheless.

use parking_lot::Mutex;
use std::sync::Arc;

/// Reads one part again.
type Hook = Box<dyn Fn() -> Result<(), String> + Send>;

/// The parts of a server that are read again. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Reload(Arc<Mutex<Vec<(&'static str, Hook)>>>);

impl Reload {
    /// Adds a part. Its name stands in the log.
    pub fn add(&self, name: &'static str, hook: impl Fn() -> Result<(), String> + Send + 'static) {
        self.0.lock().push((name, Box::new(hook)));
    }

    /// Reads every part again. Blocks while files are read.
    pub fn now(&self) {
        for (name, hook) in &*self.0.lock() {
            match hook() {
                Ok(()) => tracing::info!("{name} was read again"),
                Err(error) => tracing::warn!("{name} stays as it is: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_part_that_fails_does_not_keep_the_others_from_being_read() {
        let (reload, read) = (Reload::default(), Arc::new(AtomicU32::new(0)));
        let counted = read.clone();
        reload.add("broken", || Err("no file".to_owned()));
        reload.add("good", move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        reload.now();
        reload.clone().now();
        assert_eq!(read.load(Ordering::Relaxed), 2);
    }
}
