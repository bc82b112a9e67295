//! What a cluster.toml may not say, with the next step for each.

use super::shape::{At, Database as DatabaseShape, Group, Need, Node as NodeShape, Resource, Shape};
use super::{Cluster, Database, Flaw, Node, PORT, line_of};
use holdfast_control::{NodeId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

const LEASES_MS: [u32; 5] = [300, 600, 900, 1500, 3000];
const LEASE_MS_DEFAULT: u32 = 600;
const LINKS_MAX: usize = 8;
/// The name is part of the path of a socket.
const NAME_BYTES_MAX: usize = 32;
const LEVELS: [&str; 4] = ["local", "warm", "hot", "commit"];

/// Collects flaws, so that one check shows all of them.
struct Flaws<'a> {
    text: &'a str,
    found: Vec<Flaw>,
}

impl Flaws<'_> {
    fn add<T>(&mut self, at: &At<T>, what: impl Into<String>, next: impl Into<String>) {
        let line = Some(line_of(self.text, at.span().start));
        self.found.push(Flaw { line, what: what.into(), next: next.into() });
    }

    fn add_to_file(&mut self, what: impl Into<String>, next: impl Into<String>) {
        self.found.push(Flaw { line: None, what: what.into(), next: next.into() });
    }

    /// A value that must be one of a few.
    fn one_of(&mut self, key: &str, at: &At<String>, allowed: &[&str]) {
        if !allowed.contains(&at.get_ref().as_str()) {
            let next = format!("write one of {}", allowed.join(", "));
            self.add(at, format!("{key} = \"{}\" is unknown", at.get_ref()), next);
        }
    }
}

pub fn checked(text: &str, shape: Shape) -> Result<Cluster, Vec<Flaw>> {
    let mut flaws = Flaws { text, found: Vec::new() };
    check_name(&mut flaws, &shape.name);
    let lease_ms = lease_ms(&mut flaws, shape.lease_ms.as_ref());
    let nodes = nodes(&mut flaws, &shape.node);
    let database = database(&mut flaws, shape.database.as_ref(), &nodes);
    groups(&mut flaws, &shape.group, &nodes);
    let groups = shape.group.keys().map(|name| name.get_ref().clone()).collect();
    let Flaws { mut found, .. } = flaws;
    found.sort_by_key(|flaw| flaw.line);
    match database.filter(|_| found.is_empty()) {
        Some(database) => Ok(Cluster { name: shape.name.into_inner(), nodes, database, lease_ms, groups }),
        None => Err(found),
    }
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn check_name(flaws: &mut Flaws<'_>, name: &At<String>) {
    let text = name.get_ref();
    if !(1..=NAME_BYTES_MAX).contains(&text.len()) || !is_plain(text) {
        let next = format!("write 1 to {NAME_BYTES_MAX} letters, digits, '-' or '_'");
        flaws.add(name, format!("name = \"{text}\" is not a valid name"), next);
    }
}

fn lease_ms(flaws: &mut Flaws<'_>, given: Option<&At<u32>>) -> u32 {
    let Some(given) = given else { return LEASE_MS_DEFAULT };
    if !LEASES_MS.contains(given.get_ref()) {
        let next = "write 300, 600, 900, 1500 or 3000; 600 is the default";
        flaws.add(given, format!("lease_ms = {} is not a lease that was tested", given.get_ref()), next);
    }
    *given.get_ref()
}

fn nodes(flaws: &mut Flaws<'_>, shapes: &BTreeMap<At<String>, NodeShape>) -> BTreeMap<NodeId, Node> {
    let mut nodes = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (name, shape) in shapes {
        let Ok(node) = name.get_ref().parse::<NodeId>() else {
            let what = format!("node.{} is not a valid name for a node", name.get_ref());
            flaws.add(name, what, "write 1 to 16 letters, digits, '-' or '_'");
            continue;
        };
        let links = links(flaws, &shape.links, &mut taken);
        let data = PathBuf::from(shape.data.get_ref());
        if !data.is_absolute() {
            let what = format!("data = \"{}\" is a relative path", data.display());
            flaws.add(&shape.data, what, "write the whole path: the supervisor has another working directory");
        }
        let role = if shape.witness { Role::Witness } else { Role::Data };
        let clients = clients(flaws, shape.clients.as_ref(), role);
        nodes.insert(node, Node { links, data, role, clients });
    }
    let witnesses = nodes.values().filter(|node| node.role == Role::Witness).count();
    if nodes.len() != 3 || witnesses > 1 {
        let what = format!("there are {} nodes, {witnesses} of them witnesses", nodes.len());
        flaws.add_to_file(what, "name three nodes: two with data and a witness (witness = true), or three with data");
    }
    nodes
}

fn links(flaws: &mut Flaws<'_>, shape: &At<Vec<At<String>>>, taken: &mut BTreeSet<String>) -> Vec<String> {
    let count = shape.get_ref().len();
    if !(1..=LINKS_MAX).contains(&count) {
        flaws.add(
            shape,
            format!("links has {count} addresses"),
            format!("write 1 to {LINKS_MAX}; two on two networks are best"),
        );
    }
    let mut links = Vec::new();
    for link in shape.get_ref() {
        match address(link.get_ref()) {
            None => flaws.add(
                link,
                format!("\"{}\" is not an address", link.get_ref()),
                "write HOST or HOST:PORT, an IPv6 address with a port as [ADDRESS]:PORT",
            ),
            Some(address) if !taken.insert(address.clone()) => {
                flaws.add(
                    link,
                    format!("{address} is there twice"),
                    "give each link of each node its own address or port",
                );
            }
            Some(address) => links.push(address),
        }
    }
    links
}

/// Where clients reach the node's server: HOST:PORT, with a port, because a server has no fixed one.
fn clients(flaws: &mut Flaws<'_>, given: Option<&At<String>>, role: Role) -> Option<String> {
    let given = given?;
    let text = given.get_ref();
    if role == Role::Witness {
        flaws.add(given, format!("clients = \"{text}\" of the witness"), "remove it: a witness has no server");
    }
    let has_port = text.parse::<IpAddr>().is_err() && text.contains(':');
    let found = address(text).filter(|_| has_port);
    if found.is_none() {
        let next = "write HOST:PORT as clients reach the server, an IPv6 address as [ADDRESS]:PORT";
        flaws.add(given, format!("clients = \"{text}\" is not HOST:PORT"), next);
    }
    found
}

/// HOST:PORT of a link.
fn address(text: &str) -> Option<String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(if ip.is_ipv6() { format!("[{ip}]:{PORT}") } else { format!("{ip}:{PORT}") });
    }
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_ipv6 = |host: &str| {
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).is_some_and(|ip| ip.parse::<IpAddr>().is_ok())
    };
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) || is_ipv6(host) => {
            port.parse::<u16>().ok().filter(|port| *port != 0).map(|port| format!("{host}:{port}"))
        }
        Some(_) => None,
        None => is_host(text).then(|| format!("{text}:{PORT}")),
    }
}

/// The names of a list of nodes that hold data, by preference.
fn data_nodes(flaws: &mut Flaws<'_>, names: &At<Vec<At<String>>>, nodes: &BTreeMap<NodeId, Node>) -> Vec<NodeId> {
    let mut found = Vec::new();
    for name in names.get_ref() {
        let known = nodes.iter().find(|(node, _)| node.as_str() == name.get_ref());
        match known {
            None => flaws.add(name, format!("there is no node {}", name.get_ref()), "name a node of this file"),
            Some((node, Node { role: Role::Witness, .. })) => {
                flaws.add(name, format!("{node} is the witness"), "name nodes with data only");
            }
            Some((node, _)) if found.contains(node) => flaws.add(name, format!("{node} is there twice"), "remove one"),
            Some((node, _)) => found.push(*node),
        }
    }
    if names.get_ref().is_empty() {
        flaws.add(names, "nodes is empty", "name at least one node");
    }
    found
}

fn database(
    flaws: &mut Flaws<'_>,
    shape: Option<&At<DatabaseShape>>,
    nodes: &BTreeMap<NodeId, Node>,
) -> Option<Database> {
    let Some(at) = shape else {
        flaws.add_to_file(
            "there is no [database]",
            "write [database] with nodes = [...], the nodes with data by preference",
        );
        return None;
    };
    let shape = at.get_ref();
    let named = data_nodes(flaws, &shape.nodes, nodes);
    for (node, _) in nodes.iter().filter(|(node, found)| found.role == Role::Data && !named.contains(node)) {
        flaws.add(
            &shape.nodes,
            format!("{node} holds data and is not named"),
            "add it: nodes has every node with data",
        );
    }
    if let Some(address) = &shape.address
        && !is_network(address.get_ref())
    {
        let what = format!("address = \"{}\" is not ADDRESS/PREFIX", address.get_ref());
        flaws.add(address, what, "write the address with its network's length, as 10.0.0.50/24");
    }
    if let Some(level) = &shape.level {
        flaws.one_of("level", level, &LEVELS);
    }
    if let Some(alone) = &shape.alone {
        flaws.one_of("alone", alone, &["go_on", "wait"]);
    }
    let text = |value: &Option<At<String>>| value.as_ref().map(|value| value.get_ref().clone());
    Some(Database {
        nodes: named,
        address: text(&shape.address),
        level: text(&shape.level).unwrap_or_else(|| "hot".to_owned()),
        waits_alone: text(&shape.alone).is_some_and(|alone| alone == "wait"),
    })
}

fn is_network(text: &str) -> bool {
    let Some((ip, length)) = text.split_once('/') else { return false };
    let (Ok(ip), Ok(length)) = (ip.parse::<IpAddr>(), length.parse::<u8>()) else { return false };
    length >= 1 && length <= if ip.is_ipv6() { 128 } else { 32 }
}

fn groups(flaws: &mut Flaws<'_>, groups: &BTreeMap<At<String>, Group>, nodes: &BTreeMap<NodeId, Node>) {
    let is_known = |name: &str| name == "database" || groups.keys().any(|group| group.get_ref() == name);
    for (name, group) in groups {
        if name.get_ref() == "database" || !is_plain(name.get_ref()) {
            let what = format!("group.{} is not a valid name for a group", name.get_ref());
            flaws.add(name, what, "write letters, digits, '-' or '_'; database is the group of the servers");
        }
        data_nodes(flaws, &group.nodes, nodes);
        if let Some(fence) = &group.fence {
            flaws.one_of("fence", fence, &["watchdog", "agent", "none"]);
        }
        for Need { group: needed, place } in &group.needs {
            if !is_known(needed.get_ref()) {
                flaws.add(
                    needed,
                    format!("there is no group {}", needed.get_ref()),
                    "name a group of this file, or database",
                );
            }
            flaws.one_of("where", place, &["local", "global", "apart"]);
        }
        resources(flaws, &group.resource);
    }
    let needs = |name: &str| -> Vec<&str> {
        let group = groups.iter().find(|(group, _)| group.get_ref() == name);
        group.map_or_else(Vec::new, |(_, group)| group.needs.iter().map(|need| need.group.get_ref().as_str()).collect())
    };
    for name in groups.keys().filter(|name| reaches_itself(name.get_ref(), &needs)) {
        let what = format!("group.{} needs itself, through its needs", name.get_ref());
        flaws.add(name, what, "remove one of the needs of the circle");
    }
}

fn resources(flaws: &mut Flaws<'_>, resources: &BTreeMap<At<String>, Resource>) {
    for (name, resource) in resources {
        let (agent, text) = (&resource.agent, resource.agent.get_ref().as_str());
        let parts: Vec<&str> = text.split(':').collect();
        let is_ocf = parts.len() == 3 && parts[0] == "ocf" && parts[1..].iter().all(|part| !part.is_empty());
        if text != "exec" && !is_ocf {
            flaws.add(agent, format!("agent = \"{text}\" is unknown"), "write exec, or ocf:PROVIDER:TYPE");
        }
        if text == "exec" && (resource.start.is_none() || resource.monitor.is_none()) {
            let what = format!("resource.{} has no start, or no monitor", name.get_ref());
            flaws.add(agent, what, "agent = \"exec\" needs the commands start and monitor");
        }
        for required in &resource.requires {
            if !resources.keys().any(|name| name.get_ref() == required.get_ref()) {
                let what = format!("there is no resource {}", required.get_ref());
                flaws.add(required, what, "name a resource of the same group");
            }
        }
    }
    let requires = |name: &str| -> Vec<&str> {
        let found = resources.iter().find(|(resource, _)| resource.get_ref() == name);
        found.map_or_else(Vec::new, |(_, found)| found.requires.iter().map(|name| name.get_ref().as_str()).collect())
    };
    for name in resources.keys().filter(|name| reaches_itself(name.get_ref(), &requires)) {
        let what = format!("resource.{} requires itself, through what it requires", name.get_ref());
        flaws.add(name, what, "remove one of the entries of the circle");
    }
}

/// Whether a name is met again behind it.
fn reaches_itself<'a>(name: &'a str, next: &impl Fn(&str) -> Vec<&'a str>) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), next(name));
    while let Some(found) = open.pop() {
        if found == name {
            return true;
        }
        if seen.insert(found) {
            open.extend(next(found));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"name = "shop"
[node.a]
links = ["10.0.0.1", "10.1.0.1"]
data = "/srv/holdfast"
[node.b]
links = ["10.0.0.2:7000", "[fd00::2]:7000"]
data = "/srv/holdfast"
[node.w]
links = ["w.example"]
data = "/srv/witness"
witness = true
[database]
nodes = ["a", "b"]
address = "10.0.0.50/24"
"#;

    #[test]
    fn a_good_file() {
        let cluster = Cluster::parse(GOOD).unwrap();
        let [a, b, w]: [NodeId; 3] = ["a", "b", "w"].map(|name| name.parse().unwrap());
        assert_eq!((cluster.name.as_str(), cluster.lease_ms), ("shop", 600));
        assert_eq!(cluster.nodes[&a].links, ["10.0.0.1:7433", "10.1.0.1:7433"]);
        assert_eq!(cluster.nodes[&b].links, ["10.0.0.2:7000", "[fd00::2]:7000"]);
        assert_eq!((cluster.nodes[&w].role, cluster.nodes[&w].address()), (Role::Witness, "w.example:7433"));
        assert_eq!(cluster.nodes[&w].control_dir(), PathBuf::from("/srv/witness"));
        assert_eq!(cluster.nodes[&a].control_dir(), PathBuf::from("/srv/holdfast/control"));
        assert_eq!((cluster.database.nodes, &*cluster.database.level), (vec![a, b], "hot"));
        assert!(!cluster.database.waits_alone);
    }

    #[test]
    fn the_example_of_the_design() {
        let groups = r#"[group.report]
nodes = ["b", "a"]
fence = "watchdog"
needs = [{ group = "database", where = "apart" }]
resource.fs = { agent = "ocf:heartbeat:Filesystem", params = { device = "/dev/sdb1", directory = "/mnt/r" } }
resource.app = { agent = "exec", start = "rep up", monitor = "rep ok", requires = ["fs"], restart = 2 }
"#;
        assert_eq!(Cluster::parse(&format!("{GOOD}{groups}")).unwrap().groups, ["report"]);
    }

    /// Each row: what is replaced in the good file, by what, the line of the flaw, and a part of what is reported.
    #[test]
    fn the_flaws_table() {
        let rows: &[(&str, &str, Option<usize>, &str)] = &[
            ("name = \"shop\"", "name = \"a shop\"", Some(1), "not a valid name"),
            ("name = \"shop\"", "nam = \"shop\"", Some(1), "unknown field `nam`"),
            ("name = \"shop\"", "name = 5", Some(1), "expected a string"),
            ("name = \"shop\"", "name = \"shop", Some(1), "invalid basic string"),
            ("name = \"shop\"", "name = \"shop\"\nlease_ms = 601", Some(2), "lease_ms = 601"),
            ("[node.a]", "[node.\"a b\"]", Some(2), "not a valid name for a node"),
            ("links = [\"10.0.0.1\", \"10.1.0.1\"]", "links = []", Some(3), "links has 0 addresses"),
            ("\"10.1.0.1\"", "\"10.0.0.1:0\"", Some(3), "\"10.0.0.1:0\" is not an address"),
            ("\"10.1.0.1\"", "\"10.0.0.1\"", Some(3), "10.0.0.1:7433 is there twice"),
            ("\"10.1.0.1\"", "\"a:b:c\"", Some(3), "is not an address"),
            ("data = \"/srv/witness\"", "data = \"witness\"", Some(10), "relative path"),
            ("witness = true", "", Some(13), "w holds data and is not named"),
            (
                "[node.w]\nlinks = [\"w.example\"]\ndata = \"/srv/witness\"\nwitness = true\n",
                "",
                None,
                "there are 2 nodes",
            ),
            ("[database]\nnodes = [\"a\", \"b\"]\naddress = \"10.0.0.50/24\"\n", "", None, "no [database]"),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\"]", Some(13), "b holds data and is not named"),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\", \"c\"]", Some(13), "there is no node c"),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\", \"w\"]", Some(13), "w is the witness"),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\", \"b\"]", Some(13), "b is there twice"),
            ("10.0.0.50/24", "10.0.0.50/33", Some(14), "not ADDRESS/PREFIX"),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\"]\nlevel = \"hotter\"", Some(14), "level = \"hotter\""),
            ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\"]\nalone = \"stop\"", Some(14), "alone = \"stop\""),
        ];
        for (old, new, line, what) in rows {
            let text = GOOD.replacen(old, new, 1);
            assert_ne!(&text, GOOD, "{old}");
            let flaws = Cluster::parse(&text).unwrap_err();
            let found = flaws.iter().find(|flaw| flaw.what.contains(what));
            let found = found.unwrap_or_else(|| panic!("{old} -> {new}: {flaws:?}"));
            assert!(!found.next.is_empty());
            if line.is_some() {
                assert_eq!(found.line, *line, "{old} -> {new}: {flaws:?}");
            }
        }
    }

    #[test]
    fn the_flaws_of_groups() {
        let rows: &[(&str, &str)] = &[
            ("[group.database]\nnodes = [\"a\"]", "not a valid name for a group"),
            ("[group.g]\nnodes = [\"w\"]", "w is the witness"),
            ("[group.g]\nnodes = [\"a\"]\nfence = \"gun\"", "fence = \"gun\""),
            ("[group.g]\nnodes = [\"a\"]\nneeds = [{ group = \"h\", where = \"local\" }]", "there is no group h"),
            ("[group.g]\nnodes = [\"a\"]\nneeds = [{ group = \"database\", where = \"near\" }]", "where = \"near\""),
            ("[group.g]\nnodes = [\"a\"]\nneeds = [{ group = \"g\", where = \"local\" }]", "needs itself"),
            ("[group.g]\nnodes = [\"a\"]\nresource.x = { agent = \"lsb:x\" }", "agent = \"lsb:x\""),
            ("[group.g]\nnodes = [\"a\"]\nresource.x = { agent = \"exec\" }", "has no start"),
            ("[group.g]\nnodes = [\"a\"]\nresource.x = { agent = \"ocf:h:X\", requires = [\"y\"] }", "no resource y"),
            ("[group.g]\nnodes = [\"a\"]\nresource.x = { agent = \"ocf:h:X\", requires = [\"x\"] }", "requires itself"),
            ("[group.g]\nnodes = [\"a\"]\nresource.x = { agent = \"ocf:h:X\", when = 1 }", "unknown field `when`"),
        ];
        for (group, what) in rows {
            let flaws = Cluster::parse(&format!("{GOOD}{group}\n")).unwrap_err();
            assert!(flaws.iter().any(|flaw| flaw.what.contains(what) && flaw.line >= Some(15)), "{group}: {flaws:?}");
        }
    }

    #[test]
    fn all_flaws_are_reported_together() {
        let text = GOOD.replace("shop", "a shop").replace("/srv/holdfast", "srv").replace("/24", "");
        let lines: Vec<_> = Cluster::parse(&text).unwrap_err().into_iter().map(|flaw| flaw.line).collect();
        assert_eq!(lines, [Some(1), Some(4), Some(7), Some(14)]);
    }
}
