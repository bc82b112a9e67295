//! Servers that are started by hand, with or without a control plane.

use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;

use super::Setup;
use super::round::Servers;
use crate::failover::{self, Group, Level, Start, Until};
use crate::server::Address;

const MASTER: usize = 0;
const STANDBY: usize = 1;

pub struct Plain {
    group: Group,
    has_control: bool,
}

impl Plain {
    pub fn start(binary: &Path, setup: Setup) -> anyhow::Result<Plain> {
        let has_control = setup == Setup::Witness;
        let setup = if has_control { failover::Setup::Witness } else { failover::Setup::None };
        Ok(Plain { group: Group::start(binary, setup, Level::Hot, false)?, has_control })
    }
}

impl Servers for Plain {
    fn master(&self) -> Address {
        self.group.address(MASTER)
    }

    fn standby(&self) -> Address {
        self.group.address(STANDBY)
    }

    fn until_master_leads(&mut self) -> anyhow::Result<()> {
        if self.has_control { self.group.until_master_leads() } else { Ok(()) }
    }

    fn freeze(&mut self, is_frozen: bool) -> anyhow::Result<()> {
        let server = self.group.nodes[MASTER].running()?;
        if is_frozen { server.hang() } else { server.resume() }
    }

    fn copy_aside(&self) -> anyhow::Result<()> {
        self.group.nodes[MASTER].copy_aside()
    }

    fn kill_both(&mut self) -> anyhow::Result<()> {
        self.group.nodes[MASTER].kill()?;
        self.group.nodes[STANDBY].kill()
    }

    fn put_back(&self) -> anyhow::Result<()> {
        self.group.nodes[MASTER].put_back()
    }

    fn start_master(&mut self) -> anyhow::Result<Start> {
        self.group.start_warily(MASTER, Until::Answers)
    }

    fn kill_master(&mut self) -> anyhow::Result<()> {
        self.group.nodes[MASTER].kill()
    }

    fn until_met(&mut self, runtime: &Runtime) -> anyhow::Result<Option<String>> {
        self.group.spawn(STANDBY)?;
        self.group.until_silent(MASTER, runtime)
    }

    fn use_standby(&mut self) -> anyhow::Result<()> {
        if !self.group.nodes[STANDBY].is_running() {
            self.group.spawn(STANDBY)?;
        }
        if self.has_control {
            return self.group.promote_as_told(STANDBY, Some(MASTER)).map(drop);
        }
        // It has not followed since its start, and asks for the operator's word.
        self.group.promote(STANDBY, true).map(drop)
    }

    fn trouble(&mut self) -> Vec<String> {
        self.group.trouble()
    }

    fn keep(self: Box<Self>) -> PathBuf {
        self.group.keep()
    }
}
