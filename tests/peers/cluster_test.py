"""A cluster of three nodes whose master meets one random fault after the other, under clients whose histories are judged.

The clients read, write and replace registers, one statement a transaction, and record what they were told. Each round: a
fault at a random moment, commits on the server that is the master then, all nodes back, the last state read on every server. A checker of
linearizability (tests/clients/histories) then looks for one order of all statements that explains every answer: a lost commit,
a stale read and a commit by a deposed master have none.

    cluster_test.py --holdfast BINARY --judge PROGRAM [--servers 2|3] [--rounds N] [--seed N] [--only FAULT] --keep DIR

The seed decides faults and moments; what servers and clients make of them is up to their threads. The exit code is 1 when a
history has no order, or a node does not come back.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from groups import Holdfast, until  # noqa: E402
from wire import Closed, Wire, query, refusal, value_of  # noqa: E402

# What happens to the master; the last four end by themselves, and the master may stay the master.
FAULTS = ["server", "node", "frozen", "switchover", "stop", "supervisor", "server stopped", "supervisor stopped", "standby"]
CLIENTS, KEYS = 5, 3
PAUSE_S, CONNECT_S, ANSWER_S = 0.004, 0.5, 3
# Answers that say that nothing was done.
REFUSED = ("25", "57", "40")


class Client(threading.Thread):
    def __init__(self, history, ports, process, seed):
        super().__init__(daemon=True)
        self.history, self.ports, self.process, self.random = history, ports, process, random.Random(seed)
        self.stopping, self.number, self.answered, self.fault = False, 0, 0, None

    def run(self):
        host = 0
        while not self.stopping:
            try:
                with Wire(port=self.ports[host], timeout=CONNECT_S) as wire:
                    wire.socket.settimeout(ANSWER_S)
                    # A standby's reads may be behind.
                    if value_of(wire.run("show transaction_read_only")) == "off":
                        while not self.stopping and self.works(wire):
                            time.sleep(PAUSE_S)
            except (OSError, Closed):
                pass
            except Exception as error:  # Else the thread would end without a word.
                self.fault = error
                return
            host = (host + 1) % len(self.ports)
            time.sleep(PAUSE_S)

    def works(self, wire):
        """Runs one statement; false when the connection can no longer be used."""
        key, kind = self.random.randrange(KEYS), self.random.randrange(3)
        self.number += 1
        token = f"{self.process}{self.number:06}"
        where = f"where k = {key}"
        if kind == 2:
            expected, rows = self.ask(wire, f"select v from registers {where}")
            if expected != "C":
                return False
        start = time.monotonic_ns()
        if kind == 0:
            answer, found = self.ask(wire, f"select v from registers {where}")
            step = {"do": "read", "key": key, "value": found or ""}
        elif kind == 1:
            answer, _ = self.ask(wire, f"update registers set v = '{token}' {where}")
            step = {"do": "write", "key": key, "value": token}
        else:
            answer, tag = self.ask(wire, f"update registers set v = '{token}' {where} and v = '{rows}'")
            step = {"do": "replace", "key": key, "value": token, "expected": rows, "changed": tag == "UPDATE 1"}
        end, outcome = time.monotonic_ns(), "ok"
        if answer != "C":
            outcome = "failed" if kind == 0 or answer[:2] in REFUSED else "unknown"
        self.history.append(
            {"process": self.process, "start_ns": start, "end_ns": 0 if outcome == "unknown" else end, "outcome": outcome, "steps": [step]}
        )
        self.answered += outcome == "ok"
        if outcome == "unknown":
            self.process += CLIENTS
        return answer == "C"

    def ask(self, wire, sql):
        """`C`, an SQLSTATE or nothing, and the one value or the command's tag."""
        told, value = "", None
        try:
            wire.send(query(sql))
            while True:
                kind, body = wire.receive()
                if kind == "Z":
                    return told, value
                if kind == "D":
                    value = value_of([(kind, body)])
                elif kind == "C":
                    told, value = "C", value or body.rstrip(b"\0").decode()
                elif kind == "E":
                    told = refusal(body)
        except (OSError, Closed):
            return (told if told != "C" else ""), value


def registers(port):
    with Wire(port=port, timeout=30) as wire:
        rows = [body for kind, body in wire.run("select k || '=' || v from registers order by k") if kind == "D"]
    return dict(value_of([("D", row)]).split("=") for row in rows)


def state(group, history):
    """The last state, read from the master as one operation; the standbys' readers have to arrive at it."""
    found = {}

    def read():
        found.update(registers(group.ports[group.master()]))
        return len(found) == KEYS

    start = time.monotonic_ns()
    until(read, "the registers are read")
    steps = [{"do": "read", "key": int(key), "value": value} for key, value in found.items()]
    history.append({"process": 0, "start_ns": start, "end_ns": time.monotonic_ns(), "outcome": "ok", "steps": steps})
    for port in group.ports:
        until(lambda: registers(port) == found, f"the server at {port} shows {found}")
    return found


def one_round(group, fault, before, chooser):
    """Runs the round; returns its history and the last state."""
    now = time.monotonic_ns
    steps = [{"do": "write", "key": int(key), "value": value} for key, value in before.items()]
    history = [{"process": 0, "start_ns": now(), "end_ns": now() + 1, "outcome": "ok", "steps": steps}]
    clients = [Client(history, group.ports, 1 + index, chooser.random()) for index in range(CLIENTS)]
    for client in clients:
        client.start()

    def work(more):
        """Waits until the clients have got so many more answers."""
        answered = lambda: sum(client.answered for client in clients)
        enough = answered() + more
        until(lambda: answered() >= enough, "the clients get answers")

    work(60)
    time.sleep(chooser.random() * 0.3)
    master = group.master()
    began = now()
    group.breaks(fault, master)
    if fault in ["server stopped", "supervisor stopped", "standby"]:
        # From a pause without effect to more than a lease.
        time.sleep(chooser.choice([0.3, 1, 2.5, 5]))
        group.heals(fault, master)
    work(60)
    group.heals(fault, master)
    work(60)
    for client in clients:
        client.stopping = True
    for client in clients:
        client.join()
        if client.fault:
            raise client.fault
    group.restores(fault, master)
    # Whatever was not answered until now has happened until now, or never will.
    history.append({"process": -1, "start_ns": began, "end_ns": now(), "outcome": "restart"})
    return history, state(group, history), group.master() != master


def judged(judge, history, file):
    with open(file, "w") as out:
        for operation in sorted(history, key=lambda one: one["start_ns"]):
            out.write(json.dumps(operation) + "\n")
    # Writes without an answer that no read showed count only where the first judgement finds no order: see judge.go.
    for unseen in [{}, {"HISTORIES_UNSEEN": "1"}]:
        told = subprocess.run([judge, file], capture_output=True, text=True, env=os.environ | unseen)
        verdict = told.stdout.partition("\n")[0].partition("\t")[2]
        if verdict == "ok":
            return verdict
    return verdict or told.stderr.strip() or "the judge said nothing"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--judge", required=True)
    parser.add_argument("--keep", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--servers", type=int, choices=[2, 3], default=2)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", choices=FAULTS)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    chooser = random.Random(seed)
    home = tempfile.mkdtemp(prefix="cluster-test-")
    os.makedirs(arguments.keep, exist_ok=True)
    print(f"cluster-test: seed {seed}", flush=True)
    group, counts, wrong = None, {}, []
    try:
        group = Holdfast(home, arguments.holdfast, arguments.servers)
        with Wire(port=group.ports[0]) as wire:
            wire.run("create table registers (k int primary key, v text not null)")
            wire.run("insert into registers values (0, 'r0'), (1, 'r1'), (2, 'r2')")
        last = {str(key): f"r{key}" for key in range(KEYS)}
        for number in range(arguments.rounds):
            fault = chooser.choice(arguments.only or FAULTS)
            history, last, moved = one_round(group, fault, last, chooser)
            file = os.path.join(arguments.keep, f"round-{number + 1:03}.jsonl")
            verdict = judged(arguments.judge, history, file)
            outcomes = [operation["outcome"] for operation in history]
            told = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ["ok", "failed", "unknown"])
            print(f"cluster-test: {number + 1}: {fault}: {'new master' if moved else 'same master'}, {told}: {verdict}", flush=True)
            count = counts.setdefault(fault, [0, 0, 0])
            count[0] += 1
            count[1] += moved
            count[2] += verdict.startswith("skip")
            if verdict == "ok":
                os.remove(file)
            elif not verdict.startswith("skip"):
                wrong.append(number + 1)
        is_whole = True
    finally:
        if group is not None:
            group.end()
        print("| fault | rounds | with a new master | undecided |\n|---|---|---|---|")
        for fault, count in sorted(counts.items()):
            print(f"| {fault} | {count[0]} | {count[1]} | {count[2]} |")
        print(f"cluster-test: seed {seed}: {sum(c[0] for c in counts.values())} rounds, wrong: {wrong or 'none'}")
        if wrong or "is_whole" not in locals():
            print(f"cluster-test: the directories are in {home}, the histories in {arguments.keep}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
