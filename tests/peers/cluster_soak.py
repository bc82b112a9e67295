"""A cluster of three nodes under load for hours, with disturbances that must not cost the master its place.

Each is shorter than a lease, and one follows the other: a process is stopped (SIGSTOP) for up to 400 ms, a server's, a
supervisor's, or both of a node; a sync on one node's disk takes up to 500 ms; and loops keep both cores busy half of the time. Clients
insert rows all the while.

    cluster_soak.py --holdfast BINARY [--hours N] [--seed N]

The last lines say how many failovers there were (none is right), the least that was left of the lease, how often the standby was counted as
lost, and the longest time without a commit. The exit code is 1 when there was a failover, or an acknowledged row is missing. Clocks are not
moved: that takes a machine of one's own.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from disk import Disk  # noqa: E402
from groups import Holdfast, signal_all, until  # noqa: E402
from takeovers import Client, rows  # noqa: E402

CLIENTS = 4
STOP_S_MAX, STALL_S_MAX = 0.4, 0.5
# Between two disturbances: each is over, and what it has held up has been done.
CALM_S = 0.4
# How long the busy loops run, and how long they do not.
BUSY_S = 20
REPORT_S = 60


class Soak:
    def __init__(self, group, disk, chooser):
        self.group, self.disk, self.random = group, disk, chooser
        self.counts, self.loops = {"stopped": 0, "stalled": 0}, []

    def stop(self):
        """Stops the server, the supervisor or both of a node; the witness has a supervisor only."""
        node = self.random.randrange(3)
        pids = [self.group.supervisors[node].pid]
        if node < self.group.servers:
            _, both = self.group.processes(node)
            pids = self.random.choice([both, both[:1], both[1:]])
        signal_all(pids, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.02, STOP_S_MAX))
        signal_all(pids, signal.SIGCONT)
        self.counts["stopped"] += 1

    def stall(self):
        """One sync in a node's directory takes longer; none may come for a while where it is the witness's."""
        name, duration_s = self.random.choice(self.group.names), self.random.uniform(0.05, STALL_S_MAX)
        self.disk.tell(f"slow sync holdfast/{name}/* us={int(duration_s * 1e6)} times=1")
        time.sleep(duration_s)
        self.counts["stalled"] += 1

    def busy(self, is_wanted):
        if is_wanted and not self.loops:
            command = [sys.executable, "-c", "while True: pass"]
            self.loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        elif not is_wanted:
            for loop in self.loops:
                loop.kill()
                loop.wait()
            self.loops = []

    def turn(self, began):
        self.busy(int((time.monotonic() - began) / BUSY_S) % 2 == 1)
        self.random.choice([self.stop, self.stall])()
        self.disk.tell("clear")
        time.sleep(CALM_S)


def lost_standbys(group):
    words = [group.binary, "cluster", "events", "--json", "--node", "a", "--config", group.config]
    told = subprocess.run(words, env=group.environment, capture_output=True, text=True, check=True).stdout
    return told.count('"node_lost"')


def run(group, disk, hours, chooser):
    """Disturbs the group for so long; true when nothing was lost and the master has stayed."""
    before = group.record()
    clients = [Client(group.ports, 1 + (index << 40)) for index in range(CLIENTS)]
    for client in clients:
        client.start()
    soak, began, reported = Soak(group, disk, chooser), time.monotonic(), time.monotonic()
    try:
        while time.monotonic() - began < hours * 3600:
            soak.turn(began)
            if time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                left = group.status(0)["lease"]
                minutes = (reported - began) / 60
                print(f"cluster-soak: {minutes:.0f} min, epoch {group.record()['epoch']}, least of the lease {left}", flush=True)
    finally:
        soak.busy(False)
        for client in clients:
            client.stopping = True
        for client in clients:
            client.join()
    until(lambda: group.is_whole(group.master()), "all nodes serve at the end")
    after, there = group.record(), rows(group.ports[group.master()], 0)
    found = sorted(ack for client in clients for ack in client.acknowledged)
    times = [ack[0] for ack in found]
    gap_ms = 1e3 * max(later - earlier for earlier, later in zip(times, times[1:]))
    lost = sum(ack[2] not in there for ack in found)
    failovers = after["epoch"] - before["epoch"]
    least = (group.status(group.master())["lease"] or {}).get("least_left_ms")
    minutes = (time.monotonic() - began) / 60
    print(f"cluster-soak: {minutes:.1f} min, {soak.counts['stopped']} stops, {soak.counts['stalled']} stalls of a sync")
    print(f"cluster-soak: failovers {failovers}, least of the lease {least} of {after['lease_ms']} ms")
    print(f"cluster-soak: standby counted as lost {lost_standbys(group)} times, {gap_ms:.0f} ms without a commit at most")
    print(f"cluster-soak: lost {lost} of {len(found)}")
    return failovers == 0 and lost == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"cluster-soak: seed {seed}", flush=True)
    home = tempfile.mkdtemp(prefix="cluster-soak-")
    group, is_right = None, False
    disk = Disk(os.path.abspath(arguments.holdfast), home, seed)
    try:
        group = Holdfast(disk.mount, arguments.holdfast)
        is_right = run(group, disk, arguments.hours, random.Random(seed))
    finally:
        if group is not None:
            group.end()
        if is_right:
            disk.unmount()
            shutil.rmtree(home, ignore_errors=True)
        else:
            print(f"cluster-soak: the directories are in {home}, mounted until the disk's process {disk.process.pid} ends")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
