"""Clients on another machine: a network namespace of its own, joined by a veth on which everything is captured.

    python3 main.py HOLDFAST SCRATCH

Skipped where the kernel or the user's rights permit no network namespaces.
"""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from holdfast import WAIT_SECONDS_MAX, Server, Skip, case, command, free_port, run_cases  # noqa: E402

ETH_P_ALL = 3
PACKET_BYTES_MAX = 1 << 16
PASSWORD = "Correct-Horse-51"
MARKER = "marker_of_the_query_77"
RESULT = "MARKER_OF_THE_RESULT_88"
CONTROL = "marker_sent_in_plain_text_99"
SSL_REQUEST = struct.pack("!II", 8, 80877103)


class Outside:
    """A namespace whose only way out is a veth to this one."""

    def __init__(self):
        number = os.getpid()
        self.name = f"hf{number % 100000}"
        self.near, self.far = f"{self.name}a", f"{self.name}b"
        network = f"10.{200 + number % 50}.{number // 50 % 250}"
        self.server, self.client = f"{network}.1", f"{network}.2"

    def __enter__(self):
        steps = [
            f"netns add {self.name}",
            f"link add {self.near} type veth peer name {self.far} netns {self.name}",
            f"addr add {self.server}/24 dev {self.near}",
            f"link set {self.near} up",
            f"-n {self.name} addr add {self.client}/24 dev {self.far}",
            f"-n {self.name} link set {self.far} up",
        ]
        for step in steps:
            try:
                done = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            except FileNotFoundError:
                raise Skip("there is no program ip") from None
            if done.returncode != 0:
                self.__exit__()
                raise Skip(f"ip {step}: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        # The veth goes with the namespace that holds its other end.
        for step in (f"link del {self.near}", f"netns del {self.name}"):
            subprocess.run(["ip", *step.split()], capture_output=True)

    def run(self, *words, **options) -> subprocess.CompletedProcess:
        """A program in the namespace."""
        inside = ["ip", "netns", "exec", self.name, *map(str, words)]
        return subprocess.run(inside, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, **options)

    def psql(self, how: str, sql: str, password: str | None = PASSWORD) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGPASSWORD": password} if password else {}
        return self.run("psql", "-X", "-A", "-t", "-q", "-w", how, "-c", sql, env=environment)


class Capture:
    """Every packet on an interface, while in the context."""

    def __init__(self, interface: str):
        self.packets: list[bytes] = []
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        except PermissionError as error:
            raise Skip(f"no raw socket: {error}") from None
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((interface, 0))
        self.socket.settimeout(0.1)
        self.stopping = False
        self.thread = threading.Thread(target=self.read)

    def read(self):
        while not self.stopping:
            try:
                self.packets.append(self.socket.recv(PACKET_BYTES_MAX))
            except TimeoutError:
                pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
        self.socket.close()

    def has(self, text: str) -> bool:
        return any(text.encode() in packet for packet in list(self.packets))

    def wait_for(self, text: str) -> None:
        """Waits for a packet that was sent last: then all before it are here, too."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not self.has(text):
            assert time.monotonic() < deadline, f"the capture lacks {text}; it has {len(self.packets)} packets"
            time.sleep(0.02)


@contextmanager
def serving(directory: Path):
    """A namespace, and a server with TLS and the role app that listens for it."""
    with Outside() as outside:
        data = directory / "data"
        made = command("cert", "server", "--data", str(data), "--host", outside.server, "--host", "db.example")
        assert made.returncode == 0, made.stderr
        port = free_port()
        with Server(data, port, listen=f"127.0.0.1:{port},{outside.server}:{port}") as server:
            server.ready()
            server.sql(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")
            server.sql("CREATE TABLE secrets (t text)")
            server.sql(f"INSERT INTO secrets VALUES ('{RESULT}')")
            server.sql("GRANT SELECT ON secrets TO app")
            yield outside, server, f"host={outside.server} port={port} user=app dbname=holdfast"


def root_certificate(server: Server) -> str:
    return f"sslrootcert={server.data}/tls/ca.crt"


@case
def a_query_over_tls_cannot_be_read_on_the_wire(directory: Path):
    with serving(directory) as (outside, server, to):
        full = f"{to} sslmode=verify-full {root_certificate(server)}"
        with Capture(outside.near) as capture:
            for version in ("TLSv1.2", "TLSv1.3"):
                only = f"{full} ssl_min_protocol_version={version} ssl_max_protocol_version={version}"
                done = outside.psql(only, f"SELECT t AS {MARKER} FROM secrets")
                assert done.stdout.strip() == RESULT, done.stderr
            # The capture sees what is not encrypted.
            send = f"import socket; socket.create_connection(('{outside.server}', {server.port})).sendall(b'{CONTROL}')"
            outside.run("python3", "-c", send)
            capture.wait_for(CONTROL)
            assert len(capture.packets) > 30, len(capture.packets)
            for text in (MARKER, RESULT, PASSWORD, "secrets", "app\0"):
                assert not capture.has(text), f"{text} went over the wire in plain text"
        server.stop()


@case
def without_tls_or_password_a_client_is_refused(directory: Path):
    with serving(directory) as (outside, server, to):
        plain = outside.psql(f"{to} sslmode=disable", "SELECT 1")
        assert plain.returncode == 2 and "no encryption" in plain.stderr, plain.stderr
        silent = outside.psql(f"{to} sslmode=require", "SELECT 1", password=None)
        assert silent.returncode == 2 and "no password supplied" in silent.stderr, silent.stderr
        wrong = outside.psql(f"{to} sslmode=require", "SELECT 1", password="wrong")
        assert wrong.returncode == 2 and "password authentication failed" in wrong.stderr, wrong.stderr
        with Capture(outside.near) as capture:
            outside.psql(f"{to} sslmode=disable", f"SELECT '{MARKER}'")
            assert not capture.has(PASSWORD), "the password went over the wire"
        server.stop()


@case
def the_server_is_verified_by_its_name(directory: Path):
    with serving(directory) as (outside, server, to):
        root = root_certificate(server)
        named = to.replace("host=", "host=db.example hostaddr=")
        assert outside.psql(f"{named} sslmode=verify-full {root}", "SELECT 1").stdout.strip() == "1"
        other = to.replace("host=", "host=other.example hostaddr=")
        refused = outside.psql(f"{other} sslmode=verify-full {root}", "SELECT 1")
        assert "does not match host name" in refused.stderr, refused.stderr
        server.stop()


# Answers SSLRequest with N, as an attacker between the two ends, and passes everything else on.
STRIP = """
import socket, sys, threading
server, port = sys.argv[1], int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
while True:
    client, _ = listener.accept()
    request = client.recv(8, socket.MSG_WAITALL)
    if request[4:] == b"\\x04\\xd2\\x16\\x2f":
        client.sendall(b"N")
        request = b""
    upstream = socket.create_connection((server, port))
    upstream.sendall(request)
    threading.Thread(target=pump, args=(client, upstream), daemon=True).start()
    threading.Thread(target=pump, args=(upstream, client), daemon=True).start()
"""


@case
def stripped_tls_is_refused_by_both_ends(directory: Path):
    with serving(directory) as (outside, server, to):
        assert outside.run("ip", "link", "set", "lo", "up").returncode == 0
        words = ["ip", "netns", "exec", outside.name, "python3", "-c", STRIP, outside.server, str(server.port)]
        proxy = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            port = proxy.stdout.readline().strip()
            through = f"host=db.example hostaddr=127.0.0.1 port={port} user=app dbname=holdfast"
            strict = outside.psql(f"{through} sslmode=verify-full {root_certificate(server)}", "SELECT 1")
            assert "does not support SSL" in strict.stderr, strict.stderr
            lax = outside.psql(f"{through} sslmode=prefer", "SELECT 1")
            assert "no encryption" in lax.stderr, lax.stderr
        finally:
            proxy.kill()
            proxy.wait()
        server.stop()


@case
def a_link_of_a_node_does_not_come_from_outside(directory: Path):
    with serving(directory) as (outside, server, _):
        send = (
            f"import socket; s = socket.create_connection(('{outside.server}', {server.port})); "
            "s.sendall(b'\\0\\0\\0\\x08HFLK'); s.settimeout(60); print(s.recv(100))"
        )
        done = outside.run("python3", "-c", send)
        assert done.stdout.strip() == "b''", done.stdout + done.stderr
        server.wait_for(lambda: "refused a node's link" in server.log())
        server.stop()


run_cases()
