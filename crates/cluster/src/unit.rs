//! The systemd units: of a node's supervisor, and of a server without a cluster.

use crate::file::{Cluster, Node};
use holdfast_control::{NodeId, Role};
use std::path::Path;

/// For both: descriptors for clients and volumes, threads, files for their user only, and the last process to be killed when memory runs
/// out: its restart costs every client more than any other one's.
const LIMITS: &str = "\
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-900
UMask=0077
";

/// The unit of a server without a cluster. `user`: the owner of its data directory.
pub fn server_unit(data: &Path, user: u32, arguments: &[String], program: &Path) -> String {
    let more: String = arguments.iter().map(|argument| format!(" {}", quoted(argument))).collect();
    let (data, program) = (quoted(&data.display().to_string()), quoted(&program.display().to_string()));
    format!(
        "\
# /etc/systemd/system/holdfast.service, made by: holdfast serve --unit
[Unit]
Description=Holdfast server of {data}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={data}
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={program} serve --data {data}{more}
ExecReload=/bin/kill -HUP $MAINPID
# SIGTERM stops in order: open transactions end, and a checkpoint is written, which may take long.
KillMode=mixed
TimeoutStopSec=infinity
# A failed sync and a full trail end the process; what is wrong is in its log.
Restart=on-failure
RestartSec=1
{LIMITS}
[Install]
WantedBy=multi-user.target
"
    )
}

/// As systemd reads a word of a command, or a path.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    match escaped.contains(char::is_whitespace) {
        true => format!("\"{escaped}\""),
        false => escaped,
    }
}

/// The unit's text. `KillMode=process`: a supervisor that is killed leaves its server running, and the next one adopts it.
pub fn unit(cluster: &Cluster, file: &Path, node: NodeId, of_node: &Node, program: &Path) -> String {
    let what = match of_node.role {
        Role::Data => "its server is its child",
        Role::Witness => "a witness has no server",
    };
    let (file, program) = (quoted(&file.display().to_string()), quoted(&program.display().to_string()));
    let name = &cluster.name;
    format!(
        "\
# /etc/systemd/system/holdfast-{name}.service, made by: holdfast cluster unit
[Unit]
Description=Holdfast cluster {name}, node {node}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={data}
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} cluster run --config {file} --node {node}
# SIGTERM stops the server in order, too ({what}); a stop without it leaves the server running.
KillMode=process
TimeoutStopSec=infinity
Restart=always
RestartSec=50ms
WatchdogSec=2
OOMPolicy=continue
RuntimeDirectory=holdfast/{name}
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
LimitRTPRIO=99
LimitMEMLOCK=infinity
{LIMITS}
[Install]
WantedBy=multi-user.target
",
        data = quoted(&of_node.data.display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_server() {
        let arguments = ["--listen".to_owned(), "*:5433".to_owned()];
        let unit = server_unit("/srv/my data".as_ref(), 990, &arguments, "/usr/bin/holdfast".as_ref());
        let start = "ExecStart=/usr/bin/holdfast serve --data \"/srv/my data\" --listen *:5433\n";
        for line in [
            start,
            "RequiresMountsFor=\"/srv/my data\"\n",
            "User=990\n",
            "KillMode=mixed\nTimeoutStopSec=infinity\n",
            "LimitNOFILE=1048576\nTasksMax=infinity\nOOMScoreAdjust=-900\nUMask=0077\n\n[Install]\n",
        ] {
            assert!(unit.contains(line), "{line}\n{unit}");
        }
        assert_eq!(quoted("a%b\"$c"), "a%%b\\\"$$c");
    }

    #[test]
    fn the_unit_of_a_node() {
        let text = "name = \"shop\"\n[node.a]\nlinks = [\"h1\"]\ndata = \"/a\"\n[node.b]\nlinks = [\"h2\"]\ndata = \"/b\"\n\
                    [node.w]\nlinks = [\"h3\"]\ndata = \"/w\"\nwitness = true\n[database]\nnodes = [\"a\", \"b\"]\n";
        let cluster = Cluster::parse(text).unwrap();
        let (node, own) = cluster.node("f".as_ref(), "a").unwrap();
        let unit = unit(&cluster, "/etc/holdfast/cluster.toml".as_ref(), node, own, "/usr/bin/holdfast".as_ref());
        for line in [
            "ExecStart=/usr/bin/holdfast cluster run --config /etc/holdfast/cluster.toml --node a\n",
            "KillMode=process\nTimeoutStopSec=infinity\n",
            "LimitRTPRIO=99\nLimitMEMLOCK=infinity\nLimitNOFILE=1048576\nTasksMax=infinity\nOOMScoreAdjust=-900\nUMask=0077\n",
        ] {
            assert!(unit.contains(line), "{line}\n{unit}");
        }
    }
}
