"""Bad messages and bad clients: the server answers clearly and goes on serving.

The same program runs against PostgreSQL and against Holdfast and prints one line a case, `case<TAB>finding`. After
every case a fresh connection has to be served. PGHOST, PGPORT, PGUSER and PGDATABASE say where.
"""

import random
import resource
import socket
import struct
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from wire import CANCEL_REQUEST, HOST, PORT, SSL_REQUEST, Closed, Wire  # noqa: E402
from wire import message, query, startup, still_serving, value_of  # noqa: E402

CASES = []


def case(function):
    CASES.append(function)
    return function


def count_of(table: str) -> str:
    with Wire() as wire:
        return value_of(wire.run(f"SELECT count(*) FROM {table}"))


def refused(data: bytes) -> str:
    """What a server makes of bytes in place of a start-up packet."""
    with Wire(logged_in=False) as wire:
        wire.send_all_it_takes(data)
        return wire.outcome()


# Start-up packets


@case
def startup_with_an_unknown_protocol_version():
    return refused(startup(version=2 << 16)), refused(startup(version=9 << 16))


@case
def startup_without_a_user():
    body = struct.pack("!I", 196608) + b"\0"
    return refused(struct.pack("!I", len(body) + 4) + body)


@case
def startup_with_an_unknown_database():
    return refused(startup({"database": "no_such_database"}))


@case
def startup_longer_than_allowed():
    # The length alone is wrong; nobody may set so much memory aside for a stranger.
    return "closed" in refused(struct.pack("!II", 0x7FFFFFF0, 196608))


@case
def startup_shorter_than_possible():
    return "closed" in refused(struct.pack("!II", 3, 196608))


@case
def startup_without_end():
    with Wire(logged_in=False) as wire:
        wire.send(struct.pack("!II", 30, 196608) + b"user\0bob")
        wire.say_no_more()
        return wire.outcome()


@case
def startup_with_a_body_that_is_no_text():
    return "closed" in refused(struct.pack("!II", 28, 196608) + b"\xff\xfe" * 10)


@case
def http_instead_of_postgres():
    return "closed" in refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@case
def tls_is_declined_and_the_connection_goes_on():
    with Wire(logged_in=False) as wire:
        wire.send(struct.pack("!II", 8, SSL_REQUEST))
        answer = wire.exactly(1)
        wire.send(startup())
        return answer, wire.outcome()


@case
def connect_and_say_nothing():
    socket.create_connection((HOST, PORT)).close()
    return "closed"


# Messages


@case
def unknown_message_type():
    with Wire() as wire:
        wire.send(message(b"!", b"what"))
        return wire.outcome()


@case
def message_with_a_length_below_four():
    with Wire() as wire:
        wire.send(b"Q" + struct.pack("!I", 3))
        return wire.outcome()


@case
def message_of_two_gigabytes_announced():
    with Wire() as wire:
        wire.send(b"Q" + struct.pack("!I", 0x7FFFFFFF))
        wire.send_all_it_takes(b"x" * 100_000)
        wire.say_no_more()
        return "closed" in wire.outcome()


@case
def message_with_a_negative_length():
    with Wire() as wire:
        wire.send(b"Q" + struct.pack("!I", 0xFFFFFFFF))
        return "closed" in wire.outcome()


@case
def query_without_a_final_zero():
    with Wire() as wire:
        wire.send(message(b"Q", b"SELECT 1"))
        return wire.outcome().startswith("08P01")


@case
def query_that_is_not_utf8():
    with Wire() as wire:
        wire.send(message(b"Q", b"SELECT '\xff\xfe'\0"))
        return wire.outcome()


@case
def query_with_a_zero_byte_inside():
    with Wire() as wire:
        wire.send(message(b"Q", b"SELECT 1\0SELECT 2\0"))
        return wire.outcome()


@case
def half_a_message_and_gone():
    with Wire() as wire:
        wire.send(query("SELECT 1")[:8])
    return "gone"


@case
def gone_without_terminate_in_a_transaction():
    with Wire() as wire:
        wire.run("CREATE TABLE gone (id int PRIMARY KEY)")
        wire.run("BEGIN")
        wire.run("INSERT INTO gone VALUES (1)")
    return count_of("gone")


@case
def message_byte_by_byte():
    with Wire() as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in query("SELECT 'slow'"):
            wire.send(bytes([byte]))
        return value_of(wire.until_ready())


@case
def many_messages_in_one_packet():
    with Wire() as wire:
        wire.send(b"".join(query(f"SELECT {i}") for i in range(200)))
        return sum(int(value_of(wire.until_ready())) for _ in range(200))


@case
def bind_to_a_statement_nobody_prepared():
    with Wire() as wire:
        wire.send(message(b"B", b"\0nothing\0" + struct.pack("!hhh", 0, 0, 0)) + message(b"S", b""))
        return wire.outcome()


@case
def execute_a_portal_nobody_bound():
    with Wire() as wire:
        wire.send(message(b"E", b"nothing\0" + struct.pack("!i", 0)) + message(b"S", b""))
        return wire.outcome()


@case
def bind_with_too_few_parameters():
    with Wire() as wire:
        parse = message(b"P", b"s\0SELECT $1::int + $2::int\0" + struct.pack("!h", 0))
        bind = message(b"B", b"\0s\0" + struct.pack("!hhi", 0, 1, 1) + b"1" + struct.pack("!h", 0))
        wire.send(parse + bind + message(b"E", b"\0" + struct.pack("!i", 0)) + message(b"S", b""))
        return wire.outcome()


@case
def bind_with_a_parameter_longer_than_the_message():
    with Wire() as wire:
        parse = message(b"P", b"s\0SELECT $1::text\0" + struct.pack("!h", 0))
        bind = message(b"B", b"\0s\0" + struct.pack("!hhi", 0, 1, 1000) + b"short" + struct.pack("!h", 0))
        wire.send(parse + bind + message(b"S", b""))
        return wire.outcome()


@case
def binary_int_of_the_wrong_size():
    with Wire() as wire:
        parse = message(b"P", b"s\0SELECT $1::int\0" + struct.pack("!h", 0))
        bind = message(b"B", b"\0s\0" + struct.pack("!hhhi", 1, 1, 1, 3) + b"abc" + struct.pack("!h", 0))
        wire.send(parse + bind + message(b"E", b"\0" + struct.pack("!i", 0)) + message(b"S", b""))
        return wire.outcome()


@case
def after_an_error_messages_are_skipped_until_sync():
    with Wire() as wire:
        parse = message(b"P", b"\0SELECT * FROM missing\0" + struct.pack("!h", 0))
        wire.send(parse + query("SELECT 1") + message(b"S", b""))
        return wire.outcome(), value_of(wire.run("SELECT 2"))


@case
def close_of_something_unknown_is_no_error():
    with Wire() as wire:
        wire.send(message(b"C", b"Snothing\0") + message(b"S", b""))
        return wire.outcome()


@case
def random_bytes_as_startup():
    chance = random.Random(20240229)
    for _ in range(100):
        with Wire(logged_in=False) as wire:
            wire.send_all_it_takes(chance.randbytes(chance.randrange(1, 400)))
    return "survived 100"


@case
def random_messages_after_startup():
    chance = random.Random(20240301)
    for _ in range(200):
        with Wire() as wire:
            kind = bytes([chance.choice(b"QPBEDCSHFcdfpX")])
            wire.send_all_it_takes(message(kind, chance.randbytes(chance.randrange(0, 200))))
            wire.send_all_it_takes(chance.randbytes(chance.randrange(0, 60)))
    return "survived 200"


# COPY


def start_copy(wire: Wire, table: str) -> None:
    wire.run(f"CREATE TABLE {table} (id int PRIMARY KEY, t text)")
    wire.run(f"COPY {table} FROM STDIN")
    wire.send(message(b"d", b"1\tone\n2\ttwo\n"))


@case
def client_dies_in_mid_copy():
    with Wire() as wire:
        start_copy(wire, "dying")
    return count_of("dying")


@case
def client_dies_in_the_middle_of_a_copy_message():
    with Wire() as wire:
        start_copy(wire, "dying_half")
        wire.send(message(b"d", b"3\tthree\n" * 100)[:50])
    return count_of("dying_half")


@case
def query_in_mid_copy():
    with Wire() as wire:
        start_copy(wire, "interrupted")
        wire.send(query("SELECT 1"))
        return wire.outcome().split(",")[0], count_of("interrupted")


@case
def copy_failed_by_the_client():
    with Wire() as wire:
        start_copy(wire, "failed_copy")
        wire.send(message(b"f", b"changed my mind\0"))
        return wire.outcome(), count_of("failed_copy")


@case
def copy_data_nobody_asked_for():
    with Wire() as wire:
        wire.send(message(b"d", b"1\tone\n"))
        return value_of(wire.run("SELECT 1"))


@case
def reader_that_never_reads():
    """A client asks for a large answer, reads nothing and goes; others are served meanwhile."""
    with Wire() as wire:
        wire.send(query("SELECT g, 'some text that fills the buffers' FROM generate_series(1, 300000) g"))
        served = still_serving()
    return served


# Cancel


@case
def cancel_with_a_wrong_key_changes_nothing():
    with Wire() as wire:
        pid = wire.key[:4]
        with Wire(logged_in=False) as other:
            other.send(struct.pack("!II", 16, CANCEL_REQUEST) + pid + b"\1\2\3\4")
            closed = other.outcome()
        return closed, value_of(wire.run("SELECT 'not cancelled'"))


@case
def cancel_of_a_process_nobody_has():
    with Wire(logged_in=False) as other:
        other.send(struct.pack("!IIII", 16, CANCEL_REQUEST, 0x7FFFFFFE, 7))
        return other.outcome()


@case
def cancel_with_the_right_key():
    with Wire() as wire:
        wire.send(query("SELECT pg_sleep(60)"))
        # The request may overtake the query, so it is repeated until the query has ended.
        wire.socket.settimeout(0.2)
        for _ in range(300):
            with Wire(logged_in=False) as other:
                other.send(struct.pack("!II", 16, CANCEL_REQUEST) + wire.key)
                other.outcome()
            try:
                wire.socket.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                continue
        wire.socket.settimeout(60)
        return wire.outcome()


# Crowds


@case
def two_thousand_connections_at_once():
    """Each is either served or refused with 53300; afterwards there is room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    crowd, answers = [], set()
    for _ in range(2000):
        wire = Wire(logged_in=False)
        wire.send(startup())
        crowd.append(wire)
    for wire in crowd:
        answers.add(wire.outcome())
    served_or_refused = answers <= {"no error, ready", "53300, closed"}
    for wire in crowd:
        wire.socket.close()
    wait_until_served()
    return served_or_refused or sorted(answers)


def wait_until_served() -> None:
    """The server notices closed connections on its own; 53300 is allowed until it has."""
    while True:
        with Wire(logged_in=False) as wire:
            wire.send(startup())
            outcome = wire.outcome()
        if outcome == "no error, ready":
            return
        if not outcome.startswith("53300"):
            raise AssertionError(f"after the crowd had gone: {outcome}")


@case
def a_thousand_quick_connections():
    for _ in range(1000):
        with Wire() as wire:
            wire.send(message(b"X", b""))
    return "served 1000"


@case
def statement_of_eight_megabytes():
    with Wire() as wire:
        text = "x" * (8 << 20)
        return value_of(wire.run(f"SELECT length('{text}')"))


@case
def statement_nested_ten_thousand_deep():
    """Served or refused, as each server's parser likes, but never the end of the connection or the server."""
    with Wire() as wire:
        wire.send(query("SELECT " + "(" * 10_000 + "1" + ")" * 10_000))
        outcome = wire.outcome()
    return outcome.endswith("ready") or outcome


@case
def statement_with_ten_thousand_values():
    with Wire() as wire:
        wire.run("CREATE TABLE broad (id int PRIMARY KEY)")
        wire.run("INSERT INTO broad VALUES " + ", ".join(f"({i})" for i in range(10_000)))
    return count_of("broad")


def report(function) -> None:
    try:
        finding = repr(function())
        if not still_serving():
            finding = "! the server serves nobody afterwards"
    except Closed:
        finding = "! the server closed the connection"
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        finding = f"! {type(error).__name__}: {error}"
    print(f"{function.__name__}\t{finding}".replace("\n", "\\n"), flush=True)


if __name__ == "__main__":
    for function in CASES:
        report(function)
