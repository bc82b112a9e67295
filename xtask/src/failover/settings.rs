//! The holdfast.toml of each server.

use crate::failover::Level;
use crate::failover::fault::Setup;
use crate::server::Address;

/// Small, so that a round goes over the ends of several.
const SEGMENT_BYTES: u64 = 4 << 20;

/// The least there may be, so that checkpoints come often: a server whose files hold more than what its successor has
/// needs a copy.
const REDO_BYTES: u64 = 1 << 20;

const WITNESS: &str = "w";

/// Without a control plane.
pub fn plain(name: &str, level: Level) -> String {
    format!(
        "level = \"{level}\"\nnode_name = \"{name}\"\nsegment_bytes = {SEGMENT_BYTES}\nredo_bytes_max = {REDO_BYTES}\n"
    )
}

/// The members of a control plane and their addresses.
pub struct Control {
    members: Vec<(String, String)>,
    setup: Setup,
}

impl Control {
    pub fn new(names: &[&str], setup: Setup) -> anyhow::Result<Control> {
        let witness = (setup == Setup::Witness).then_some(WITNESS);
        let address = |name: &str| Ok((name.to_owned(), format!("127.0.0.1:{}", Address::free().port)));
        let members = names.iter().copied().chain(witness).map(address).collect::<anyhow::Result<_>>()?;
        Ok(Control { members, setup })
    }

    fn text(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|(name, at)| format!("{name}={at}")).collect();
        members.join(",")
    }

    /// What the server adds to its holdfast.toml.
    pub fn lines(&self, name: &str, names: &[&str]) -> String {
        let members = format!("control_members = \"{}\"\n", self.text());
        match self.setup {
            Setup::Any => {
                let others: Vec<&str> = names.iter().copied().filter(|other| *other != name).collect();
                format!("{members}synchronous_standby_names = \"ANY 1 ({})\"\n", others.join(", "))
            }
            _ => format!("{members}control_witness = \"{WITNESS}\"\n"),
        }
    }

    /// Where the witness listens, and the members, if the set-up has one.
    pub fn witness(&self) -> Option<(String, String)> {
        let (_, listen) = self.members.iter().find(|(name, _)| name == WITNESS)?;
        Some((listen.clone(), self.text()))
    }
}
