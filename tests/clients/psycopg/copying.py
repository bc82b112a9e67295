"""COPY in and out: text, csv, and a copy that fails half-way."""

import psycopg

from findings import case, rows


@case
def copy_in_text(connection):
    connection.execute("CREATE TABLE cin (id int PRIMARY KEY, t text, f float8)")
    with connection.cursor() as cursor:
        with cursor.copy("COPY cin (id, t, f) FROM STDIN") as copy:
            for i in range(5000):
                copy.write_row((i, None if i % 7 == 0 else f"line\t{i}\\", i / 2))
        count = cursor.rowcount
    return count, rows(connection, "SELECT count(*), count(t), sum(f), max(t) FROM cin")


@case
def copy_in_csv(connection):
    connection.execute("CREATE TABLE ccsv (id int, t text)")
    text = 'id,t\n1,"quoted, comma"\n2,"a ""quote"""\n3,\n4,""\n'
    with connection.cursor() as cursor, cursor.copy("COPY ccsv FROM STDIN WITH (FORMAT csv, HEADER true)") as copy:
        copy.write(text)
    return rows(connection, "SELECT * FROM ccsv ORDER BY id")


@case
def copy_out_text(connection):
    connection.execute("CREATE TABLE cout (id int, t text, b bool, d bytea)")
    connection.execute("INSERT INTO cout VALUES (1, 'tab\there', true, '\\x00ff'), (2, NULL, false, NULL)")
    with connection.cursor() as cursor, cursor.copy("COPY cout TO STDOUT") as copy:
        return b"".join(copy)


@case
def copy_out_query_csv(connection):
    connection.execute("CREATE TABLE coutq (id int, t text)")
    connection.execute("INSERT INTO coutq VALUES (1, 'a,b'), (2, NULL), (3, 'say \"x\"')")
    sql = "COPY (SELECT id, t FROM coutq ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)"
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        return b"".join(copy)


@case
def copy_with_a_bad_line_keeps_nothing(connection):
    connection.execute("CREATE TABLE cbad (id int PRIMARY KEY)")
    try:
        with connection.cursor() as cursor, cursor.copy("COPY cbad FROM STDIN") as copy:
            copy.write("1\n2\nnot a number\n4\n")
        outcome = "no error"
    except psycopg.Error as error:
        outcome = error.sqlstate
    return outcome, rows(connection, "SELECT count(*) FROM cbad")


@case
def copy_given_up_by_the_client(connection):
    connection.execute("CREATE TABLE cgiven (id int PRIMARY KEY)")
    try:
        with connection.cursor() as cursor, cursor.copy("COPY cgiven FROM STDIN") as copy:
            copy.write("1\n2\n")
            raise RuntimeError("the program stops in mid-copy")
    except RuntimeError:
        outcome = "given up"
    return outcome, connection.info.transaction_status.name, rows(connection, "SELECT count(*) FROM cgiven")


@case
def copy_duplicate_key(connection):
    connection.execute("CREATE TABLE cdup (id int PRIMARY KEY)")
    try:
        with connection.cursor() as cursor, cursor.copy("COPY cdup FROM STDIN") as copy:
            copy.write("1\n1\n")
        outcome = "no error"
    except psycopg.Error as error:
        outcome = error.sqlstate
    return outcome, rows(connection, "SELECT count(*) FROM cdup")


@case
def copy_in_a_transaction(connection):
    connection.execute("CREATE TABLE ctxn (id int PRIMARY KEY)")
    with connection.transaction(force_rollback=True):
        with connection.cursor() as cursor, cursor.copy("COPY ctxn FROM STDIN") as copy:
            copy.write("1\n2\n3\n")
        inside = rows(connection, "SELECT count(*) FROM ctxn")
    return inside, rows(connection, "SELECT count(*) FROM ctxn")
