"""What the parts share: rows that say what they are, processes, and what was acknowledged."""

import os
import pwd
import subprocess
import sys
import threading


def note(number):
    """Some hundred bytes that follow from the id."""
    return f"{number:020}" * (1 + number % 17)


def account():
    """As whom the databases run: root's rights would hide faults of permissions, and PostgreSQL refuses them."""
    if os.geteuid() != 0:
        return {}
    for name in ["postgres", "nobody"]:
        try:
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    raise RuntimeError("there is neither a user postgres nor nobody")


def give(path):
    """Makes the path the account's own."""
    if account():
        os.chown(path, account()["user"], account()["group"])


def python():
    """An interpreter that the account may run: one below root's home is out of its reach."""
    for program in [sys.executable, "/usr/bin/python3"]:
        try:
            subprocess.run([program, "-c", "import sqlite3"], check=True, cwd="/", **account())
            return program
        except (OSError, subprocess.CalledProcessError):
            continue
    raise RuntimeError("no Python that the account may run has sqlite3")


class Writer:
    """A client process that prints `ack ID` lines; it is fed where it reads its statements."""

    def __init__(self, command, lines=None, **more):
        feed = subprocess.PIPE if lines else subprocess.DEVNULL
        self.acknowledged = []
        self.errors = []
        self.enough = False
        self.process = subprocess.Popen(
            command, stdin=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
        )
        self.threads = [threading.Thread(target=self.listen, daemon=True)]
        if lines:
            self.threads.append(threading.Thread(target=self.feed, args=(lines,), daemon=True))
        for thread in self.threads:
            thread.start()

    def feed(self, lines):
        try:
            for line in lines:
                if self.enough:
                    break
                self.process.stdin.write(line)
                self.process.stdin.flush()
            self.process.stdin.close()
        except (BrokenPipeError, ValueError, OSError):
            pass  # It has ended, and `errors` says why.

    def listen(self):
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ack":
                self.acknowledged.append(int(rest))
            elif line.strip():
                self.errors.append(line.strip().removeprefix("error "))

    def running(self):
        return self.process.poll() is None

    def finish(self):
        """Lets it end by itself, so that nothing is under way any more."""
        self.enough = True
        if self.process.stdin is None:
            self.process.terminate()
        self.process.wait(60)
        self.threads[0].join(10)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.threads[0].join(10)


def printable(text, characters=150):
    """The beginning of a message, on one line of a table."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:characters].replace("|", "/")
