//! The configuration file: read as it is, or refused with the place that is wrong.

use holdfast_node::Config;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(message) = Config::parse(text) {
        assert!(!message.is_empty(), "a refusal says why");
    }
}
