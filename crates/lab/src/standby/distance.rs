//! Master and standby so far apart: the link delays each way, and every level is measured with one client and with many.
//!
//! One client's commits show what a level adds to a commit's latency: no other client shares its sync or its way. Each of them is
//! compared with local by way of the same link, which delays nothing that local waits for. How long the link
//! really takes is measured too, through one of its kind, as a process has to wake up at each end of it; that is the round
//! trip that the goals mean. Levels take turns, every second round in the other order.
//!
//! Failure: a run that fails ends this part at the pair, which has a straight way again; distances before it are kept.

use super::bed::Bed;
use super::levels::median;
use super::link::Link;
use super::pair::{CATCH_UP_MAX, Level, Pair, Way};
use super::results::{Distance, Results};
use crate::drive::Span;
use crate::machine;
use crate::schedule::Load;
use crate::study_results::groups;
use crate::wire_drive::Connections;
use crate::wire_transaction::Variant;
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What is compared: without a standby there is no link.
const LEVELS: [Level; 4] = [Level::Local, Level::Warm, Level::Hot, Level::Commit];
/// Messages that go to and fro to find out how long the link takes.
const PINGS: usize = 21;

/// Measures one pair.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    // The copy, where it is still to be made, is made without a delay.
    pair.need_standby()?;
    pair.stop_standby();
    pair.start_standby(Way::Link)?;
    let measured = bed.sizes.round_trips_ms.iter().try_for_each(|ms| {
        results.distances.extend(at(bed, pair, *ms)?);
        Ok(())
    });
    pair.link.delay(Duration::ZERO);
    measured
}

/// One distance.
fn at(bed: &Bed<'_>, pair: &mut Pair, round_trip_ms: f64) -> anyhow::Result<Vec<Distance>> {
    bed.room()?;
    let one_way = Duration::from_secs_f64(round_trip_ms / 2e3);
    let link_us = micros(round_trip(one_way).context("cannot measure the link")?);
    pair.link.delay(one_way);
    pair.catch_up(CATCH_UP_MAX)?;
    let first = Distance { round_trip_ms, link_us, server: pair.name().into(), ..Distance::default() };
    let (mut runs, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..bed.sizes.rounds {
        // As often as the levels: a disk that others use does not take the same time for long.
        syncs.push(micros(machine::sync_time(bed.scratch)?));
        let mut levels = LEVELS;
        if round % 2 == 1 {
            levels.reverse();
        }
        for level in levels {
            bed.progress.now(format!("{}, {round_trip_ms} ms, level {}", pair.name(), level.name()));
            runs.push(run(bed, pair, &first, level, 1, bed.sizes.one_client_seconds())?);
        }
    }
    for level in LEVELS {
        runs.push(run(bed, pair, &first, level, bed.sizes.clients_usual(), bed.sizes.many_clients_seconds())?);
    }
    let sync_us = median(syncs).unwrap_or_default();
    Ok(compared(runs.into_iter().map(|run| Distance { sync_us, ..run }).collect()))
}

fn run(
    bed: &Bed<'_>,
    pair: &mut Pair,
    first: &Distance,
    level: Level,
    clients: usize,
    seconds: f64,
) -> anyhow::Result<Distance> {
    let (options, epoch) = (level.options(pair.kind), pair.next_epoch());
    let mut connections = Connections::open_as(pair.master()?.addr, Variant::OneMessage, Some(options), clients)?;
    let load = Load::Closed { clients };
    let log_end = || pair.master().map_or(String::new(), |master| master.process.log_end());
    let measured = connections.drive(load, Span::of(seconds), epoch).with_context(log_end)?;
    anyhow::ensure!(measured.response.count > 0, "no commit ended within {seconds} s: give more --seconds");
    pair.answered += measured.answered;
    // What this level has left to do is not the next one's.
    pair.catch_up(CATCH_UP_MAX)?;
    bed.progress.advance(seconds);
    Ok(Distance {
        level: level.name().into(),
        clients,
        tps: measured.completed_rate,
        p50_us: measured.response.p50_us as f64,
        p99_us: measured.response.p99_us as f64,
        runs_p50_us: vec![measured.response.p50_us as f64],
        ..first.clone()
    })
}

/// The runs of each level as one, with the median of each figure, and what each adds to local.
fn compared(runs: Vec<Distance>) -> Vec<Distance> {
    let same_point = |a: &Distance, b: &Distance| (&a.level, a.clients) == (&b.level, b.clients);
    let one = |same: Vec<Distance>| {
        let of = |of: fn(&Distance) -> f64| median(same.iter().map(of).collect()).unwrap_or_default();
        Distance {
            tps: of(|d| d.tps),
            p50_us: of(|d| d.p50_us),
            p99_us: of(|d| d.p99_us),
            runs_p50_us: same.iter().map(|d| d.p50_us).collect(),
            ..same[0].clone()
        }
    };
    let mut points: Vec<Distance> = groups(runs, same_point).into_iter().map(one).collect();
    let local = points.clone();
    for point in points.iter_mut().filter(|point| point.level != Level::Local.name()) {
        let local = local.iter().find(|c| c.level == Level::Local.name() && c.clients == point.clients);
        point.added_us = local.map(|local| point.p50_us - local.p50_us);
        // On a link without a delay a round trip is that of two processes that wake up: no measure.
        let measurable = point.round_trip_ms > 0.0;
        point.added_round_trips = point.added_us.filter(|_| measurable).map(|added| added / point.link_us);
    }
    points
}

/// How long a small message takes through a link with this delay and back, when nothing else uses it; the median.
fn round_trip(one_way: Duration) -> anyhow::Result<Duration> {
    let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let link = Link::open(echo.local_addr()?)?;
    link.delay(one_way);
    let mut near = TcpStream::connect(link.addr)?;
    near.set_nodelay(true)?;
    let (mut far, _) = echo.accept()?;
    far.set_nodelay(true)?;
    std::thread::scope(|scope| {
        // Ends when the near end is closed.
        scope.spawn(move || {
            let mut message = [0; 64];
            while far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_ok() {}
        });
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let (start, mut message) = (Instant::now(), [7; 64]);
            near.write_all(&message)?;
            near.read_exact(&mut message)?;
            times.push(start.elapsed());
        }
        drop(near);
        times.sort_unstable();
        Ok(times[PINGS / 2])
    })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_compared_with_cold_of_the_same_link_and_clients() {
        let run = |level: Level, clients, p50_us| Distance {
            round_trip_ms: 10.0,
            link_us: 10_000.0,
            level: level.name().into(),
            clients,
            p50_us,
            ..Distance::default()
        };
        let one = |level, times: [f64; 3]| times.map(|p50_us| run(level, 1, p50_us));
        let mut runs = [one(Level::Local, [3e3, 1e3, 2e3]), one(Level::Warm, [12e3, 10e3, 90e3])].concat();
        runs.extend([run(Level::Local, 40, 5e3), run(Level::Warm, 40, 20e3)]);
        let points = compared(runs);
        let added: Vec<_> = points.iter().map(|p| (p.clients, p.added_us, p.added_round_trips)).collect();
        assert_eq!(added, [(1, None, None), (1, Some(10e3), Some(1.0)), (40, None, None), (40, Some(15e3), Some(1.5))]);
        assert_eq!(points[1].runs_p50_us, [12e3, 10e3, 90e3]);
    }

    #[test]
    fn a_link_takes_its_delay_each_way() {
        let one_way = Duration::from_millis(2);
        assert!(round_trip(one_way).unwrap() >= 2 * one_way);
        assert!(round_trip(Duration::ZERO).unwrap() > Duration::ZERO);
    }
}
