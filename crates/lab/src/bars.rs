//! Horizontal bars as inline SVG, in groups: for comparing the figures of different servers.
//!
//! Colours come from the page's style sheet, as those of the line charts do. All bars of a drawing share one scale
//! from zero.

use crate::chart::escape;
use std::fmt::Write;

/// A drawing.
pub struct Bars {
    /// For screen readers.
    pub title: String,
    /// How values are written.
    pub text: fn(f64) -> String,
    pub groups: Vec<Group>,
}

/// Bars of one case.
pub struct Group {
    pub label: String,
    pub bars: Vec<Bar>,
}

/// One figure.
pub struct Bar {
    /// Style sheet class, without the `series-` before it.
    pub class: &'static str,
    pub name: &'static str,
    pub value: f64,
}

const WIDTH: f64 = 880.0;
const LEFT: f64 = 4.0;
/// Room to the right of the longest bar, for its text.
const RIGHT: f64 = 190.0;
const BAR: f64 = 17.0;
const BAR_GAP: f64 = 4.0;
const LABEL: f64 = 24.0;
const GROUP_GAP: f64 = 16.0;

impl Bars {
    /// The SVG element.
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|g| &g.bars);
        let longest = bars().map(|b| b.value).filter(|v| v.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let heights = self.groups.iter().map(|g| LABEL + g.bars.len() as f64 * (BAR + BAR_GAP) + GROUP_GAP);
        let height = heights.sum::<f64>().max(1.0);
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        let mut y = 0.0;
        for group in &self.groups {
            y += LABEL;
            text(&mut out, "axis", LEFT, y - 8.0, &group.label);
            for bar in &group.bars {
                let part = (bar.value / longest).clamp(0.0, 1.0);
                let width = (part * (WIDTH - LEFT - RIGHT)).max(1.0);
                self.bar(&mut out, bar, y, width);
                y += BAR + BAR_GAP;
            }
            y += GROUP_GAP;
        }
        out.push_str("</svg>\n");
        out
    }

    fn bar(&self, out: &mut String, bar: &Bar, y: f64, width: f64) {
        let (class, shown) = (bar.class, format!("{} · {}", (self.text)(bar.value), bar.name));
        let tooltip = escape(&shown);
        out.write_fmt(format_args!(
            "<rect class=\"bar series-{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
             rx=\"2\"><title>{tooltip}</title></rect>\n"
        ))
        .expect("writing to a string cannot fail");
        text(out, &format!("label series-{class}"), LEFT + width + 8.0, y + BAR - 4.0, &shown);
    }
}

fn text(out: &mut String, class: &str, x: f64, y: f64, text: &str) {
    out.push_str(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_is_the_golden_one() {
        let bar = |class, value| Bar { class, name: "A & B", value };
        let groups = vec![
            Group { label: "five <messages>".into(), bars: vec![bar("audited", 100.0), bar("postgres", 50.0)] },
            Group { label: "nothing".into(), bars: vec![bar("audited", 0.0)] },
        ];
        let drawing = Bars { title: "Rates".into(), text: |v| format!("{v}"), groups };
        crate::golden::check("bars.svg", &drawing.svg());
    }

    #[test]
    fn no_bars_are_drawn() {
        assert!(Bars { title: String::new(), text: |_| String::new(), groups: vec![] }.svg().contains("</svg>"));
    }
}
