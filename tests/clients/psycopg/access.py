"""psycopg, and with it libpq, over TLS and with a password: prints one line a case, "case<TAB>finding".

Usage: access.py PORT CA FOREIGN_CA

The role `app` has the password `open sesame`. A finding that begins with "error: " is one.
"""

import sys

import psycopg

PORT, CA, FOREIGN_CA = sys.argv[1:]
WHO = "SELECT current_user, session_user, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())"

VERIFIED = {"sslmode": "verify-full", "sslrootcert": CA}
CASES = [
    ("verify_full", VERIFIED, [WHO]),
    ("tls_1_2", VERIFIED | {"ssl_max_protocol_version": "TLSv1.2"}, ["SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"]),
    ("channel_binding", VERIFIED | {"channel_binding": "require"}, [WHO]),
    ("no_channel_binding", VERIFIED | {"channel_binding": "disable"}, [WHO]),
    ("wrong_password", VERIFIED | {"password": "open barley"}, [WHO]),
    ("no_password", VERIFIED | {"password": "", "passfile": "/nonexistent"}, [WHO]),
    ("unknown_user", VERIFIED | {"user": "nobody at all"}, [WHO]),
    ("no_such_database", VERIFIED | {"dbname": "nowhere"}, [WHO]),
    ("no_tls", {"sslmode": "disable"}, [WHO]),
    ("foreign_ca", {"sslmode": "verify-full", "sslrootcert": FOREIGN_CA}, [WHO]),
    ("wrong_host", VERIFIED | {"host": "ip6-localhost", "hostaddr": "127.0.0.1"}, [WHO]),
    ("granted", VERIFIED, ["INSERT INTO notes VALUES (1, 'x') RETURNING id", "SELECT id, text FROM notes", "DELETE FROM notes"]),
    ("denied", VERIFIED, ["SELECT * FROM secrets"]),
    ("denied_column", VERIFIED, ["SELECT id FROM mixed", "SELECT hidden FROM mixed"]),
]


def run(options, statements):
    defaults = {"host": "localhost", "port": PORT, "user": "app", "password": "open sesame", "dbname": "holdfast"}
    found = []
    with psycopg.connect(autocommit=True, **(defaults | options)) as connection:
        for statement in statements:
            try:
                cursor = connection.execute(statement)
                found.append(cursor.fetchall() if cursor.description else cursor.rowcount)
            except psycopg.Error as error:
                found.append(f"error: {error.sqlstate} {error}")
    return found


for name, options, statements in CASES:
    try:
        text = str(run(options, statements))
    except psycopg.Error as error:
        text = f"error: {error}"
    print(f"{name}\t{text}".replace("\n", "\\n").replace(f"port {PORT}", "port PORT"))
