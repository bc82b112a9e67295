"""Inserts rows with SQLite, WAL and synchronous = FULL, and says `ack ID` after each commit, or `error TEXT` at the end.

It ends at SIGTERM, between two rows and as if it were killed: without a last checkpoint.

Arguments: the file and the first id.
"""

import os
import signal
import sqlite3
import sys

from common import note

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
path, first = sys.argv[1], int(sys.argv[2])
try:
    db = sqlite3.connect(path, isolation_level=None, timeout=5)
    db.execute("PRAGMA journal_mode=wal")
    db.execute("PRAGMA synchronous=full")
    number = first
    failed = 0
    while not stopping:
        # An application goes on after an error; a few times are enough to see whether it can.
        try:
            db.execute("INSERT INTO ack VALUES (?, ?)", (number, note(number)))
            print("ack", number, flush=True)
        except sqlite3.Error as error:
            failed += 1
            print("error", str(error).replace("\n", " "), flush=True)
            if failed == 3:
                raise
        number += 1
    os._exit(0)
except sqlite3.Error as error:
    print("error", str(error).replace("\n", " "), flush=True)
    sys.exit(1)
