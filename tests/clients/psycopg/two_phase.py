"""Two-phase commit, through the driver's own calls and through SQL."""

import psycopg

from findings import case, error_of, rows


def other() -> psycopg.Connection:
    return psycopg.connect(autocommit=True, connect_timeout=20)


def prepared(connection) -> list[tuple]:
    return rows(connection, "SELECT gid, owner = current_user, database = current_database() FROM pg_prepared_xacts"
                            " ORDER BY gid")


@case
def tpc_commit_from_another_connection(connection):
    connection.execute("CREATE TABLE tpc (id int PRIMARY KEY, v int)")
    first = psycopg.connect(connect_timeout=20)
    first.tpc_begin(first.xid(1, "global", "branch"))
    first.execute("INSERT INTO tpc VALUES (1, 10)")
    first.tpc_prepare()
    first.close()
    unseen = rows(connection, "SELECT * FROM tpc")
    with other() as second:
        found = second.tpc_recover()
        names = [(x.format_id, x.gtrid, x.bqual) for x in found]
        connection.execute("SET lock_timeout = '200ms'")
        waits = error_of(connection, "INSERT INTO tpc VALUES (1, 11)")
        second.tpc_commit(found[0])
        again = second.tpc_recover()
    return unseen, names, waits, rows(connection, "SELECT * FROM tpc"), again


@case
def tpc_rollback(connection):
    connection.execute("CREATE TABLE tpc_r (id int PRIMARY KEY)")
    with psycopg.connect(connect_timeout=20) as first:
        first.tpc_begin(first.xid(1, "r", "b"))
        first.execute("INSERT INTO tpc_r VALUES (1)")
        first.tpc_prepare()
        first.tpc_rollback()
        first.tpc_begin(first.xid(1, "r", "b"))
        first.execute("INSERT INTO tpc_r VALUES (2)")
        first.tpc_commit()
    return rows(connection, "SELECT * FROM tpc_r")


@case
def through_sql(connection):
    connection.execute("CREATE TABLE two_p (id int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO two_p VALUES (1, 10), (2, 20)")
    with connection.transaction():
        connection.execute("UPDATE two_p SET v = 21 WHERE id = 2")
    connection.execute("BEGIN")
    connection.execute("UPDATE two_p SET v = 11 WHERE id = 1")
    status = connection.execute("PREPARE TRANSACTION 'it''s one'").statusmessage
    seen = prepared(connection)
    used = error_of(connection, "BEGIN; PREPARE TRANSACTION 'it''s one'")
    connection.execute("SET lock_timeout = '200ms'")
    locked = error_of(connection, "UPDATE two_p SET v = 0 WHERE id = 1")
    free = connection.execute("UPDATE two_p SET v = 22 WHERE id = 2").statusmessage
    end = connection.execute("COMMIT PREPARED 'it''s one'").statusmessage
    gone = error_of(connection, "ROLLBACK PREPARED 'it''s one'")
    return status, seen, used, locked, free, end, gone, rows(connection, "SELECT * FROM two_p ORDER BY id")


@case
def where_it_may_stand(connection):
    outside = error_of(connection, "PREPARE TRANSACTION 'nobody'")
    connection.execute("BEGIN")
    inside = error_of(connection, "COMMIT PREPARED 'nobody'")
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    error_of(connection, "SELECT 1/0")
    failed = connection.execute("PREPARE TRANSACTION 'failed'").statusmessage
    connection.execute("BEGIN")
    connection.execute("DECLARE c CURSOR WITH HOLD FOR SELECT 1")
    held = error_of(connection, "PREPARE TRANSACTION 'held'")
    status = connection.info.transaction_status.name
    long = error_of(connection, "COMMIT PREPARED '" + "x" * 200 + "'")
    return outside, inside, failed, held, status, long, prepared(connection)


@case
def one_that_only_read(connection):
    connection.execute("BEGIN")
    connection.execute("SELECT 1")
    connection.execute("PREPARE TRANSACTION 'read'")
    seen = prepared(connection)
    connection.execute("COMMIT PREPARED 'read'")
    return seen, prepared(connection)


@case
def checks_come_with_prepare(connection):
    connection.execute("CREATE TABLE par (id int PRIMARY KEY)")
    connection.execute("CREATE TABLE chi (p int REFERENCES par DEFERRABLE INITIALLY DEFERRED)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO chi VALUES (1)")
    refused = error_of(connection, "PREPARE TRANSACTION 'orphan'")
    return refused, connection.info.transaction_status.name, prepared(connection), rows(connection, "SELECT * FROM chi")


@case
def locks_of_prepared_ones_and_cycles(connection):
    connection.execute("CREATE TABLE cyc (id int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO cyc VALUES (1, 0), (2, 0)")
    connection.execute("BEGIN")
    connection.execute("UPDATE cyc SET v = 1 WHERE id = 1")
    connection.execute("PREPARE TRANSACTION 'cyc'")
    # The same client waits for what it prepared: no cycle, nobody will end it but the clock.
    connection.execute("SET lock_timeout = '300ms'")
    waits = error_of(connection, "UPDATE cyc SET v = 2 WHERE id = 1")
    pids = rows(connection, "SELECT DISTINCT pid FROM pg_locks WHERE locktype IN ('relation', 'tuple') AND pid IS NULL"
                            " AND granted")
    connection.execute("ROLLBACK PREPARED 'cyc'")
    return waits, pids, connection.execute("UPDATE cyc SET v = 2 WHERE id = 1").statusmessage
