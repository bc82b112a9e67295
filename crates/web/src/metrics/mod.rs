//! `/metrics`: the figures as OpenMetrics text.
//!
//! Names follow Prometheus's conventions: base units, `_total` for what only rises. A counter begins at 0 again when the server
//! starts or changes its role. What is not known is absent.

mod list;

pub(crate) use list::levels;

use crate::figures::Figures;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;

/// Of the text that [`page`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Of the text of [`plain`].
pub const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page in the older format, for programs that do not ask for OpenMetrics: there a counter's family has the name of its
/// values.
pub fn plain(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut lines = page.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF").peekable();
    while let Some(line) = lines.next() {
        let is_of_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
        let counts =
            is_of_counter(line) || lines.peek().is_some_and(|next| line.starts_with("# HELP ") && is_of_counter(next));
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            [hash, kind, name, rest] if counts => text.extend([hash, " ", kind, " ", name, "_total ", rest]),
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// What the figures do not contain: what the history knows.
#[derive(Debug, Default)]
pub struct Lags {
    /// By the standby's name and the level: how old what it lacks is, in seconds.
    pub seconds: BTreeMap<(String, &'static str), f64>,
}

/// The page.
pub fn page(figures: Figures, lags: Lags) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot { figures, lags }));
    let mut text = String::with_capacity(32 << 10);
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The figures of one moment.
#[derive(Debug)]
struct Snapshot {
    figures: Figures,
    lags: Lags,
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        list::server(&mut page, &self.figures)?;
        list::trail(&mut page, &self.figures)?;
        list::sessions(&mut page, &self.figures)?;
        list::replication(&mut page, &self.figures, &self.lags)?;
        list::backups(&mut page, &self.figures)?;
        list::process(&mut page, &self.figures)
    }
}

/// Name and help of a metric.
type Named = (&'static str, &'static str);

/// Writes metrics, one family after the other.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn family<T>(
        &mut self,
        (name, help): Named,
        unit: Option<&Unit>,
        kind: MetricType,
        write: impl FnOnce(MetricEncoder<'_>) -> Result<T, fmt::Error>,
    ) -> Result<T, fmt::Error> {
        write(self.encoder.encode_descriptor(name, help, unit, kind)?)
    }

    fn counter<N: EncodeCounterValue>(&mut self, named: Named, unit: Option<Unit>, value: N) -> fmt::Result {
        self.family(named, unit.as_ref(), MetricType::Counter, |mut metric| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    fn gauge<N: EncodeGaugeValue>(&mut self, named: Named, unit: Option<Unit>, value: N) -> fmt::Result {
        self.family(named, unit.as_ref(), MetricType::Gauge, |mut metric| metric.encode_gauge(&value))
    }

    /// A counter for each set of labels.
    fn counters<L: EncodeLabelSet>(&mut self, named: Named, rows: impl Iterator<Item = (L, u64)>) -> fmt::Result {
        self.family(named, None, MetricType::Counter, |mut metric| {
            for (labels, value) in rows {
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        })
    }

    /// A gauge for each set of labels.
    fn gauges<L: EncodeLabelSet, N: EncodeGaugeValue>(
        &mut self,
        named: Named,
        unit: Option<Unit>,
        rows: impl Iterator<Item = (L, N)>,
    ) -> fmt::Result {
        self.family(named, unit.as_ref(), MetricType::Gauge, |mut metric| {
            for (labels, value) in rows {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        })
    }

    /// A histogram; each bound and the sum are multiplied by `scale`.
    fn histogram(
        &mut self,
        named: Named,
        unit: Option<Unit>,
        of: &holdfast_types::histogram::HistogramFigures,
        scale: f64,
    ) -> fmt::Result {
        let bounds = of.bounds.iter().map(|bound| *bound as f64 * scale).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(of.counts.iter().copied()).collect();
        self.family(named, unit.as_ref(), MetricType::Histogram, |mut metric| {
            metric.encode_histogram::<NoLabelSet>(of.sum as f64 * scale, of.count(), &buckets, None)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::SessionCount;

    #[test]
    fn names_of_databases_cannot_break_the_page() {
        let sessions = ["a\"b", "c\\d", "e\nholdfast_role{role=\"master\"} 1", "}"];
        let row = |name: &str| SessionCount { database: name.to_owned(), state: "idle", count: 3 };
        let figures = Figures { sessions: sessions.map(row).to_vec(), ..Figures::default() };
        let text = page(figures, Lags::default()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("holdfast_sessions{")).collect();
        assert_eq!(lines.len(), sessions.len(), "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with("} 3")), "{lines:?}");
        assert!(!text.contains("\nholdfast_role{role=\"master\"} 1\n"));
        assert!(lines[0].contains(r#"database="a\"b""#) && lines[1].contains(r#"database="c\\d""#), "{lines:?}");
    }

    #[test]
    fn the_plain_page_names_counters_as_their_values() {
        let text = page(Figures::default(), Lags::default()).unwrap();
        assert!(text.contains("# TYPE holdfast_boxcars counter") && text.ends_with("# EOF\n"));
        let plain = plain(&text);
        assert!(
            plain.contains("# HELP holdfast_boxcars_total Group")
                && plain.contains("# TYPE holdfast_boxcars_total counter\n")
        );
        assert!(plain.contains("# HELP holdfast_epoch Rises") && !plain.contains("# UNIT") && !plain.contains("# EOF"));
        assert_eq!(plain.matches("\nholdfast_boxcars_total 0\n").count(), 1);
    }
}
