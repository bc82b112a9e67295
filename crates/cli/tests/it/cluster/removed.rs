//! Files of the runtime directory are removed while the node runs, by a clean-up of temporary files for example, and then a
//! process ends.

use super::bed::Bed;
use crate::node::{LOCAL, asked, asked_with, until};
use holdfast_seams::{Disk, RealDisk};
use rustix::process::Signal;

/// The row that each test looks for; the standby is gone, so no other node takes over.
async fn alone() -> Bed {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table if not exists t(id int primary key)").await;
    asked(&bed.node_a, "insert into t values (1) on conflict do nothing").await;
    assert!(bed.b.stop().success());
    bed
}

/// Waits until the server is another process than this one and answers with the row.
async fn until_started_again(bed: &Bed, old: u32) {
    until("another server runs", async || {
        let status = bed.a.status();
        status["server"]["state"] == "running" && status["server"]["pid"] != old
    })
    .await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "1");
    let status = bed.a.status();
    assert!(status["server"]["lacks"].is_null() && status["lease"]["left_ms"].as_u64() > Some(0), "{status}");
}

/// Waits until the supervisor's socket is there again.
async fn until_socket(bed: &Bed) {
    until("the socket is there again", async || bed.a.runtime.join("socket").exists()).await;
    bed.a.until_event("pages: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_again_although_its_runtime_directory_was_removed() {
    let bed = alone().await;
    let server = bed.a.until_running().await;
    std::fs::remove_dir_all(&bed.a.runtime).unwrap();
    let pid = rustix::process::Pid::from_raw(server.pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    until_socket(&bed).await;
    until_started_again(&bed, server.pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_again_although_the_socket_was_removed() {
    let bed = alone().await;
    let server = bed.a.until_running().await;
    std::fs::remove_file(bed.a.runtime.join("socket")).unwrap();
    bed.a.signal_server(Signal::KILL);
    until_socket(&bed).await;
    until_started_again(&bed, server.pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_adopted_although_its_progress_page_was_removed() {
    let mut bed = alone().await;
    let server = bed.a.until_running().await;
    let page = bed.a.runtime.join("progress");
    // The server itself makes it again.
    std::fs::remove_file(&page).unwrap();
    until("the page is there again", async || page.exists()).await;
    assert_eq!(bed.a.until_running().await, server);
    // Not while it is stopped.
    bed.a.signal_server(Signal::STOP);
    std::fs::remove_file(&page).unwrap();
    bed.a.kill();
    bed.a.start();
    bed.a.until_event(&format!("adopted: the running server, pid {}, which is stopped", server.pid)).await;
    bed.a.until_event("resumed: ").await;
    let stopped = rustix::process::Pid::from_raw(server.pid as i32).unwrap();
    rustix::process::kill_process(stopped, Signal::CONT).unwrap();
    assert_eq!(bed.a.until_running().await, server);
    assert_eq!(asked_with(&bed.node_a, LOCAL, "select count(*) from t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_lease_page_was_removed_is_started_again_by_the_next_supervisor() {
    let mut bed = alone().await;
    let server = bed.a.until_running().await;
    std::fs::remove_file(bed.a.lease_page()).unwrap();
    bed.a.kill();
    bed.a.start();
    bed.a.until_event(&format!("adopted: the running server, pid {}", server.pid)).await;
    bed.a.until_event("pages: the lease page of epoch").await;
    until_started_again(&bed, server.pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_runtime_directory_was_removed_is_started_again_by_the_next_supervisor() {
    let mut bed = alone().await;
    let server = bed.a.until_running().await;
    bed.a.kill();
    std::fs::remove_dir_all(&bed.a.runtime).unwrap();
    bed.a.start();
    bed.a.until_event(&format!("adopted: the running server, pid {}", server.pid)).await;
    until("the status says why it answers nothing", async || {
        bed.a.status_text().contains("warning: the lease page of epoch")
    })
    .await;
    until_started_again(&bed, server.pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_with_the_trail_is_named() {
    let mut bed = alone().await;
    assert!(bed.a.stop().success());
    let lock = RealDisk::new().lock(&bed.node_a.dir.join("trail/lock")).unwrap().unwrap();
    bed.a.start();
    let expected = format!("process {} has the trail in {}: end it", std::process::id(), bed.node_a.data());
    bed.a.until_event(&expected).await;
    until("the status says so, too", async || bed.a.status_text().contains(&expected)).await;
    drop(lock);
    bed.a.until_running().await;
}
