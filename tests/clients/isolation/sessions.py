"""Interleavings: scripts in which several sessions take turns, and the record of what each step did.

A script has one step a line: the session's number, then its statement.

    1   UPDATE t SET v = 11 WHERE id = 1
    2*  UPDATE t SET v = 12 WHERE id = 1
    1   COMMIT
    =   SELECT * FROM t

`*` says that this step waits on PostgreSQL. It only decides how soon the script goes on (a step without it is given
more time to come to its end, so that a slow machine does not make it look like a waiting one); what is recorded is
what happened. `=` runs on a connection of its own when every session has come to its end. Further steps:
`! cancel 2` sends session 2 a cancel request, `! close 1` cuts session 1's connection without a word,
`COPY t FROM STDIN <<< 1 10` sends rows (words with blanks between them, rows with commas), and
`PIPELINE a ;; b` sends statements up to one Sync.

The record: `1: UPDATE 1` (the command's tag), `1: [(1, 10)]` (rows), `1: !40001` (SQLSTATE); `2: waits` stands where
the step was sent, and what came of it (`2: -> UPDATE 1`) after the step that let it go on. `2: behind` is a step of a
session that still waits; it is sent as soon as the session's turn has come.
"""

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg

from findings import connect

WAITS_S = 0.3
"""A step that ought to wait and has not come to its end after this long, waits."""

SLOW_S = 2.0
"""The same for a step that ought not to wait, and for one that has just been let go on."""

HANGS_S = 20.0
"""A session that has not come to its end this long after the script's last step, hangs."""


@dataclass
class Step:
    """What became of one step: its rows or its tag, or its SQLSTATE."""

    session: str
    sql: str
    rows: list[tuple] | None = None
    tag: str | None = None
    sqlstate: str | None = None
    waited: bool = False

    def __str__(self) -> str:
        if self.sqlstate:
            return f"!{self.sqlstate}"
        return repr(self.rows) if self.rows is not None else str(self.tag)


class Session(threading.Thread):
    """A connection and the thread that runs its statements, one after the other."""

    def __init__(self, name: str, database: str, extended: bool = False):
        super().__init__(daemon=True)
        self.extended = extended
        self.connection = connect(database)
        self.connection.execute("SET idle_in_transaction_session_timeout = 0")
        self.label = name
        self.inbox: queue.Queue = queue.Queue()
        self.changed = threading.Condition()
        self.unfinished = 0
        self.finished: list[Step] = []
        self.start()

    def send(self, sql: str) -> Step:
        step = Step(self.label, sql)
        with self.changed:
            self.unfinished += 1
        self.inbox.put(step)
        return step

    def is_idle_within(self, seconds: float) -> bool:
        """Waits until everything sent has come to its end, and says whether it has."""
        with self.changed:
            return self.changed.wait_for(lambda: self.unfinished == 0, seconds)

    def take_finished(self) -> list[Step]:
        """The steps that have come to their end since this was last asked."""
        with self.changed:
            taken, self.finished = self.finished, []
            return taken

    def run(self) -> None:
        while (step := self.inbox.get()) is not None:
            execute(self.connection, step, self.extended)
            with self.changed:
                self.finished.append(step)
                self.unfinished -= 1
                self.changed.notify_all()

    def close(self) -> None:
        self.inbox.put(None)
        if not self.is_idle_within(0):
            self.connection.cancel_safe(timeout=5)
            self.is_idle_within(5)
        self.connection.close()


def execute(connection: psycopg.Connection, step: Step, extended: bool = False) -> None:
    """Runs a step; an error is its outcome. Results in the binary format need the extended protocol."""
    try:
        if step.sql.startswith("COPY"):
            cursor = copy_in(connection, step.sql)
        elif step.sql.startswith("PIPELINE"):
            cursor = pipeline(connection, step.sql)
        else:
            cursor = connection.execute(step.sql, binary=extended)
        if cursor.description is not None:
            step.rows = cursor.fetchall()
        step.tag = cursor.statusmessage
    except psycopg.Error as error:
        step.sqlstate = error.sqlstate or type(error).__name__


def copy_in(connection: psycopg.Connection, step: str) -> psycopg.Cursor:
    command, data = step.split(" <<< ")
    cursor = connection.cursor()
    with cursor.copy(command) as copy:
        for row in data.split(","):
            copy.write_row(row.split())
    return cursor


def pipeline(connection: psycopg.Connection, step: str) -> psycopg.Cursor:
    """The last statement's result."""
    with connection.pipeline():
        for statement in step.removeprefix("PIPELINE").split(";;"):
            cursor = connection.execute(statement.strip())
    return cursor


@dataclass
class Record:
    """What a script did: every step in the script's order, and the same as text."""

    steps: list[Step] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    """The rows of the `=` steps."""

    def __str__(self) -> str:
        return "; ".join(self.events)

    def rows(self, session: int | str) -> list[list[tuple]]:
        """What the session's queries returned, one list of rows each."""
        return [step.rows for step in self.steps if step.session == str(session) and step.rows is not None]

    def committed(self, session: int | str) -> bool:
        return any(step.tag == "COMMIT" for step in self.steps if step.session == str(session))

    def states(self) -> list[str]:
        """The SQLSTATEs, in the script's order."""
        return [step.sqlstate for step in self.steps if step.sqlstate]


def parse(script: str) -> list[tuple[str, bool, str]]:
    """(session, waits on PostgreSQL, statement) for each line."""
    steps = []
    for line in filter(None, map(str.strip, script.splitlines())):
        who, sql = line.split(None, 1)
        steps.append((who.rstrip("*"), who.endswith("*"), sql))
    return steps


def play(database: str, script: str, begin: str | None = None, extended: bool = False) -> Record:
    """Plays a script. With `begin` every session runs that statement first."""
    record = Record()
    steps = parse(script)
    names = sorted({who for who, _, _ in steps if who.isdigit()})
    sessions = {name: Session(name, database, extended) for name in names}
    try:
        for session in sessions.values() if begin else ():
            session.send(begin)
            session.is_idle_within(HANGS_S)
            session.take_finished()
        for who, waits, sql in (step for step in steps if step[0] != "="):
            if who == "!":
                tell(sessions, sql)
                record.events.append(sql)
                harvest(sessions.values(), record, SLOW_S)
            else:
                take(sessions, sessions[who], waits, sql, record)
        deadline = time.monotonic() + HANGS_S
        for session in sessions.values():
            if not session.is_idle_within(max(0.0, deadline - time.monotonic())):
                record.events.append(f"{session.label}: hangs")
            harvest([session], record, 0)
        for session in sessions.values():
            session.close()
        for _, _, sql in (step for step in steps if step[0] == "="):
            step = Step("=", sql)
            with connect(database) as connection:
                execute(connection, step)
            record.after.append(step.rows)
            record.events.append(f"= {step}")
        return record
    finally:
        for session in sessions.values():
            session.close()


def take(sessions: dict[str, Session], session: Session, waits: bool, sql: str, record: Record) -> None:
    """One step of one session, and what it sets free."""
    behind = not session.is_idle_within(0)
    step = session.send(sql)
    record.steps.append(step)
    if behind:
        step.waited = True
        record.events.append(f"{session.label}: behind")
        return
    if not session.is_idle_within(WAITS_S if waits else SLOW_S):
        step.waited = True
        record.events.append(f"{session.label}: waits")
        # Somebody else may be the one who has to give way to it.
        harvest([s for s in sessions.values() if s is not session], record, 0)
        return
    record.events.append(f"{session.label}: {step}")
    session.take_finished()
    releases = sql.split()[0] in ("COMMIT", "ROLLBACK") or "unlock" in sql or step.sqlstate
    harvest([s for s in sessions.values() if s is not session], record, SLOW_S if releases else 0)


def harvest(sessions: Any, record: Record, seconds: float) -> None:
    """Records the waiting steps that have come to their end, for which they get this long together."""
    deadline = time.monotonic() + seconds
    for session in sessions:
        session.is_idle_within(max(0.0, deadline - time.monotonic()))
        record.events.extend(f"{session.label}: -> {step}" for step in session.take_finished())


def tell(sessions: dict[str, Session], what: str) -> None:
    """`cancel 2`, `close 1`."""
    verb, name = what.split()
    if verb == "cancel":
        sessions[name].connection.cancel_safe(timeout=20)
    elif verb == "close":
        sessions[name].connection.pgconn.finish()
    else:
        raise ValueError(f"no such step: {what}")
