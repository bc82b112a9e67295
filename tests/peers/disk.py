"""The unsafe disk of `holdfast unsafe-disk`, mounted for one test."""

import json
import os
import subprocess
import time


class Disk:
    """Everything below `mount` is on a disk that fails on command; `holdfast` is the binary that serves it."""

    def __init__(self, holdfast, directory, seed):
        self.mount = os.path.join(directory, "mount")
        backing = os.path.join(directory, "backing")
        os.makedirs(self.mount)
        os.makedirs(backing)
        # The databases do not run as root where this does.
        command = [holdfast, "unsafe-disk", self.mount, "--backing", backing, "--sync-us", "100", "--garbage", "0"]
        command += ["--seed", str(seed)] + (["--allow-other"] if os.geteuid() == 0 else [])
        log = open(os.path.join(directory, "disk.log"), "w")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started = time.monotonic()
        while not os.path.exists(self.control()):
            if self.process.poll() is not None or time.monotonic() - started > 60:
                raise RuntimeError("the unsafe disk cannot be mounted: " + open(log.name).read())
            time.sleep(0.05)

    def control(self):
        return os.path.join(self.mount, ".unsafe-disk")

    def tell(self, command):
        with open(self.control(), "w") as control:
            control.write(command + "\n")

    def status(self):
        with open(self.control()) as control:
            return json.load(control)

    def fired(self):
        """How often the rules fired."""
        return sum(fault["fired"] for fault in self.status()["faults"])

    def forget_cache(self):
        """What is read next comes from the disk and not from the kernel's cache."""
        for directory, _, names in os.walk(self.mount):
            for name in names:
                path = os.path.join(directory, name)
                if path == self.control() or not os.path.isfile(path):
                    continue
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)

    def unmount(self):
        self.process.terminate()
        self.process.wait()
