"""The PostgreSQL protocol by hand: whole and broken messages over a plain socket, standard library only."""

import os
import socket
import struct

HOST = os.environ.get("PGHOST", "127.0.0.1")
PORT = int(os.environ.get("PGPORT", "5433"))
USER = os.environ.get("PGUSER", "holdfast")
DATABASE = os.environ.get("PGDATABASE", "holdfast")

PROTOCOL_3_0 = 196608
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
# Far longer than any answer takes; only a server that hangs meets it.
ANSWER_SECONDS_MAX = 60


def message(kind: bytes, body: bytes) -> bytes:
    """Type byte, length (which counts itself), body."""
    return kind + struct.pack("!I", len(body) + 4) + body


def query(sql: str) -> bytes:
    return message(b"Q", sql.encode() + b"\0")


def startup(options: dict[str, str] | None = None, version: int = PROTOCOL_3_0) -> bytes:
    words = {"user": USER, "database": DATABASE} | (options or {})
    body = struct.pack("!I", version)
    for name, value in words.items():
        body += name.encode() + b"\0" + value.encode() + b"\0"
    body += b"\0"
    return struct.pack("!I", len(body) + 4) + body


class Closed(Exception):
    """The server closed the connection."""


class Wire:
    """One connection. `logged_in=False` leaves the start-up to the caller."""

    def __init__(
        self,
        logged_in: bool = True,
        database: str | None = None,
        user: str | None = None,
        port: int = PORT,
        timeout: float = ANSWER_SECONDS_MAX,
    ):
        self.socket = socket.create_connection((HOST, port), timeout=timeout)
        self.key = b""
        if logged_in:
            given = {"database": database, "user": user}
            self.send(startup({name: value for name, value in given.items() if value}))
            answers = self.until_ready()
            self.key = next((body for kind, body in answers if kind == "K"), b"")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_all_it_takes(self, data: bytes) -> None:
        """Sends and does not mind a server that closes before it has read everything."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def say_no_more(self) -> None:
        """Closes our half; a server that has closed the connection already is as good."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed
            data += part
        return data

    def receive(self) -> tuple[str, bytes]:
        kind = self.exactly(1).decode("latin1")
        (length,) = struct.unpack("!I", self.exactly(4))
        return kind, self.exactly(length - 4)

    def until_ready(self) -> list[tuple[str, bytes]]:
        """All messages up to ReadyForQuery, which is included."""
        found = []
        while not found or found[-1][0] != "Z":
            found.append(self.receive())
            if found[-1][0] == "G":  # CopyInResponse: the server waits for us
                break
        return found

    def run(self, sql: str) -> list[tuple[str, bytes]]:
        self.send(query(sql))
        return self.until_ready()

    def outcome(self) -> str:
        """What the server makes of what was sent: the SQLSTATE of its first error, then `ready` or `closed`."""
        state = "no error"
        try:
            while True:
                kind, body = self.receive()
                if kind == "E":
                    state = sqlstate(body)
                if kind == "Z":
                    return f"{state}, ready"
        except Closed:
            return f"{state}, closed"


def sqlstate(body: bytes) -> str:
    """The `C` field of an ErrorResponse."""
    for field in body.split(b"\0"):
        if field[:1] == b"C":
            return field[1:].decode()
    return "an error without a code"


def refusal(body: bytes) -> str:
    """The SQLSTATE of an ErrorResponse that says that nothing was done; nothing where it says that the outcome is unknown."""
    is_open = b"is unknown" in body or b"may have taken effect" in body
    return "" if is_open else sqlstate(body)


def value_of(answers: list[tuple[str, bytes]]) -> str:
    """The first column of the first DataRow, as text."""
    for kind, body in answers:
        if kind == "D":
            (length,) = struct.unpack("!i", body[2:6])
            return body[6 : 6 + length].decode()
    return "no row"


def still_serving() -> bool:
    """A new connection gets an answer."""
    with Wire() as wire:
        return value_of(wire.run("SELECT 6 * 7")) == "42"
