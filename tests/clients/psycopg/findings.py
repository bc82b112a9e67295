"""How a client program reports: one line a case, `case<TAB>finding`.

The same program runs against PostgreSQL and against Holdfast; the caller compares the lines. A finding that starts
with `! ` is an exception nobody expected: it fails the case on either server.
"""

import sys
import traceback
from typing import Any, Callable

import psycopg

CASES: list[tuple[str, Callable[[psycopg.Connection], Any]]] = []


def case(function: Callable[[psycopg.Connection], Any]):
    """Registers a case. It gets a connection of its own in autocommit mode and returns what it found."""
    CASES.append((function.__name__, function))
    return function


def error_of(connection: psycopg.Connection, sql: str, params: Any = None) -> str:
    """Runs a statement that must fail; the finding is its SQLSTATE and the exception class a program would catch."""
    try:
        connection.execute(sql, params)
    except psycopg.Error as error:
        return f"{error.sqlstate} {type(error).__name__}"
    return "no error"


def rows(connection: psycopg.Connection, sql: str, params: Any = None, **options: Any) -> list[tuple]:
    """All rows of one query."""
    return connection.execute(sql, params, **options).fetchall()


def run() -> None:
    """Runs every registered case. PGHOST, PGPORT, PGUSER and PGDATABASE say where."""
    for name, function in CASES:
        try:
            with psycopg.connect(autocommit=True, connect_timeout=20) as connection:
                finding = repr(function(connection))
        except Exception as error:  # whatever goes wrong is the finding
            finding = f"! {type(error).__name__}: {error}"
            traceback.print_exc(file=sys.stderr)
        print(f"{name}\t{finding}".replace("\n", "\\n"), flush=True)
