"""Errors carry the SQLSTATE that a program catches, and the connection goes on."""

import psycopg

from findings import case, error_of, rows


@case
def syntax_error(connection):
    return error_of(connection, "SELEC 1"), rows(connection, "SELECT 1")


@case
def unknown_table(connection):
    return error_of(connection, "SELECT * FROM missing")


@case
def unknown_column(connection):
    connection.execute("CREATE TABLE known (a int)")
    return error_of(connection, "SELECT b FROM known")


@case
def unknown_function(connection):
    return error_of(connection, "SELECT no_such_function(1)")


@case
def table_exists_already(connection):
    connection.execute("CREATE TABLE twice (a int)")
    again = error_of(connection, "CREATE TABLE twice (a int)")
    return again, error_of(connection, "CREATE TABLE IF NOT EXISTS twice (a int)")


@case
def unique_violation(connection):
    connection.execute("CREATE TABLE uq (a int PRIMARY KEY, b text UNIQUE)")
    connection.execute("INSERT INTO uq VALUES (1, 'x')")
    return error_of(connection, "INSERT INTO uq VALUES (1, 'y')"), error_of(connection, "INSERT INTO uq VALUES (2, 'x')")


@case
def not_null_violation(connection):
    connection.execute("CREATE TABLE nn (a int NOT NULL)")
    return error_of(connection, "INSERT INTO nn VALUES (NULL)")


@case
def check_violation(connection):
    connection.execute("CREATE TABLE chk (a int CHECK (a > 0))")
    return error_of(connection, "INSERT INTO chk VALUES (-1)")


@case
def foreign_key_violation(connection):
    connection.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    connection.execute("CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent (id))")
    connection.execute("INSERT INTO parent VALUES (1)")
    connection.execute("INSERT INTO child VALUES (1, 1)")
    orphan = error_of(connection, "INSERT INTO child VALUES (2, 99)")
    return orphan, error_of(connection, "DELETE FROM parent WHERE id = 1")


@case
def division_by_zero(connection):
    return error_of(connection, "SELECT 1 / 0")


@case
def integer_out_of_range(connection):
    connection.execute("CREATE TABLE small (a int)")
    return error_of(connection, "INSERT INTO small VALUES (3000000000)")


@case
def invalid_text_for_int(connection):
    return error_of(connection, "SELECT 'abc'::int")


@case
def value_too_long(connection):
    connection.execute("CREATE TABLE vc (a varchar(3))")
    return error_of(connection, "INSERT INTO vc VALUES ('abcd')")


@case
def wrong_number_of_values(connection):
    connection.execute("CREATE TABLE cols (a int, b int)")
    return error_of(connection, "INSERT INTO cols (a) VALUES (1, 2)")


@case
def unknown_database(connection):
    try:
        psycopg.connect(dbname="no_such_database")
    except psycopg.OperationalError as error:
        # Before a connection exists libpq hands over the message only.
        return "does not exist" in str(error)
    return "no error"


@case
def unknown_setting(connection):
    return error_of(connection, "SET no_such_setting = 1")


@case
def several_commands_in_a_prepared_statement(connection):
    return error_of(connection, "SELECT %s; SELECT 2", (1,))


@case
def error_names_the_constraint(connection):
    connection.execute("CREATE TABLE named (a int, CONSTRAINT a_positive CHECK (a > 0))")
    try:
        connection.execute("INSERT INTO named VALUES (0)")
    except psycopg.Error as error:
        return error.sqlstate, error.diag.severity, error.diag.constraint_name
    return "no error"


@case
def cancel_a_running_statement(connection):
    connection.execute("SET statement_timeout = 200")
    timed_out = error_of(connection, "SELECT pg_sleep(60)")
    connection.execute("SET statement_timeout = 0")
    return timed_out, rows(connection, "SELECT 1")


@case
def cancel_from_outside(connection):
    import threading

    canceller = threading.Timer(0.2, connection.cancel_safe)
    canceller.start()
    outcome = error_of(connection, "SELECT pg_sleep(60)")
    canceller.join()
    return outcome, rows(connection, "SELECT 1")
