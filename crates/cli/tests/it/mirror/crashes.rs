//! The process is killed, or the power fails, at random moments. `HOLDFAST_SEED` repeats a run, `HOLDFAST_ROUNDS` makes it
//! longer.

use super::bed::{Acknowledged, Bed, Load};
use crate::node::{holdfast, succeeds, until};
use holdfast_unsafe_disk::Random;
use std::time::{Duration, SystemTime};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn random() -> Random {
    let drawn = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    let seed = number("HOLDFAST_SEED").unwrap_or_else(drawn);
    eprintln!("HOLDFAST_SEED={seed}");
    Random::new(seed)
}

fn rounds() -> u64 {
    number("HOLDFAST_ROUNDS").unwrap_or(3)
}

/// A copy of the mirror, promoted, has everything that was ever acknowledged.
async fn assert_mirror_has(bed: &mut Bed, all: &[Acknowledged]) {
    let mirror = bed.mirror.dir.clone();
    let copy = bed.copy(&mirror);
    let path = copy.to_str().unwrap();
    // Its main directory cannot be asked, and nothing has to be accepted: commits have waited.
    succeeds(&["mirror", "promote", "--data", path]);
    bed.start_on(&copy, None);
    let client = bed.connect().await;
    for acknowledged in all {
        acknowledged.assert_there(&client).await;
    }
    bed.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments() {
    let (mut bed, mut random, mut all) = (Bed::plain(""), random(), Vec::new());
    for round in 0..rounds() {
        bed.start();
        bed.until_state("streaming").await;
        let load = Load::start(&bed, 6, round).await;
        load.until_rows(&bed, 20).await;
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        bed.kill();
        all.push(load.acknowledged().await);
        for dir in [bed.main.path(), bed.mirror.path()] {
            succeeds(&["check", "--data", dir]);
        }
        assert_mirror_has(&mut bed, &all).await;
    }
    bed.start();
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    for acknowledged in &all {
        acknowledged.assert_there(&client).await;
    }
    bed.stop();
    bed.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_power_of_both_disks_fails_at_random_moments() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    let (mut random, mut all) = (random(), Vec::new());
    for round in 0..rounds() {
        bed.start();
        bed.until_state("streaming").await;
        let load = Load::start(&bed, 6, round).await;
        load.until_rows(&bed, 20).await;
        // One disk's power fails at an operation, the other's as soon as that is seen.
        let (first, second) = if random.below(2) == 0 { (&bed.main, &bed.mirror) } else { (&bed.mirror, &bed.main) };
        first.tell(&format!("seed {}\ncut * after={}", random.below(u64::MAX), 20 + random.below(600)));
        second.tell(&format!("seed {}", random.below(u64::MAX)));
        let is_off = |disk: &holdfast_unsafe_disk::Disk| disk.status().power == holdfast_unsafe_disk::Power::Off;
        until("the power fails", async || is_off(first.disk())).await;
        second.disk().cut();
        bed.kill();
        all.push(load.acknowledged().await);
        bed.main.comes_back();
        bed.mirror.comes_back();
        for dir in [bed.main.path(), bed.mirror.path()] {
            let checked = holdfast(&["check", "--data", dir]);
            assert!(checked.status.success(), "round {round}: {}", String::from_utf8_lossy(&checked.stdout));
        }
        assert_mirror_has(&mut bed, &all).await;
    }
    bed.start();
    bed.until_state("streaming").await;
    let client = bed.connect().await;
    for acknowledged in &all {
        acknowledged.assert_there(&client).await;
    }
    bed.stop();
    bed.assert_equal().await;
}
