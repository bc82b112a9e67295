//! Line charts over time, or over another measure, as inline SVG: values from zero up, each line labelled at its end.
//!
//! As [`crate::chart`] does it, but on linear axes that begin at zero.

use crate::chart::{LABEL_GAP, Series, TICK_GAP, escape, left_of_plot, spread, write_line};
use crate::text;

/// A chart.
pub struct TimeChart {
    /// For screen readers.
    pub title: String,
    /// What x is; [`SECONDS`] for most.
    pub x_title: &'static str,
    pub y_title: &'static str,
    /// How values are written, and which of them get a grid line.
    pub y_text: fn(f64) -> String,
    pub y_steps: Steps,
    /// Times that are marked with a line and a word.
    pub marks: Vec<(f64, String)>,
    /// Points in the order of x.
    pub series: Vec<Series>,
}

/// The distance of an axis' grid lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// 1, 2 or 5 times a power of ten.
    Tens,
    /// A power of two: for bytes, which are written in KiB and MiB.
    Twos,
}

/// The axis of a chart over time.
pub const SECONDS: &str = "seconds";

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 170.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = HEIGHT - 46.0;
/// Grid lines of an axis, about.
const STEPS: f64 = 6.0;

impl TimeChart {
    /// The SVG element.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let y = Axis::up_to(most(&mut points().map(|p| p.y)) * 1.05, self.y_steps, BOTTOM, TOP);
        let left = left_of_plot(y.grid().map(self.y_text));
        let x = Axis::up_to(most(&mut points().map(|p| p.x)), Steps::Tens, left, RIGHT);
        let title = escape(&self.title);
        let mut out = String::new();
        let head =
            format_args!(r#"<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">"#);
        write_line(&mut out, head);
        self.grid(&mut out, &x, &y);
        for (at, word) in &self.marks {
            let (px, base, word) = (x.px(*at), TOP - 8.0, escape(word));
            write_line(&mut out, format_args!(r#"<path class="diagonal" d="M{px:.1} {TOP}V{BOTTOM}"/>"#));
            let text =
                format_args!(r#"<text class="tick" x="{px:.1}" y="{base:.1}" text-anchor="middle">{word}</text>"#);
            write_line(&mut out, text);
        }
        for series in &self.series {
            line(&mut out, series, &x, &y);
        }
        self.labels(&mut out, &x, &y);
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String, x: &Axis, y: &Axis) {
        for value in x.grid() {
            let (px, base) = (x.px(value), BOTTOM + 20.0);
            write_line(out, format_args!(r#"<path class="grid minor" d="M{px:.1} {TOP}V{BOTTOM}"/>"#));
            let text = format_args!(r#"<text class="tick" x="{px:.1}" y="{base}" text-anchor="middle">{value}</text>"#);
            write_line(out, text);
        }
        for value in y.grid() {
            let (py, left, shown) = (y.px(value), x.from_px, (self.y_text)(value));
            let (at, base) = (left - TICK_GAP, py + 4.0);
            write_line(out, format_args!(r#"<path class="grid" d="M{left} {py:.1}H{RIGHT}"/>"#));
            let text = format_args!(r#"<text class="tick" x="{at}" y="{base:.1}" text-anchor="end">{shown}</text>"#);
            write_line(out, text);
        }
        let (middle, foot, title) = ((x.from_px + RIGHT) / 2.0, HEIGHT - 8.0, self.x_title);
        write_line(
            out,
            format_args!(r#"<text class="axis" x="{middle}" y="{foot}" text-anchor="middle">{title}</text>"#),
        );
        let (middle, title) = ((TOP + BOTTOM) / 2.0, self.y_title);
        let turned = format_args!(
            r#"<text class="axis" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{title}</text>"#
        );
        write_line(out, turned);
    }

    fn labels(&self, out: &mut String, x: &Axis, y: &Axis) {
        let ends: Vec<_> = self.series.iter().filter_map(|s| s.points.last().map(|end| (s, end))).collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, end)| y.px(end.y)).collect();
        for ((series, end), at) in ends.iter().zip(spread(&wanted, TOP + 6.0, BOTTOM, LABEL_GAP)) {
            let (class, label) = (series.class, escape(&series.label));
            let (ex, ey, edge, text, base) = (x.px(end.x), y.px(end.y), RIGHT + 10.0, RIGHT + 14.0, at + 4.5);
            let leader =
                format_args!(r#"<path class="leader series-{class}" d="M{ex:.1} {ey:.1}H{RIGHT}L{edge} {at:.1}"/>"#);
            write_line(out, leader);
            write_line(
                out,
                format_args!(r#"<text class="label series-{class}" x="{text}" y="{base:.1}">{label}</text>"#),
            );
        }
    }
}

fn line(out: &mut String, series: &Series, x: &Axis, y: &Axis) {
    if series.points.is_empty() {
        return;
    }
    let class = series.class;
    let path: Vec<String> = series.points.iter().map(|p| format!("{:.1} {:.1}", x.px(p.x), y.px(p.y))).collect();
    write_line(out, format_args!(r#"<path class="line series-{class}" d="M{}"/>"#, path.join("L")));
    for p in &series.points {
        let (px, py, tooltip) = (x.px(p.x), y.px(p.y), escape(&p.tooltip));
        write_line(
            out,
            format_args!(
                r#"<circle class="point series-{class}" cx="{px:.1}" cy="{py:.1}" r="2.4"><title>{tooltip}</title></circle>"#
            ),
        );
    }
}

/// From zero to a round value.
struct Axis {
    step: f64,
    high: f64,
    from_px: f64,
    to_px: f64,
}

impl Axis {
    fn up_to(most: f64, steps: Steps, from_px: f64, to_px: f64) -> Axis {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = match steps {
            Steps::Tens => {
                let unit = 10f64.powf((most / STEPS).log10().floor());
                let fits = |step: &f64| most / step <= STEPS;
                [1.0, 2.0, 5.0].map(|m| m * unit).into_iter().find(fits).unwrap_or(10.0 * unit)
            }
            // Less than a byte is none.
            Steps::Twos => (most / STEPS).log2().ceil().max(0.0).exp2(),
        };
        Axis { step, high: (most / step).ceil() * step, from_px, to_px }
    }

    fn px(&self, value: f64) -> f64 {
        self.from_px + (value / self.high).clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Rounded, so that a tenth three times is 0.3.
    fn grid(&self) -> impl Iterator<Item = f64> {
        let (step, high) = (self.step, self.high);
        (0..).map(move |i| (f64::from(i) * step * 1e6).round() / 1e6).take_while(move |v| *v <= high * 1.0001)
    }
}

/// A point of a line, with its tooltip.
pub fn mark(name: &str, at_s: f64, value: f64, show: impl Fn(f64) -> String) -> crate::chart::Mark {
    crate::chart::Mark { x: at_s, y: value, tooltip: format!("{name}, second {}: {}", text::number(at_s), show(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> TimeChart {
        let points = points.iter().map(|(x, y)| mark("A", *x, *y, text::number)).collect();
        TimeChart {
            title: "Rate & time".into(),
            x_title: SECONDS,
            y_title: "a second",
            y_text: text::short,
            y_steps: Steps::Tens,
            marks: vec![(2.0, "the <large> one".into())],
            series: vec![Series { class: "audited", label: "A & B".into(), points }],
        }
    }

    #[test]
    fn drawing_is_the_golden_one() {
        crate::golden::check("time-chart.svg", &chart(&[(1.0, 0.0), (2.0, 400.0), (3.0, 1000.0)]).svg());
    }

    #[test]
    fn nothing_is_drawn_as_well() {
        assert!(chart(&[]).svg().contains("</svg>"));
        assert!(chart(&[(0.0, 0.0)]).svg().contains("<circle"));
    }

    #[test]
    fn axes_end_at_round_values() {
        let high = |most| Axis::up_to(most, Steps::Tens, 0.0, 1.0).high;
        assert_eq!([high(60.0), high(61.0), high(1050.0), high(0.0)], [60.0, 80.0, 1200.0, 1.0]);
        let grid: Vec<f64> = Axis::up_to(0.3, Steps::Tens, 0.0, 1.0).grid().collect();
        assert_eq!(grid[..3], [0.0, 0.05, 0.1]);
    }

    #[test]
    fn axes_of_bytes_have_round_binary_values() {
        let grid = |most| -> Vec<String> {
            let axis = Axis::up_to(most, Steps::Twos, 0.0, 1.0);
            axis.grid().map(|v| text::bytes(v as u64)).collect()
        };
        assert_eq!(grid(10.1e6), ["0 bytes", "2 MiB", "4 MiB", "6 MiB", "8 MiB", "10 MiB"]);
        assert_eq!(grid(3e6), ["0 bytes", "512 KiB", "1 MiB", "1.5 MiB", "2 MiB", "2.5 MiB", "3 MiB"]);
        assert_eq!(grid(0.0), ["0 bytes", "1 bytes"]);
    }

    #[test]
    fn long_ticks_do_not_reach_the_axis_title() {
        let wide = TimeChart { y_text: |v| format!("{v:.0} KiB a second"), ..chart(&[(1.0, 500.0)]) };
        let svg = wide.svg();
        // The longest tick, "500 KiB a second", is written to the left of the plot: the title stands before it.
        let plot: f64 = svg.split("class=\"grid\" d=\"M").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(plot > 120.0, "{plot}");
        assert!(svg.contains(&format!("x=\"{}\"", plot - TICK_GAP)), "ticks end before the plot");
    }
}
