//! `holdfast cluster dsn`: connection strings with which clients find the master by themselves.
//!
//! A driver tries the servers in turn and keeps the first one that takes writes. What follows the question mark differs between
//! drivers; all give up on a server that does not answer within 3 s.

use anyhow::bail;
use holdfast_cluster::file::Cluster;
use std::fmt;
use std::path::PathBuf;

/// Print connection strings that name all servers, with which clients find the master
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast cluster dsn --config /etc/holdfast/cluster.toml
  psql \"$(holdfast cluster dsn --config /etc/holdfast/cluster.toml --for libpq --user app)\"

libpq's string is also understood by psycopg, and by drivers based on libpq. The addresses are the keys clients of cluster.toml.")]
pub struct Arguments {
    /// The cluster's file
    #[arg(long, value_name = "FILE", default_value = "/etc/holdfast/cluster.toml")]
    config: PathBuf,
    /// Print only the string of this driver
    #[arg(long = "for", value_name = "DRIVER")]
    only: Option<Driver>,
    /// The database
    #[arg(long, value_name = "NAME", default_value = "holdfast")]
    database: String,
    /// The user [default: the driver's]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Driver {
    Libpq,
    Jdbc,
    Pgx,
}

impl Driver {
    const ALL: [Driver; 3] = [Driver::Libpq, Driver::Jdbc, Driver::Pgx];
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Driver::Libpq => "libpq",
            Driver::Jdbc => "JDBC",
            Driver::Pgx => "pgx",
        })
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cluster = Cluster::load(&arguments.config)?;
    let servers = servers(&cluster, &arguments.config)?;
    let string = |driver| string(driver, &servers, &arguments.database, arguments.user.as_deref());
    match arguments.only {
        Some(driver) => println!("{}", string(driver)),
        None => Driver::ALL.iter().for_each(|driver| println!("{driver:<6} {}", string(*driver))),
    }
    Ok(())
}

/// Where clients reach the servers, by preference.
fn servers(cluster: &Cluster, file: &std::path::Path) -> anyhow::Result<String> {
    let mut servers = Vec::new();
    for node in &cluster.database.nodes {
        let Some(clients) = cluster.nodes.get(node).and_then(|found| found.clients.as_deref()) else {
            bail!(
                "{} does not say where clients reach {node}: write clients = \"HOST:PORT\" below [node.{node}], on all nodes",
                file.display()
            );
        };
        servers.push(clients);
    }
    Ok(servers.join(","))
}

fn string(driver: Driver, servers: &str, database: &str, user: Option<&str>) -> String {
    let (database, user) = (escaped(database), user.map(escaped));
    match driver {
        Driver::Libpq | Driver::Pgx => {
            let scheme = if driver == Driver::Pgx { "postgres" } else { "postgresql" };
            let user = user.map_or_else(String::new, |user| format!("{user}@"));
            format!("{scheme}://{user}{servers}/{database}?target_session_attrs=read-write&connect_timeout=3")
        }
        Driver::Jdbc => {
            let user = user.map_or_else(String::new, |user| format!("&user={user}"));
            format!("jdbc:postgresql://{servers}/{database}?targetServerType=primary&connectTimeout=3{user}")
        }
    }
}

/// A name as a part of a URI.
fn escaped(name: &str) -> String {
    let one = |byte: u8| match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = \"shop\"\n[node.a]\nlinks = [\"h1\"]\ndata = \"/a\"\nclients = \"db1:5433\"\n\
                        [node.b]\nlinks = [\"h2\"]\ndata = \"/b\"\nclients = \"[::1]:6000\"\n\
                        [node.w]\nlinks = [\"h3\"]\ndata = \"/w\"\nwitness = true\n\
                        [database]\nnodes = [\"b\", \"a\"]\n";

    #[test]
    fn each_driver_gets_all_servers_by_preference() {
        let servers = servers(&Cluster::parse(FILE).unwrap(), "f".as_ref()).unwrap();
        let strings = Driver::ALL.map(|driver| string(driver, &servers, "my db", Some("app")));
        assert_eq!(
            strings,
            [
                "postgresql://app@[::1]:6000,db1:5433/my%20db?target_session_attrs=read-write&connect_timeout=3",
                "jdbc:postgresql://[::1]:6000,db1:5433/my%20db?targetServerType=primary&connectTimeout=3&user=app",
                "postgres://app@[::1]:6000,db1:5433/my%20db?target_session_attrs=read-write&connect_timeout=3",
            ]
        );
    }

    #[test]
    fn a_server_without_an_address_is_named() {
        let cluster = Cluster::parse(&FILE.replace("clients = \"db1:5433\"\n", "")).unwrap();
        let why = servers(&cluster, "f".as_ref()).unwrap_err().to_string();
        assert_eq!(
            why,
            "f does not say where clients reach a: write clients = \"HOST:PORT\" below [node.a], on all nodes"
        );
        let flaws = |old: &str, new: &str| {
            let flaws = Cluster::parse(&FILE.replace(old, new)).unwrap_err();
            flaws.into_iter().map(|flaw| flaw.what).collect::<Vec<_>>()
        };
        assert_eq!(flaws("\"db1:5433\"", "\"db1\""), ["clients = \"db1\" is not HOST:PORT"]);
        assert_eq!(flaws("\"[::1]:6000\"", "\"::1\""), ["clients = \"::1\" is not HOST:PORT"]);
        let of_witness = flaws("witness = true", "witness = true\nclients = \"h3:1\"");
        assert_eq!(of_witness, ["clients = \"h3:1\" of the witness"]);
    }
}
