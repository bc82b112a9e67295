"""psycopg, and with it libpq, with two hosts: prints for each target_session_attrs which of them it ends at, counted from 1.

Usage: hosts.py PORT PORT
"""

import sys

import psycopg

ATTRIBUTES = ["any", "read-write", "primary", "read-only", "standby", "prefer-standby"]


def ends_at(ports, attributes):
    options = {"host": ",".join("127.0.0.1" for _ in ports), "port": ",".join(ports), "user": "holdfast"}
    with psycopg.connect(dbname="holdfast", target_session_attrs=attributes, **options) as connection:
        connection.execute("SELECT 1")
        return 1 + ports.index(str(connection.info.port))


for attributes in ATTRIBUTES:
    try:
        found = ends_at(sys.argv[1:], attributes)
    except psycopg.Error as error:
        found = "! " + str(error).replace("\n", "\\n")
    print(f"{attributes}\t{found}")
