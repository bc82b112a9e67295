//! The study from end to end, as short as it goes.

use holdfast_lab::{Configuration, DiskChoice, Study, StudyName};
use std::path::Path;

fn study(dir: &Path) -> Study {
    std::fs::create_dir_all(dir.join("data")).unwrap();
    Study {
        name: StudyName::Authorization,
        seconds: 0.2,
        clients: vec![1, 4],
        log_rows: Some(500),
        peer: None,
        disk_sync_ms: 1,
        only: vec![Configuration::Unaudited, Configuration::Audited, Configuration::SqliteOff],
        only_cases: vec![],
        only_parts: vec![],
        only_rows: vec![],
        load_seconds: None,
        scale: None,
        disks: DiskChoice::Both,
        full: false,
        quick: false,
        out: dir.join("report"),
        data_dir: dir.join("data"),
        json: false,
        program: "/nonexistent/holdfast".into(),
        command: "holdfast lab authorization".into(),
    }
}

#[test]
fn a_short_run_leaves_a_report_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let study = study(dir.path());
    holdfast_lab::run(&study).unwrap();
    let json = std::fs::read_to_string(study.out.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["schema"], "holdfast-lab-authorization/1");
    let configurations = results["configurations"].as_array().unwrap();
    assert_eq!(configurations.len(), 3);
    for configuration in configurations {
        assert_eq!(configuration["peaks"].as_array().unwrap().len(), 2, "one for each client count");
        assert!(configuration["points"].as_array().unwrap().len() >= 4);
        assert!(configuration["peaks"][0]["completed_rate"].as_f64().unwrap() > 0.0);
        assert!(configuration["log_rows"][1].as_u64() > configuration["log_rows"][0].as_u64());
    }
    let html = std::fs::read_to_string(study.out.join("report.html")).unwrap();
    assert!(html.contains("</html>") && html.matches("<svg").count() >= 2);
    let left: Vec<_> = std::fs::read_dir(&study.data_dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn options_outside_their_limits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut Study)| {
        let mut study = study(dir.path());
        change(&mut study);
        let message = holdfast_lab::run(&study).unwrap_err().to_string();
        assert!(message.contains("--"), "names the option: {message}");
        assert!(!study.out.exists(), "nothing is made first");
    };
    refused(&|s| s.seconds = 0.0);
    refused(&|s| s.seconds = f64::NAN);
    refused(&|s| s.clients = vec![4, 0]);
    refused(&|s| s.log_rows = Some(u64::MAX));
    refused(&|s| s.disk_sync_ms = 100_000);
    refused(&|s| s.scale = Some(1));
    refused(&|s| s.data_dir = s.data_dir.join("typo"));
    assert!(!dir.path().join("data/typo").exists());
}

#[test]
fn a_server_that_cannot_start_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let study = Study { only: vec![Configuration::AuditedWireSimple], ..study(dir.path()) };
    let message = format!("{:#}", holdfast_lab::run(&study).unwrap_err());
    assert!(message.contains("/nonexistent/holdfast"), "{message}");
    assert_eq!(std::fs::read_dir(&study.data_dir).unwrap().count(), 0);
}
