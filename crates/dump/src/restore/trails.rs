//! The trails of which a place has dumps, for an operator who has to choose one of them: a restored server begins a trail of its
//! own, and may dump to the place of the server that it was restored from.

use crate::manifest::Head;
use crate::moment::show_moment;
use holdfast_engine::Manifest as DatabaseList;
use std::collections::BTreeMap;

/// Names of databases that are shown of a trail.
const NAMES_MAX: usize = 8;

/// The option that chooses each trail, and what its newest dump is of; the trail that was dumped last is the first.
pub(super) fn describe(dumps: &[(String, Head)]) -> Vec<String> {
    let mut trails: BTreeMap<String, (usize, &(String, Head))> = BTreeMap::new();
    for dump in dumps {
        let (count, newest) = trails.entry(dump.1.trail_id()).or_insert((0, dump));
        *count += 1;
        if dump.1.taken_unix_ms > newest.1.taken_unix_ms {
            *newest = dump;
        }
    }
    let mut trails: Vec<_> = trails.into_iter().collect();
    trails.sort_by_key(|(_, (_, newest))| std::cmp::Reverse(newest.1.taken_unix_ms));
    trails.iter().map(|(id, (count, newest))| line(id, *count, newest)).collect()
}

fn line(id: &str, count: usize, (name, head): &(String, Head)) -> String {
    let Head { node, taken_unix_ms, .. } = head;
    let taken = show_moment(*taken_unix_ms);
    let dumps = if count == 1 { "1 dump, taken".to_owned() } else { format!("{count} dumps, the newest taken") };
    format!("--trail {id}: server {node}, {dumps} {taken} ({name}), {}", databases(head))
}

fn databases(head: &Head) -> String {
    // The names come from outside, and are shown on a terminal.
    let list = DatabaseList::parse(&head.plan.manifest).map(|list| list.databases).unwrap_or_default();
    let names: Vec<String> = list.iter().map(|entry| entry.name.escape_debug().to_string()).collect();
    match names.len() {
        0 => format!("{} databases", head.plan.volumes.len()),
        1 => format!("database {}", names[0]),
        n if n <= NAMES_MAX => format!("databases {}", names.join(", ")),
        n => format!("databases {} and {} more", names[..NAMES_MAX].join(", "), n - NAMES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;

    fn dump(trail: u8, taken_unix_ms: u64, databases: &[String]) -> (String, Head) {
        let mut head = manifest().head;
        head.plan.trail_id = [trail; 16];
        head.taken_unix_ms = taken_unix_ms;
        for (at, name) in databases.iter().enumerate() {
            let entry = format!("[[database]]\nid = {}\nname = {name:?}\n", at + 1);
            head.plan.manifest.push_str(&format!("{entry}dialect = \"postgres\"\nfile = \"volumes/{at}.db\"\n"));
        }
        (format!("dumps/{taken_unix_ms}"), head)
    }

    #[test]
    fn each_trail_has_its_option_and_its_newest_dump() {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let many: Vec<String> = (0..NAMES_MAX + 2).map(|n| format!("d{n}")).collect();
        let (old, new) = (own(&["shop"]), own(&["shop", "logs"]));
        let dumps =
            [dump(2, 1_700_000_000_000, &old), dump(1, 1_700_000_100_000, &new), dump(2, 1_600_000_000_000, &many)];
        assert_eq!(
            describe(&dumps),
            [
                "--trail 01010101010101010101010101010101: server a, 1 dump, taken 2023-11-14 22:15:00.000Z \
                 (dumps/1700000100000), databases shop, logs",
                "--trail 02020202020202020202020202020202: server a, 2 dumps, the newest taken 2023-11-14 22:13:20.000Z \
                 (dumps/1700000000000), database shop",
            ]
        );
        assert!(line("0", 1, &dumps[2]).ends_with("d0, d1, d2, d3, d4, d5, d6, d7 and 2 more"));
        assert!(line("0", 1, &dump(3, 0, &[])).ends_with("2 databases"));
    }
}
