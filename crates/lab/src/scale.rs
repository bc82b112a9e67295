//! A logarithmic axis: where a value lies, and where its grid lines go.

/// Maps values to pixels by their logarithm.
#[derive(Clone, Copy, Debug)]
pub struct LogScale {
    low: f64,
    high: f64,
    from_px: f64,
    to_px: f64,
}

impl LogScale {
    /// Covers all positive `values`, rounded out to a grid line on both sides, over `from_px` to `to_px`.
    pub fn around(values: impl Iterator<Item = f64>, from_px: f64, to_px: f64) -> LogScale {
        let (low, high) = values
            .filter(|v| *v > 0.0 && v.is_finite())
            .fold((f64::MAX, 0.0), |(low, high), v| (f64::min(low, v), f64::max(high, v)));
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 10.0) };
        LogScale { low: step_down(low), high: step_up(high), from_px, to_px }
    }

    /// This scale, cut off above `high`.
    pub fn up_to(self, high: f64) -> LogScale {
        LogScale { high: self.high.min(high).max(self.low * 10.0), ..self }
    }

    /// The pixel of a value; values outside lie on the edge.
    pub fn px(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let part = (value / self.low).ln() / (self.high / self.low).ln();
        self.from_px + part * (self.to_px - self.from_px)
    }

    /// The value at the far edge.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Grid lines: value, and whether it gets a label (powers of ten, and 2 and 5 on short axes).
    pub fn grid(&self) -> Vec<(f64, bool)> {
        let few = (self.high / self.low).log10() < 2.2;
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        (first..=last)
            .flat_map(|e| [(1.0, true), (2.0, few), (5.0, few)].map(|(m, label)| (m * 10f64.powi(e), label)))
            .filter(|(v, _)| *v >= self.low * 0.999 && *v <= self.high * 1.001)
            .collect()
    }
}

/// The largest 1, 2, 5 step not above `value`.
fn step_down(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|m| m * unit).find(|s| *s <= value * 1.0001).unwrap_or(unit)
}

/// The smallest 1, 2, 5 step not below `value`.
fn step_up(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * unit).find(|s| *s >= value * 0.9999).unwrap_or(10.0 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_rounded_to_grid_lines() {
        let s = LogScale::around([37.0, 61_000.0, 0.0].into_iter(), 0.0, 100.0);
        assert_eq!((s.low, s.high), (20.0, 100_000.0));
        assert_eq!((s.px(20.0), s.px(100_000.0), s.px(1e9)), (0.0, 100.0, 100.0));
        assert!((s.px(1414.2) - 50.0).abs() < 0.1, "the geometric middle is in the middle");
    }

    #[test]
    fn only_powers_of_ten_are_labelled_on_long_axes() {
        let labels = |low: f64, high: f64| -> Vec<f64> {
            let s = LogScale::around([low, high].into_iter(), 0.0, 1.0);
            s.grid().into_iter().filter(|g| g.1).map(|g| g.0).collect()
        };
        assert_eq!(labels(20.0, 50_000.0), [100.0, 1000.0, 10_000.0]);
        assert_eq!(labels(100.0, 900.0), [100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn no_values_still_make_an_axis() {
        let s = LogScale::around(std::iter::empty(), 0.0, 1.0);
        assert!(s.px(5.0) > 0.0 && s.px(5.0) < 1.0);
    }
}
