"""Measures how long a group of three nodes accepts no commits when its master is lost: Holdfast's cluster, and Patroni with etcd.

Both run on this machine with the same clients, which insert a row each 10 ms and connect to the two servers in turn. A round
breaks the master in one way, waits for commits at the other node, looks there for every acknowledged row, and lets the lost
node return. The next round breaks the new master. Patroni runs with its defaults (ttl 30 s) and synchronous_mode, so that its
commits wait for the standby's disk as Holdfast's do at level hot.

    takeovers.py --holdfast BINARY [--peer NAME] [--only FAULT] [--rounds N] [--peer-rounds N] [--ttl S] [--json FILE]

The last lines are a table. The exit code is 1 when an acknowledged row is missing.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from groups import Holdfast, Patroni  # noqa: E402
from wire import Closed, Wire, query, refusal, value_of  # noqa: E402

FAULTS = ["server", "node", "frozen", "switchover", "stop"]
CLIENTS = 8
PAUSE_S = 0.01
CONNECT_S = 0.5
ANSWER_S = 2
# Before the fault, and after the first commit on the new master.
LOAD_S = 1.5
# Far longer than any takeover takes; only one that never ends meets it.
PATIENCE_S = 180
GOALS = {"server": (0.7, 2), "node": (5, 8), "frozen": (5, 8), "switchover": (0.5, 0.5), "stop": (0.5, 0.5)}


class Client(threading.Thread):
    """Inserts ids of its own at whichever server takes them."""

    def __init__(self, ports, first):
        super().__init__(daemon=True)
        self.ports, self.id, self.host = ports, first, 0
        self.acknowledged = []  # (time, port, id)
        self.open = []  # neither answered nor refused
        self.stopping = False

    def run(self):
        while not self.stopping:
            port = self.ports[self.host]
            try:
                with Wire(port=port, timeout=CONNECT_S) as wire:
                    wire.socket.settimeout(ANSWER_S)
                    self.insert(wire, port)
            except (OSError, Closed):
                pass
            self.host = 1 - self.host
            time.sleep(PAUSE_S)

    def insert(self, wire, port):
        while not self.stopping:
            self.id += 1
            answer = self.answer(wire)
            if answer != "C":
                # Refused in words: nothing was committed.
                if answer[:2] not in ("25", "57", "40"):
                    self.open.append(self.id)
                return
            self.acknowledged.append((time.monotonic(), port, self.id))
            time.sleep(PAUSE_S)

    def answer(self, wire):
        """`C` for a commit, else an SQLSTATE, or nothing where the connection ended without a word."""
        told = ""
        try:
            wire.send(query(f"insert into takeover values ({self.id})"))
            while True:
                kind, body = wire.receive()
                if kind == "Z":
                    return told
                if kind in "CE":
                    told = "C" if kind == "C" else refusal(body)
        except (OSError, Closed):
            return told if told != "C" else ""


def rows(port, first):
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Wire(port=port) as wire:
                answers = wire.run(f"select id from takeover where id >= {first}")
                return {int(value_of([answer])) for answer in answers if answer[0] == "D"}
        except (OSError, Closed):
            if time.monotonic() > limit:
                raise
            time.sleep(PAUSE_S)


def one_round(group, fault, number):
    """Returns {first: seconds from the fault, gap: seconds without a commit, lost, open}."""
    first = number << 40
    clients = [Client(group.ports, first + (index << 32)) for index in range(CLIENTS)]
    master = group.master()
    port, other = group.ports[master], group.ports[1 - master]
    for client in clients:
        client.host = master
        client.start()
    time.sleep(LOAD_S)
    began = time.monotonic()
    group.breaks(fault, master)
    acks = lambda: [ack for client in clients for ack in list(client.acknowledged)]
    # Patroni starts a killed PostgreSQL again in place; nothing else leaves the master where it is.
    again = lambda ack: fault == "server" and ack[0] > began + 0.5
    after = lambda: [ack for ack in acks() if ack[1] == other or again(ack)]
    while not after():
        if time.monotonic() - began > PATIENCE_S:
            raise RuntimeError(f"{group.name}: no commit in {PATIENCE_S} s after {fault}")
        time.sleep(PAUSE_S)
    group.heals(fault, master)
    time.sleep(LOAD_S)
    for client in clients:
        client.stopping = True
    for client in clients:
        client.join()
    found = sorted(acks())
    group.restores(fault, master)
    there = rows(group.ports[group.master()], first)
    times = [ack[0] for ack in found]
    gap = max(later - earlier for earlier, later in zip(times, times[1:]))
    opened = [row for client in clients for row in client.open]
    return {
        "first": min(ack[0] for ack in after()) - began,
        "gap": gap,
        "acknowledged": len(found),
        "lost": sum(ack[2] not in there for ack in found),
        "foreign": len(there - {ack[2] for ack in found} - set(opened)),
        "open": len(opened),
    }


def shown(results):
    print("| fault | cluster | rounds | first commit: median s | longest s | without commits: median s | longest s | unanswered | lost |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (fault, name), rounds in results.items():
        column = lambda key: [one[key] for one in rounds]
        pair = lambda key: f"{statistics.median(column(key)):.2f} | {max(column(key)):.2f}"
        total = sum(column("acknowledged"))
        print(
            f"| {fault} | {name} | {len(rounds)} | {pair('first')} | {pair('gap')} "
            f"| {sum(column('open'))} | {sum(column('lost'))} of {total} |"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--peer", action="append", choices=["holdfast", "patroni"])
    parser.add_argument("--only", action="append", choices=FAULTS)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--peer-rounds", type=int)
    parser.add_argument("--ttl", type=int, default=30)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    peers = arguments.peer or ["holdfast", "patroni"]
    home = tempfile.mkdtemp(prefix="takeovers-")
    os.chmod(home, 0o755)
    made = {"holdfast": lambda: Holdfast(home, arguments.holdfast), "patroni": lambda: Patroni(home, arguments.ttl)}
    groups, results, number = [], {}, 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for name in peers:
            groups.append(made[name]())
            print(f"takeovers: {groups[-1].name}: {groups[-1].version()}", flush=True)
        for fault in arguments.only or FAULTS:
            for turn in range(max(arguments.rounds, arguments.peer_rounds or 0)):
                for group in groups:
                    wanted = arguments.rounds if isinstance(group, Holdfast) else arguments.peer_rounds or arguments.rounds
                    if turn >= wanted:
                        continue
                    number += 1
                    one = one_round(group, fault, number)
                    results.setdefault((fault, group.name), []).append(one)
                    told = ", ".join(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in one.items())
                    print(f"takeovers: {fault} {turn + 1}: {group.name}: {told}", flush=True)
        is_done = True
    except BaseException:
        is_done = False
        print(f"takeovers: the directories are kept in {home}", flush=True)
        raise
    finally:
        for group in groups:
            group.end()
        if results:
            shown(results)
    if is_done:
        shutil.rmtree(home, ignore_errors=True)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump([{"fault": fault, "cluster": name, "rounds": rounds} for (fault, name), rounds in results.items()], out)
    damaged = any(one["lost"] or one["foreign"] for rounds in results.values() for one in rounds)
    sys.exit(1 if damaged else 0)


if __name__ == "__main__":
    main()
