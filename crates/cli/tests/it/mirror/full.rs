//! A promotion fails, because the mirror's disk is full or loses power: the main directory can be served again, or the promotion
//! is repeated; never both.

use super::bed::{Bed, Load};
use crate::node::{holdfast, refuses, succeeds};

/// What a promotion of the mirror says, or why it has failed.
fn promote(bed: &Bed) -> Result<String, String> {
    let output = holdfast(&["mirror", "promote", "--data", bed.mirror.path()]);
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout).unwrap()),
        // A disk that fails may also end the process.
        _ => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// Served again with the mirror, which is followed.
async fn the_main_directory_is_used(bed: &mut Bed) {
    refuses(&["serve", "--listen", "127.0.0.1:0", "--data", bed.mirror.path()]);
    bed.start();
    bed.until_state("streaming").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_for_which_there_is_no_room_leaves_the_main_directory_usable() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    for (round, blocks) in (0..).zip([0, 1, 2, 3, 4, 6, 8, 16, 64, 256, 1024]) {
        bed.start();
        bed.until_state("streaming").await;
        let load = Load::start(&bed, 4, round).await;
        load.until_rows(&bed, 200).await;
        bed.kill();
        let acknowledged = load.acknowledged().await;
        let used = bed.mirror.disk().status().used_bytes;
        bed.mirror.tell(&format!("capacity {}", used + blocks * 4096));
        let promoted = promote(&bed);
        bed.mirror.tell("capacity none");
        eprintln!("{blocks} blocks: {promoted:?}");
        match promoted {
            Ok(_) => {
                let mirror = bed.mirror.dir.clone();
                let said = bed.start_refused();
                assert!(said.contains("was promoted"), "{said}");
                bed.start_on(&mirror, None);
                acknowledged.assert_there(&bed.connect().await).await;
                bed.kill();
                bed = Bed::on_disks("").unwrap();
            }
            Err(_) => {
                the_main_directory_is_used(&mut bed).await;
                acknowledged.assert_there(&bed.connect().await).await;
                bed.kill();
            }
        }
    }
}

/// The recovery itself fails, after it has raised the epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_whose_recovery_finds_no_room_is_withdrawn() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    bed.start();
    bed.until_state("streaming").await;
    let load = Load::start(&bed, 4, 0).await;
    load.until_rows(&bed, 200).await;
    bed.kill();
    let acknowledged = load.acknowledged().await;
    for what in ["checkpoints*", "databases.toml*"] {
        bed.mirror.tell(&format!("fail write *{what} error=enospc times=always"));
        let failed = promote(&bed);
        bed.mirror.tell("clear");
        if let Err(why) = &failed {
            assert!(why.contains("was withdrawn") && why.contains("run the command again"), "{why}");
            the_main_directory_is_used(&mut bed).await;
            acknowledged.assert_there(&bed.connect().await).await;
            bed.kill();
        }
        assert!(failed.is_err() || what != "checkpoints*", "the rule was met: {failed:?}");
        if failed.is_ok() {
            return;
        }
    }
    // The cause is removed.
    let said = succeeds(&["mirror", "promote", "--data", bed.mirror.path()]);
    assert!(said.contains("It has everything that was acknowledged"), "{said}");
    let mirror = bed.mirror.dir.clone();
    bed.start_on(&mirror, None);
    acknowledged.assert_there(&bed.connect().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_that_loses_power_at_any_step_leaves_one_of_the_two() {
    let Some(mut bed) = Bed::on_disks("") else { return };
    for (round, after) in (0..).zip([0, 3, 6, 10, 15, 20, 26, 33, 41, 50]) {
        bed.start();
        bed.until_state("streaming").await;
        let load = Load::start(&bed, 4, round).await;
        load.until_rows(&bed, 100).await;
        bed.kill();
        let acknowledged = load.acknowledged().await;
        bed.mirror.tell(&format!("seed {after}\ncut * after={after}"));
        let promoted = promote(&bed);
        bed.mirror.comes_back();
        let repeated = holdfast(&["mirror", "promote", "--data", bed.mirror.path()]);
        assert!(repeated.status.success() || promoted.is_ok(), "after {after}: {promoted:?}, {repeated:?}");
        let said = bed.start_refused();
        assert!(said.contains("was promoted"), "{said}");
        let mirror = bed.mirror.dir.clone();
        bed.start_on(&mirror, None);
        acknowledged.assert_there(&bed.connect().await).await;
        bed.kill();
        bed = Bed::on_disks("").unwrap();
    }
}
