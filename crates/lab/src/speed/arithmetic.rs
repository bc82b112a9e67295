//! What turns come to: the medians of each server, and the median of the rounds' ratios. A round's two measurements
//! follow each other directly, so a machine whose speed drifts slows both, and their ratio is what counts.

use super::results::{Figures, Line, Spread, Turn};
use crate::ratios::quotient;
use crate::server::Kind;

/// Fills in a row's medians and ratios from its turns.
pub fn conclude(line: &mut Line) {
    line.holdfast = figures(&of(&line.turns, Kind::Holdfast));
    line.postgres = figures(&of(&line.turns, Kind::Postgres));
    line.ratio = spread(&line.turns, |turn| Some(turn.value));
    line.cpu_ratio = spread(&line.turns, |turn| turn.cpu_us);
}

fn of(turns: &[Turn], kind: Kind) -> Vec<&Turn> {
    turns.iter().filter(|turn| turn.server == kind.name()).collect()
}

fn figures(turns: &[&Turn]) -> Option<Figures> {
    let all = |value: fn(&Turn) -> Option<f64>| median(turns.iter().filter_map(|turn| value(turn)).collect());
    Some(Figures {
        value: all(|turn| Some(turn.value))?,
        cpu_us: all(|turn| turn.cpu_us),
        syncs_per_transaction: all(|turn| turn.syncs_per_transaction),
        log_bytes_per_transaction: all(|turn| turn.log_bytes_per_transaction),
    })
}

/// Holdfast's value as a multiple of PostgreSQL's, over the rounds in which both have one.
fn spread(turns: &[Turn], value: impl Fn(&Turn) -> Option<f64>) -> Option<Spread> {
    let ratio = |ours: &&Turn| {
        let theirs = turns.iter().find(|t| t.server == Kind::Postgres.name() && t.round == ours.round)?;
        quotient(value(ours)?, value(theirs)?)
    };
    let ratios: Vec<f64> = of(turns, Kind::Holdfast).iter().filter_map(ratio).collect();
    Some(Spread {
        lowest: ratios.iter().copied().reduce(f64::min)?,
        highest: ratios.iter().copied().reduce(f64::max)?,
        median: median(ratios)?,
    })
}

/// The middle value; the mean of the two in the middle where their number is even.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (upper, lower) = (values.len() / 2, values.len().saturating_sub(1) / 2);
    Some((values.get(lower)? + values.get(upper)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::super::row::Row;
    use super::*;

    fn turn(server: &str, round: usize, value: f64, cpu_us: Option<f64>) -> Turn {
        Turn { server: server.into(), round, value, cpu_us, ..Turn::default() }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_the_medians() {
        let mut line = Line::empty(Row::OneMessage, String::new());
        line.turns = vec![
            turn("holdfast", 0, 100.0, Some(10.0)),
            turn("postgres", 0, 50.0, Some(40.0)),
            // The servers take turns in the other order.
            turn("postgres", 1, 10.0, Some(100.0)),
            turn("holdfast", 1, 30.0, Some(10.0)),
            turn("holdfast", 2, 90.0, Some(20.0)),
            turn("postgres", 2, 90.0, None),
            // The other server's turn failed.
            turn("holdfast", 3, 1.0, Some(1e6)),
        ];
        conclude(&mut line);
        assert_eq!(line.ratio, Some(Spread { median: 2.0, lowest: 1.0, highest: 3.0 }));
        assert_eq!(line.cpu_ratio, Some(Spread { median: 0.175, lowest: 0.1, highest: 0.25 }));
        assert_eq!(line.holdfast.map(|f| (f.value, f.cpu_us)), Some((60.0, Some(15.0))));
        assert_eq!(line.postgres.map(|f| (f.value, f.cpu_us)), Some((50.0, Some(70.0))));
    }

    #[test]
    fn without_a_peer_there_are_rates_and_no_ratios() {
        let mut line = Line::empty(Row::OneMessage, String::new());
        line.turns = vec![turn("holdfast", 0, 100.0, None), turn("postgres", 1, 100.0, None)];
        conclude(&mut line);
        assert_eq!((line.ratio, line.cpu_ratio), (None, None));
        assert_eq!(line.holdfast.map(|f| f.value), Some(100.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![7.0]), Some(7.0));
        assert_eq!(median(Vec::new()), None);
    }
}
