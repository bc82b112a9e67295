//! The clock for leases.
//!
//! Leases need a clock that is never set and that continues while the process, or the whole machine, is stopped: after
//! a suspend a node must find that its lease has expired. On Linux that is `CLOCK_BOOTTIME`; `CLOCK_MONOTONIC`, and
//! with it `std::time::Instant`, stops during suspend. In a virtual machine that was frozen from outside neither clock
//! may have moved: its hypervisor must advance the guest's clocks, as KVM, VMware and Hyper-V do.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since a time before the process began. The clock never goes back and is never set.
pub trait LeaseClock: Send + Sync + 'static {
    fn now_ns(&self) -> u64;
}

/// The machine's clock since boot, including suspended time.
#[derive(Clone, Copy, Default, Debug)]
pub struct BootClock;

impl LeaseClock for BootClock {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        // Both parts are positive on a running machine; nothing else could be done about it if they were not.
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = BootClock.now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(BootClock.now_ns() >= before + 2_000_000);
    }
}
