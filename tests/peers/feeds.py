"""What logical replication costs and how fast it is: Holdfast to Holdfast, PostgreSQL to PostgreSQL, and both mixed.

    python3 feeds.py --holdfast BINARY [--pair hh] [--seconds 10] [--copy-mb 300]

Each pair is a publisher and a subscriber on this machine, with default settings (PostgreSQL: wal_level = logical), one table of 100,000
rows, one publication without a condition. Measured:

- rate: commits a second at the publisher, 40 clients that update one row each (pgbench), without a subscriber and with one, in turns;
- apply: how many of these transactions a second the subscriber applies when it has a backlog of them;
- lag: milliseconds from a commit at the publisher until a reader at the subscriber sees it, at half of the publisher's rate;
- copy: MB a second of the initial copy of a table with rows of 1 kB.

With --soak: four clients append to rows at random while the link is cut and either server is killed; at the end every row is compared.

The last lines are a table in Markdown. The exit code is 1 when both sides are not equal at the end.
"""

import argparse
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "support")]
os.environ.setdefault("PGUSER", "holdfast")
from wire import Closed, Wire  # noqa: E402

ROWS = 100_000
CLIENTS = 40
WAIT_SECONDS_MAX = 600
UPDATE = "\\set id random(1, %d)\nUPDATE t SET v = 'value of ' || :id || ' ' || random() WHERE id = :id;\n" % ROWS


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Holdfast:
    name = "Holdfast"
    database = "holdfast"

    def __init__(self, home: Path, binary: str):
        self.home, self.binary, self.port = home, binary, free_port()
        self.process = None

    def start(self):
        log = open(self.home.with_suffix(".log"), "ab")
        words = [self.binary, "serve", "--data", self.home, "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert "ready on" in self.process.stdout.readline(), "Holdfast does not start"

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    start_again = start

    def as_publisher(self):
        self.run("ALTER ROLE holdfast PASSWORD 'secret'")

    def run(self, sql: str) -> str:
        return psql(self, sql)


class Postgres:
    name = "PostgreSQL"
    database = "postgres"

    def __init__(self, home: Path, _):
        self.home, self.port = home, free_port()
        self.bin = Path(sorted(Path("/usr/lib/postgresql").glob("1[5-9]/bin"))[-1])
        self.home.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.home, "postgres")

    def tool(self, *words):
        words = [self.bin / words[0], *words[1:]]
        if os.geteuid() == 0:
            words = ["runuser", "-u", "postgres", "--", *words]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def start(self):
        data = self.home / "data"
        self.tool("initdb", "-D", data, "-U", "holdfast", "-A", "trust")
        self.options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c wal_level=logical"
        self.start_again()

    def stop(self):
        self.tool("pg_ctl", "-D", self.home / "data", "-m", "fast", "-w", "stop")

    def kill(self):
        self.tool("pg_ctl", "-D", self.home / "data", "-m", "immediate", "-w", "stop")

    def start_again(self):
        data = self.home / "data"
        self.tool("pg_ctl", "-D", data, "-o", self.options, "-l", self.home / "log", "-w", "start")

    def as_publisher(self):
        pass

    def run(self, sql: str) -> str:
        return psql(self, sql)


def place(server) -> dict:
    return os.environ | {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGDATABASE": server.database}


def psql(server, sql: str) -> str:
    words = ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]
    done = subprocess.run(words, capture_output=True, text=True, env=place(server))
    if done.returncode != 0:
        raise RuntimeError(f"{server.name}: {sql[:100]}: {done.stderr.strip()}")
    return done.stdout.strip()


def pgbench(server, script: Path, *more: str) -> float:
    """Commits a second."""
    words = ["pgbench", "-n", "-M", "prepared", "-f", str(script), "-j", "2", *more]
    done = subprocess.run(words, capture_output=True, text=True, env=place(server), check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps = "))
    return float(line.split()[2])


def until(what: str, condition) -> float:
    """Seconds until it is so."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > WAIT_SECONDS_MAX:
            raise RuntimeError(f"not so in {WAIT_SECONDS_MAX} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


class Link:
    """Forwards connections to a port; it can be cut."""

    def __init__(self, port: int):
        self.to, self.is_cut, self.open = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                if self.is_cut:
                    raise OSError("cut")
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self.open += [near, far]
            for one, other in [(near, far), (far, near)]:
                threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    def forward(self, one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        for end in [one, other]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, is_cut: bool):
        self.is_cut = is_cut
        for end in self.open if is_cut else []:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []


class Pair:
    def __init__(self, publisher, subscriber, scratch: Path, arguments):
        self.publisher, self.subscriber, self.scratch, self.arguments = publisher, subscriber, scratch, arguments
        self.link = None
        self.script = scratch / "update.sql"
        self.script.write_text(UPDATE)

    def prepare(self):
        for server in [self.publisher, self.subscriber]:
            server.start()
            server.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
            server.run("CREATE TABLE beat (id int PRIMARY KEY, n bigint)")
            server.run("CREATE TABLE big (id int PRIMARY KEY, v text)")
        self.publisher.as_publisher()
        self.publisher.run(f"INSERT INTO t SELECT g, 'value of ' || g FROM generate_series(1, {ROWS}) g")
        self.publisher.run("INSERT INTO beat VALUES (1, 0)")
        self.publisher.run("CREATE PUBLICATION p FOR TABLE t, beat")
        self.publisher.run("CREATE PUBLICATION q FOR TABLE big")

    def connection(self) -> str:
        port = self.link.port if self.link else self.publisher.port
        where = f"host=127.0.0.1 port={port} dbname={self.publisher.database} user=holdfast"
        if self.subscriber.name == "PostgreSQL":
            return f"{where} password=secret"
        passfile = self.scratch / "passfile"
        passfile.write_text("*:*:*:*:secret\n")
        passfile.chmod(0o600)
        return f"{where} passfile={passfile}"

    def subscribe(self):
        self.subscriber.run(f"CREATE SUBSCRIPTION s CONNECTION '{self.connection()}' PUBLICATION p")
        copying = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        until("the tables are copied", lambda: self.subscriber.run(copying) == "0")
        self.until_equal()

    def until_equal(self):
        self.beat = getattr(self, "beat", 0) + 1
        self.publisher.run(f"UPDATE beat SET n = {self.beat}")
        until("the subscriber has everything", lambda: self.subscriber.run("SELECT n FROM beat") == str(self.beat))

    def unsubscribe(self):
        self.subscriber.run("DROP SUBSCRIPTION s")
        self.subscriber.run("TRUNCATE t, beat")

    def rates(self) -> tuple[float, float]:
        """Without and with a subscriber, in turns."""
        without, with_one = [], []
        for _ in range(self.arguments.turns):
            without.append(self.load())
            self.subscribe()
            with_one.append(self.load())
            self.until_equal()
            self.unsubscribe()
        return statistics.median(without), statistics.median(with_one)

    def load(self) -> float:
        return pgbench(self.publisher, self.script, "-c", str(CLIENTS), "-T", str(self.arguments.seconds))

    def backlog(self) -> float:
        """Transactions a second."""
        self.subscriber.run("ALTER SUBSCRIPTION s DISABLE")
        until("the slot is free", lambda: self.publisher.run("SELECT active FROM pg_replication_slots") == "f")
        each = self.arguments.backlog // CLIENTS
        pgbench(self.publisher, self.script, "-c", str(CLIENTS), "-t", str(each))
        self.beat += 1
        self.publisher.run(f"UPDATE beat SET n = {self.beat}")
        self.subscriber.run("ALTER SUBSCRIPTION s ENABLE")
        until("the feed runs", lambda: self.publisher.run("SELECT active FROM pg_replication_slots") == "t")
        took = until("everything is there", lambda: self.subscriber.run("SELECT n FROM beat") == str(self.beat))
        return each * CLIENTS / took

    def lag(self, rate: float) -> tuple[float, float]:
        """Median and 99th percentile, ms."""
        seconds = str(self.arguments.seconds)
        words = ["pgbench", "-n", "-M", "prepared", "-f", str(self.script), "-j", "1", "-c", "8", "-T", seconds]
        load = subprocess.Popen([*words, "-R", str(rate / 2)], env=place(self.publisher), stdout=subprocess.DEVNULL)
        lags = []
        with self.wire(self.publisher) as there, self.wire(self.subscriber) as here:
            while load.poll() is None:
                self.beat += 1
                there.run(f"UPDATE beat SET n = {self.beat}")
                began = time.monotonic()
                wanted = str(self.beat).encode()
                while not any(kind == "D" and body.endswith(wanted) for kind, body in here.run("SELECT n FROM beat")):
                    time.sleep(0.0005)
                lags.append((time.monotonic() - began) * 1e3)
                time.sleep(0.02)
        lags.sort()
        return lags[len(lags) // 2], lags[int(len(lags) * 0.99)]

    def wire(self, server) -> Wire:
        return Wire(database=server.database, user="holdfast", port=server.port)

    def copy(self) -> float:
        """MB a second."""
        rows = self.arguments.copy_mb * 1000
        part = 50_000
        for first in range(1, rows + 1, part):
            last = min(first + part - 1, rows)
            values = "SELECT g, repeat(md5(g::text), 31) FROM generate_series(%d, %d) g" % (first, last)
            self.publisher.run(f"INSERT INTO big {values}")
        began = time.monotonic()
        self.subscriber.run(f"CREATE SUBSCRIPTION c CONNECTION '{self.connection()}' PUBLICATION q")
        until("it is copied", lambda: self.subscriber.run("SELECT count(*) FROM big") == str(rows))
        return self.arguments.copy_mb / (time.monotonic() - began)

    def soak(self) -> tuple[int, int, bool]:
        """Load with faults: commits, faults, and whether both are equal then."""
        self.link = Link(self.publisher.port)
        self.subscribe()
        until_s = time.monotonic() + self.arguments.soak
        commits, faults, stop = [0], 0, threading.Event()
        loads = [threading.Thread(target=self.keep_writing, args=(commits, stop)) for _ in range(4)]
        for load in loads:
            load.start()
        draw = random.Random(self.arguments.seed)
        while time.monotonic() < until_s:
            time.sleep(draw.uniform(2, 8))
            fault = draw.choice(["cut", "subscriber", "publisher"])
            if fault == "cut":
                self.link.cut(True)
                time.sleep(draw.uniform(0.1, 3))
                self.link.cut(False)
            else:
                server = self.subscriber if fault == "subscriber" else self.publisher
                server.kill()
                server.start_again()
            faults += 1
        stop.set()
        for load in loads:
            load.join()
        return commits[0], faults, self.is_equal()

    def keep_writing(self, commits: list[int], stop: threading.Event):
        draw = random.Random()
        while not stop.is_set():
            try:
                with self.wire(self.publisher) as wire:
                    while not stop.is_set():
                        number = draw.randint(1, ROWS)
                        wire.run(f"UPDATE t SET v = v || '{number % 10}' WHERE id = {number}")
                        commits[0] += 1
            except (OSError, Closed):
                time.sleep(0.1)

    def is_equal(self) -> bool:
        self.until_equal()
        rows = "SELECT id, v FROM t ORDER BY id"
        return self.publisher.run(rows) == self.subscriber.run(rows)


PAIRS = {
    "hh": (Holdfast, Holdfast),
    "pp": (Postgres, Postgres),
    "hp": (Holdfast, Postgres),
    "ph": (Postgres, Holdfast),
}


def measure(name: str, arguments) -> tuple[str, bool]:
    publisher, subscriber = PAIRS[name]
    scratch = Path(tempfile.mkdtemp(prefix=f"feeds-{name}-"))
    scratch.chmod(0o755)
    pair = Pair(
        publisher(scratch / "a", arguments.holdfast), subscriber(scratch / "b", arguments.holdfast), scratch, arguments
    )
    try:
        pair.prepare()
        if arguments.soak:
            commits, faults, equal = pair.soak()
            return f"| {publisher.name} -> {subscriber.name} | {commits} | {faults} | {'equal' if equal else 'DIFFERENT'} |", equal
        without, with_one = pair.rates()
        print(f"{name}: {without:.0f} commits/s without, {with_one:.0f} with a subscriber", flush=True)
        pair.subscribe()
        applied = pair.backlog()
        print(f"{name}: {applied:.0f} transactions/s applied", flush=True)
        median, high = pair.lag(min(with_one, applied))
        print(f"{name}: lag {median:.1f} ms, 99 % {high:.1f} ms", flush=True)
        equal = pair.is_equal()
        copied = pair.copy()
        print(f"{name}: {copied:.0f} MB/s copied; equal: {equal}", flush=True)
    finally:
        for server in [pair.subscriber, pair.publisher]:
            server.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    between = f"{publisher.name} -> {subscriber.name}"
    cells = [between, f"{without:.0f}", f"{with_one:.0f}", f"{with_one / without:.2f}", f"{applied:.0f}"]
    return "| " + " | ".join([*cells, f"{median:.1f}", f"{high:.1f}", f"{copied:.0f}"]) + " |", equal


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--pair", action="append", choices=PAIRS)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--copy-mb", type=int, default=300)
    parser.add_argument("--soak", type=int, default=0, help="seconds of load with cuts and kills instead")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    measured = [measure(name, arguments) for name in arguments.pair or PAIRS]
    faults = ["pair", "commits", "cuts and kills", "at the end"]
    head = faults if arguments.soak else ["pair", "commits/s", "with a subscriber", "ratio", "applied/s", "lag ms", "99 %", "copy MB/s"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for line, _ in measured:
        print(line)
    return 0 if all(equal for _, equal in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
