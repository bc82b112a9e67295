#!/usr/bin/env python3
"""What Holdfast, SQLite and PostgreSQL do when the disk below them fails: each fault, measured.

A database lies on `holdfast unsafe-disk`. One client inserts rows and what was acknowledged is kept in this process. A
fault is injected while it runs, or into the files of the stopped database; what the client is told and whether the
server goes on is noted. Then the database is killed, its kernel cache forgotten, the fault taken back, and started again:
every acknowledged row is there with its content, or is not.

    python3 tests/peers/faults.py --holdfast target/debug/holdfast [--peer sqlite] [--only "kill -9"] [--seed 1]

prints a line for each fault and at the end the rows for docs/faults.md. A fault that did not fire is an error: its test
has tested nothing. The exit code is 1 then, or when Holdfast lost something silently where it promises not to.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

from common import give, note, printable
from disk import Disk
from servers import Holdfast, Postgres, Sqlite, pause_until

LOAD_MIN = 150
LOAD_S = 90
FIRE_S = 60


class Bed:
    """One database on one disk, for one fault."""

    def __init__(self, peer, tools, seed):
        self.directory = tempfile.mkdtemp(prefix="peer-faults-", dir=tools.directory)
        os.chmod(self.directory, 0o711)
        self.disk = Disk(tools.holdfast, self.directory, seed)
        self.peer = peer
        self.acknowledged = []
        self.said = []
        home = os.path.join(self.disk.mount, "home")
        os.mkdir(home)
        give(home)
        give(self.directory)
        peer.fresh(home)
        self.disk.tell("sync")

    def load(self, rows=LOAD_MIN):
        """Inserts until so many are acknowledged; the client goes on."""
        first = max(self.acknowledged, default=0) + 1000 if self.acknowledged else 1
        self.peer.load(first)
        client = self.peer.clients[0]
        pause_until(lambda: len(client.acknowledged) >= rows or not client.running(), LOAD_S)
        return len(client.acknowledged) >= rows

    def collect(self):
        for client in self.peer.clients:
            self.acknowledged += client.acknowledged
            self.said += client.errors
            client.acknowledged, client.errors = [], []

    def until_fired(self, nudge=lambda: None):
        def done():
            nudge()
            return self.disk.fired() > 0

        if not pause_until(done, FIRE_S):
            raise RuntimeError("the fault did not fire: nothing was tested")

    def observe(self):
        """What the client and the server make of it, some time later."""
        time.sleep(1.5)
        client = self.peer.clients[0]
        before = len(client.acknowledged)
        time.sleep(0.5)
        goes_on = client.running() and len(client.acknowledged) > before
        words = ["the client is told: " + self.short(client.errors[0], 100)] if client.errors else []
        words.append("it goes on" if goes_on else "the client has ended" if not client.running() else "it hangs")
        if self.peer.server_runs() is False:
            words.append("the server has ended: " + self.short(self.peer.last_words()))
        return "; ".join(words)

    def short(self, text, characters=150):
        """Without the directory of this run."""
        for directory in [os.path.join(self.disk.mount, "home"), self.directory]:
            text = text.replace(directory + "/", "").replace(directory, ".")
        return printable(text, characters)

    def kill(self):
        self.peer.kill()
        self.collect()

    def finish(self):
        """Everything that was sent is acknowledged; then kill -9."""
        for client in self.peer.clients:
            client.finish()
        self.kill()

    def stop(self):
        self.peer.quiet()
        self.collect()
        self.peer.stop()

    def judge(self):
        """Starts and reads back what was acknowledged."""
        self.collect()
        self.disk.forget_cache()
        why = self.peer.start()
        if why is not None:
            return "refuses to start: " + self.short(why), "refused"
        try:
            found = self.peer.rows()
        except RuntimeError as error:
            return "starts; reading fails: " + self.short(str(error)), "refused"
        lost = [n for n in self.acknowledged if str(n) not in found]
        wrong = [n for n in map(int, found) if found[str(n)] != note(n)]
        words = f"starts; of {len(self.acknowledged)} acknowledged {len(lost)} are lost"
        if wrong:
            words += f", {len(wrong)} are wrong"
        return words, "silent" if lost or wrong else "whole"

    def end(self):
        try:
            self.peer.kill()
        finally:
            self.disk.unmount()
            shutil.rmtree(self.directory, ignore_errors=True)


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x01]))
        file.flush()
        os.fsync(file.fileno())


def killed(bed):
    bed.load()
    bed.kill()


def power_cut(bed):
    bed.load()
    bed.disk.tell("cut")
    bed.kill()
    bed.disk.tell("restore")


def torn_tail(bed):
    bed.load()
    bed.disk.tell(f"cut {bed.peer.journal_files} after=40")
    pause_until(lambda: bed.disk.status()["power"] == "off", FIRE_S)
    assert bed.disk.status()["power"] == "off", "the fault did not fire: nothing was tested"
    bed.kill()
    bed.disk.tell("restore")
    bed.disk.tell("clear")


def lying_disk(bed):
    bed.disk.tell("lie")
    bed.load()
    bed.until_fired()
    bed.disk.tell("cut")
    bed.kill()
    bed.disk.tell("restore")
    bed.disk.tell("clear")


def failing(rule):
    """A rule on the journal while it runs, then a power cut: what a failed sync left in the kernel's cache is gone."""

    def inject(bed):
        bed.load()
        bed.disk.tell(rule + " " + bed.peer.journal_files)
        bed.until_fired()
        seen = bed.observe()
        bed.disk.tell("clear")
        bed.disk.tell("cut")
        bed.kill()
        bed.disk.tell("restore")
        return seen

    return inject


def read_error(bed):
    bed.load()
    bed.stop()
    bed.disk.forget_cache()
    # Once would be the kernel's own reading ahead.
    bed.disk.tell("fail read " + bed.peer.data_files + " times=always")
    met = bed.judge()[0]
    bed.until_fired()
    bed.disk.tell("clear")
    bed.kill()
    return "with the fault: " + met


def full_disk(bed):
    bed.load()
    bed.disk.tell("capacity " + str(bed.disk.status()["used_bytes"] + (200 << 10)))
    pause_until(lambda: bed.disk.status()["disk_full"] > 0 and not bed.peer.clients[0].running(), FIRE_S)
    assert bed.disk.status()["disk_full"] > 0, "the fault did not fire: nothing was tested"
    seen = bed.observe()
    try:
        bed.peer.rows()
        seen += "; reading works"
    except RuntimeError as error:
        seen += "; reading fails: " + bed.short(str(error), 80)
    bed.disk.tell("capacity none")
    bed.collect()
    if bed.peer.server_runs() is not False:
        time.sleep(1)
        seen += "; with room again it " + ("goes on" if bed.load(20) else "does not go on")
    bed.kill()
    return seen


def journal_flip(tail):
    def inject(bed):
        bed.load()
        bed.finish()
        place = bed.peer.journal_place(tail)
        flip(bed.peer.journal(), place)

    return inject


def data_flip(bed):
    bed.load()
    bed.stop()
    content = open(bed.peer.data(), "rb").read()
    number = bed.acknowledged[len(bed.acknowledged) // 2]
    place = content.index(note(number).encode())
    flip(bed.peer.data(), place + 19)


def misdirected(bed):
    """A page of the database lands elsewhere in a checkpoint, and no recovery writes it again."""
    bed.load()
    for client in bed.peer.clients:
        client.finish()
    bed.disk.tell("misdirect " + bed.peer.data_files)
    bed.until_fired(bed.peer.checkpoint)
    bed.disk.tell("clear")
    bed.stop()


def deleted_journal(bed):
    bed.load()
    bed.kill()
    os.unlink(bed.peer.newest_journal())


def permissions(bed):
    bed.load()
    bed.kill()
    path = bed.peer.newest_journal()
    os.chmod(path, 0)
    seen = bed.judge()[0]
    os.chmod(path, 0o600)
    bed.kill()
    return "with mode 0 on its journal: " + seen


FAULTS = {
    "kill -9": killed,
    "power cut": power_cut,
    "torn tail of the journal": torn_tail,
    "a disk that lies about syncs": lying_disk,
    "EIO from a sync": failing("fail sync"),
    "EIO from a write": failing("fail write"),
    "EIO from a read": read_error,
    "full disk": full_disk,
    "bit flip in the middle of the journal": journal_flip(tail=False),
    "bit flip in the journal's tail": journal_flip(tail=True),
    "bit flip in a page of a database": data_flip,
    "misdirected write": misdirected,
    "deleted file": deleted_journal,
    "wrong permissions": permissions,
}

# What Holdfast cannot promise: bytes that no disk has.
LOSES = ["a disk that lies about syncs"]


def measure(peer, tools, name, seed):
    """One fault: what was seen, and how it ended."""
    bed = Bed(peer, tools, seed)
    try:
        seen = FAULTS[name](bed)
        after, verdict = bed.judge()
        return (f"{seen}. Then {after}" if seen else after), verdict
    finally:
        bed.end()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--holdfast", required=True, help="the binary, for its unsafe disk and as a peer")
    options.add_argument("--peer", choices=["holdfast", "sqlite", "postgres"], action="append")
    options.add_argument("--only", choices=list(FAULTS), action="append", metavar="FAULT")
    options.add_argument("--seed", type=int, default=1)
    tools = options.parse_args()
    tools.holdfast = os.path.abspath(tools.holdfast)
    tools.directory = tempfile.mkdtemp(prefix="peers-")
    os.chmod(tools.directory, 0o777)
    peers = [kind(tools) for kind in (Holdfast, Sqlite, Postgres) if not tools.peer or kind.name in tools.peer]
    rows, failed = {}, 0
    for name in tools.only or FAULTS:
        for peer in peers:
            try:
                seen, verdict = measure(peer, tools, name, tools.seed)
            except (AssertionError, RuntimeError, ValueError, IndexError, OSError) as error:
                seen, verdict = f"NOT MEASURED: {printable(str(error), 300)}", "broken"
            bad = verdict == "broken" or (peer.name == "holdfast" and verdict == "silent" and name not in LOSES)
            failed += bad
            rows.setdefault(name, {})[peer.name] = seen
            print(f"{'FAILED ' if bad else ''}{peer.name}: {name}: {verdict}: {seen}", flush=True)
    print("\n| fault | " + " | ".join(peer.version() for peer in peers) + " |\n|---|" + "---|" * len(peers))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells.get(peer.name, "") for peer in peers) + " |")
    shutil.rmtree(tools.directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
