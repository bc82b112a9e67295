//! Line charts on logarithmic axes as inline SVG, each line labelled where it ends.
//!
//! Colours come from the page's style sheet (`series-…` classes), so one drawing serves light and dark. Every point
//! carries a tooltip. Nothing is fetched and nothing is scripted.

use crate::scale::LogScale;
use std::fmt::Write;

/// A line.
pub struct Series {
    /// Style sheet class, without the `series-` before it.
    pub class: &'static str,
    pub label: String,
    pub points: Vec<Mark>,
}

/// A point of a line.
pub struct Mark {
    pub x: f64,
    pub y: f64,
    pub tooltip: String,
}

/// Where the labels stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// In a column to the right: for lines that end at different heights.
    Right,
    /// Above the plot, slanted: for lines that rise out of it at different places.
    Above,
}

/// A chart.
pub struct Chart {
    /// For screen readers.
    pub title: String,
    pub x_title: &'static str,
    pub y_title: &'static str,
    /// How values of the axes are written.
    pub x_text: fn(f64) -> String,
    pub y_text: fn(f64) -> String,
    pub labels: Labels,
    /// Draws y = x, the most that can be reached, with this label.
    pub diagonal: Option<&'static str>,
    /// Values above are drawn at the upper edge.
    pub y_max: Option<f64>,
    pub series: Vec<Series>,
}

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 470.0;
/// Between a tick's text and the plot.
pub const TICK_GAP: f64 = 9.0;
/// The room that an axis title takes at the left edge, and the least in all with the ticks.
const TITLE_ROOM: f64 = 26.0;
const LEFT_MIN: f64 = 78.0;
/// About what a character of a tick takes.
const TICK_CHARACTER: f64 = 6.8;
const BOTTOM: f64 = 52.0;
/// Least distance between neighbouring labels, one above the other.
pub const LABEL_GAP: f64 = 19.0;
/// Least distance between slanted labels side by side.
const SLANTED_LABEL_GAP: f64 = 26.0;

/// The plot's edges in pixels.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Chart {
    /// The SVG element.
    pub fn svg(&self) -> String {
        let mut frame = self.frame();
        let values = || self.series.iter().flat_map(|s| &s.points);
        let mut y = LogScale::around(values().map(|p| p.y), frame.bottom, frame.top);
        if let Some(max) = self.y_max {
            y = y.up_to(max);
        }
        let labelled = y.grid().into_iter().filter(|(_, labelled)| *labelled);
        frame.left = left_of_plot(labelled.map(|(value, _)| (self.y_text)(value)));
        let x = LogScale::around(values().map(|p| p.x), frame.left, frame.right);
        let mut out = String::new();
        let title = escape(&self.title);
        write_line(
            &mut out,
            format_args!(r#"<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">"#),
        );
        self.axes(&mut out, &frame, &x, &y);
        if let Some(label) = self.diagonal {
            diagonal(&mut out, &x, &y, label);
        }
        self.labels(&mut out, &frame, &x, &y);
        for series in &self.series {
            line(&mut out, series, &x, &y);
        }
        out.push_str("</svg>\n");
        out
    }

    fn frame(&self) -> Frame {
        let (right, top) = match self.labels {
            Labels::Right => (WIDTH - 196.0, 18.0),
            Labels::Above => (WIDTH - 128.0, 128.0),
        };
        Frame { left: LEFT_MIN, right, top, bottom: HEIGHT - BOTTOM }
    }

    fn axes(&self, out: &mut String, f: &Frame, x: &LogScale, y: &LogScale) {
        for (value, labelled) in x.grid() {
            let px = x.px(value);
            let class = if labelled { "grid" } else { "grid minor" };
            write_line(out, format_args!(r#"<path class="{class}" d="M{px:.1} {:.1}V{:.1}"/>"#, f.top, f.bottom));
            if labelled {
                let (at, text) = (f.bottom + 20.0, (self.x_text)(value));
                write_line(
                    out,
                    format_args!(r#"<text class="tick" x="{px:.1}" y="{at:.1}" text-anchor="middle">{text}</text>"#),
                );
            }
        }
        for (value, labelled) in y.grid() {
            let px = y.px(value);
            let class = if labelled { "grid" } else { "grid minor" };
            write_line(out, format_args!(r#"<path class="{class}" d="M{:.1} {px:.1}H{:.1}"/>"#, f.left, f.right));
            if labelled {
                let (at, base, text) = (f.left - 9.0, px + 4.0, (self.y_text)(value));
                write_line(
                    out,
                    format_args!(r#"<text class="tick" x="{at:.1}" y="{base:.1}" text-anchor="end">{text}</text>"#),
                );
            }
        }
        let (middle, foot) = ((f.left + f.right) / 2.0, HEIGHT - 10.0);
        write_line(
            out,
            format_args!(
                r#"<text class="axis" x="{middle:.1}" y="{foot:.1}" text-anchor="middle">{}</text>"#,
                self.x_title
            ),
        );
        let middle = (f.top + f.bottom) / 2.0;
        write_line(
            out,
            format_args!(
                r#"<text class="axis" transform="translate(13 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
                self.y_title
            ),
        );
    }

    fn labels(&self, out: &mut String, f: &Frame, x: &LogScale, y: &LogScale) {
        let ends: Vec<(&Series, f64, f64)> =
            self.series.iter().filter_map(|s| s.points.last().map(|end| (s, x.px(end.x), y.px(end.y)))).collect();
        match self.labels {
            Labels::Right => {
                let places = spread(&ends.iter().map(|e| e.2).collect::<Vec<_>>(), f.top + 6.0, f.bottom, LABEL_GAP);
                for ((series, ex, ey), at) in ends.iter().zip(places) {
                    let (class, label) = (series.class, escape(&series.label));
                    let (bend, edge, text) = (f.right, f.right + 10.0, f.right + 14.0);
                    write_line(
                        out,
                        format_args!(
                            r#"<path class="leader series-{class}" d="M{ex:.1} {ey:.1}H{bend:.1}L{edge:.1} {at:.1}"/>"#
                        ),
                    );
                    let base = at + 4.5;
                    write_line(
                        out,
                        format_args!(
                            r#"<text class="label series-{class}" x="{text:.1}" y="{base:.1}">{label}</text>"#
                        ),
                    );
                }
            }
            Labels::Above => {
                let places = spread(&ends.iter().map(|e| e.1).collect::<Vec<_>>(), f.left, f.right, SLANTED_LABEL_GAP);
                for ((series, ex, ey), at) in ends.iter().zip(places) {
                    let (class, label) = (series.class, escape(&series.label));
                    let (bend, edge) = (f.top, f.top - 10.0);
                    write_line(
                        out,
                        format_args!(
                            r#"<path class="leader series-{class}" d="M{ex:.1} {ey:.1}V{bend:.1}L{at:.1} {edge:.1}"/>"#
                        ),
                    );
                    let base = edge - 5.0;
                    write_line(
                        out,
                        format_args!(
                            r#"<text class="label series-{class}" transform="translate({at:.1} {base:.1}) rotate(-38)">{label}</text>"#
                        ),
                    );
                }
            }
        }
    }
}

fn diagonal(out: &mut String, x: &LogScale, y: &LogScale, label: &str) {
    let high = x.high().min(y.high());
    let low = x.grid().first().map_or(1.0, |g| g.0).max(y.grid().first().map_or(1.0, |g| g.0));
    let (x1, y1, x2, y2) = (x.px(low), y.px(low), x.px(high), y.px(high));
    write_line(out, format_args!(r#"<path class="diagonal" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#));
    let (mx, my) = (x1 + (x2 - x1) * 0.16, y1 + (y2 - y1) * 0.16 - 8.0);
    let angle = ((y2 - y1) / (x2 - x1)).atan().to_degrees();
    write_line(
        out,
        format_args!(r#"<text class="tick" transform="translate({mx:.1} {my:.1}) rotate({angle:.1})">{label}</text>"#),
    );
}

fn line(out: &mut String, series: &Series, x: &LogScale, y: &LogScale) {
    let class = series.class;
    let path: Vec<String> = series.points.iter().map(|p| format!("{:.1} {:.1}", x.px(p.x), y.px(p.y))).collect();
    write_line(out, format_args!(r#"<path class="line series-{class}" d="M{}"/>"#, path.join("L")));
    for p in &series.points {
        let (px, py, tooltip) = (x.px(p.x), y.px(p.y), escape(&p.tooltip));
        write_line(
            out,
            format_args!(
                r#"<circle class="point series-{class}" cx="{px:.1}" cy="{py:.1}" r="3.2"><title>{tooltip}</title></circle>"#
            ),
        );
    }
}

/// Moves the wanted places apart to at least `gap`, keeping their order, within `low` to `high` as far as
/// there is room.
pub fn spread(wanted: &[f64], low: f64, high: f64, gap: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    let mut least = low;
    for &i in &order {
        places[i] = places[i].max(least);
        least = places[i] + gap;
    }
    let mut most = high;
    for &i in order.iter().rev() {
        places[i] = places[i].min(most);
        most = places[i] - gap;
    }
    places
}

/// Where the plot begins, so that its longest tick does not reach the axis title at the left edge.
pub fn left_of_plot(ticks: impl Iterator<Item = String>) -> f64 {
    let longest = ticks.map(|tick| tick.chars().count()).max().unwrap_or(0);
    (TITLE_ROOM + longest as f64 * TICK_CHARACTER + TICK_GAP).ceil().max(LEFT_MIN)
}

/// Text for HTML and SVG, attributes included.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Appends a line.
pub fn write_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("writing to a string cannot fail");
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(x: f64, y: f64) -> Mark {
        Mark { x, y, tooltip: format!("{x} <offered>") }
    }

    fn chart(labels: Labels) -> Chart {
        Chart {
            title: "Completed & offered".into(),
            x_title: "offered",
            y_title: "completed",
            x_text: |v| format!("{v}"),
            y_text: |v| format!("{v}"),
            labels,
            diagonal: Some("all completed"),
            y_max: Some(1000.0),
            series: vec![
                Series { class: "audited", label: "A & B".into(), points: vec![mark(10.0, 10.0), mark(1000.0, 900.0)] },
                Series { class: "buffered", label: "C".into(), points: vec![mark(10.0, 9.0), mark(500.0, 870.0)] },
            ],
        }
    }

    #[test]
    fn drawing_is_the_golden_one() {
        crate::golden::check("chart-right.svg", &chart(Labels::Right).svg());
        crate::golden::check("chart-above.svg", &chart(Labels::Above).svg());
    }

    #[test]
    fn labels_are_moved_apart_and_keep_their_order() {
        assert_eq!(spread(&[100.0, 10.0, 101.0, 99.0], 0.0, 200.0, LABEL_GAP), [118.0, 10.0, 137.0, 99.0]);
        let at_the_edge = spread(&[199.0, 198.0, 197.0], 0.0, 200.0, LABEL_GAP);
        assert_eq!(at_the_edge, [200.0, 181.0, 162.0]);
        assert!(spread(&[], 0.0, 1.0, 1.0).is_empty());
    }

    #[test]
    fn long_ticks_move_the_plot_away_from_the_axis_title() {
        assert_eq!(left_of_plot(["500".to_string()].into_iter()), LEFT_MIN);
        assert!(left_of_plot(["1000 KiB/s".to_string()].into_iter()) > TITLE_ROOM + 10.0 * TICK_CHARACTER);
    }

    #[test]
    fn an_empty_chart_is_drawn() {
        let empty = Chart { series: vec![], ..chart(Labels::Right) };
        assert!(empty.svg().contains("</svg>"));
    }
}
