"""Every type comes back as the Python type a program expects, by text and by binary transfer, with the right OID."""

import datetime as dt
import decimal
import uuid

from findings import case


def both_formats(connection, sql, params=None):
    """The row, its Python types and the columns' OIDs; text and binary must agree."""
    found = []
    for binary in (False, True):
        cursor = connection.execute(sql, params, binary=binary)
        row = cursor.fetchone()
        found.append((row, [type(v).__name__ for v in row], [c.type_code for c in cursor.description]))
    return found[0] if found[0] == found[1] else {"text": found[0], "binary": found[1]}


def stored(connection, table, declared, value):
    """A value through a column of a declared type and back, as text and as binary parameters."""
    connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v {declared})")
    connection.execute(f"INSERT INTO {table} VALUES (1, %t), (2, NULL)", (value,))
    connection.execute(f"INSERT INTO {table} VALUES (3, %b)", (value,))
    equal = connection.execute(f"SELECT count(*) FROM {table} WHERE v = %s", (value,)).fetchone()
    second = connection.execute(f"SELECT v FROM {table} WHERE id = 3").fetchone()
    return both_formats(connection, f"SELECT v FROM {table} WHERE id = 1"), second, equal


@case
def literals(connection):
    return both_formats(connection, "SELECT 1, 2147483648, 'text', NULL, true, 1.5, 1e3")


@case
def integer_columns(connection):
    connection.execute("CREATE TABLE ints (a smallint, b int, c bigint)")
    connection.execute("INSERT INTO ints VALUES (%s, %s, %s)", (-32768, 2147483647, -9223372036854775808))
    return both_formats(connection, "SELECT a, b, c FROM ints")


@case
def integer_arithmetic(connection):
    return both_formats(connection, "SELECT 7 / 2, 7 % 3, 2 + 3 * 4, -5, 1::bigint + 1")


@case
def aggregates(connection):
    connection.execute("CREATE TABLE agg (a int, b bigint, f float8, t text)")
    connection.execute("INSERT INTO agg VALUES (1, 10, 0.5, 'x'), (2, 20, 1.5, 'y')")
    return both_formats(connection, "SELECT count(*), sum(a), max(b), min(t), sum(f), avg(f), count(t) FROM agg")


@case
def aggregate_of_bigint_is_numeric(connection):
    connection.execute("CREATE TABLE aggn (b bigint)")
    connection.execute("INSERT INTO aggn VALUES (9223372036854775807), (1)")
    return both_formats(connection, "SELECT sum(b) FROM aggn")


@case
def average_of_int_is_numeric(connection):
    connection.execute("CREATE TABLE avgi (a int)")
    connection.execute("INSERT INTO avgi VALUES (1), (2)")
    return both_formats(connection, "SELECT avg(a) FROM avgi")


@case
def aggregate_of_nothing(connection):
    connection.execute("CREATE TABLE nothing (a int)")
    return both_formats(connection, "SELECT count(*), sum(a), max(a) FROM nothing")


@case
def casts(connection):
    return both_formats(connection, "SELECT '42'::int, 42::text, '1.25'::float8, 't'::bool, CAST('7' AS bigint)")


@case
def conditions(connection):
    return both_formats(connection, "SELECT 1 = 1, 1 > 2, 'a' LIKE 'A', NOT true, NULL IS NULL, 1 IN (1, 2)")


@case
def text_functions(connection):
    return both_formats(connection, "SELECT upper('abc'), length('äöü'), 'a' || 'b', substring('hello' from 2 for 3)")


@case
def coalesce_and_case(connection):
    return both_formats(connection, "SELECT coalesce(NULL, 5), CASE WHEN true THEN 'y' ELSE 'n' END, nullif(1, 1)")


@case
def typed_parameters(connection):
    return both_formats(connection, "SELECT %s::int, %s::text, %s::bool", (5, "five", True))


@case
def text_column(connection):
    return stored(connection, "t_text", "text", "naïve ☃")


@case
def varchar_column(connection):
    return stored(connection, "t_varchar", "varchar(20)", "short")


@case
def bool_column(connection):
    return stored(connection, "t_bool", "boolean", True)


@case
def bytea_column(connection):
    return stored(connection, "t_bytea", "bytea", b"\x00\x01\xfe\xff bytes")


@case
def float_column(connection):
    return stored(connection, "t_float", "double precision", 0.1)


@case
def numeric_column(connection):
    return stored(connection, "t_numeric", "numeric(30,10)", decimal.Decimal("12345678901234567890.0123456789"))


@case
def date_column(connection):
    return stored(connection, "t_date", "date", dt.date(2024, 2, 29))


@case
def timestamp_column(connection):
    return stored(connection, "t_timestamp", "timestamp", dt.datetime(2024, 2, 29, 23, 59, 59, 123456))


@case
def timestamptz_column(connection):
    connection.execute("SET timezone = 'UTC'")
    return stored(connection, "t_timestamptz", "timestamptz", dt.datetime(2024, 7, 1, 12, 0, tzinfo=dt.timezone.utc))


@case
def uuid_column(connection):
    return stored(connection, "t_uuid", "uuid", uuid.UUID("12345678-1234-5678-1234-567812345678"))


@case
def json_column(connection):
    connection.execute("CREATE TABLE t_json (v jsonb)")
    connection.execute("INSERT INTO t_json VALUES (%s)", ('{"b": 1, "a": [1, 2]}',))
    return both_formats(connection, "SELECT v FROM t_json")


@case
def current_timestamp_is_now(connection):
    value = connection.execute("SELECT now()").fetchone()[0]
    near = abs((dt.datetime.now(dt.timezone.utc) - value).total_seconds()) < 3600
    return type(value).__name__, value.tzinfo is not None, near


@case
def timestamp_default(connection):
    connection.execute("CREATE TABLE stamped (id int PRIMARY KEY, at timestamp DEFAULT CURRENT_TIMESTAMP)")
    value = connection.execute("INSERT INTO stamped (id) VALUES (1) RETURNING at").fetchone()[0]
    return type(value).__name__


@case
def nulls_of_each_type(connection):
    connection.execute("CREATE TABLE nulls (a int, b text, c bool, d bytea, e timestamp, f float8)")
    connection.execute("INSERT INTO nulls VALUES (%s, %s, %s, %s, %s, %s)", (None,) * 6)
    return both_formats(connection, "SELECT * FROM nulls")
