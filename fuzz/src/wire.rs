//! Messages of a client: header by header, each body read by the reader of its type.

use holdfast_wire::Limits;
use holdfast_wire::frontend::{self, HEADER_BYTES};

pub fn run(mut data: &[u8]) {
    let limits = Limits::default();
    while let Ok(Some((kind, len))) = frontend::header(data, &limits) {
        let Some(body) = data.get(HEADER_BYTES..HEADER_BYTES + len) else { return };
        read(kind, body);
        data = &data[HEADER_BYTES + len..];
    }
}

fn read(kind: u8, body: &[u8]) {
    match kind {
        b'Q' => drop(frontend::query(body)),
        b'P' => drop(frontend::parse(body)),
        b'B' => bind(body),
        b'D' | b'C' => drop(frontend::target(body)),
        b'E' => drop(frontend::execute(body)),
        _ => {}
    }
}

fn bind(body: &[u8]) {
    let Ok(mut bind) = frontend::bind(body) else { return };
    for _ in 0..bind.param_count {
        if frontend::param(&mut bind.rest).is_err() {
            return;
        }
    }
    drop(frontend::result_formats(bind.rest));
}
