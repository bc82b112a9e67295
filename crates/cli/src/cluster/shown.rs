//! `holdfast cluster status`, `events` and `explain`: what a running supervisor answers.

use super::OfNode;
use holdfast_cluster::Asked;
use serde_json::Value;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast cluster status --config /etc/holdfast/cluster.toml --node a
  holdfast cluster events --config /etc/holdfast/cluster.toml --node a --json
  holdfast cluster explain --config /etc/holdfast/cluster.toml --node a

Asks the supervisor of that node on this machine over its socket, as its user or as root.")]
pub struct Arguments {
    #[command(flatten)]
    of: OfNode,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn status(arguments: &Arguments) -> anyhow::Result<()> {
    let status = arguments.of.ask(Asked::Status)?;
    match arguments.json {
        true => println!("{status}"),
        false => print!("{}", status_text(&status)),
    }
    Ok(())
}

/// A text without quotation marks; "-" for what there is not.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn status_text(status: &Value) -> String {
    let (record, server, lease) = (&status["record"], &status["server"], &status["lease"]);
    let mut lines = vec![format!(
        "cluster {}, node {}, supervisor pid {}",
        text(&status["cluster"]),
        text(&status["node"]),
        status["supervisor"]["pid"]
    )];
    if status["witness"] == Value::Bool(false) {
        let how = if server["adopted"] == Value::Bool(true) { ", adopted" } else { "" };
        lines.push(match &server["waits"] {
            Value::String(why) => format!("server: none: {why}"),
            _ => format!("server: {}, pid {}{how}", text(&server["state"]), text(&server["pid"])),
        });
    }
    if let Value::String(why) = &server["lacks"] {
        lines.push(format!("warning: {why}"));
    }
    lines.push(match record {
        Value::Null => "group: no record yet; all three nodes must be reachable once".to_owned(),
        record => format!(
            "group: epoch {}, master {}{}, sync set {{{}}}, Raft's leader {}",
            record["epoch"],
            text(&record["master"]),
            if record["serving"] == Value::Bool(true) { "" } else { " (deposed or released)" },
            text(&record["sync_set"]),
            text(&status["leader"]),
        ),
    });
    if record["frozen"] == Value::Bool(true) {
        lines.push("frozen: no node takes over by itself; holdfast cluster thaw ends that".to_owned());
    }
    if !lease.is_null() {
        let least = match &lease["least_left_ms"] {
            Value::Null => String::new(),
            least => format!(", least left in 24 h {least} ms"),
        };
        lines.push(format!(
            "lease: epoch {}, {} ms of {} left{least}",
            lease["epoch"], lease["left_ms"], record["lease_ms"]
        ));
    }
    let missing = status["supervisor"]["missing"].as_array().into_iter().flatten();
    lines.extend(missing.map(|missing| format!("warning: the pulse may be late: {}", text(missing))));
    lines.join("\n") + "\n"
}

pub fn events(arguments: &Arguments) -> anyhow::Result<()> {
    let events = arguments.of.ask(Asked::Events)?;
    if arguments.json {
        println!("{events}");
        return Ok(());
    }
    for event in events.as_array().into_iter().flatten() {
        let ms = event["unix_ms"].as_u64().unwrap_or_default();
        // The time of day in UTC: the date is in the log.
        let (day_s, ms) = (ms / 1000 % 86_400, ms % 1000);
        let (hours, minutes, seconds) = (day_s / 3600, day_s / 60 % 60, day_s % 60);
        println!(
            "{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z  {:<14}  {}",
            text(&event["kind"]),
            text(&event["text"])
        );
    }
    Ok(())
}

pub fn explain(arguments: &Arguments) -> anyhow::Result<()> {
    let explained = arguments.of.ask(Asked::Explain)?;
    match arguments.json {
        true => println!("{explained}"),
        false => print!("{}", explained_text(&explained)),
    }
    Ok(())
}

/// The reason, and a line for each node with data.
fn explained_text(explained: &Value) -> String {
    let mut lines = vec![text(&explained["why"])];
    for node in explained["nodes"].as_array().into_iter().flatten() {
        let lacks: Vec<String> = node["lacks"].as_array().into_iter().flatten().map(text).collect();
        let lacks = if lacks.is_empty() { "may be promoted".to_owned() } else { lacks.join("; ") };
        lines.push(format!("  {}: {lacks}", text(&node["node"])));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_master_and_a_witness_are_shown() {
        let mut status = json!({
            "cluster": "shop", "node": "a", "witness": false,
            "supervisor": { "pid": 7, "missing": ["no real-time priority: EPERM"] },
            "server": { "state": "running", "pid": 8, "adopted": true, "waits": null },
            "leader": "w",
            "record": { "epoch": 3, "master": "a", "serving": true, "sync_set": ["a", "b"], "lease_ms": 3000 },
            "lease": { "epoch": 3, "left_ms": 2800, "least_left_ms": 2400 },
        });
        let lines = "cluster shop, node a, supervisor pid 7\n\
                     server: running, pid 8, adopted\n\
                     group: epoch 3, master a, sync set {a, b}, Raft's leader w\n\
                     lease: epoch 3, 2800 ms of 3000 left, least left in 24 h 2400 ms\n\
                     warning: the pulse may be late: no real-time priority: EPERM\n";
        assert_eq!(status_text(&status), lines);
        status["record"]["frozen"] = true.into();
        let frozen = "frozen: no node takes over by itself; holdfast cluster thaw ends that\nlease:";
        assert!(status_text(&status).contains(frozen), "{}", status_text(&status));
        status["witness"] = true.into();
        status["record"] = Value::Null;
        status["lease"] = Value::Null;
        let shown = status_text(&status);
        assert!(!shown.contains("server:") && shown.contains("no record yet"), "{shown}");
    }
}
