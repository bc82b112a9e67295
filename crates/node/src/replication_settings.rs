//! The settings of this node, as `holdfast_replication` and `holdfast_mirror` take them.

use crate::config::{self, Config, FILE_NAME};
use holdfast_engine::Options as EngineOptions;
use holdfast_mirror::MirrorSettings;
use holdfast_replication::settings::{CLUSTER_MARK, SettingsFile};
use holdfast_standby::LinkOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How this server's links to other nodes behave.
pub fn link_options(config: &Config) -> LinkOptions {
    let silence_max = Duration::from_millis(config.standby_timeout_ms);
    let packing = config.standby_packing.into();
    let grouped = !config.control_members.trim().is_empty();
    LinkOptions { silence_max, heartbeat: silence_max / 5, packing, grouped, ..LinkOptions::default() }
}

/// This node's name among standbys: the setting `node_name`, else the machine's host name.
pub fn node_name(config: &Config) -> String {
    if !config.node_name.is_empty() {
        return config.node_name.clone();
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match holdfast_standby::link::check_name(machine.trim()) {
        Ok(()) => machine.trim().to_owned(),
        Err(_) => "holdfast".to_owned(),
    }
}

/// The mirror that the settings name, if any.
pub fn mirror_settings(config: &Config) -> Option<MirrorSettings> {
    config.has_mirror().then(|| MirrorSettings {
        directory: config.mirror.clone(),
        away: config.mirror_away,
        lag_bytes_max: config.standby_lag_bytes_max,
        silence_max: Duration::from_millis(config.standby_timeout_ms),
        engine: config.options(),
        settings_file: Arc::new(HoldfastToml),
    })
}

/// `holdfast.toml`, for commands on the directory of a stopped server.
pub struct HoldfastToml;

impl SettingsFile for HoldfastToml {
    fn create(&self, dir: &Path, node_name: &str) -> io::Result<()> {
        config::write_for(dir, node_name)
    }

    fn link_options(&self, dir: &Path) -> LinkOptions {
        // `Config::load` would create the file.
        let exists = dir.join(FILE_NAME).exists();
        let config = exists.then(|| Config::load(dir).ok()).flatten();
        let options = config.map_or_else(LinkOptions::default, |config| link_options(&config));
        // Of a server under a supervisor holdfast.toml does not name the members.
        LinkOptions { grouped: options.grouped || dir.join(CLUSTER_MARK).exists(), ..options }
    }

    fn engine_options(&self, dir: &Path) -> io::Result<EngineOptions> {
        let path = dir.join(FILE_NAME);
        let config = match std::fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text).map_err(|message| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {message}", path.display()))
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Config::default(),
            Err(e) => return Err(e),
        };
        Ok(config.options())
    }

    fn without_mirror(&self, text: &str) -> io::Result<String> {
        let names_it = |line: &str| {
            let key = line.split_once('=').map(|(key, _)| key.trim().trim_matches(['"', '\'']));
            key == Some("mirror")
        };
        let lines = text.lines().map(|line| if names_it(line) { format!("#{line}\n") } else { format!("{line}\n") });
        let text: String = lines.collect();
        let config = Config::parse(&text).map_err(io::Error::other)?;
        if config.has_mirror() {
            return Err(io::Error::other("the line that names the mirror was not found"));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_mirror_is_kept() {
        let text = "# mine\nworkers = 3\n mirror = \"/b\"\nmirror_away = \"go_on\"\n";
        let there = HoldfastToml.without_mirror(text).unwrap();
        assert_eq!(there, "# mine\nworkers = 3\n# mirror = \"/b\"\nmirror_away = \"go_on\"\n");
        assert!(HoldfastToml.without_mirror("nonsense = 1").is_err());
    }
}
