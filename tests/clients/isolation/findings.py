"""How the parts report: one line a case, `part.case<TAB>finding`, in the order the cases were registered.

The same program runs against PostgreSQL and against Holdfast; the caller compares the lines. A finding that starts
with `! ` is something that must not happen on either server, and fails the case. Cases spend their time waiting, so
several run at once, each in a database that no other case uses meanwhile: on a server where one transaction may keep
every other writer of its database waiting, neighbours would disturb each other.
"""

import queue
import re
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import psycopg

DATABASES = 12
"""How many cases run at once."""

Case = Callable[[str], Any]
PARTS: dict[str, dict[str, tuple[Case, bool]]] = {}


def add(part: str, name: str, body: Case, side_by_side: bool = True) -> None:
    """Registers a case. It gets the name of a database for itself and returns what it found."""
    PARTS.setdefault(part, {})[name] = (body, side_by_side)


def connect(database: str, **options: Any) -> psycopg.Connection:
    """A connection in autocommit mode, so that every BEGIN is visible in the tests."""
    return psycopg.connect(
        dbname=database, autocommit=True, connect_timeout=30, prepare_threshold=None, **options
    )


def set_up(database: str, statements: str) -> None:
    """Runs statements that are separated by `;`. A table that an earlier case has left is dropped first."""
    with connect(database) as connection:
        connection.execute("SET statement_timeout = '30s'")
        tables = re.findall(r"CREATE TABLE (\w+)", statements)
        for table in reversed(tables):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in statements.split(";"):
            if statement.strip():
                connection.execute(statement.strip())


def run(parts: list[str]) -> None:
    """Runs the named parts, or all. PGHOST, PGPORT, PGUSER and PGDATABASE say where."""
    databases = make_databases()
    for part in parts or PARTS:
        started = time.monotonic()
        with ThreadPoolExecutor(DATABASES) as pool:
            beside = {
                name: pool.submit(finding_of, f"{part}.{name}", body, databases)
                for name, (body, side_by_side) in PARTS[part].items()
                if side_by_side
            }
            for name, (body, _) in PARTS[part].items():
                finding = beside[name].result() if name in beside else finding_of(f"{part}.{name}", body, databases)
                print(f"{part}.{name}\t{finding}".replace("\n", "\\n"), flush=True)
        print(f"  {part}: {time.monotonic() - started:.1f} s", file=sys.stderr)


def make_databases() -> queue.Queue:
    """The databases that no case uses at the moment."""
    free: queue.Queue = queue.Queue()
    with psycopg.connect(autocommit=True, connect_timeout=30) as connection:
        for number in range(DATABASES):
            name = f"{connection.info.dbname}_{number}"
            connection.execute(f"DROP DATABASE IF EXISTS {name}")
            connection.execute(f"CREATE DATABASE {name}")
            free.put(name)
    return free


def finding_of(name: str, body: Case, databases: queue.Queue) -> str:
    database = databases.get()
    try:
        return str(body(database))
    except Exception as error:  # whatever goes wrong is the finding
        print(f"{name}:", file=sys.stderr)
        traceback.print_exc(file=sys.stderr)
        return f"! {type(error).__name__}: {error}"
    finally:
        databases.put(database)
