"""The server and its commands as a person starts them, and a small runner that prints `case<TAB>ok` or what went wrong.

A program here is started with two arguments: the server's binary and a scratch directory.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

BINARY = Path(sys.argv[1]).resolve()
SCRATCH = Path(sys.argv[2]).resolve()
# Far longer than any start or stop takes; only a server that hangs meets it.
WAIT_SECONDS_MAX = 120

CASES = []
# Numbers the servers' logs: a port comes again, and its log would then speak of the server before.
STARTS = itertools.count(1)


def case(function):
    """Registers a case: it gets an empty directory and returns nothing, or raises what is wrong, or Skip."""
    CASES.append(function)
    return function


class Skip(Exception):
    """The machine does not permit this case."""


def run_cases() -> None:
    for function in CASES:
        directory = SCRATCH / function.__name__
        directory.mkdir()
        try:
            function(directory)
            finding = "ok"
        except Skip as why:
            finding = f"skip: {why}"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            finding = f"{type(error).__name__}: {error}"
        print(f"{function.__name__}\t{finding}".replace("\n", "\\n"), flush=True)
        shutil.rmtree(directory, ignore_errors=True)


def command(*words, **options) -> subprocess.CompletedProcess:
    """Runs one of the binary's commands to its end."""
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, **options)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A `holdfast serve` on a directory. As a context it is killed at the end if it still runs."""

    def __init__(self, data: Path, port: int | None = None, listen: str | None = None, **options):
        self.data, self.port = data, port or free_port()
        self.log_path = SCRATCH / f"server-{next(STARTS)}.log"
        with open(self.log_path, "xb") as log:
            words = [BINARY, "serve", "--data", data, "--listen", listen or f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def ready(self) -> "Server":
        """Waits until the server answers a query."""
        self.wait_for(self.answers)
        return self

    def started(self) -> bool:
        """Waits until the server says that it is ready, or has ended; true if it serves."""
        self.wait_for(lambda: self.process.poll() is not None or "ready on" in self.log(), or_ended=True)
        return self.process.poll() is None

    def wait_for(self, condition, or_ended: bool = False) -> None:
        """Waits until a condition holds; fails when the server ends or hangs instead."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if self.process.poll() is not None and not or_ended:
                raise AssertionError(f"the server ended ({self.process.returncode}): {self.log()[-2000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"still waiting after {WAIT_SECONDS_MAX} s: {self.log()[-2000:]}")
            time.sleep(0.02)

    def answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        return self.psql("SELECT 1", check=False).returncode == 0

    def refusal(self) -> str:
        """Waits until the server has ended by itself, with an error and without a panic; returns what it said."""
        try:
            status = self.process.wait(WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it serves, or hangs, instead of refusing: {self.log()[-2000:]}") from None
        said = self.log()
        assert status > 0, f"exit status {status}: {said[-2000:]}"
        assert "panicked" not in said, said[-2000:]
        return said

    def psql(self, sql: str, database: str = "holdfast", check: bool = True) -> subprocess.CompletedProcess:
        words = ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-c", sql]
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "holdfast", "PGDATABASE": database}
        environment = os.environ | where | {"PGSSLMODE": "disable", "PGCONNECT_TIMEOUT": "30"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, env=environment)
        if check and done.returncode != 0:
            raise AssertionError(f"{sql[:200]}: {done.stderr.strip()}")
        return done

    def sql(self, sql: str, database: str = "holdfast") -> str:
        """The rows of a statement that has to succeed, unaligned."""
        return self.psql(sql, database).stdout.strip()

    def stop(self) -> None:
        """A clean stop; its status has to be 0 and the log free of panics."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT_SECONDS_MAX)
        assert status == 0, f"SIGTERM ended the server with {status}: {self.log()[-2000:]}"
        assert "panicked" not in self.log(), self.log()[-2000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def small(data: Path) -> Path:
    """A new data directory whose trail comes in small files, so that tests can copy it and fill disks quickly."""
    data.mkdir()
    (data / "holdfast.toml").write_text("segment_bytes = 4194304\n")
    return data


def sqlite_files(data: Path) -> list[Path]:
    """The SQLite databases below a data directory, by their first bytes."""
    files = [file for file in sorted(data.rglob("*")) if file.is_file()]
    return [file for file in files if file.open("rb").read(16) == b"SQLite format 3\0"]


def volume_with(data: Path, table: str) -> Path:
    """The volume file that holds a table, as the sqlite3 shell sees it."""
    for file in sqlite_files(data):
        found = shell(file, f"SELECT count(*) FROM sqlite_schema WHERE name = '{table}'")
        if found.stdout.strip() == "1":
            return file
    raise AssertionError(f"no SQLite file below {data} has a table {table}")


def shell(file: Path, sql: str) -> subprocess.CompletedProcess:
    """The sqlite3 shell on a file."""
    return subprocess.run(["sqlite3", "-batch", "-bail", file], input=sql, capture_output=True, text=True, timeout=600)
