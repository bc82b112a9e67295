//! The systemd unit of a node's supervisor.

use crate::file::{Cluster, Node};
use holdfast_control::{NodeId, Role};
use std::path::Path;

/// The unit's text. `KillMode=process`: a supervisor that is killed leaves its server running, and the next one adopts it.
pub fn unit(cluster: &Cluster, file: &Path, node: NodeId, of_node: &Node, program: &Path) -> String {
    let what = match of_node.role {
        Role::Data => "its server is its child",
        Role::Witness => "a witness has no server",
    };
    let (name, file, program) = (&cluster.name, file.display(), program.display());
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
LimitNOFILE=1048576
UMask=0077

[Install]
WantedBy=multi-user.target
",
        data = of_node.data.display(),
    )
}
