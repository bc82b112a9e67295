//! The settings of the transport: limits, the Unix socket, TLS, keepalives.
//!
//! Paths are relative to the data directory.

use super::Config;
use crate::admission::AdmissionLimits;
use holdfast_wire::{Keepalives, Limits, TlsFiles, TlsVersion};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where `holdfast cert server` writes; used when they exist.
pub use crate::data_dir::TLS_CERTIFICATE;
pub const TLS_KEY: &str = "tls/server.key";
pub const TLS_CLIENT_CA: &str = "tls/ca.crt";

/// The directory of the Unix socket: the data directory itself.
pub(super) const UNIX_SOCKET_DIRECTORY: &str = ".";

/// `tls_min_version`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum TlsVersionName {
    #[serde(rename = "TLSv1.2", alias = "1.2")]
    V12,
    #[serde(rename = "TLSv1.3", alias = "1.3")]
    V13,
}

impl From<TlsVersionName> for TlsVersion {
    fn from(name: TlsVersionName) -> TlsVersion {
        match name {
            TlsVersionName::V12 => TlsVersion::V12,
            TlsVersionName::V13 => TlsVersion::V13,
        }
    }
}

impl Config {
    /// The limits of sessions.
    pub fn admission_limits(&self) -> AdmissionLimits {
        AdmissionLimits {
            connections_max: self.connections_max,
            reserved: self.superuser_reserved_connections,
            per_address_max: self.connections_per_address_max,
            failure_delay_max: Duration::from_millis(self.authentication_failure_delay_max_ms),
        }
    }

    /// The limits of the protocol.
    pub fn limits(&self) -> Limits {
        Limits {
            message_bytes_max: self.message_bytes_max,
            connections_max: self.connections_max,
            startup_timeout: Duration::from_millis(self.startup_timeout_ms),
            prepared_statements_max: self.prepared_statements_max,
            portals_max: self.portals_max,
            batch_steps_max: self.batch_steps_max,
            session_memory_bytes_max: self.session_memory_bytes_max,
            sessions_memory_bytes_max: self.sessions_memory_bytes_max,
            half_open_max: self.half_open_max,
            keepalives: self.keepalives(),
        }
    }

    /// The directory of the Unix socket; `None`: there is none.
    pub fn unix_socket_directory(&self, data: &Path) -> Option<PathBuf> {
        match self.unix_socket_directory.as_os_str().is_empty() {
            true => None,
            false if self.has_default_unix_socket() => Some(data.to_owned()),
            false => Some(data.join(&self.unix_socket_directory)),
        }
    }

    pub(crate) fn has_default_unix_socket(&self) -> bool {
        self.unix_socket_directory.as_os_str() == UNIX_SOCKET_DIRECTORY
    }

    /// The files of TLS; `None`: none are set, and none are at the default place.
    pub fn tls_files(&self, data: &Path) -> Option<TlsFiles> {
        if self.tls_certificate.as_os_str().is_empty() {
            return None;
        }
        let (certificate, key) = (data.join(&self.tls_certificate), data.join(&self.tls_key));
        let is_default = self.tls_certificate.as_os_str() == TLS_CERTIFICATE && self.tls_key.as_os_str() == TLS_KEY;
        if is_default && !certificate.exists() && !key.exists() {
            return None;
        }
        let set = |path: &Path| (!path.as_os_str().is_empty()).then(|| data.join(path));
        let is_default_ca = self.tls_client_ca.as_os_str() == TLS_CLIENT_CA;
        let client_ca = set(&self.tls_client_ca).filter(|path| !is_default_ca || path.exists());
        let (crl, min_version) = (set(&self.tls_crl), self.tls_min_version.into());
        Some(TlsFiles { certificate, key, client_ca, crl, min_version })
    }

    /// What SHOW has of TLS.
    pub(crate) fn tls_parameters(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.display().to_string();
        vec![
            ("ssl_cert_file", path(&self.tls_certificate)),
            ("ssl_key_file", path(&self.tls_key)),
            ("ssl_ca_file", path(&self.tls_client_ca)),
            ("ssl_crl_file", path(&self.tls_crl)),
            ("ssl_min_protocol_version", TlsVersion::from(self.tls_min_version).name().to_owned()),
        ]
    }

    pub(super) fn keepalives(&self) -> Keepalives {
        let seconds = |ms: u64| u32::try_from(ms / 1000).unwrap_or(u32::MAX);
        Keepalives {
            idle_s: seconds(self.tcp_keepalives_idle_ms),
            interval_s: seconds(self.tcp_keepalives_interval_ms),
            count: self.tcp_keepalives_count,
            user_timeout_ms: 0,
        }
    }

    pub(super) fn check_transport(&self) -> Result<(), String> {
        // The kernel's limits.
        const SECONDS_MAX: u64 = 32_767;
        for (name, ms) in [
            ("tcp_keepalives_idle_ms", self.tcp_keepalives_idle_ms),
            ("tcp_keepalives_interval_ms", self.tcp_keepalives_interval_ms),
        ] {
            if !ms.is_multiple_of(1000) || ms > SECONDS_MAX * 1000 {
                return Err(format!("{name} = {ms} is not a number of whole seconds up to {SECONDS_MAX} seconds"));
            }
        }
        if self.tcp_keepalives_count > 127 {
            return Err(format!("tcp_keepalives_count = {} is too large, the most is 127", self.tcp_keepalives_count));
        }
        if self.tls_key.as_os_str().is_empty() && !self.tls_certificate.as_os_str().is_empty() {
            return Err("tls_certificate is set and tls_key is empty: TLS needs both".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_on_where_its_files_are() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        let config = Config::default();
        assert_eq!(config.tls_files(data), None);
        std::fs::create_dir(data.join("tls")).unwrap();
        std::fs::write(data.join(TLS_KEY), "").unwrap();
        // A key without a certificate is a mistake that the start reports.
        let files = config.tls_files(data).unwrap();
        assert_eq!((files.certificate, files.client_ca), (data.join(TLS_CERTIFICATE), None));
        std::fs::write(data.join(TLS_CLIENT_CA), "").unwrap();
        assert_eq!(config.tls_files(data).unwrap().client_ca, Some(data.join(TLS_CLIENT_CA)));
        let off = Config::parse("tls_certificate = \"\"").unwrap();
        assert_eq!(off.tls_files(data), None);
        let set = Config::parse("tls_certificate = \"/etc/x.crt\"\ntls_key = \"own/x.key\"\ntls_min_version = \"1.3\"");
        let files = set.unwrap().tls_files(data).unwrap();
        assert_eq!((files.certificate, files.key), (PathBuf::from("/etc/x.crt"), data.join("own/x.key")));
        assert_eq!(files.min_version, TlsVersion::V13);
        let wrong = Config::parse("tls_min_version = \"TLSv1.1\"").unwrap_err();
        assert!(wrong.contains("TLSv1.2") && wrong.contains("TLSv1.3"), "{wrong}");
    }

    #[test]
    fn keepalives_are_whole_seconds() {
        let keepalives = |text: &str| Config::parse(text).map(|config| config.keepalives());
        let expected = Keepalives { idle_s: 90, interval_s: 10, count: 6, user_timeout_ms: 0 };
        assert_eq!(keepalives("tcp_keepalives_idle_ms = \"90s\""), Ok(expected));
        assert!(keepalives("tcp_keepalives_idle_ms = 1500").unwrap_err().contains("whole seconds"));
        assert!(keepalives("tcp_keepalives_count = 128").unwrap_err().contains("the most is 127"));
    }
}
