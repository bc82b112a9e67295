"""The published isolation anomalies, each as an interleaving of two or three sessions at three isolation levels.

Names and histories are those of Adya's thesis and of Martin Kleppmann's test suite "hermitage". Every session begins
a transaction at the level before the first step. A finding is the outcome (`OCCURS` or `prevented`, and by what: a
wait, a serialization failure) and, after ` | `, the record of every step.
"""

from typing import Callable, NamedTuple

from findings import add, set_up
from sessions import Record, play

LEVELS = ("read committed", "repeatable read", "serializable")

TABLE = """
    CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO t VALUES (1, 10), (2, 20)
"""


class Anomaly(NamedTuple):
    name: str
    script: str
    occurs: Callable[[Record], bool]


def both_committed(record: Record) -> bool:
    return record.committed(1) and record.committed(2)


ANOMALIES = [
    # Two transactions' writes mixed: the rows must be the ones of a single winner.
    Anomaly(
        "G0 dirty write",
        """
        1   UPDATE t SET v = 11 WHERE id = 1
        2*  UPDATE t SET v = 12 WHERE id = 1
        1   UPDATE t SET v = 21 WHERE id = 2
        1   COMMIT
        2   UPDATE t SET v = 22 WHERE id = 2
        2   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: r.after[0] not in ([(1, 11), (2, 21)], [(1, 12), (2, 22)]),
    ),
    Anomaly(
        "G1a aborted read",
        """
        1   UPDATE t SET v = 101 WHERE id = 1
        2   SELECT id, v FROM t ORDER BY id
        1   ROLLBACK
        2   SELECT id, v FROM t ORDER BY id
        2   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: any((1, 101) in rows for rows in r.rows(2)),
    ),
    Anomaly(
        "G1b intermediate read",
        """
        1   UPDATE t SET v = 101 WHERE id = 1
        2   SELECT id, v FROM t ORDER BY id
        1   UPDATE t SET v = 11 WHERE id = 1
        1   COMMIT
        2   SELECT id, v FROM t ORDER BY id
        2   COMMIT
        """,
        lambda r: any((1, 101) in rows for rows in r.rows(2)),
    ),
    Anomaly(
        "G1c circular information flow",
        """
        1   UPDATE t SET v = 11 WHERE id = 1
        2   UPDATE t SET v = 22 WHERE id = 2
        1   SELECT v FROM t WHERE id = 2
        2   SELECT v FROM t WHERE id = 1
        1   COMMIT
        2   COMMIT
        """,
        lambda r: both_committed(r) and r.rows(1)[0] == [(22,)] and r.rows(2)[0] == [(11,)],
    ),
    # The third session sees the second's write of one row and then the first's of the other, older again.
    Anomaly(
        "OTV observed transaction vanishes",
        """
        1   UPDATE t SET v = 11 WHERE id = 1
        1   UPDATE t SET v = 19 WHERE id = 2
        2*  UPDATE t SET v = 12 WHERE id = 1
        1   COMMIT
        3   SELECT v FROM t WHERE id = 1
        2   UPDATE t SET v = 18 WHERE id = 2
        3   SELECT v FROM t WHERE id = 2
        2   COMMIT
        3   SELECT v FROM t WHERE id = 2
        3   SELECT v FROM t WHERE id = 1
        3   COMMIT
        """,
        lambda r: vanished([rows[0][0] for rows in r.rows(3)]),
    ),
    Anomaly(
        "PMP predicate-many-preceders, read",
        """
        1   SELECT id, v FROM t WHERE v = 30
        2   INSERT INTO t VALUES (3, 30)
        2   COMMIT
        1   SELECT id, v FROM t WHERE v % 3 = 0
        1   COMMIT
        """,
        lambda r: r.committed(1) and r.rows(1) == [[], [(3, 30)]],
    ),
    # Serially, one of the two rows has the value 20 when the DELETE runs; here it may find none.
    Anomaly(
        "PMP predicate-many-preceders, write",
        """
        1   UPDATE t SET v = v + 10
        2   SELECT id, v FROM t WHERE v = 20
        2*  DELETE FROM t WHERE v = 20
        1   COMMIT
        2   SELECT id, v FROM t WHERE v = 20
        2   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: both_committed(r) and (r.rows(2)[0] != r.rows(2)[1] and bool(r.rows(2)[1]) or len(r.after[0]) == 2),
    ),
    Anomaly(
        "P4 lost update",
        """
        1   SELECT v FROM t WHERE id = 1
        2   SELECT v FROM t WHERE id = 1
        1   UPDATE t SET v = 11 WHERE id = 1
        2*  UPDATE t SET v = 11 WHERE id = 1
        1   COMMIT
        2   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: both_committed(r) and r.rows(1) == r.rows(2),
    ),
    Anomaly(
        "G-single read skew",
        """
        1   SELECT v FROM t WHERE id = 1
        2   SELECT v FROM t WHERE id = 1
        2   SELECT v FROM t WHERE id = 2
        2   UPDATE t SET v = 12 WHERE id = 1
        2   UPDATE t SET v = 18 WHERE id = 2
        2   COMMIT
        1   SELECT v FROM t WHERE id = 2
        1   COMMIT
        """,
        lambda r: r.committed(1) and r.rows(1) == [[(10,)], [(18,)]],
    ),
    Anomaly(
        "G-single read skew, predicate",
        """
        1   SELECT id, v FROM t WHERE v % 5 = 0 ORDER BY id
        2   UPDATE t SET v = 12 WHERE v = 10
        2   COMMIT
        1   SELECT id, v FROM t WHERE v % 3 = 0 ORDER BY id
        1   COMMIT
        """,
        lambda r: r.committed(1) and r.rows(1)[1] != [],
    ),
    Anomaly(
        "G-single read skew, write predicate",
        """
        1   SELECT v FROM t WHERE id = 1
        2   SELECT id, v FROM t ORDER BY id
        2   UPDATE t SET v = 12 WHERE id = 1
        2   UPDATE t SET v = 18 WHERE id = 2
        2   COMMIT
        1   DELETE FROM t WHERE v = 20
        1   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: r.committed(1) and r.rows(1)[0] == [(10,)] and len(r.after[0]) == 2,
    ),
    Anomaly(
        "G2-item write skew",
        """
        1   SELECT id, v FROM t WHERE id IN (1, 2) ORDER BY id
        2   SELECT id, v FROM t WHERE id IN (1, 2) ORDER BY id
        1   UPDATE t SET v = 11 WHERE id = 1
        2   UPDATE t SET v = 21 WHERE id = 2
        1   COMMIT
        2   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: both_committed(r) and r.rows(1) == r.rows(2),
    ),
    Anomaly(
        "G2 anti-dependency cycle",
        """
        1   SELECT id, v FROM t WHERE v % 3 = 0 ORDER BY id
        2   SELECT id, v FROM t WHERE v % 3 = 0 ORDER BY id
        1   INSERT INTO t VALUES (3, 30)
        2   INSERT INTO t VALUES (4, 42)
        1   COMMIT
        2   COMMIT
        =   SELECT id, v FROM t WHERE v % 3 = 0 ORDER BY id
        """,
        lambda r: both_committed(r) and r.rows(1)[0] == [] and r.rows(2)[0] == [],
    ),
    Anomaly(
        "G2 anti-dependency cycle, two edges",
        """
        1   SELECT id, v FROM t ORDER BY id
        2   UPDATE t SET v = v + 5 WHERE id = 2
        2   COMMIT
        3   SELECT id, v FROM t ORDER BY id
        3   COMMIT
        1   UPDATE t SET v = 0 WHERE id = 1
        1   COMMIT
        =   SELECT id, v FROM t ORDER BY id
        """,
        lambda r: r.committed(1) and r.rows(1)[0] == [(1, 10), (2, 20)] and r.rows(3)[0] == [(1, 10), (2, 25)],
    ),
]


def vanished(values: list[int]) -> bool:
    """Values of rows 1, 2, 2, 1 as one session read them: after the second transaction's, the first's again?"""
    newer = [value in (12, 18) for value in values]
    return newer != sorted(newer)


def outcome(anomaly: Anomaly, record: Record) -> str:
    if anomaly.occurs(record):
        return "OCCURS"
    means = []
    if any(step.waited for step in record.steps):
        means.append("waits")
    means.extend(sorted(set(record.states()) - {"25P02"}))
    return "prevented" + (f", {', '.join(means)}" if means else "")


def body(anomaly: Anomaly, level: str):
    def run(database: str) -> str:
        set_up(database, TABLE)
        record = play(database, anomaly.script, begin=f"BEGIN ISOLATION LEVEL {level.upper()}")
        return f"{outcome(anomaly, record)} | {record}"

    return run


for _anomaly in ANOMALIES:
    for _level in LEVELS:
        add("anomalies", f"{_anomaly.name}.{_level}", body(_anomaly, _level))
