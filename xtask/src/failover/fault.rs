//! The ways in which a round loses a server, and the set-ups in which each can happen.

use std::fmt;

use clap::ValueEnum;

/// The servers of a test, and what decides which of them is the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setup {
    /// Two servers; the operator decides.
    None,
    /// Two servers and a witness with a control plane.
    Witness,
    /// Three servers with a control plane; commits wait for any one of the two standbys.
    Any,
}

impl Setup {
    /// The names of the servers. They are no English words, so that a message that has one names the server.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Setup::None | Setup::Witness => &["n1", "n2"],
            Setup::Any => &["n1", "n2", "n3"],
        }
    }

    pub fn has_control(self) -> bool {
        self != Setup::None
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Setup::None => "none",
            Setup::Witness => "witness",
            Setup::Any => "any",
        })
    }
}

/// How a server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// kill -9 of the master.
    Killed,
    /// SIGSTOP of the master; killed after the promotion.
    Hung,
    /// SIGSTOP of the master; after the promotion it continues briefly, then it is killed.
    Resumed,
    /// A standby gets kill -9 first and is started again after the master got it, too.
    BothKilled,
    /// A standby gets kill -9, comes back, and is catching up or has done so when the master gets it.
    StandbyBack,
    /// The master is killed and its directory replaced by an older copy.
    RolledBackMaster,
    /// A standby and then the master are killed; the standby's directory is replaced by an older copy.
    RolledBackStandby,
    /// As `resumed`, with a third server that follows the deposed master when it continues. Only with three servers.
    ThirdServer,
    /// As `resumed`; the deposed master runs while clients look for the new one with a list of hosts.
    Clients,
}

impl Fault {
    /// The faults that the set-up can have, each as often as it comes in as many rounds as there are here.
    pub fn of(setup: Setup, with_rollback: bool) -> Vec<Fault> {
        let mut faults = Fault::OF_A_PAIR.to_vec();
        if with_rollback {
            faults.extend([Fault::RolledBackMaster, Fault::RolledBackStandby, Fault::Clients]);
        }
        if setup == Setup::Any && with_rollback {
            faults.push(Fault::ThirdServer);
        }
        faults
    }

    /// What a pair without a control plane has to survive at every level, on disks that forget, too.
    pub const OF_A_PAIR: [Fault; 8] = [
        Fault::Killed,
        Fault::Killed,
        Fault::Killed,
        Fault::Hung,
        Fault::Resumed,
        Fault::BothKilled,
        Fault::BothKilled,
        Fault::StandbyBack,
    ];

    /// Whether a directory is replaced by an older copy: what it lacks is written down nowhere.
    pub fn is_rollback(self) -> bool {
        matches!(self, Fault::RolledBackMaster | Fault::RolledBackStandby)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Killed => "killed",
            Fault::Hung => "hung",
            Fault::Resumed => "hung and resumed",
            Fault::BothKilled => "both killed",
            Fault::StandbyBack => "killed after its standby was back",
            Fault::RolledBackMaster => "rolled-back master",
            Fault::RolledBackStandby => "rolled-back standby",
            Fault::ThirdServer => "third server",
            Fault::Clients => "clients with several hosts",
        })
    }
}
