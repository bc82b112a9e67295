//! Settings and quorums, row by row.

use super::*;

fn shown(text: &str) -> String {
    SyncSet::parse(text).unwrap().to_string()
}

#[test]
fn settings_as_postgresql_reads_them() {
    let rows = [
        ("", ""),
        ("  ", ""),
        ("a", "FIRST 1 (\"a\")"),
        ("a, B", "FIRST 1 (\"a\", \"b\")"),
        ("*", "FIRST 1 (*)"),
        ("2 (a, b, c)", "FIRST 2 (\"a\", \"b\", \"c\")"),
        ("FIRST 2 (a,b)", "FIRST 2 (\"a\", \"b\")"),
        ("first 1 (*)", "FIRST 1 (*)"),
        ("Any 2(a, b , c)", "ANY 2 (\"a\", \"b\", \"c\")"),
        ("ANY 1 (\"rack-2\", \"x\"\"y\")", "ANY 1 (\"rack-2\", \"x\"\"y\")"),
        ("any, first", "FIRST 1 (\"any\", \"first\")"),
        ("first", "FIRST 1 (\"first\")"),
        ("7, 8", "FIRST 1 (\"7\", \"8\")"),
    ];
    for (text, expected) in rows {
        assert_eq!(shown(text), expected, "{text}");
        assert_eq!(SyncSet::parse(expected), SyncSet::parse(text), "what is shown can be read");
    }
}

#[test]
fn settings_that_are_refused() {
    let rows = [
        ("a,", 3),
        ("ANY 2 (a, b", 12),
        ("ANY (a)", 5),
        ("ANY 0 (a)", 5),
        ("0 (a)", 1),
        ("99999999999999999999 (a)", 1),
        ("ANY 1 ()", 8),
        ("a b", 3),
        ("a-b", 2),
        ("\"a", 1),
        ("\"\"", 1),
        ("ANY 1 (a) b", 11),
        (",", 1),
    ];
    for (text, position) in rows {
        assert_eq!(SyncSet::parse(text).unwrap_err().position, position, "{text}");
    }
}

fn ack(received: u64, durable: u64, applied: u64) -> Ack {
    Ack { received: Lsn(received), durable: Lsn(durable), applied: Lsn(applied) }
}

fn reached(setting: &str, connected: &[(&str, Ack)]) -> Option<(u64, u64, u64)> {
    let reached = SyncSet::parse(setting).unwrap().reached(connected.iter().copied());
    reached.map(|reached| (reached.warm.0, reached.hot.0, reached.commit.0))
}

#[test]
fn what_the_acks_add_up_to() {
    let (a, b, c) = (("a", ack(30, 20, 10)), ("b", ack(25, 25, 25)), ("c", ack(90, 9, 9)));
    // No standby, or none that counts.
    assert_eq!(reached("", &[a, b]), None);
    assert_eq!(reached("a", &[]), None);
    assert_eq!(reached("x", &[a, b]), None);
    // The first of the list that is connected.
    assert_eq!(reached("a, b", &[a, b]), Some((30, 20, 10)));
    assert_eq!(reached("b, a", &[a, b]), Some((25, 25, 25)));
    assert_eq!(reached("a, b", &[b]), Some((25, 25, 25)), "a is away");
    assert_eq!(reached("A", &[a]), Some((30, 20, 10)), "case does not count");
    // The first two: the slower of them, level by level.
    assert_eq!(reached("2 (a, b, c)", &[a, b, c]), Some((25, 20, 10)));
    assert_eq!(reached("FIRST 2 (c, b, a)", &[a, b, c]), Some((25, 9, 9)));
    assert_eq!(reached("FIRST 2 (a, b, c)", &[a, c]), Some((30, 9, 9)), "b is away, c steps in");
    assert_eq!(reached("FIRST 2 (a, b)", &[a, c]), None, "too few");
    // Any one, any two, all; each level has its own quorum.
    assert_eq!(reached("ANY 1 (a, b, c)", &[a, b, c]), Some((90, 25, 25)));
    assert_eq!(reached("ANY 2 (a, b, c)", &[a, b, c]), Some((30, 20, 10)));
    assert_eq!(reached("ANY 3 (a, b, c)", &[a, b, c]), Some((25, 9, 9)));
    assert_eq!(reached("ANY 2 (a, b)", &[a, b, c]), Some((25, 20, 10)), "c is not listed");
    assert_eq!(reached("ANY 3 (a, b, c)", &[a, b]), None);
    // The `*`.
    assert_eq!(reached("*", &[c, b, a]), Some((30, 20, 10)), "by name");
    assert_eq!(reached("FIRST 1 (b, *)", &[a, b, c]), Some((25, 25, 25)));
    assert_eq!(reached("ANY 2 (*)", &[a, b, c]), Some((30, 20, 10)));
}

#[test]
fn what_was_reached_stays_reached() {
    let before = Reached { warm: Lsn(5), hot: Lsn(4), commit: Lsn(3) };
    let after = before.max(Reached { warm: Lsn(1), hot: Lsn(9), commit: Lsn(2) });
    assert_eq!(after, Reached { warm: Lsn(5), hot: Lsn(9), commit: Lsn(3) });
}

#[test]
fn sets_that_wait_for_everybody_in_them() {
    let all = |text: &str| SyncSet::parse(text).unwrap().all_of().map(|names| names.join(" "));
    for (text, expected) in [("a", "a"), ("FIRST 2 (b, A)", "a b"), ("ANY 2 (a, b)", "a b"), ("2 (a, b)", "a b")] {
        assert_eq!(all(text).as_deref(), Some(expected), "{text}");
    }
    for text in ["a, b", "ANY 1 (a, b)", "*", "FIRST 2 (a, *)", "2 (a, a)", ""] {
        assert_eq!(all(text), None, "{text}");
    }
    let any = |text: &str| SyncSet::parse(text).unwrap().any_of().map(|names| names.join(" "));
    assert_eq!(any("ANY 1 (b, A)").as_deref(), Some("a b"));
    for text in
        ["a, b", "FIRST 1 (a, b)", "ANY 2 (a, b)", "ANY 3 (a, b)", "ANY 1 (*)", "ANY 1 (a, *)", "ANY 1 (a, a)", ""]
    {
        assert_eq!(any(text), None, "{text}");
    }
}
