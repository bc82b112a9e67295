"""Random histories of list appends at each level, judged by `cycles`; and known bad ones, which it has to refuse.

Each transaction reads and appends to a few lists, kept as rows with a text column; an append is an UPDATE or an
INSERT ... ON CONFLICT, a read is a plain SELECT or one that locks. Some roll back, some go through a savepoint, some
are one statement outside a transaction. HOLDFAST_SEED repeats the choices of a run; what the threads make of them is
never quite the same. HOLDFAST_SECONDS lets it run longer.
"""

import os
import random
import sys
import threading
import time

import psycopg

from crowd import DEADLOCK, SERIALIZATION, Crowd
from cycles import Operation, Transaction, check
from findings import add, connect, set_up

THREADS = 8
KEYS = 5


class Load:
    """One run at one level."""

    def __init__(self, level: str, seed: int):
        self.level = level
        self.randoms = [random.Random(f"{seed} {level} {number}") for number in range(THREADS)]
        self.history: list[Transaction] = []
        self.lock = threading.Lock()
        self.values = 0

    def transaction(self, connection: psycopg.Connection, number: int) -> None:
        choose = self.randoms[number]
        with self.lock:
            txn = Transaction(len(self.history))
            self.history.append(txn)
        count = choose.choice((1, 2, 2, 3, 4, 6))
        alone = count == 1 and choose.random() < 0.7
        try:
            if alone:
                self.set_default(connection)
            else:
                connection.execute(f"BEGIN ISOLATION LEVEL {self.level.upper()}")
            keys = [choose.randrange(KEYS) for _ in range(count)]
            # Mostly in one order, because PostgreSQL takes a second to find a deadlock.
            for key in sorted(keys) if choose.random() < 0.97 else keys:
                self.operation(connection, txn, choose, key)
                if choose.random() < 0.2:
                    time.sleep(0.001)
            if alone or choose.random() > 0.1:
                if not alone:
                    connection.execute("COMMIT")
                txn.committed, txn.acknowledged = True, time.monotonic()
            else:
                connection.execute("ROLLBACK")
        except psycopg.Error as error:
            connection.execute("ROLLBACK")
            serialization = self.level != "read committed" and error.sqlstate == SERIALIZATION
            if not serialization and error.sqlstate != DEADLOCK:
                raise

    def set_default(self, connection: psycopg.Connection) -> None:
        """A statement outside a transaction has the session's level."""
        connection.execute(f"SET default_transaction_isolation = '{self.level}'")

    def operation(
        self, connection: psycopg.Connection, txn: Transaction, choose: random.Random, key: int
    ) -> None:
        began = time.monotonic()
        txn.began = txn.began or began
        if choose.random() < 0.5:
            locking = choose.choice(("",) * 6 + (" FOR UPDATE", " FOR SHARE"))
            row = connection.execute(f"SELECT v FROM lists WHERE k = {key}{locking}").fetchone()
            txn.operations.append(Operation(key, seen=numbers(row[0]) if row else [], began=began))
            return
        with self.lock:
            self.values += 1
            value = self.values
        if not txn.operations or choose.random() > 0.2 or connection.info.transaction_status.name == "IDLE":
            txn.operations.append(Operation(key, value=value, began=began))
            append(connection, key, value)
            return
        # By way of a savepoint, which may take it back.
        connection.execute("SAVEPOINT s")
        append(connection, key, value)
        if choose.random() < 0.5:
            connection.execute("ROLLBACK TO s")
        else:
            txn.operations.append(Operation(key, value=value, began=began))


def append(connection: psycopg.Connection, key: int, value: int) -> None:
    """The row is made by whoever comes first."""
    changed = 0
    if value % 3:
        changed = connection.execute(f"UPDATE lists SET v = v || ',{value}' WHERE k = {key}").rowcount
    if not changed:
        sql = f"INSERT INTO lists VALUES ({key}, '{value}') ON CONFLICT (k) DO UPDATE SET v = lists.v || ',{value}'"
        connection.execute(sql)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def histories(level: str, seed: int):
    def run(database: str) -> str:
        set_up(database, "CREATE TABLE lists (k int PRIMARY KEY, v text NOT NULL)")
        load = Load(level, seed)
        crowd = Crowd(database)
        crowd.add(load.transaction, THREADS)
        errors = crowd.run()
        with connect(database) as connection:
            final = {key: numbers(text) for key, text in connection.execute("SELECT k, v FROM lists")}
        problems = check(load.history, final, level)
        committed = sum(txn.committed for txn in load.history)
        print(f"  {level}: seed {seed}, {committed} of {len(load.history)} committed", file=sys.stderr)
        if problems or errors or committed < 20:
            return f"! seed {seed}, {committed} committed: {problems[:3]} of {len(problems)}; errors {errors}"
        return "nothing that the level forbids"

    return run


def the_judge(_: str) -> str:
    """Histories with one anomaly each, and the levels that have to refuse them."""
    found = []
    for name, (script, final) in KNOWN.items():
        refusing = [
            level
            for level in ("read committed", "repeatable read", "serializable")
            if check(written(script), final, level)
        ]
        found.append(f"{name}: {', '.join(refusing) or 'none'}")
    wanted = [f"{name}: {', '.join(REFUSED[name]) or 'none'}" for name in KNOWN]
    return "as it must be" if found == wanted else f"! {found}, not {wanted}"


def written(script: str) -> list[Transaction]:
    """`a1 r1=1,2 | ...`: appends of value x to list x // 100, reads `key=values`; `!` ends one that rolled back."""
    history = []
    for number, text in enumerate(script.split("|")):
        txn = Transaction(number, committed=not text.strip().endswith("!"), acknowledged=1.0)
        for word in text.replace("!", "").split():
            key, equals, values = word.partition("=")
            if equals:
                txn.operations.append(Operation(int(key), seen=numbers(values) if values else []))
            else:
                txn.operations.append(Operation(int(key) // 100, value=int(key)))
        history.append(txn)
    return history


ALL = ["read committed", "repeatable read", "serializable"]
KNOWN = {
    "serial": ("101 201 | 1=101 102 | 2=201 1=101,102", {1: [101, 102], 2: [201]}),
    "G0": ("101 201 | 102 202", {1: [101, 102], 2: [202, 201]}),
    "G1a": ("101 ! | 1=101", {1: []}),
    "G1b": ("101 102 | 1=101", {1: [101, 102]}),
    "G1c": ("101 2=201 | 201 1=101", {1: [101], 2: [201]}),
    "lost append": ("101 | 102", {1: [102]}),
    "own append unseen": ("101 1=", {1: [101]}),
    "lost update": ("1= 101 | 1= 102", {1: [101, 102]}),
    "read skew": ("1= 2=201 | 101 201", {1: [101], 2: [201]}),
    "long read skew": ("1= 2=201 | 101 | 1=101 201", {1: [101], 2: [201]}),
    "write skew": ("1= 2= 101 | 1= 2= 201", {1: [101], 2: [201]}),
    "long fork": ("101 | 201 | 1=101 2= | 1= 2=201", {1: [101], 2: [201]}),
}
REFUSED = dict.fromkeys(KNOWN, ALL) | {
    "serial": [],
    "lost update": ALL[1:],
    "read skew": ALL[1:],
    "long read skew": ALL[1:],
    "write skew": ALL[2:],
    "long fork": ALL[1:],
}

add("histories", "the_judge_refuses_known_anomalies", the_judge)
_seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1 << 32))
for _level in ALL:
    add("histories", f"list_appends.{_level}", histories(_level, _seed))
