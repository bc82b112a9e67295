"""Many threads, each with a connection of its own, for a while; and the retries every client needs."""

import os
import sys
import threading
import time
from typing import Callable

import psycopg

from findings import connect

DEADLOCK = "40P01"
SERIALIZATION = "40001"

SECONDS = float(os.environ.get("HOLDFAST_SECONDS") or 2.5)
"""How long a crowd works; longer finds more."""


class Crowd:
    """Threads that work until the time is over. What one of them raises is kept and told at the end."""

    def __init__(self, database: str, seconds: float = SECONDS):
        self.database = database
        self.deadline = time.monotonic() + seconds
        self.threads: list[threading.Thread] = []
        self.errors: list[str] = []
        self.retries = 0
        self.lock = threading.Lock()

    def add(self, work: Callable[[psycopg.Connection, int], None], count: int = 1) -> None:
        """`count` threads that call `work(connection, thread's number)` again and again."""
        for _ in range(count):
            number = len(self.threads)
            self.threads.append(threading.Thread(target=self.live, args=(work, number), daemon=True))

    def live(self, work: Callable[[psycopg.Connection, int], None], number: int) -> None:
        try:
            with connect(self.database) as connection:
                connection.execute("SET idle_in_transaction_session_timeout = 0")
                while time.monotonic() < self.deadline:
                    work(connection, number)
        except Exception as error:  # told at the end, whatever it is
            self.fail(f"{type(error).__name__}: {error}")

    def fail(self, message: str) -> None:
        with self.lock:
            self.errors.append(message)

    def retrying(self, connection: psycopg.Connection, transaction: Callable[[], None], *on: str) -> None:
        """Runs a transaction again while it fails with one of these SQLSTATEs; it has no right to others."""
        while True:
            try:
                return transaction()
            except psycopg.Error as error:
                if error.sqlstate not in on:
                    raise
                with self.lock:
                    self.retries += 1
                connection.execute("ROLLBACK")

    def run(self) -> list[str]:
        """Lets everybody work; the errors, each once."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                self.errors.append("a thread hangs")
        if self.retries:
            print(f"  {self.retries} retries", file=sys.stderr)
        return sorted(set(self.errors))
