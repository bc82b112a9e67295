"""Everything that is in a SQLite file, so that two files can be compared table by table.

Reads with Python's own sqlite3 module, from a copy, so that looking changes nothing.
"""

import shutil
import sqlite3
import tempfile
from pathlib import Path

# What the server keeps in a volume for itself, and what SQLite computes again.
OWN_PREFIXES = ("holdfast_", "_holdfast", "__holdfast")
COMPUTED = ("sqlite_stat1", "sqlite_stat4")
# How an index of FTS5 or R-tree is laid out in its shadow tables depends on the order of writes; what it answers does
# not, and that is compared instead.
LAYOUT = ("_data", "_idx", "_docsize", "_node", "_parent", "_rowid")


def contents(file: Path) -> dict[str, list]:
    """Table or schema part -> its rows in a fixed order. Values keep their storage class."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy.db"
        shutil.copy(file, copy)
        wal = file.with_name(file.name + "-wal")
        if wal.exists():
            shutil.copy(wal, copy.with_name("copy.db-wal"))
        connection = sqlite3.connect(copy)
        connection.text_factory = bytes  # text that is not UTF-8, or holds a zero, is compared as it is
        try:
            return _contents(connection)
        finally:
            connection.close()


def _contents(connection: sqlite3.Connection) -> dict[str, list]:
    entries = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    ours = [entry for entry in entries if not _is_own(entry[1]) and not _is_own(entry[2])]
    found: dict[str, list] = {
        "schema": sorted((kind, name, table) for kind, name, table, _ in ours),
        "user_version": connection.execute("PRAGMA user_version").fetchall(),
        "application_id": connection.execute("PRAGMA application_id").fetchall(),
    }
    virtual = {name.decode(): sql.decode().lower() for _, name, _, sql in ours if (sql or b"").startswith(b"CREATE VIRTUAL")}
    for kind, name, _, sql in ours:
        if kind == b"table" and name.decode() not in COMPUTED and not _is_layout(name.decode(), virtual):
            found[name.decode()] = _rows(connection, name.decode(), (sql or b"").decode())
    for name, sql in virtual.items():
        found[name + " (index)"] = _terms(connection, name) if "fts5" in sql else _box_check(connection, name)
    return found


def _is_layout(name: str, virtual: dict[str, str]) -> bool:
    return any(name == owner + suffix for owner in virtual for suffix in LAYOUT)


def _terms(connection: sqlite3.Connection, name: str) -> list:
    """Every instance of every term in a full-text index, after FTS5's own integrity check."""
    connection.execute(f'INSERT INTO "{name}" ("{name}") VALUES (\'integrity-check\')')
    connection.execute(f'CREATE VIRTUAL TABLE temp."terms of {name}" USING fts5vocab (main, "{name}", instance)')
    return sorted(connection.execute(f'SELECT * FROM temp."terms of {name}"').fetchall())


def _box_check(connection: sqlite3.Connection, name: str) -> list:
    """R-tree's own check of its nodes."""
    return connection.execute("SELECT rtreecheck(?)", (name,)).fetchall()


def _is_own(name: bytes) -> bool:
    return name.decode().lower().startswith(OWN_PREFIXES)


def _rows(connection: sqlite3.Connection, table: str, sql: str) -> list:
    quoted = '"' + table.replace('"', '""') + '"'
    columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_xinfo({quoted})") if row[6] != 1]
    values = ", ".join('typeof("{0}"), quote("{0}")'.format(column.replace('"', '""')) for column in columns)
    keyed = "WITHOUT ROWID" not in sql.upper() and not sql.upper().startswith("CREATE VIRTUAL")
    return sorted(connection.execute(f"SELECT {'rowid, ' if keyed else ''}{values} FROM {quoted}").fetchall(), key=repr)


def differences(expected: dict[str, list], found: dict[str, list]) -> list[str]:
    """One line for each table that differs."""
    lines = []
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            lines.append(f"{name}: only {'before' if name in expected else 'after'}")
            continue
        left, right = expected[name], found[name]
        if left != right:
            before, after = set(left), set(right)
            missing, added = [row for row in left if row not in after][:2], [row for row in right if row not in before][:2]
            lines.append(f"{name}: {len(left)} rows before, {len(right)} after; missing {missing!r:.300}; new {added!r:.300}")
    return lines
