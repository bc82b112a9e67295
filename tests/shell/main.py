"""The sqlite3 shell beside the server, and a real application's file through import, serve and a clean stop.

    python3 main.py HOLDFAST SCRATCH
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from contents import contents, differences  # noqa: E402
from holdfast import Server, case, command, run_cases, shell, volume_with  # noqa: E402

APPLICATION = Path(__file__).parent / "application.sql"
DATABASE = "player"

# What the application does while it is served. The same statements run in the shell on the original: the triggers,
# cascades, generated columns and full-text indexes have to come to the same contents.
CHANGES = [
    "INSERT INTO visit (id, place_id, visit_date, session) VALUES (100001, 7, 1800000000000000, 1)",
    "DELETE FROM visit WHERE id = 5",
    "INSERT INTO track (track_id, name, album_id, milliseconds, unit_price) VALUES (900001, 'Served running', 3, 1234, 2)",
    "UPDATE track SET rating = 5 WHERE track_id = 900001",
    "INSERT INTO album (title, artist_id) VALUES ('After the sequence', 7)",
    "INSERT INTO playlist_track VALUES (99, 1, 0.5), (99, 2, 1.5)",
    "DELETE FROM playlist_track WHERE playlist_id = 3",
    "UPDATE setting SET value = 'light' WHERE key = 'THEME'",
    "INSERT INTO play_log VALUES (1, 'served', NULL)",
    "INSERT INTO notes VALUES ('served', 'written through the server')",
    "INSERT INTO venue_box VALUES (1000, 1, 2, 3, 4, 'new venue')",
    "DELETE FROM venue_box WHERE id = 17",
    "UPDATE album_length SET title = 'Renamed by a view' WHERE title = 'Album 11'",
    "CREATE TABLE added_later (id INTEGER PRIMARY KEY, t TEXT)",
    "INSERT INTO added_later (t) VALUES ('one'), ('two')",
    "CREATE INDEX added_later_t ON added_later (t)",
    "ALTER TABLE added_later ADD COLUMN n INT DEFAULT 7",
    "DROP INDEX track_loved",
]


def application(directory: Path) -> Path:
    """The application's file, made by the shell."""
    file = directory / "player.db"
    done = shell(file, APPLICATION.read_text())
    assert done.returncode == 0, done.stderr
    return file


def imported(directory: Path) -> tuple[Path, Path]:
    """The application's file and a data directory that it was imported into."""
    file, data = application(directory), directory / "data"
    done = command("import", "--data", str(data), str(file), "--database", DATABASE)
    assert done.returncode == 0, f"import: {done.stderr or done.stdout}"
    return file, data


def assert_same(original: Path, volume: Path) -> None:
    integrity = shell(volume, "PRAGMA integrity_check; PRAGMA foreign_key_check;").stdout.strip()
    assert integrity == "ok", integrity
    found = differences(contents(original), contents(volume))
    assert not found, "\n".join(found)


@case
def import_keeps_everything(directory):
    file, data = imported(directory)
    with Server(data) as server:
        server.ready()
        assert server.sql("SELECT count(*) FROM track", DATABASE) == "8000"
        server.stop()
    assert_same(file, volume_with(data, "playlist_track"))


@case
def import_leaves_the_original_alone(directory):
    file = application(directory)
    before = file.read_bytes()
    assert command("import", "--data", str(directory / "data"), str(file), "--database", DATABASE).returncode == 0
    assert file.read_bytes() == before


@case
def imported_tables_answer_queries(directory):
    file, data = imported(directory)
    questions = [
        "SELECT count(*), sum(milliseconds), max(label) FROM track",
        "SELECT title, tracks, milliseconds FROM album_length ORDER BY title LIMIT 5",
        "SELECT rowid, name FROM track_text WHERE track_text MATCH 'run' ORDER BY rowid LIMIT 5",
        "SELECT name FROM venue_box WHERE min_x >= 3 AND max_x <= 4 ORDER BY id",
        "SELECT name FROM artist WHERE name = 'BJÖRK 4' COLLATE NOCASE OR artist_id = 1",
        "SELECT \"select\" FROM \"media type\" ORDER BY 1 LIMIT 1",
        "SELECT count(*) FROM place JOIN visit ON visit.place_id = place.id WHERE visit_count > 1",
    ]
    with Server(data) as server:
        server.ready()
        for question in questions:
            expected = shell(file, question + ";").stdout.strip()
            found = server.sql(question, DATABASE)
            assert found == expected and expected, f"{question}: {found!r} instead of {expected!r}"
        server.stop()


@case
def served_changes_equal_the_shells(directory):
    file, data = imported(directory)
    with Server(data) as server:
        server.ready()
        for change in CHANGES:
            server.sql(change, DATABASE)
        server.stop()
    done = shell(file, "".join(f"{change};\n" for change in CHANGES))
    assert done.returncode == 0, done.stderr
    assert_same(file, volume_with(data, "playlist_track"))


@case
def killed_after_vacuum_and_changes(directory):
    """VACUUM renumbers rows without an INTEGER PRIMARY KEY unless the server takes care; redo has to find them."""
    file, data = imported(directory)
    with Server(data) as server:
        server.ready()
        server.sql("DELETE FROM play_log WHERE at = 1", DATABASE)
        server.sql("VACUUM", DATABASE)
        server.sql("UPDATE play_log SET what = 'changed' WHERE at = 2", DATABASE)
        for change in CHANGES:
            server.sql(change, DATABASE)
        server.kill()
    with Server(data) as server:
        server.ready()
        server.stop()
    changes = ["DELETE FROM play_log WHERE at = 1", "UPDATE play_log SET what = 'changed' WHERE at = 2", *CHANGES]
    assert shell(file, "".join(f"{change};\n" for change in changes)).returncode == 0
    assert_same(file, volume_with(data, "playlist_track"))


@case
def shell_is_locked_out_while_served(directory):
    _, data = imported(directory)
    with Server(data) as server:
        server.ready()
        server.stop()
    volume = volume_with(data, "playlist_track")
    with Server(data) as server:
        server.ready()
        server.sql("INSERT INTO setting VALUES ('while', 'served')", DATABASE)
        for attempt in ("SELECT count(*) FROM track;", "INSERT INTO setting VALUES ('from', 'outside');", "VACUUM;"):
            done = shell(volume, attempt)
            assert done.returncode != 0 and "locked" in done.stderr, f"{attempt} {done}"
        assert server.sql("SELECT value FROM setting WHERE key = 'while'", DATABASE) == "served"
        server.stop()
    assert shell(volume, "PRAGMA integrity_check;").stdout.strip() == "ok"
    assert shell(volume, "SELECT count(*) FROM setting WHERE key = 'from';").stdout.strip() == "0"


@case
def shell_may_read_while_stopped(directory):
    _, data = imported(directory)
    with Server(data) as server:
        server.ready()
        server.stop()
    volume = volume_with(data, "playlist_track")
    assert shell(volume, "SELECT count(*) FROM track;").stdout.strip() == "8000"
    with Server(data) as server:
        server.ready()
        server.stop()


@case
def shell_writing_while_stopped_is_noticed(directory):
    _, data = imported(directory)
    with Server(data) as server:
        server.ready()
        server.stop()
    volume = volume_with(data, "playlist_track")
    assert shell(volume, "UPDATE setting SET value = 'foreign' WHERE key = 'theme';").returncode == 0
    with Server(data) as server:
        said = server.refusal()
    assert str(volume.name) in said, said
    assert "changed by another program" in said, said
    assert "import" in said and "put back" in said, f"both offers: {said}"


@case
def shell_reading_after_a_crash_loses_nothing(directory):
    """A shell's read after kill -9 checkpoints and deletes the -wal file; the next start still has every row."""
    _, data = imported(directory)
    with Server(data) as server:
        server.ready()
        for i in range(200):
            server.sql(f"INSERT INTO play_log VALUES ({i}, 'acknowledged', NULL)", DATABASE)
        server.kill()
    volume = volume_with(data, "playlist_track")  # this is the shell's read
    assert shell(volume, "PRAGMA integrity_check;").stdout.strip() == "ok"
    with Server(data) as server:
        server.ready()
        assert server.sql("SELECT count(*) FROM play_log WHERE what = 'acknowledged'", DATABASE) == "200"
        server.stop()


@case
def import_twice_under_one_name_is_refused(directory):
    file, data = imported(directory)
    done = command("import", "--data", str(data), str(file), "--database", DATABASE)
    assert done.returncode != 0 and DATABASE in done.stderr, done


if __name__ == "__main__":
    run_cases()
