//! Settings of `holdfast.toml` whose values are words.

use holdfast_seams::SyncMethod;
use holdfast_standby::packing::Packing;
use serde::Deserialize;

/// How the trail is made durable.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethodName {
    OpenDirectDsync,
    OpenSync,
    Fdatasync,
    Fsync,
}

impl From<SyncMethodName> for SyncMethod {
    fn from(name: SyncMethodName) -> SyncMethod {
        match name {
            SyncMethodName::OpenDirectDsync => SyncMethod::OpenDirectDsync,
            SyncMethodName::OpenSync => SyncMethod::OpenSync,
            SyncMethodName::Fdatasync => SyncMethod::Fdatasync,
            SyncMethodName::Fsync => SyncMethod::Fsync,
        }
    }
}

/// `level`, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LevelName {
    #[serde(alias = "cold")]
    Local,
    Warm,
    Hot,
    Commit,
}

impl LevelName {
    /// As `holdfast.level` is set to.
    pub(super) fn name(self) -> &'static str {
        match self {
            LevelName::Local => "local",
            LevelName::Warm => "warm",
            LevelName::Hot => "hot",
            LevelName::Commit => "commit",
        }
    }
}

/// `standby_packing`: whether boxcars are sent to standbys compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackingName {
    Off,
    On,
    Auto,
}

impl From<PackingName> for Packing {
    fn from(name: PackingName) -> Packing {
        match name {
            PackingName::Off => Packing::Off,
            PackingName::On => Packing::On,
            PackingName::Auto => Packing::Auto,
        }
    }
}

/// `archive_keep_beyond`: what happens when more of the trail waits for the archive than `archive_keep_bytes_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepBeyond {
    Warn,
    Refuse,
}

/// `commit_delay_us`: microseconds, or "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayUs {
    Fixed(u64),
    Auto(Auto),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto {
    Auto,
}

impl std::fmt::Display for DelayUs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DelayUs::Fixed(us) => us.fmt(f),
            DelayUs::Auto(Auto::Auto) => "auto".fmt(f),
        }
    }
}
