//! Finds the last boxcar that two trails have in common.
//!
//! Each boxcar's checksum covers that of the one before, so if one matches, all before it match, too. Each answer
//! halves the remaining range.

use crate::message::Answer;

/// A binary search over ends in ascending order, by their index.
#[derive(Clone, Debug)]
pub struct Bisection {
    /// Everything below this index matches, or is older than what the other side keeps.
    low: usize,
    /// From this index on nothing matches.
    high: usize,
    /// The last index that matched.
    common: Option<usize>,
}

impl Bisection {
    pub fn over(count: usize) -> Bisection {
        Bisection { low: 0, high: count, common: None }
    }

    /// The index to ask about next; `None` when the search is over.
    pub fn next(&self) -> Option<usize> {
        (self.low < self.high).then(|| self.low + (self.high - self.low) / 2)
    }

    /// Records the answer for the index that [`Bisection::next`] returned.
    pub fn answer(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Yes => (self.common, self.low) = (Some(index), index + 1),
            Answer::Gone => self.low = index + 1,
            Answer::No => self.high = index,
        }
    }

    /// The last index in common, once the search is over.
    pub fn common(&self) -> Option<usize> {
        self.common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every length, every fork, and every amount of recycled trail.
    #[test]
    fn finds_the_last_in_common_in_few_questions() {
        for count in 0usize..40 {
            for matching in 0..=count {
                for gone in 0..=count {
                    let mut search = Bisection::over(count);
                    let mut asked = 0;
                    while let Some(index) = search.next() {
                        asked += 1;
                        let answer = match index {
                            _ if index < gone => Answer::Gone,
                            _ if index < matching => Answer::Yes,
                            _ => Answer::No,
                        };
                        search.answer(index, answer);
                    }
                    let expected = (matching > gone).then(|| matching - 1);
                    assert_eq!(search.common(), expected, "{count} {matching} {gone}");
                    assert!(asked <= (usize::BITS - count.leading_zeros()) as usize, "{asked} questions for {count}");
                }
            }
        }
    }
}
