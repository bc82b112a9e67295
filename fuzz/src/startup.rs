//! Start-up packets of a client, one after another.

use holdfast_wire::check_packet;

pub fn run(mut data: &[u8]) {
    while let Ok(Some(bytes)) = check_packet(data) {
        assert!(bytes >= 8, "a packet has a length and a code");
        let Some(rest) = data.get(bytes..) else { panic!("a packet that has not arrived") };
        data = rest;
    }
}
