"""Server-side cursors: named cursors of psycopg, and DECLARE and FETCH through the extended protocol."""

import psycopg
from psycopg.rows import dict_row

from findings import case, error_of, rows


def numbers(connection, table, count):
    connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, t text)")
    connection.execute(f"INSERT INTO {table} SELECT g, 'row ' || g FROM generate_series(1, {count}) g")


@case
def cursor_in_portions(connection):
    numbers(connection, "cportions", 250)
    found = []
    with connection.transaction(), connection.cursor(name="walker") as cursor:
        cursor.itersize = 40
        cursor.execute("SELECT id, t FROM cportions ORDER BY id")
        found.append([c.name for c in cursor.description])
        found.append(sum(row[0] for row in cursor))
        found.append(cursor.fetchone())
    return found


@case
def cursor_fetches(connection):
    numbers(connection, "cfetches", 20)
    with connection.transaction(), connection.cursor("c") as cursor:
        cursor.execute("SELECT id FROM cfetches ORDER BY id")
        return cursor.fetchone(), cursor.fetchmany(3), len(cursor.fetchall()), cursor.fetchall(), cursor.statusmessage


@case
def cursor_with_parameters(connection):
    numbers(connection, "cparams", 20)
    with connection.transaction(), connection.cursor("c", row_factory=dict_row) as cursor:
        cursor.execute("SELECT id, t, %s AS p FROM cparams WHERE id > %s AND t <> %s ORDER BY id", ("x'y", 17, "row 19"))
        return cursor.fetchall()


@case
def cursor_in_binary(connection):
    with connection.transaction(), connection.cursor("c", binary=True) as cursor:
        cursor.execute("SELECT g, g * 0.5::float8, g::text, NULL::bool FROM generate_series(1, 3) g")
        first = cursor.fetchone()
        return first, cursor.fetchall(), [(c.type_code, c.name) for c in cursor.description]


@case
def cursor_scrolls(connection):
    numbers(connection, "cscroll", 10)
    found = []
    with connection.transaction(), connection.cursor("c", scrollable=True) as cursor:
        cursor.execute("SELECT id FROM cscroll ORDER BY id")
        cursor.scroll(5)
        found.append(cursor.fetchone())
        cursor.scroll(-3)
        found.append(cursor.fetchone())
        cursor.scroll(0, mode="absolute")
        found.append(cursor.fetchmany(2))
        cursor.scroll(9, mode="absolute")
        found.append(cursor.fetchall())
    return found


@case
def cursor_that_does_not_scroll(connection):
    numbers(connection, "cforward", 10)
    try:
        with connection.transaction(), connection.cursor("c", scrollable=False) as cursor:
            cursor.execute("SELECT id FROM cforward ORDER BY id")
            cursor.fetchmany(3)
            cursor.scroll(-1)
        return "no error"
    except psycopg.Error as error:
        return error.sqlstate


@case
def cursor_with_hold(connection):
    numbers(connection, "chold", 10)
    with connection.cursor("h", withhold=True) as cursor:
        cursor.execute("SELECT id FROM chold ORDER BY id")
        first = cursor.fetchmany(4)
        connection.execute("DELETE FROM chold")
        rest = cursor.fetchall()
    return first, rest, error_of(connection, "FETCH h")


@case
def cursor_without_a_transaction(connection):
    try:
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT 1")
        return "no error"
    except psycopg.Error as error:
        return error.sqlstate


@case
def cursor_of_an_earlier_name(connection):
    with connection.transaction():
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT 1 AS a")
            first = cursor.fetchall()
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT 'x' AS b, 2 AS c")
            return first, cursor.fetchall()


@case
def cursor_executed_again(connection):
    with connection.transaction(), connection.cursor("c") as cursor:
        cursor.execute("SELECT 1")
        first = cursor.fetchall()
        cursor.execute("SELECT 'a', 'b'")
        return first, cursor.fetchall()


@case
def cursors_side_by_side(connection):
    numbers(connection, "cside", 100)
    with connection.transaction(), connection.cursor("a") as a, connection.cursor("b") as b:
        a.execute("SELECT id FROM cside ORDER BY id")
        b.execute("SELECT id FROM cside ORDER BY id DESC")
        return [(a.fetchone()[0], b.fetchone()[0]) for _ in range(5)]


@case
def cursor_sees_its_own_transaction(connection):
    numbers(connection, "cown", 5)
    with connection.transaction():
        connection.execute("UPDATE cown SET t = 'mine' WHERE id = 2")
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT t FROM cown WHERE id < 4 ORDER BY id")
            connection.execute("DELETE FROM cown")
            return cursor.fetchall()


@case
def cursor_sql_in_the_extended_protocol(connection):
    numbers(connection, "cext", 9)
    found = []
    with connection.transaction():
        declared = connection.execute("DECLARE c SCROLL CURSOR FOR SELECT id, t FROM cext WHERE id > %s ORDER BY 1", (4,))
        found.append(declared.statusmessage)
        for sql in ("FETCH 2 FROM c", "MOVE 1 FROM c", "FETCH c", "FETCH ALL c", "FETCH BACKWARD 2 c", "MOVE 0 c"):
            for binary in (False, True):
                cursor = connection.execute(sql, binary=binary)
                description = cursor.description and [(c.name, c.type_code) for c in cursor.description]
                found.append((cursor.statusmessage, description, cursor.fetchall() if description else None))
        found.append(connection.execute("CLOSE c", prepare=True).statusmessage)
        found.append(connection.execute("CLOSE ALL", prepare=True).statusmessage)
    return found


@case
def cursor_fetch_prepared(connection):
    numbers(connection, "cprep", 9)
    found = []
    for _ in range(2):
        with connection.transaction():
            connection.execute("DECLARE c CURSOR FOR SELECT id FROM cprep WHERE id > %s ORDER BY 1", (3,), prepare=True)
            for _ in range(2):
                found.append(rows(connection, "FETCH 2 FROM c", prepare=True))
    return found


@case
def cursor_fetch_prepared_for_other_columns(connection):
    found = []
    for query in ("SELECT 1 AS a", "SELECT 'x' AS b, 2 AS c"):
        with connection.transaction():
            connection.execute(f"DECLARE c CURSOR FOR {query}")
            found.append(rows(connection, "FETCH ALL FROM c", prepare=True))
    return found


@case
def cursor_in_pipeline_mode(connection):
    numbers(connection, "cpipe", 9)
    with connection.pipeline():
        connection.execute("BEGIN")
        declared = connection.execute("DECLARE c CURSOR FOR SELECT id, t FROM cpipe WHERE id > %s ORDER BY id", (4,))
        fetched = connection.execute("FETCH 2 FROM c")
        moved = connection.execute("MOVE 1 IN c")
        connection.execute("CLOSE c")
        connection.execute("DECLARE c CURSOR FOR VALUES (1), (2)")
        again = connection.execute("FETCH ALL FROM c")
        connection.execute("COMMIT")
    description = [c.name for c in fetched.description]
    return declared.statusmessage, fetched.fetchall(), description, moved.statusmessage, again.fetchall()


@case
def cursor_with_hold_alone_in_its_message(connection):
    numbers(connection, "calone", 9)
    connection.execute("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM calone WHERE id > %s ORDER BY id", (5,))
    found = [rows(connection, "FETCH 2 FROM h"), connection.info.transaction_status.name]
    connection.execute("BEGIN")
    found.append(rows(connection, "FETCH 1 FROM h"))
    connection.execute("ROLLBACK")
    found.append(rows(connection, "FETCH ALL FROM h"))
    return found, connection.execute("CLOSE h").statusmessage


@case
def cursor_position_of_an_error(connection):
    found = []
    for prepare in (False, True):
        try:
            connection.execute("  DECLARE c CURSOR WITH HOLD FOR SELECT missing FROM pg_class", prepare=prepare)
        except psycopg.Error as error:
            found.append((error.sqlstate, error.diag.statement_position))
    return found


@case
def cursor_errors(connection):
    found = [error_of(connection, "FETCH 1 FROM nobody"), error_of(connection, "CLOSE nobody")]
    found.append(error_of(connection, "DECLARE c CURSOR FOR SELECT 1"))
    found.append(error_of(connection, "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM missing"))
    for sql in ("DECLARE c CURSOR FOR SELECT 2", "FETCH 1 FROM nobody"):
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SELECT 1")
        found.append(error_of(connection, sql))
        found.append(error_of(connection, "FETCH c"))
        connection.execute("ROLLBACK")
    return found


@case
def cursor_where_current_of(connection):
    numbers(connection, "ccurrent", 3)
    connection.execute("BEGIN")
    connection.execute("DECLARE c CURSOR FOR SELECT id FROM ccurrent ORDER BY id FOR UPDATE")
    connection.execute("FETCH 2 FROM c")
    return error_of(connection, "DELETE FROM ccurrent WHERE CURRENT OF c")


@case
def cursor_over_many_rows(connection):
    with connection.transaction(), connection.cursor("c", scrollable=True) as cursor:
        cursor.itersize = 10_000
        cursor.execute("SELECT g, 'some text for row ' || g FROM generate_series(1, 300000) g")
        count = sum(1 for _ in cursor)
        cursor.scroll(-3)
        last = cursor.fetchall()
        cursor.scroll(150_000, mode="absolute")
        middle = cursor.fetchone()
        backward = rows(connection, "FETCH BACKWARD 1500 FROM c")
        everything = rows(connection, "FETCH ALL FROM c")
    return count, last, middle, len(backward), backward[0], backward[-1], len(everything), everything[-1]


@case
def cursor_for_update_locks(connection):
    numbers(connection, "clock", 3)
    with connection.transaction(), connection.cursor("c") as cursor:
        cursor.execute("SELECT id FROM clock ORDER BY id FOR UPDATE")
        first = cursor.fetchall()
        with psycopg.connect(autocommit=True) as other:
            return first, error_of(other, "SELECT id FROM clock WHERE id = 1 FOR UPDATE NOWAIT")
