//! Every corpus as it is, and seeded mutations of it for a few seconds a target.

use std::time::{Duration, Instant};

use holdfast_fuzz::{TARGETS, mutate};
use holdfast_seams::testing::Seeded;

const INPUTS: u64 = 20_000;
const TIME_MAX: Duration = Duration::from_secs(5);

#[test]
fn no_input_panics() {
    for target in TARGETS {
        let corpus = mutate::corpus(target.name);
        corpus.iter().for_each(|input| (target.run)(input));
        let (mut random, begun) = (Seeded::new(1), Instant::now());
        let inputs = (0..INPUTS).take_while(|_| begun.elapsed() < TIME_MAX);
        let count = inputs.map(|_| (target.run)(&mutate::mutated(&corpus, &mut random))).count();
        assert!(count > 20, "{}: {count} inputs", target.name);
    }
}
