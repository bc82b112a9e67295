"""Writes the golden data directories of a release. See README.md.

    python3 make.py HOLDFAST SCRATCH VERSION
"""

import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from holdfast import SCRATCH, Server, small  # noqa: E402

STATEMENTS = [
    "CREATE TABLE kept (id int PRIMARY KEY, n bigint, t text, b bytea, f double precision)",
    "CREATE UNIQUE INDEX kept_t ON kept (t)",
    "CREATE TABLE counted (id serial PRIMARY KEY, kept_id int REFERENCES kept (id))",
    "INSERT INTO kept SELECT g, g * 10000000000, 'text ' || g, '\\x00ff', g / 4.0 FROM generate_series(1, 100) g",
    "INSERT INTO counted (kept_id) SELECT id FROM kept WHERE id <= 10",
    "UPDATE kept SET t = 'changed ' || id WHERE id <= 5",
    "DELETE FROM kept WHERE id > 90",
]
# One row for all of it; what an intact directory answers.
QUESTION = (
    "SELECT count(*), sum(n), max(t), sum(f), (SELECT max(id) FROM counted),"
    " (SELECT count(*) FROM kept WHERE t LIKE 'changed%') FROM kept"
)
ANSWER = "90|40950000000000|text 90|1023.75|10|5"


def make(name: str, clean: bool) -> None:
    data = small(SCRATCH / "data")
    with Server(data) as server:
        server.ready()
        for statement in STATEMENTS:
            server.sql(statement)
        found = server.sql(QUESTION)
        assert found == ANSWER, found
        server.stop() if clean else server.kill()
    archive = Path(__file__).parent / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(data, arcname="data")
    print(f"{archive}: {archive.stat().st_size} bytes")
    for file in sorted(data.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    data.rmdir()


if __name__ == "__main__":
    SCRATCH.mkdir(parents=True, exist_ok=True)
    make(f"{sys.argv[3]}-stopped", clean=True)
    make(f"{sys.argv[3]}-killed", clean=False)
