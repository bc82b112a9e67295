"""pg_stat_activity, pg_locks and pg_blocking_pids: what one connection is shown of another."""

import threading
import time

import psycopg

from findings import case, rows

SHOWN = """
    SELECT state, wait_event_type, wait_event, xact_start IS NOT NULL, query_start >= backend_start,
           state_change >= query_start, backend_xid IS NOT NULL, query
    FROM pg_stat_activity WHERE pid = %s
"""
WAIT_S_MAX = 20


def other():
    return psycopg.connect("", autocommit=True)


def shown(connection, pid):
    return connection.execute(SHOWN, [pid]).fetchall()


def until(look, wanted):
    """Looks again until it is as wanted, or time is up; returns what was seen last."""
    end = time.monotonic() + WAIT_S_MAX
    while not wanted(seen := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return seen


@case
def states(connection):
    connection.execute("CREATE TABLE act (id int PRIMARY KEY, v int)")
    seen = []
    with other() as watched:
        pid = watched.info.backend_pid
        statements = [
            "SELECT 1",
            "BEGIN",
            "SELECT count(*) FROM act",
            "INSERT INTO act VALUES (1, 1)",
            "SELECT 1 / 0",
            "ROLLBACK",
        ]
        for statement in statements:
            try:
                watched.execute(statement)
            except psycopg.errors.DivisionByZero:
                pass
            seen.append(until(lambda: shown(connection, pid), lambda found: found and found[0][2]))
    seen.append(until(lambda: shown(connection, pid), lambda found: not found))
    return seen


@case
def oneself(connection):
    return rows(
        connection,
        """SELECT state, wait_event, datname = current_database(), usename = current_user, client_port > 0,
                  backend_type, xact_start = now(), query_start <= clock_timestamp()
           FROM pg_stat_activity WHERE pid = pg_backend_pid()""",
    )


@case
def where_from(connection):
    own = "SELECT application_name, client_addr FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    seen = [[str(value) for value in connection.execute(own).fetchone()]]
    connection.execute("SET application_name = 'till 7'")
    seen.append([str(value) for value in connection.execute(own).fetchone()])
    connection.execute("BEGIN")
    connection.execute("SET application_name = 'till 8'")
    connection.execute("ROLLBACK")
    seen.append([str(value) for value in connection.execute(own).fetchone()])
    with psycopg.connect("", application_name="till 9") as named:
        seen.append([str(value) for value in named.execute(own).fetchone()])
    return seen


def waiting(connection, holds, waits):
    """What is shown of a session whose statement waits for one that has run the statements it holds something by."""
    with other() as holder, other() as waiter:
        for statement in holds:
            holder.execute(statement)
        pid, blocker = waiter.info.backend_pid, holder.info.backend_pid
        thread = threading.Thread(target=lambda: waiter.execute(waits))
        thread.start()
        lock = until(
            lambda: connection.execute(
                "SELECT state, wait_event_type, wait_event, query FROM pg_stat_activity WHERE pid = %s", [pid]
            ).fetchall(),
            lambda found: found and found[0][1] == "Lock",
        )
        by = connection.execute("SELECT pg_blocking_pids(%s)", [pid]).fetchone()[0]
        nobody = connection.execute("SELECT pg_blocking_pids(%s)", [blocker]).fetchone()[0]
        ungranted = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", [pid]
        ).fetchone()[0]
        holder.execute("ROLLBACK")
        holder.execute("SELECT pg_advisory_unlock_all()")
        thread.join(WAIT_S_MAX)
        free = connection.execute("SELECT pg_blocking_pids(%s)", [pid]).fetchone()[0]
        return lock, by == [blocker], nobody, ungranted, free


@case
def waits_for_a_row(connection):
    connection.execute("CREATE TABLE act_row (id int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO act_row VALUES (1, 1)")
    update = "UPDATE act_row SET v = v + 1 WHERE id = 1"
    return waiting(connection, ["BEGIN", update], update)


@case
def waits_for_a_key(connection):
    connection.execute("CREATE TABLE act_key (id int PRIMARY KEY)")
    return waiting(
        connection,
        ["BEGIN", "INSERT INTO act_key VALUES (1)"],
        "INSERT INTO act_key VALUES (1)",
    )


@case
def waits_for_a_table(connection):
    connection.execute("CREATE TABLE act_table (id int PRIMARY KEY)")
    return waiting(
        connection,
        ["BEGIN", "LOCK TABLE act_table IN SHARE MODE"],
        "INSERT INTO act_table VALUES (1)",
    )


@case
def waits_for_an_advisory_lock(connection):
    return waiting(connection, ["SELECT pg_advisory_lock(99)"], "SELECT pg_advisory_lock(99)")


@case
def a_chain_of_waits(connection):
    connection.execute("CREATE TABLE act_chain (id int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO act_chain VALUES (1, 1), (2, 1)")
    update = "UPDATE act_chain SET v = v + 1 WHERE id = %s"
    with other() as first, other() as second, other() as third:
        pids = [c.info.backend_pid for c in (first, second, third)]
        first.execute("BEGIN")
        first.execute(update, [1])
        second.execute("BEGIN")
        second.execute(update, [2])

        def blockers():
            return [connection.execute("SELECT pg_blocking_pids(%s)", [p]).fetchone()[0] for p in pids]

        threads = []
        for blocked, row in ((second, 1), (third, 2)):
            threads.append(threading.Thread(target=lambda b=blocked, r=row: b.execute(update, [r])))
            threads[-1].start()
            until(blockers, lambda seen: sum(map(bool, seen)) == len(threads))
        seen = blockers() == [[], [pids[0]], [pids[1]]]
        first.execute("COMMIT")
        threads[0].join(WAIT_S_MAX)
        second.execute("COMMIT")
        threads[1].join(WAIT_S_MAX)
        return seen, rows(connection, "SELECT id, v FROM act_chain ORDER BY id")
