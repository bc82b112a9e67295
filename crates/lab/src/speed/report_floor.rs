//! The physical floor of each row as a table.

use super::results::{Floor, Line};
use crate::chart::escape;
use crate::report_tables::{Column, Row, optional, table};
use crate::text;

/// Nothing where no row has a floor.
pub fn html(lines: &[Line]) -> String {
    const COLUMNS: [Column; 8] = [
        ("Row", false),
        ("Clients", true),
        ("Server that does<br>nothing", true),
        ("its CPU<br>each", true),
        ("Bytes a<br>sync", true),
        ("Syncs<br>a second", true),
        ("Floor", true),
        ("Holdfast<br>against it", true),
    ];
    let rows: Vec<Row> = lines.iter().filter_map(|line| Some(row(line, line.floor.as_ref()?))).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>The physical floor</h2>\n<p class=\"caption\">What no server on this machine can do better: the same messages \
         at a server that does nothing, and the same bytes made durable by one write and sync after the other. 1 is \
         the floor itself.</p>\n{}",
        table(&COLUMNS, &rows)
    )
}

fn row(line: &Line, floor: &Floor) -> Row {
    let cells = vec![
        escape(&line.what),
        line.clients.to_string(),
        optional(floor.echo_rate, text::number),
        optional(floor.echo_cpu_us, text::time),
        optional(floor.sync.map(|sync| sync.bytes as f64), |bytes| text::bytes(bytes as u64)),
        optional(floor.sync.map(|sync| sync.syncs_a_second), text::number),
        line.row.show(floor.value),
        optional(floor.share(line), text::times),
    ];
    Row { class: "", cells }
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn rows_with_a_floor_are_shown_with_their_share_of_it() {
        let html = super::html(&sample::results().lines);
        assert_eq!(html.matches("<tr class=\"\">").count(), 1, "{html}");
        assert!(html.contains("<td class=\"n\">0.5</td></tr>"), "{html}");
        assert_eq!(super::html(&sample::results().lines[..1]), "");
    }
}
