"""Temporary tables: private, transactional, in front of permanent ones of their name."""

import psycopg

from findings import case, error_of, rows


@case
def temporary_tables_hide_permanent_ones(connection):
    connection.execute("CREATE TABLE tt_hidden (a int); INSERT INTO tt_hidden VALUES (1)")
    connection.execute("CREATE TEMP TABLE tt_hidden (a int, b text)")
    connection.execute("INSERT INTO tt_hidden VALUES (%s, %s), (%s, %s)", (10, "x", 20, None))
    with psycopg.connect(autocommit=True, connect_timeout=20) as other:
        elsewhere = rows(other, "SELECT a FROM tt_hidden")
        unknown = error_of(other, "SELECT * FROM pg_temp.tt_hidden")
    both = rows(connection, "SELECT t.a, t.b, p.a FROM pg_temp.tt_hidden t, public.tt_hidden p ORDER BY t.a")
    again = error_of(connection, "CREATE TEMP TABLE tt_hidden (c int)")
    connection.execute("DROP TABLE tt_hidden")
    return elsewhere, unknown, both, again, rows(connection, "SELECT a FROM tt_hidden")


@case
def temporary_tables_are_rolled_back(connection):
    connection.execute("CREATE TEMPORARY TABLE tt_back (id serial PRIMARY KEY, v int UNIQUE)")
    connection.execute("INSERT INTO tt_back (v) VALUES (1), (2)")
    with connection.transaction():
        connection.execute("INSERT INTO tt_back (v) VALUES (3)")
        try:
            with connection.transaction():
                connection.execute("CREATE TEMP TABLE tt_inner AS SELECT v FROM tt_back")
                connection.execute("DELETE FROM tt_back WHERE v = 1")
                connection.execute("INSERT INTO tt_back (v) VALUES (4), (2)")
        except psycopg.errors.UniqueViolation as error:
            constraint = error.diag.constraint_name
        inside = rows(connection, "SELECT v FROM tt_back ORDER BY v")
    connection.execute("BEGIN; DROP TABLE tt_back; CREATE TEMP TABLE tt_back (other text); ROLLBACK")
    unknown = error_of(connection, "SELECT * FROM tt_inner")
    return constraint, inside, unknown, rows(connection, "SELECT v FROM tt_back ORDER BY v")


@case
def temporary_tables_on_commit(connection):
    connection.execute("CREATE TEMP TABLE tt_d (a int) ON COMMIT DELETE ROWS")
    with connection.transaction():
        connection.execute("CREATE TEMP TABLE tt_x (a int) ON COMMIT DROP")
        connection.execute("INSERT INTO tt_d VALUES (1)")
        connection.execute("INSERT INTO tt_x SELECT a + 1 FROM tt_d")
        inside = rows(connection, "SELECT (SELECT a FROM tt_d), (SELECT a FROM tt_x)")
    connection.execute("INSERT INTO tt_d VALUES (2)")
    return (inside, rows(connection, "SELECT count(*) FROM tt_d"), error_of(connection, "SELECT * FROM tt_x"),
            error_of(connection, "CREATE TABLE tt_no (a int) ON COMMIT DROP"))


@case
def temporary_and_permanent_tables_together(connection):
    connection.execute("CREATE TABLE tt_p (id int PRIMARY KEY, v text); INSERT INTO tt_p VALUES (1,'a'),(2,'b'),(3,'c')")
    connection.execute("CREATE TEMP TABLE tt_t (id int PRIMARY KEY, v text)")
    returned = rows(connection, "INSERT INTO tt_t SELECT id, v || '!' FROM tt_p WHERE id < 3 RETURNING id, v")
    upserted = connection.execute(
        "INSERT INTO tt_t VALUES (1, 'z') ON CONFLICT (id) DO UPDATE SET v = excluded.v || tt_t.v RETURNING v").fetchone()
    tags = [
        connection.execute("UPDATE tt_p SET v = tt_t.v FROM tt_t WHERE tt_t.id = tt_p.id").statusmessage,
        connection.execute("DELETE FROM tt_p USING tt_t WHERE tt_t.id = tt_p.id AND tt_t.v = 'b!'").statusmessage,
        connection.execute("INSERT INTO tt_p SELECT id + 10, v FROM tt_t").statusmessage,
        connection.execute("CREATE TEMP TABLE tt_c AS SELECT * FROM tt_p").statusmessage,
        connection.execute("TRUNCATE tt_t").statusmessage,
        connection.execute("CREATE INDEX tt_ci ON tt_c (v)").statusmessage,
        connection.execute("ALTER TABLE tt_c ADD COLUMN n int DEFAULT 3").statusmessage,
        connection.execute("ALTER TABLE tt_c RENAME TO tt_r").statusmessage,
    ]
    with connection.cursor() as cursor:
        with cursor.copy("COPY tt_t FROM STDIN") as copy:
            for i in range(3000):
                copy.write_row((i, f"v{i}"))
        with cursor.copy("COPY (SELECT v FROM tt_t WHERE id IN (1, 2999) ORDER BY id) TO STDOUT") as copy:
            copied = [row for row in copy.rows()]
    return (returned, upserted, tags, rows(connection, "SELECT * FROM tt_r ORDER BY id"), copied,
            rows(connection, "SELECT count(*) FROM tt_t JOIN tt_p USING (id)"))


@case
def temporary_tables_in_restricted_transactions(connection):
    connection.execute("CREATE TABLE tt_q (a int); CREATE TEMP TABLE tt_o (a int)")
    connection.execute("BEGIN READ ONLY")
    connection.execute("INSERT INTO tt_o VALUES (1)")
    found = [error_of(connection, "CREATE TEMP TABLE tt_n (a int)")]
    connection.execute("ROLLBACK")
    connection.execute("BEGIN READ ONLY")
    connection.execute("INSERT INTO tt_o VALUES (2)")
    connection.execute("UPDATE tt_o SET a = a + 1")
    connection.execute("COMMIT")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO tt_q SELECT a FROM tt_o")
    found.append(error_of(connection, "PREPARE TRANSACTION 'tt'"))
    return found, rows(connection, "SELECT a FROM tt_o"), rows(connection, "SELECT a FROM tt_q")


@case
def temporary_tables_and_prepared_statements(connection):
    connection.execute("CREATE TEMP TABLE tt_s (a int, b text)")
    for i in range(10):
        connection.execute("INSERT INTO tt_s VALUES (%s, %s)", (i, f"b{i}"), prepare=True)
    before = connection.execute("SELECT b FROM tt_s WHERE a = %s", (3,), prepare=True).fetchall()
    connection.execute("DROP TABLE tt_s; CREATE TEMP TABLE tt_s (a int, b text, c int DEFAULT 7)")
    connection.execute("INSERT INTO tt_s VALUES (%s, %s)", (3, "new"), prepare=True)
    after = connection.execute("SELECT b FROM tt_s WHERE a = %s", (3,), prepare=True).fetchall()
    with connection.pipeline():
        first = connection.execute("INSERT INTO tt_s VALUES (4, 'four') RETURNING c")
        second = connection.execute("SELECT count(*) FROM tt_s")
    return before, after, first.fetchall(), second.fetchall()


@case
def temporary_tables_in_the_catalogue(connection):
    connection.execute("CREATE TEMP TABLE tt_k (id int PRIMARY KEY, v varchar(5) NOT NULL)")
    kind = rows(connection, "SELECT relpersistence::text, relkind::text, pg_table_is_visible(oid), relnamespace ="
                            " pg_my_temp_schema() FROM pg_class WHERE relname = 'tt_k'")
    columns = rows(connection, "SELECT column_name, data_type, is_nullable, character_maximum_length FROM"
                               " information_schema.columns WHERE table_name = 'tt_k' ORDER BY ordinal_position")
    tables = rows(connection, "SELECT table_type, table_schema LIKE 'pg_temp%%' FROM information_schema.tables"
                              " WHERE table_name = 'tt_k'", ())
    with psycopg.connect(autocommit=True, connect_timeout=20) as other:
        unseen = rows(other, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'tt_k'")
    return kind, columns, tables, unseen


@case
def temporary_tables_are_discarded(connection):
    connection.execute("CREATE TEMP TABLE tt_1 (a int); CREATE TEMP TABLE tt_2 (a int)")
    connection.execute("DISCARD TEMP")
    gone = error_of(connection, "SELECT * FROM tt_1")
    connection.execute("CREATE TEMP TABLE tt_1 (a int)")
    connection.execute("DISCARD ALL")
    connection.execute("CREATE TEMP TABLE tt_3 (a int)")
    connection.execute("BEGIN; DISCARD TEMP; ROLLBACK")
    return gone, error_of(connection, "SELECT * FROM tt_1"), rows(connection, "SELECT count(*) FROM tt_3")
