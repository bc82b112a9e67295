//! Memory of many connections, idle and each with a transaction open that has changed a row: on servers of their own
//! that have done nothing before but load the terminal file.

use super::bed::{self, Bed, Stand};
use super::results::{MemoryUse, Results};
use crate::pg_client::Client;
use crate::process_memory;
use crate::server::Kind;
use crate::study_results::Checked;
use crate::{interrupt, workload};
use std::time::{Duration, Instant};

/// Memory that has not fallen by a fiftieth for this time has settled.
const STEADY: Duration = Duration::from_secs(3);
const SETTLE_MAX: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The first tenth of the connections makes an idle server give back memory that loading took, and its threads take
/// theirs; the rest shows what a connection takes.
const FIRST_PART: usize = 10;

/// What a server takes, about, for the progress.
pub const SECONDS_ABOUT: f64 = 15.0;

/// Measures every server.
pub fn measure(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    for kind in bed::kinds(bed.study) {
        interrupt::check()?;
        bed.progress.part(&format!("memory of {} connections at {}", bed.sizes.connections, kind.name()));
        if let Err(e) = at(bed, kind, results) {
            let e = interrupt::unless(e)?;
            results.failures.push(format!("memory at {}: {e:#}", kind.name()));
        }
        bed.progress.advance(SECONDS_ABOUT);
    }
    Ok(())
}

/// Memory once it does not fall any more: what loading took goes back to the system little by little.
fn settled(in_use: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let mut least = in_use()?;
    let (start, mut falling) = (Instant::now(), Instant::now());
    while falling.elapsed() < STEADY && start.elapsed() < SETTLE_MAX {
        interrupt::check()?;
        std::thread::sleep(LOOK_AGAIN);
        let now = in_use()?;
        if now < least - least / 50 {
            (least, falling) = (now, Instant::now());
        }
    }
    in_use()
}

fn at(bed: &Bed<'_>, kind: Kind, results: &mut Results) -> anyhow::Result<()> {
    let stand = Stand::start(kind, &bed.study.program, bed.scratch)?;
    stand.peer.load(0, &|_| ())?;
    let in_use = || Ok::<_, anyhow::Error>(process_memory::tree(stand.peer.process.pid())?.proportional_bytes);
    let before_bytes = settled(in_use)?;
    let first_connections = bed.sizes.connections / FIRST_PART;
    let mut first_bytes = before_bytes;
    let mut clients = Vec::with_capacity(bed.sizes.connections);
    for n in 1..=bed.sizes.connections {
        interrupt::check()?;
        if n == first_connections + 1 {
            first_bytes = settled(in_use)?;
        }
        let mut client = Client::connect(stand.peer.addr)?;
        client
            .run(&format!("select approved_count from terminal where term_no = '{}'", workload::term_no(n as u64)))?;
        clients.push(client);
    }
    let idle_bytes = settled(in_use)?;
    for (client, n) in clients.iter_mut().zip(1..) {
        interrupt::check()?;
        client.run("begin")?;
        client.run(&workload::update_sql("1", &format!("'{}'", workload::term_no(n))))?;
    }
    let open_bytes = in_use()?;
    clients.iter_mut().try_for_each(|client| client.run("commit"))?;
    let updates = Client::connect(stand.peer.addr)?.number("select sum(approved_count) from terminal")?;
    let found = format!("{updates} updates by {} connections", clients.len());
    results.check(stand.name(), "what open transactions changed is kept", updates == clients.len() as f64, found);
    let (server, connections) = (stand.name().to_string(), clients.len());
    results.memory.push(MemoryUse {
        server,
        connections,
        before_bytes,
        first_connections,
        first_bytes,
        idle_bytes,
        open_bytes,
    });
    Ok(())
}
