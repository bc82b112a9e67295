//! Computes what FETCH and MOVE do: from a cursor's position, the rows that they return and the position after them.
//!
//! ```text
//! position:   0         1   2   ...   rows   rows + 1
//!           before the first row      after the last
//! ```
//!
//! Every direction is one or two of PostgreSQL's two primitives, `n` rows forward and `n` rows backward; one that finds
//! too few rows stops before the first or after the last. A cursor that only scans forward fails with 55000 wherever
//! PostgreSQL would have to step back or to start again.

use holdfast_sql::{FetchCount, FetchDirection};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// Consecutive rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first row returned, from 1.
    pub first: u64,
    pub count: u64,
    /// The other rows come before it, not after.
    pub backward: bool,
}

/// What a FETCH or MOVE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    pub span: Span,
    /// The cursor's position afterwards.
    pub place: u64,
}

/// A cursor's position among its rows.
#[derive(Clone, Copy, Debug)]
pub struct CursorPosition {
    pub place: u64,
    pub rows: u64,
    /// Whether the cursor may move backward.
    pub scroll: bool,
}

impl CursorPosition {
    /// Moves in a direction. `moves`: MOVE, which returns no rows.
    pub fn go(mut self, direction: FetchDirection, moves: bool) -> SqlResult<Movement> {
        use FetchDirection as D;
        let span = match direction {
            D::Next => self.forward(Some(1)),
            D::Prior => self.backward(Some(1))?,
            D::First => self.absolute(1)?,
            D::Last => self.absolute(-1)?,
            D::Absolute(n) => self.absolute(n)?,
            D::Relative(0) | D::Forward(FetchCount::Rows(0)) => self.again(false, moves)?,
            D::Relative(n) if n < 0 => {
                self.backward(Some(n.unsigned_abs() - 1))?;
                self.backward(Some(1))?
            }
            D::Relative(n) => {
                self.forward(Some(n.unsigned_abs() - 1));
                self.forward(Some(1))
            }
            D::Forward(FetchCount::Rows(n)) => self.forward(Some(n)),
            D::Forward(FetchCount::All) => self.forward(None),
            D::Backward(FetchCount::Rows(0)) => self.again(true, moves)?,
            D::Backward(FetchCount::Rows(n)) => self.backward(Some(n))?,
            // MOVE starts again; from the start that is not a step back.
            D::Backward(FetchCount::All) if moves && self.place == 0 => Span::default(),
            D::Backward(FetchCount::All) => self.backward(None)?,
        };
        Ok(Movement { span, place: self.place })
    }

    fn on_row(&self) -> bool {
        (1..=self.rows).contains(&self.place)
    }

    /// Moves forward by `count` rows, or over all.
    fn forward(&mut self, count: Option<u64>) -> Span {
        let left = self.rows.saturating_sub(self.place);
        let taken = count.map_or(left, |n| n.min(left));
        let span = Span { first: self.place + 1, count: taken, backward: false };
        self.place = if count.is_none_or(|n| n > left) { self.rows + 1 } else { self.place + taken };
        span
    }

    fn backward(&mut self, count: Option<u64>) -> SqlResult<Span> {
        self.may_scroll()?;
        let left = self.place.saturating_sub(1);
        let taken = count.map_or(left, |n| n.min(left));
        let span = Span { first: left, count: taken, backward: true };
        self.place = if count.is_none_or(|n| n > left) { 0 } else { self.place - taken };
        Ok(span)
    }

    fn absolute(&mut self, n: i64) -> SqlResult<Span> {
        if n < 0 {
            self.forward(None);
            self.backward(Some(n.unsigned_abs() - 1))?;
            return self.backward(Some(1));
        }
        let n = n.unsigned_abs();
        if n <= self.place && self.place > 0 {
            self.may_scroll()?;
            self.place = n.saturating_sub(1);
        }
        if n == 0 {
            return Ok(Span::default());
        }
        self.forward(Some(n - 1 - self.place));
        Ok(self.forward(Some(1)))
    }

    /// Returns the present row again. MOVE only counts it; FETCH steps back to read it again.
    fn again(&self, backward: bool, moves: bool) -> SqlResult<Span> {
        if !moves && (backward || self.on_row()) {
            self.may_scroll()?;
        }
        Ok(Span { first: self.place, count: u64::from(self.on_row()), backward: false })
    }

    fn may_scroll(&self) -> SqlResult<()> {
        if self.scroll {
            return Ok(());
        }
        let message = "cursor can only scan forward";
        Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("Declare it with SCROLL option to enable backward scan."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FetchCount::{All, Rows};
    use FetchDirection::{Absolute, Backward, First, Forward, Last, Next, Prior, Relative};

    /// The rows taken and the place after them, or `None` for 55000.
    fn go(place: u64, rows: u64, scroll: bool, direction: FetchDirection) -> Option<(Vec<u64>, u64)> {
        let Movement { span, place } = CursorPosition { place, rows, scroll }.go(direction, false).ok()?;
        let taken = (0..span.count).map(|i| if span.backward { span.first - i } else { span.first + i });
        Some((taken.collect(), place))
    }

    #[test]
    fn every_direction_from_every_place() {
        for (place, direction, taken, after) in [
            (0, Next, vec![1], 1),
            (2, Next, vec![3], 3),
            (3, Next, vec![], 4),
            (4, Next, vec![], 4),
            (4, Prior, vec![3], 3),
            (1, Prior, vec![], 0),
            (0, Prior, vec![], 0),
            (4, First, vec![1], 1),
            (0, Last, vec![3], 3),
            (3, Absolute(2), vec![2], 2),
            (0, Absolute(9), vec![], 4),
            (4, Absolute(3), vec![3], 3),
            (2, Absolute(0), vec![], 0),
            (0, Absolute(-3), vec![1], 1),
            (2, Absolute(-4), vec![], 0),
            (1, Relative(2), vec![3], 3),
            (1, Relative(3), vec![], 4),
            (3, Relative(-2), vec![1], 1),
            (3, Relative(-3), vec![], 0),
            (2, Relative(0), vec![2], 2),
            (0, Relative(0), vec![], 0),
            (0, Forward(Rows(2)), vec![1, 2], 2),
            (0, Forward(Rows(3)), vec![1, 2, 3], 3),
            (2, Forward(Rows(2)), vec![3], 4),
            (1, Forward(All), vec![2, 3], 4),
            (4, Forward(Rows(0)), vec![], 4),
            (3, Backward(Rows(0)), vec![3], 3),
            (4, Backward(Rows(2)), vec![3, 2], 2),
            (3, Backward(Rows(2)), vec![2, 1], 1),
            (2, Backward(Rows(2)), vec![1], 0),
            (4, Backward(All), vec![3, 2, 1], 0),
        ] {
            assert_eq!(go(place, 3, true, direction), Some((taken, after)), "{direction:?} from {place}");
        }
        for direction in [Next, Prior, First, Last, Absolute(-1), Forward(All), Backward(All), Relative(0)] {
            assert_eq!(go(0, 0, true, direction).unwrap().0, Vec::<u64>::new(), "{direction:?} of nothing");
        }
    }

    #[test]
    fn without_scroll_only_forward() {
        for direction in
            [Prior, Last, Absolute(-1), Absolute(0), Absolute(2), First, Relative(0), Relative(-1), Backward(All)]
        {
            assert_eq!(go(2, 3, false, direction), None, "{direction:?}");
        }
        assert_eq!(go(2, 3, false, Absolute(3)), Some((vec![3], 3)));
        assert_eq!(go(0, 3, false, First), Some((vec![1], 1)));
        assert_eq!(go(0, 3, false, Absolute(0)), Some((vec![], 0)));
        assert_eq!(go(0, 3, false, Prior), None);
        assert_eq!(go(0, 3, false, Backward(Rows(0))), None);
    }

    #[test]
    fn move_counts_without_fetching() {
        let go = |place, direction| {
            CursorPosition { place, rows: 3, scroll: false }.go(direction, true).map(|m| m.span.count)
        };
        assert_eq!(go(2, Forward(Rows(0))), Ok(1));
        assert_eq!(go(2, Backward(Rows(0))), Ok(1));
        assert_eq!(go(4, Forward(Rows(0))), Ok(0));
        assert_eq!(go(0, Backward(All)), Ok(0));
        assert!(go(1, Backward(All)).is_err());
        assert_eq!(go(0, Forward(All)), Ok(3));
    }
}
