"""pg_cancel_backend and pg_terminate_backend: what a session gets in each state that it can be in."""

import threading

import psycopg

from activity import other, until
from findings import case, rows


def state_of(connection, pid, wanted):
    """Waits until the session is shown in this state, or with this kind of wait."""
    look = lambda: connection.execute(
        "SELECT state, wait_event_type FROM pg_stat_activity WHERE pid = %s", [pid]
    ).fetchall()
    return until(look, lambda found: found and wanted in found[0])


def gone(connection, pid):
    count = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    return until(lambda: connection.execute(count, [pid]).fetchone()[0], lambda n: n == 0)


def outcome(error):
    return None if error is None else [error.sqlstate, str(error).splitlines()[0]]


def during(connection, signal, statement, wanted, before=()):
    """What a statement ends with when its session is signalled while it runs; and whether the session still works."""
    target = other()
    pid = target.info.backend_pid
    for line in before:
        target.execute(line)
    failed = []

    def work():
        try:
            target.execute(statement)
            failed.append(None)
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    state_of(connection, pid, wanted)
    answered = connection.execute(f"SELECT {signal}(%s)", [pid]).fetchone()[0]
    thread.join(20)
    try:
        works = target.execute("SELECT 1").fetchone()[0]
    except psycopg.Error as error:
        works = error.sqlstate
    target.close()
    return answered, outcome(failed[0]), works, gone(connection, pid)


SIGNALS = ["pg_cancel_backend", "pg_terminate_backend"]


@case
def signal_running(connection):
    return [during(connection, s, "SELECT pg_sleep(60)", "active") for s in SIGNALS]


@case
def signal_running_in_a_transaction(connection):
    return [during(connection, s, "SELECT pg_sleep(60)", "active", ["BEGIN"]) for s in SIGNALS]


@case
def signal_waiting_for_a_lock(connection):
    connection.execute("CREATE TABLE sig (id int PRIMARY KEY, v int); INSERT INTO sig VALUES (1, 1)")
    seen = []
    with other() as holder:
        holder.execute("BEGIN; UPDATE sig SET v = 2")
        for s in SIGNALS:
            seen.append(during(connection, s, "UPDATE sig SET v = 3", "Lock"))
            seen.append(during(connection, s, "UPDATE sig SET v = 3", "Lock", ["BEGIN"]))
        holder.execute("ROLLBACK")
    return seen, rows(connection, "SELECT v FROM sig")


@case
def signal_waiting_for_an_advisory_lock(connection):
    with other() as holder:
        holder.execute("SELECT pg_advisory_lock(7)")
        return [during(connection, s, "SELECT pg_advisory_lock(7)", "Lock") for s in SIGNALS]


def between(connection, signal, before, then):
    """What the next statement of a session gets that was signalled between two statements."""
    target = other()
    pid = target.info.backend_pid
    for line in before:
        target.execute(line)
    state_of(connection, pid, "Client")
    answered = connection.execute(f"SELECT {signal}(%s)", [pid]).fetchone()[0]
    if signal == "pg_terminate_backend":
        gone(connection, pid)
    try:
        seen = [answered, target.execute(then).fetchall()]
    except psycopg.Error as error:
        seen = [answered, error.sqlstate]
    target.close()
    return seen


@case
def signal_idle(connection):
    return [between(connection, s, [], "SELECT 1") for s in SIGNALS]


@case
def signal_idle_in_a_transaction(connection):
    connection.execute("CREATE TABLE sig_idle (id int)")
    seen = [
        between(connection, s, ["BEGIN", "INSERT INTO sig_idle VALUES (1)"], "SELECT count(*) FROM sig_idle")
        for s in SIGNALS
    ]
    return seen, rows(connection, "SELECT count(*) FROM sig_idle")


@case
def signal_in_copy(connection):
    connection.execute("CREATE TABLE sig_copy (id int)")
    seen = []
    for signal in SIGNALS:
        target = other()
        pid = target.info.backend_pid
        try:
            with target.cursor() as cursor, cursor.copy("COPY sig_copy FROM STDIN") as copy:
                copy.write("1\n")
                state_of(connection, pid, "Client")
                seen.append(connection.execute(f"SELECT {signal}(%s)", [pid]).fetchone()[0])
                if signal == "pg_terminate_backend":
                    gone(connection, pid)
                copy.write("2\n")
            seen.append("done")
        except psycopg.Error as error:
            seen.append(error.sqlstate)
        target.close()
    return seen, rows(connection, "SELECT count(*) FROM sig_copy")


@case
def signal_no_such_session(connection):
    return [connection.execute(f"SELECT {s}(2147483647)").fetchone()[0] for s in SIGNALS]


@case
def signal_waits_until_it_has_ended(connection):
    target = other()
    pid = target.info.backend_pid
    answered = connection.execute("SELECT pg_terminate_backend(%s, 20000)", [pid]).fetchone()[0]
    left = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()[0]
    target.close()
    return answered, left, connection.execute("SELECT pg_terminate_backend(2147483647, 100)").fetchone()[0]


@case
def signal_a_time_below_zero(connection):
    try:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid(), -1)")
    except psycopg.Error as error:
        return outcome(error)


@case
def signal_oneself(connection):
    with other() as target:
        try:
            target.execute("SELECT pg_cancel_backend(pg_backend_pid())")
            cancelled = None
        except psycopg.Error as error:
            cancelled = outcome(error)
    target = other()
    try:
        target.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        target.execute("SELECT 1")
        ended = None
    except psycopg.Error as error:
        ended = error.sqlstate
    target.close()
    return cancelled, ended


@case
def signal_all_but_oneself(connection):
    targets = [other(), other()]
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sig' AND pid <> pg_backend_pid()"
    for target in targets:
        target.execute("SET application_name = 'sig'")
    seen = rows(connection, sql)
    left = [gone(connection, target.info.backend_pid) for target in targets]
    for target in targets:
        target.close()
    return seen, left


@case
def signal_null_arguments(connection):
    return rows(connection, "SELECT pg_cancel_backend(NULL), pg_terminate_backend(NULL)")
