//! The shape of cluster.toml, as serde reads it: every key, and where each value is in the file.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Table};

/// A value with its place in the file.
pub type At<T> = Spanned<T>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub name: At<String>,
    pub lease_ms: Option<At<u32>>,
    #[serde(default)]
    pub node: BTreeMap<At<String>, Node>,
    pub database: Option<At<Database>>,
    #[serde(default)]
    pub group: BTreeMap<At<String>, Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub links: At<Vec<At<String>>>,
    pub data: At<String>,
    pub clients: Option<At<String>>,
    #[serde(default)]
    pub witness: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    pub nodes: At<Vec<At<String>>>,
    pub address: Option<At<String>>,
    pub level: Option<At<String>>,
    pub alone: Option<At<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub nodes: At<Vec<At<String>>>,
    pub fence: Option<At<String>>,
    #[serde(default)]
    pub needs: Vec<Need>,
    #[serde(default)]
    pub resource: BTreeMap<At<String>, Resource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    pub group: At<String>,
    #[serde(rename = "where")]
    pub place: At<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    pub agent: At<String>,
    pub start: Option<String>,
    /// Agents without it are stopped by their process group.
    #[serde(rename = "stop")]
    pub _stop: Option<String>,
    pub monitor: Option<String>,
    #[serde(rename = "params")]
    pub _params: Option<Table>,
    #[serde(default)]
    pub requires: Vec<At<String>>,
    #[serde(rename = "restart")]
    pub _restart: Option<u32>,
}
