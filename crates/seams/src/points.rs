//! Named points of a program at which a test stops or kills it, so that a test need not meet them by luck.
//!
//! Only a build with debug assertions contains them: there the environment variable `HOLDFAST_TEST_POINTS` names a file with a line
//! for each point, `kill NAME` or `stop NAME`. A process that reaches the point takes the line out, and gets SIGKILL or SIGSTOP. A
//! test inside the process runs something of its own at a point ([`once_at`]). In every other build [`reached`] is empty.

/// This process has reached the point of this name.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn reached(_point: &str) {}

/// What a test runs at the point of this name.
#[cfg(debug_assertions)]
type Once = (&'static str, Box<dyn FnOnce()>);

#[cfg(debug_assertions)]
thread_local! {
    static ONCE: std::cell::RefCell<Vec<Once>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Runs `then` when this thread next reaches the point. Other threads of the process pass it.
#[cfg(debug_assertions)]
pub fn once_at(point: &'static str, then: impl FnOnce() + 'static) {
    ONCE.with_borrow_mut(|all| all.push((point, Box::new(then))));
}

/// This process has reached the point of this name.
#[cfg(debug_assertions)]
pub fn reached(point: &str) {
    let found = ONCE.with_borrow_mut(|all| all.iter().position(|(at, _)| *at == point).map(|i| all.remove(i).1));
    if let Some(then) = found {
        then();
    }
    signal(point);
}

#[cfg(debug_assertions)]
fn signal(point: &str) {
    use rustix::process::{Signal, getpid, kill_process};
    let Some(file) = std::env::var_os("HOLDFAST_TEST_POINTS") else { return };
    let Ok(text) = std::fs::read_to_string(&file) else { return };
    for (how, signal) in [("kill", Signal::KILL), ("stop", Signal::STOP)] {
        let line = format!("{how} {point}");
        if text.lines().any(|found| found == line) {
            let rest: String = text.lines().filter(|found| *found != line).map(|found| format!("{found}\n")).collect();
            // A failure leaves the line, and the test sees it.
            let _ = std::fs::write(&file, rest);
            let _ = kill_process(getpid(), signal);
        }
    }
}
