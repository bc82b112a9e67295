"""The databases: how each is started, loaded and read, and where its journal and its data are."""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from common import Writer, account, give, note, python

HERE = os.path.dirname(os.path.abspath(__file__))
READY_S = 120
TABLE = "CREATE TABLE ack (id bigint PRIMARY KEY, note text NOT NULL)"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def pause_until(done, seconds):
    """Whether it was done in that time."""
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > seconds:
            return False
        time.sleep(0.02)
    return True


def beside_postgres(program):
    """Not every program of PostgreSQL has to be on the path."""
    server = shutil.which("postgres") or ""
    return os.path.join(os.path.dirname(os.path.realpath(server)), program)


class Sqlite:
    """A library: each start is a process of its own; there is no server that could refuse."""

    name = "sqlite"
    journal_files = "*-wal"
    data_files = "data.db"

    def __init__(self, tools):
        self.tools = tools
        self.clients = []
        self.python = python()

    def version(self):
        program = "import sqlite3; print(sqlite3.sqlite_version)"
        told = subprocess.run([self.python, "-c", program], capture_output=True, text=True, check=True, cwd="/")
        return "SQLite " + told.stdout.strip()

    def fresh(self, home):
        self.file = os.path.join(home, "data.db")
        self.run(f"PRAGMA journal_mode=wal; {TABLE};")

    def run(self, sql):
        """As a shell prints it; an error is raised with its text."""
        done = subprocess.run(
            ["sqlite3", "-batch", "-bail", self.file, "PRAGMA synchronous=full; " + sql],
            capture_output=True, text=True, **account(),
        )
        if done.returncode != 0 or done.stderr:
            raise RuntimeError(done.stderr.strip() or f"ended with {done.returncode}")
        return done.stdout

    def start(self):
        return None

    def load(self, first):
        command = [self.python, os.path.join(HERE, "sqlite_child.py"), self.file, str(first)]
        self.clients = [Writer(command, **account())]

    def server_runs(self):
        return None

    def kill(self):
        for client in self.clients:
            client.end()

    def quiet(self):
        self.kill()

    def stop(self):
        self.kill()
        try:
            self.run("PRAGMA wal_checkpoint(truncate);")
        except RuntimeError:
            pass  # Damaged already; who reads it is told.

    def checkpoint(self):
        self.run("PRAGMA wal_checkpoint;")

    def rows(self):
        found = self.run("SELECT id || ' ' || note FROM ack;")
        return dict(line.split(" ", 1) for line in found.splitlines())

    def check(self):
        answer = self.run("PRAGMA integrity_check;").strip()
        return None if answer == "ok" else answer

    def journal(self):
        return self.file + "-wal"

    newest_journal = journal

    def data(self):
        return self.file

    def journal_place(self, tail):
        """In the page of the middle or the last frame that belongs to the log as it is now."""
        content = open(self.journal(), "rb").read()
        salts, frames = content[16:24], 0
        while content[32 + frames * 4120 + 8 : 32 + frames * 4120 + 16] == salts:
            frames += 1
        return 32 + (frames - 1 if tail else frames // 2) * 4120 + 24 + 2000


class Server:
    """One that speaks PostgreSQL's protocol; psql is the client."""

    def __init__(self, tools):
        self.tools = tools
        self.clients = []
        self.process = None

    def environment(self):
        return {
            **os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "holdfast",
            "PGDATABASE": self.database, "PGSSLMODE": "disable", "PGCONNECT_TIMEOUT": "10", "LC_ALL": "C.UTF-8",
        }

    def psql(self, sql, seconds=120):
        done = subprocess.run(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql], env=self.environment(), capture_output=True,
            text=True, timeout=seconds, check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout.strip()

    def ready(self):
        try:
            return self.psql("SELECT 1", 20) == "1"
        except (RuntimeError, subprocess.TimeoutExpired):
            return False

    def start(self):
        """Nothing, or why it does not start."""
        self.port = free_port()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **account()
            )
        pause_until(lambda: self.process.poll() is not None or self.ready(), READY_S)
        if self.process.poll() is not None or not self.ready():
            return self.last_words()
        return None

    def last_words(self):
        lines = [line for line in open(self.log, errors="replace").read().splitlines() if line.strip()]
        telling = [line for line in lines if re.search(self.telling, line)]
        last = (telling or lines or ["nothing said"])[-1]
        return re.sub(r"^\S+Z? +(\S+ UTC \[\d+\] )?", "", last) if last[:2] == "20" else last

    def load(self, first):
        lines = (f"INSERT INTO ack VALUES ({n}, '{note(n)}');\n\\echo ack {n}\n" for n in range(first, 1 << 30))
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"]
        self.clients = [Writer(command, lines, env=self.environment())]

    def server_runs(self):
        return self.process is not None and self.process.poll() is None

    def quiet(self):
        for client in self.clients:
            client.end()

    def rows(self):
        return dict(line.split(" ", 1) for line in self.psql("SELECT id || ' ' || note FROM ack").splitlines())

    def check(self):
        return None


class Postgres(Server):
    name = "postgres"
    database = "postgres"
    telling = "PANIC|FATAL|ERROR"
    journal_files = "/home/data/pg_wal/0*"
    SETTINGS = [
        "fsync=on", "synchronous_commit=on", "full_page_writes=on", "listen_addresses=127.0.0.1", "shared_buffers=16MB",
        "min_wal_size=2MB", "max_wal_size=4MB", "checkpoint_timeout=30s", "autovacuum=off",
    ]

    def version(self):
        return subprocess.run(["postgres", "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def fresh(self, home):
        self.home, self.place = os.path.join(home, "data"), os.path.dirname(os.path.dirname(home))
        self.log = os.path.join(self.place, "postgres.log")
        template = os.path.join(self.tools.directory, "template")
        if not os.path.exists(template):
            os.makedirs(template)
            give(template)
            options = ["-U", "holdfast", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
            subprocess.run(
                ["initdb", "-D", os.path.join(template, "data"), "--wal-segsize=1"] + options, check=True,
                stdout=subprocess.DEVNULL, cwd="/", **account(),
            )
        subprocess.run(["cp", "-a", os.path.join(template, "data"), self.home], check=True)
        why = self.start()
        if why:
            raise RuntimeError(why)
        self.psql(TABLE)
        self.relation = self.psql("SELECT pg_relation_filepath('ack')")
        self.data_files = f"/home/data/{self.relation}"

    def command(self):
        settings = [word for setting in self.SETTINGS for word in ["-c", setting]]
        sockets = ["-c", f"unix_socket_directories={self.tools.directory}"]
        return ["postgres", "-D", self.home, "-p", str(self.port)] + settings + sockets

    def kill(self):
        self.quiet()
        if self.process is None:
            return
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        self.process.kill()
        self.process.wait()
        for pid in map(int, listed.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        pause_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in listed.stdout.split()), 20)

    def stop(self):
        self.quiet()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(READY_S)

    def checkpoint(self):
        self.psql("CHECKPOINT")

    def segments(self):
        return sorted(path for path in glob.glob(self.home + "/pg_wal/0*") if len(os.path.basename(path)) == 24)

    def quiet(self):
        super().quiet()
        try:
            self.end = self.lsn(self.psql("SELECT pg_current_wal_flush_lsn()", 10))
        except (RuntimeError, subprocess.TimeoutExpired):
            pass  # It has ended by itself; the end asked for earlier stands.

    def lsn(self, text):
        high, low = text.split("/")
        return int(high, 16) << 32 | int(low, 16)

    def file_of(self, lsn):
        return f"{self.home}/pg_wal/{1:08X}{lsn >> 32:08X}{(lsn & 0xFFFFFFFF) >> 20:08X}"

    def journal(self):
        return self.file_of(self.at)

    def journal_place(self, tail):
        """In the middle of what a recovery would replay, or in its last record."""
        told = subprocess.run([beside_postgres("pg_controldata"), self.home], capture_output=True, text=True, check=True).stdout
        redo = self.lsn(re.search(r"REDO location: +(\S+)", told).group(1))
        self.at = self.end - 20 if tail else (redo + self.end) // 2
        return self.at & 0xFFFFF

    def newest_journal(self):
        self.at = self.end
        return self.journal()

    def data(self):
        return os.path.join(self.home, self.relation)


class Holdfast(Server):
    name = "holdfast"
    database = "holdfast"
    telling = "cannot|damaged|refuse|Restore|error|ERROR"
    journal_files = "*.segment"
    data_files = "000001-holdfast.db"

    def version(self):
        return subprocess.run([self.tools.holdfast, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def fresh(self, home):
        self.home, self.place = os.path.join(home, "data"), os.path.dirname(os.path.dirname(home))
        self.log = os.path.join(self.place, "holdfast.log")
        os.mkdir(self.home)
        give(self.home)
        with open(self.home + "/holdfast.toml", "w") as settings:
            settings.write("segment_bytes = 4194304\nredo_bytes_max = 1048576\nredo_time_max_ms = 1000\n")
        why = self.start()
        if why:
            raise RuntimeError(why)
        self.psql(TABLE)

    def command(self):
        return [self.tools.holdfast, "serve", "--data", self.home, "--listen", f"127.0.0.1:{self.port}"]

    def kill(self):
        self.quiet()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.quiet()
        self.process.terminate()
        self.process.wait(READY_S)

    def checkpoint(self):
        pass  # Within a second of work there is one.

    def check(self):
        done = subprocess.run(
            [self.tools.holdfast, "check", "--data", self.home], capture_output=True, text=True, cwd="/", **account()
        )
        return None if done.returncode == 0 else (done.stdout + done.stderr).strip()

    def journal(self):
        """The segment that was written last."""
        return max(glob.glob(self.home + "/trail/*.segment"), key=lambda path: self.blocks(path)[1])

    def newest_journal(self):
        return self.journal()

    def blocks(self, path):
        """Numbers of the 4 KiB blocks that hold something, and when the file was written."""
        content = open(path, "rb").read()
        used = [n for n in range(len(content) // 4096) if any(content[n * 4096 : n * 4096 + 64])]
        return used, (os.path.getmtime(path) if len(used) > 2 else 0)

    def journal_place(self, tail):
        """In the head of a boxcar: the middle one, or the last but one, as the last proves it and holds nothing."""
        used = self.blocks(self.journal())[0]
        return used[-2 if tail else len(used) // 2] * 4096 + 40

    def data(self):
        return self.home + "/volumes/000001-holdfast.db"

