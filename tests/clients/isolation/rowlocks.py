"""Row locks that a query takes (FOR UPDATE and its weaker kin), table locks, advisory locks, schema changes beside
open transactions, and every way in which a wait ends other than by the holder's COMMIT or ROLLBACK."""

from functools import partial

import psycopg

from crowd import Crowd
from findings import add, connect, set_up
from scenarios import COMMIT_OR_ROLLBACK, ROWS, scenario
from sessions import Step, execute, play

rowlocks = partial(scenario, "rowlocks")

FINAL = "=   SELECT id, v FROM t ORDER BY id"

# FOR UPDATE waits for writers and then sees what they wrote.

for _mode in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
    rowlocks(
        f"for_{_mode.lower().replace(' ', '_')}_of_a_row_being_updated",
        f"""
        1   BEGIN
        1   UPDATE t SET v = 99 WHERE id = 1
        2   BEGIN
        2{'' if _mode == 'KEY SHARE' else '*'}  SELECT id, v FROM t WHERE id = 1 FOR {_mode}
        1   END
        2   SELECT id, v FROM t WHERE id = 1
        2   COMMIT
        """,
        **COMMIT_OR_ROLLBACK,
    )
rowlocks(
    "for_update_of_a_row_being_deleted",
    """
    1   BEGIN
    1   DELETE FROM t WHERE id = 1
    2   BEGIN
    2*  SELECT id, v FROM t ORDER BY id FOR UPDATE
    1   END
    2   COMMIT
    """,
    **COMMIT_OR_ROLLBACK,
)
rowlocks(
    "for_update_of_a_row_that_leaves_the_condition",
    """
    1   BEGIN
    1   UPDATE t SET v = 99 WHERE id = 1
    2   BEGIN
    2*  SELECT id, v FROM t WHERE v < 25 ORDER BY id FOR UPDATE
    1   END
    2   COMMIT
    """,
    **COMMIT_OR_ROLLBACK,
)
rowlocks(
    "for_update_under_repeatable_read",
    """
    2   BEGIN ISOLATION LEVEL REPEATABLE READ
    2   SELECT count(*) FROM t
    1   UPDATE t SET v = 99 WHERE id = 1
    2   SELECT id, v FROM t WHERE id = 2 FOR UPDATE
    2   SELECT id, v FROM t WHERE id = 1 FOR UPDATE
    2   COMMIT
    """,
)
rowlocks(
    "for_update_then_update_of_others",
    f"""
    1   BEGIN
    1   SELECT id, v FROM t WHERE id = 1 FOR UPDATE
    2*  UPDATE t SET v = v * 2 WHERE id = 1
    3   UPDATE t SET v = v * 2 WHERE id = 2
    1   UPDATE t SET v = v + 1 WHERE id = 1
    1   COMMIT
    {FINAL}
    """,
)
rowlocks(
    "for_update_of_one_table_of_a_join",
    """
    1   BEGIN
    1   SELECT t.id, u.id FROM t JOIN u ON u.t_id = t.id WHERE t.id = 1 FOR UPDATE OF t
    2   UPDATE u SET v = 1 WHERE id = 1
    2*  UPDATE t SET v = 1 WHERE id = 1
    1   COMMIT
    """,
    ROWS + "; CREATE TABLE u (id int PRIMARY KEY, t_id int, v int); INSERT INTO u VALUES (1, 1, 0), (2, 2, 0)",
)
rowlocks(
    "for_update_without_a_transaction_holds_nothing",
    """
    1   SELECT id FROM t FOR UPDATE
    2   UPDATE t SET v = 0 WHERE id = 1
    """,
)
rowlocks(
    "readers_do_not_wait_for_row_locks",
    """
    1   BEGIN
    1   SELECT id FROM t FOR UPDATE
    2   SELECT id, v FROM t ORDER BY id
    1   ROLLBACK
    """,
)
rowlocks(
    "a_share_lock_becomes_an_update",
    """
    1   BEGIN
    1   SELECT id FROM t WHERE id = 1 FOR SHARE
    2   BEGIN
    2   SELECT id FROM t WHERE id = 1 FOR SHARE
    1*  UPDATE t SET v = 11 WHERE id = 1
    2   COMMIT
    1   COMMIT
    """,
)
rowlocks(
    "savepoint_rolled_back_releases_row_locks",
    """
    1   BEGIN
    1   SELECT id FROM t WHERE id = 1 FOR UPDATE
    1   SAVEPOINT s
    1   SELECT id FROM t WHERE id = 2 FOR UPDATE
    1   ROLLBACK TO s
    2   BEGIN
    2   SELECT id FROM t WHERE id = 2 FOR UPDATE NOWAIT
    2   SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT
    2   ROLLBACK
    1   COMMIT
    """,
)
rowlocks(
    "skip_locked",
    """
    1   BEGIN
    1   SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    2   BEGIN
    2   SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    3   SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED
    2   ROLLBACK
    3   SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED
    1   DELETE FROM t WHERE id = 1
    1   COMMIT
    3   SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    """,
)


def every_pair(database: str) -> str:
    """What one session may do to a row while another holds it: each mode and command against each."""
    actions = {
        "FOR KEY SHARE": "SELECT id FROM t WHERE id = 1 FOR KEY SHARE{nowait}",
        "FOR SHARE": "SELECT id FROM t WHERE id = 1 FOR SHARE{nowait}",
        "FOR NO KEY UPDATE": "SELECT id FROM t WHERE id = 1 FOR NO KEY UPDATE{nowait}",
        "FOR UPDATE": "SELECT id FROM t WHERE id = 1 FOR UPDATE{nowait}",
        "UPDATE": "UPDATE t SET v = 11 WHERE id = 1",
        "UPDATE key": "UPDATE t SET id = 9 WHERE id = 1",
        "DELETE": "DELETE FROM t WHERE id = 1",
    }
    set_up(database, ROWS)
    found = []
    with connect(database) as holder, connect(database) as other:
        other.execute("SET lock_timeout = '50ms'")
        for held, held_sql in actions.items():
            outcomes = []
            for sql in actions.values():
                steps = [Step("", held_sql.format(nowait="")), Step("", sql.format(nowait=" NOWAIT"))]
                for connection, step in zip((holder, other), steps):
                    connection.execute("BEGIN")
                    execute(connection, step)
                other.execute("ROLLBACK")
                holder.execute("ROLLBACK")
                outcomes.append(steps[0].sqlstate or steps[1].sqlstate or "ok")
            found.append(f"{held}: {' '.join(outcomes)}")
    return "; ".join(found)


add("rowlocks", "every_pair_of_holder_and_comer", every_pair)

# Ends of waits.

DEADLOCK = """
    1   BEGIN
    2   BEGIN
    1   UPDATE t SET v = v + 1 WHERE id = 1
    2   UPDATE t SET v = v + 2 WHERE id = 2
    1*  UPDATE t SET v = v + 1 WHERE id = 2
    2*  UPDATE t SET v = v + 2 WHERE id = 1
    2   COMMIT
    1   COMMIT
    =   SELECT id, v FROM t WHERE id < 3 ORDER BY id
"""


def deadlock(script: str, tables: str, outcomes: dict):
    """Either may be the victim; the other one goes on and its work is there, whole."""

    def run(database: str) -> str:
        set_up(database, tables)
        record = play(database, script)
        survivors = [session for session in (1, 2) if record.committed(session)]
        states = sorted(set(record.states()) - {"25P02"})
        if len(survivors) != 1 or record.after[0] != outcomes[survivors[0]]:
            return f"survivors {survivors}, {states} | {record}"
        return f"one goes on, the other has {states}"

    return run


add("rowlocks", "deadlock", deadlock(DEADLOCK, ROWS, {1: [(1, 11), (2, 21)], 2: [(1, 12), (2, 22)]}))
add(
    "rowlocks",
    "deadlock_over_keys",
    deadlock(
        DEADLOCK.replace("UPDATE t SET v = v + 1 WHERE id = ", "INSERT INTO t (v, id) SELECT 1, ").replace(
            "UPDATE t SET v = v + 2 WHERE id = ", "INSERT INTO t (v, id) SELECT 2, "
        ),
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        {1: [(1, 1), (2, 1)], 2: [(1, 2), (2, 2)]},
    ),
)
add(
    "rowlocks",
    "deadlock_over_for_update",
    deadlock(
        """
        1   BEGIN
        2   BEGIN
        1   SELECT v FROM t WHERE id = 1 FOR SHARE
        2   SELECT v FROM t WHERE id = 1 FOR SHARE
        1*  UPDATE t SET v = 11 WHERE id = 1
        2*  UPDATE t SET v = 12 WHERE id = 1
        2   COMMIT
        1   COMMIT
        =   SELECT id, v FROM t WHERE id = 1
        """,
        ROWS,
        {1: [(1, 11)], 2: [(1, 12)]},
    ),
)

for _name, _begin in {"in_a_transaction": "2   BEGIN", "in_autocommit": ""}.items():
    for _limit in ("lock_timeout", "statement_timeout"):
        rowlocks(
            f"{_limit}.{_name}",
            f"""
            1   BEGIN
            1   UPDATE t SET v = 99 WHERE id = 1
            2   SET {_limit} = '500ms'
            {_begin}
            2   UPDATE t SET v = 0 WHERE id = 1
            2   ROLLBACK
            2   SELECT v FROM t WHERE id = 1
            2   UPDATE t SET v = 0 WHERE id = 2
            1   COMMIT
            {FINAL}
            """,
        )
    rowlocks(
        f"cancel_while_waiting.{_name}",
        f"""
        1   BEGIN
        1   UPDATE t SET v = 99 WHERE id = 1
        {_begin}
        2*  UPDATE t SET v = 0 WHERE id = 1
        !   cancel 2
        2   ROLLBACK
        2   UPDATE t SET v = 0 WHERE id = 2
        1   COMMIT
        {FINAL}
        """,
    )
rowlocks(
    "lock_timeout_undoes_only_to_the_savepoint",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 99 WHERE id = 1
    2   SET lock_timeout = '300ms'
    2   BEGIN
    2   UPDATE t SET v = 21 WHERE id = 2
    2   SAVEPOINT s
    2   UPDATE t SET v = 0 WHERE id = 1
    2   ROLLBACK TO s
    2   UPDATE t SET v = 31 WHERE id = 3
    2   COMMIT
    1   COMMIT
    {FINAL}
    """,
)
rowlocks(
    "the_holder_disconnects",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 99 WHERE id = 1
    2*  UPDATE t SET v = v + 1 WHERE id = 1
    !   close 1
    {FINAL}
    """,
)
rowlocks(
    "a_waiter_disconnects",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 99 WHERE id = 1
    2   BEGIN
    2   UPDATE t SET v = 21 WHERE id = 2
    3*  UPDATE t SET v = v * 2 WHERE id = 2
    !   close 2
    1   COMMIT
    {FINAL}
    """,
)

# Tables.

for _mode, _star in {
    "ROW EXCLUSIVE": "",
    "SHARE": "*",
    "SHARE ROW EXCLUSIVE": "*",
    "EXCLUSIVE": "*",
    "ACCESS EXCLUSIVE": "*",
}.items():
    rowlocks(
        f"lock_table_in_{_mode.lower().replace(' ', '_')}_mode",
        f"""
        1   BEGIN
        1   LOCK TABLE t IN {_mode} MODE
        2{'*' if _mode == 'ACCESS EXCLUSIVE' else ''}   SELECT count(*) FROM t
        3{_star}   UPDATE t SET v = 11 WHERE id = 1
        1   UPDATE t SET v = 21 WHERE id = 2
        1   COMMIT
        {FINAL}
        """,
    )
rowlocks(
    "lock_table_waits_for_writers",
    """
    1   BEGIN
    1   UPDATE t SET v = 11 WHERE id = 1
    2   BEGIN
    2   LOCK TABLE t IN SHARE MODE NOWAIT
    2   ROLLBACK
    2   BEGIN
    2   LOCK TABLE t IN ROW EXCLUSIVE MODE NOWAIT
    2*  LOCK TABLE t IN EXCLUSIVE MODE
    1   COMMIT
    2   SELECT v FROM t WHERE id = 1
    2   COMMIT
    """,
)
for _name, _statement in {
    "add_a_column": "ALTER TABLE t ADD COLUMN w int",
    "truncate": "TRUNCATE t",
    "create_an_index": "CREATE INDEX t_v ON t (v)",
    "drop_the_table": "DROP TABLE t",
}.items():
    rowlocks(
        f"schema_change_waits_for_writers.{_name}",
        f"""
        1   BEGIN
        1   UPDATE t SET v = 11 WHERE id = 1
        2*  {_statement}
        1   COMMIT
        2   SELECT count(*) FROM t WHERE v = 11
        """,
    )


def tables_come_and_go(database: str) -> str:
    """Schema changes without a pause, one's own tables in one database and in several: nobody's is a deadlock."""
    crowd = Crowd(database, seconds=2)
    names = [f"{database}_{number}" for number in range(6)]
    with connect(database) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name}")
            connection.execute(f"CREATE DATABASE {name}")

    def come_and_go(connection: psycopg.Connection, number: int) -> None:
        connection.execute(f"DROP TABLE IF EXISTS own_{number}")
        connection.execute(f"CREATE TABLE own_{number} (id int PRIMARY KEY)")
        connection.execute(f"INSERT INTO own_{number} VALUES (1), (2)")
        connection.execute(f"ALTER TABLE own_{number} ADD COLUMN v int")

    def elsewhere(_: psycopg.Connection, number: int) -> None:
        with connect(names[number % len(names)]) as connection:
            come_and_go(connection, number)

    crowd.add(come_and_go, 4)
    crowd.add(elsewhere, len(names))
    return f"errors {crowd.run()}"


add("rowlocks", "tables_come_and_go", tables_come_and_go)
rowlocks(
    "schema_change_of_another_table",
    """
    1   BEGIN
    1   UPDATE t SET v = 11 WHERE id = 1
    2   CREATE TABLE other (id int)
    2   DROP TABLE other
    1   COMMIT
    """,
)

# Advisory locks.

rowlocks(
    "advisory_lock_of_a_session",
    """
    1   SELECT pg_advisory_lock(7)
    2   SELECT pg_try_advisory_lock(7), pg_try_advisory_lock(8)
    2*  SELECT pg_advisory_lock(7)
    1   BEGIN
    1   COMMIT
    1   SELECT pg_advisory_unlock(7)
    1   SELECT pg_try_advisory_lock(7)
    2   SELECT pg_advisory_unlock(7), pg_advisory_unlock(8)
    1   SELECT pg_advisory_unlock(7)
    """,
)
rowlocks(
    "advisory_lock_of_a_transaction",
    """
    1   BEGIN
    1   SELECT pg_advisory_xact_lock(7)
    2*  SELECT pg_advisory_xact_lock(7)
    1   COMMIT
    1   SELECT pg_try_advisory_xact_lock(7)
    """,
)
rowlocks(
    "advisory_locks_shared_and_by_pairs",
    """
    1   SELECT pg_advisory_lock_shared(7)
    2   SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock(7)
    1   SELECT pg_advisory_lock(1, 2)
    2   SELECT pg_try_advisory_lock(1, 2), pg_try_advisory_lock(2, 1), pg_try_advisory_lock(4294967298)
    2*  SELECT pg_advisory_lock(1, 2)
    !   close 1
    """,
)
