"""Scripts as cases: a set-up, an interleaving, and the record of its steps as the finding."""

from findings import add, set_up
from sessions import play

ROWS = """
    CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)
"""

FAMILY = """
    CREATE TABLE parent (id int PRIMARY KEY, name text NOT NULL);
    CREATE TABLE child (id int PRIMARY KEY, parent_id int NOT NULL REFERENCES parent (id));
    INSERT INTO parent VALUES (1, 'one'), (2, 'two')
"""


def scenario(
    part: str, name: str, script: str, tables: str = ROWS, extended: bool = False, **ends: str
) -> None:
    """Registers a script. With `ends` (name=statement) one case for each, `END` in the script being the statement."""

    def body(text: str):
        def run(database: str) -> str:
            set_up(database, tables)
            return str(play(database, text, extended=extended))

        return run

    if not ends:
        add(part, name, body(script))
    for end, statement in ends.items():
        add(part, f"{name}.{end}", body(script.replace("END", statement)))


COMMIT_OR_ROLLBACK = {"commit": "COMMIT", "rollback": "ROLLBACK"}
