"""Transactions, savepoints, isolation, locks between two connections."""

import select

import psycopg

from findings import case, error_of, rows


@case
def commit_and_rollback(connection):
    connection.execute("CREATE TABLE txn (id int PRIMARY KEY)")
    with connection.transaction():
        connection.execute("INSERT INTO txn VALUES (1)")
    try:
        with connection.transaction():
            connection.execute("INSERT INTO txn VALUES (2)")
            raise RuntimeError("the program changes its mind")
    except RuntimeError:
        pass
    return rows(connection, "SELECT id FROM txn")


@case
def savepoints(connection):
    connection.execute("CREATE TABLE sp (id int PRIMARY KEY)")
    with connection.transaction():
        connection.execute("INSERT INTO sp VALUES (1)")
        try:
            with connection.transaction():
                connection.execute("INSERT INTO sp VALUES (2)")
                connection.execute("INSERT INTO sp VALUES (1)")
        except psycopg.errors.UniqueViolation:
            pass
        with connection.transaction():
            connection.execute("INSERT INTO sp VALUES (3)")
    return rows(connection, "SELECT id FROM sp ORDER BY id")


@case
def failed_transaction_refuses_statements(connection):
    connection.execute("BEGIN")
    first = error_of(connection, "SELECT * FROM no_such_table")
    second = error_of(connection, "SELECT 1")
    status = connection.info.transaction_status.name
    end = connection.execute("COMMIT").statusmessage
    return first, second, status, end, connection.info.transaction_status.name


@case
def transaction_status(connection):
    seen = [connection.info.transaction_status.name]
    connection.execute("BEGIN")
    seen.append(connection.info.transaction_status.name)
    connection.execute("ROLLBACK")
    seen.append(connection.info.transaction_status.name)
    return seen


@case
def uncommitted_rows_are_not_seen(connection):
    connection.execute("CREATE TABLE iso (id int PRIMARY KEY)")
    with psycopg.connect(autocommit=True) as other:
        with connection.transaction():
            connection.execute("INSERT INTO iso VALUES (1)")
            own = rows(connection, "SELECT count(*) FROM iso")
            seen_before = rows(other, "SELECT count(*) FROM iso")
        seen_after = rows(other, "SELECT count(*) FROM iso")
    return own, seen_before, seen_after


@case
def ddl_is_transactional(connection):
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE undone (id int)")
    connection.execute("INSERT INTO undone VALUES (1)")
    connection.execute("ROLLBACK")
    return error_of(connection, "SELECT * FROM undone")


@case
def several_statements_are_one_transaction(connection):
    connection.execute("CREATE TABLE oneshot (id int PRIMARY KEY)")
    failed = error_of(connection, "INSERT INTO oneshot VALUES (1); INSERT INTO oneshot VALUES (2); INSERT INTO oneshot VALUES (1)")
    return failed, rows(connection, "SELECT count(*) FROM oneshot")


@case
def read_only_transaction(connection):
    connection.execute("CREATE TABLE ro (id int)")
    connection.execute("BEGIN READ ONLY")
    refused = error_of(connection, "INSERT INTO ro VALUES (1)")
    connection.execute("ROLLBACK")
    return refused


@case
def isolation_levels_are_accepted(connection):
    connection.execute("CREATE TABLE levels (id int PRIMARY KEY, n int)")
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        connection.execute("INSERT INTO levels SELECT count(*), 1 FROM levels")
        connection.execute("COMMIT")
    return rows(connection, "SELECT * FROM levels ORDER BY id")


@case
def connection_lost_in_a_transaction_rolls_back(connection):
    connection.execute("CREATE TABLE lost (id int PRIMARY KEY)")
    other = psycopg.connect()
    other.execute("INSERT INTO lost VALUES (1)")
    other.pgconn.finish()
    # The server notices the closed socket on its own; an insert of the same key succeeds once it has.
    connection.execute("INSERT INTO lost VALUES (1)")
    return rows(connection, "SELECT count(*) FROM lost")


@case
def two_writers_take_turns(connection):
    connection.execute("CREATE TABLE turns (id int PRIMARY KEY, n int)")
    connection.execute("INSERT INTO turns VALUES (1, 0)")
    with psycopg.connect(autocommit=True) as other:
        for _ in range(50):
            with connection.transaction():
                connection.execute("UPDATE turns SET n = n + 1 WHERE id = 1")
            other.execute("UPDATE turns SET n = n + 1 WHERE id = 1")
    return rows(connection, "SELECT n FROM turns")


@case
def long_reader_neither_waits_nor_holds_up(connection):
    """A snapshot stays as it was while others write, for as long as its transaction is open."""
    connection.execute("CREATE TABLE snap (id int PRIMARY KEY)")
    connection.execute("INSERT INTO snap VALUES (1)")
    with psycopg.connect() as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = rows(reader, "SELECT count(*) FROM snap")
        for i in range(2, 50):
            connection.execute("INSERT INTO snap VALUES (%s)", (i,))
        after = rows(reader, "SELECT count(*) FROM snap")
    return before, after, rows(connection, "SELECT count(*) FROM snap")


@case
def idle_in_a_transaction_for_too_long(connection):
    connection.execute("CREATE TABLE idle (id int PRIMARY KEY)")
    with psycopg.connect() as sleeper:
        sleeper.execute("SET idle_in_transaction_session_timeout = '300ms'")
        sleeper.execute("INSERT INTO idle VALUES (1)")
        # The server speaks first: its farewell makes the socket readable.
        select.select([sleeper.fileno()], [], [], 60)
        farewell = error_of(sleeper, "SELECT 1")
    return farewell, rows(connection, "SELECT count(*) FROM idle")


@case
def lock_timeout(connection):
    connection.execute("CREATE TABLE held (id int PRIMARY KEY, n int)")
    connection.execute("INSERT INTO held VALUES (1, 0)")
    with psycopg.connect() as holder:
        holder.execute("UPDATE held SET n = 1 WHERE id = 1")
        connection.execute("SET lock_timeout = '300ms'")
        waited = error_of(connection, "UPDATE held SET n = 2 WHERE id = 1")
    return waited, rows(connection, "SELECT n FROM held")
