"""Bad data directories and bad disks: each gives a clear error and a non-zero exit status, or goes on without loss.

    python3 directory.py HOLDFAST SCRATCH
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"
sys.path[:0] = [str(GOLDEN.parent / "support"), str(GOLDEN)]
import make as golden  # noqa: E402
from holdfast import BINARY, Server, Skip, case, command, run_cases, small  # noqa: E402

ROWS = 500


def filled(data: Path) -> None:
    """A cleanly stopped directory with a table of known contents."""
    with Server(small(data)) as server:
        fill(server.ready())
        server.stop()


def fill(server: Server) -> None:
    """The table of known contents."""
    server.sql("CREATE TABLE kept (id int PRIMARY KEY, note text)")
    values = ", ".join(f"({i}, 'note {i}')" for i in range(ROWS))
    server.sql(f"INSERT INTO kept VALUES {values}")


TOTAL = "SELECT count(*), sum(id) FROM kept"
WHOLE = f"{ROWS}|{ROWS * (ROWS - 1) // 2}"


def is_whole(server: Server) -> bool:
    return server.sql(TOTAL) == WHOLE


@case
def directory_is_made_and_opens_again(directory):
    data = directory / "made" / "data"
    with Server(data) as server:
        fill(server.ready())
        server.stop()
    with Server(data) as server:
        assert is_whole(server.ready())
        server.stop()


@case
def directory_in_use(directory):
    data = directory / "data"
    with Server(data) as first:
        first.ready()
        with Server(data) as second:
            said = second.refusal()
        assert "in use" in said and str(data) in said, said
        assert first.sql("SELECT 1") == "1", "the first server has to go on"
        first.stop()


@case
def port_in_use(directory):
    with Server(directory / "one") as first:
        first.ready()
        with Server(directory / "two", port=first.port) as second:
            said = second.refusal()
        assert str(first.port) in said, said
        first.stop()


@case
def directory_with_a_file_of_somebody_else(directory):
    """Refused or served, but the file stays as it was."""
    data = directory / "data"
    data.mkdir()
    (data / "letter.txt").write_text("Dear reader,\n")
    with Server(data) as server:
        server.started()
    assert (data / "letter.txt").read_text() == "Dear reader,\n"


@case
def file_in_place_of_a_directory(directory):
    data = directory / "data"
    data.write_text("not a directory")
    with Server(data) as server:
        assert str(data) in server.refusal()


@case
def directory_that_cannot_be_made(directory):
    with Server(Path("/proc/holdfast/data")) as server:
        assert "/proc/holdfast" in server.refusal()


@case
def unknown_option(directory):
    done = command("serve", "--no-such-option")
    assert done.returncode == 2 and "--no-such-option" in done.stderr, done


def files_of(data: Path) -> list[Path]:
    found = [file for file in sorted(data.rglob("*")) if file.is_file() and file.stat().st_size > 0]
    return [file for file in found if file.name != "holdfast.toml"]  # settings, not data


def damaged(directory: Path, damage) -> None:
    """Damages one file after the other: every row is there, or the server or the statement is refused with an error
    that names the file. A database is opened when it is first used, so a server may start beside a damaged one."""
    pristine = directory / "pristine"
    filled(pristine)
    refused = 0
    for file in files_of(pristine):
        name = file.relative_to(pristine)
        data = directory / "data"
        subprocess.run(["cp", "-a", "--sparse=always", pristine, data], check=True)
        damage(data / name)
        with Server(data) as server:
            if server.started():
                done = server.psql(TOTAL, check=False)
                said = done.stderr
                assert done.returncode != 0 or done.stdout.strip() == WHOLE, f"{name} damaged, rows missing, no error"
                whole = done.returncode == 0
                assert "panicked" not in server.log(), server.log()[-2000:]
            else:
                whole, said = False, server.refusal()
        if not whole:
            # The epoch in a missing segment's name is not known: the error shows it as a star.
            named = name.name in said or re.sub(r"^\d+-(\d+\.segment)$", r"*-\1", name.name) in said
            assert named, f"{name} damaged, and the error does not name it: {said[-2000:]}"
            refused += 1
        shutil.rmtree(data)
    assert refused > 0, "no damage was noticed at all"


@case
def each_file_with_flipped_bytes(directory):
    def flip(file: Path) -> None:
        with file.open("r+b") as f:
            start = min(64, file.stat().st_size // 2)
            f.seek(start)
            old = f.read(64)
            f.seek(start)
            f.write(bytes(byte ^ 0x5A for byte in old))

    damaged(directory, flip)


@case
def each_file_cut_in_half(directory):
    damaged(directory, lambda file: os.truncate(file, file.stat().st_size // 2))


@case
def each_file_missing(directory):
    damaged(directory, lambda file: file.unlink())


@case
def each_file_of_a_newer_version(directory):
    """The formats' version bytes follow their magic: whatever the first sixteen bytes become, it is no crash."""

    def raise_versions(file: Path) -> None:
        with file.open("r+b") as f:
            head = f.read(16)
            f.seek(0)
            f.write(head[:8] + bytes([0xFE]) * (len(head) - 8))

    damaged(directory, raise_versions)


@case
def list_of_databases_of_a_newer_release(directory):
    data = directory / "data"
    filled(data)
    manifest = data / "databases.toml"
    manifest.write_text(manifest.read_text().replace("format = 1", "format = 99"))
    with Server(data) as server:
        said = server.refusal()
    assert str(manifest) in said and "newer" in said, said


def for_nobody(directory: Path) -> Path:
    """A copy of the binary that an unprivileged user may run, in a directory he may enter."""
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    binary = directory / "holdfast"
    shutil.copy(BINARY, binary)
    subprocess.run(["chown", "-R", "nobody", directory], check=True)
    probe = subprocess.run([binary, "--version"], user="nobody", capture_output=True, cwd="/")
    if probe.returncode != 0:
        raise Skip(f"the user nobody cannot run a program below {directory}")
    return binary


def serve_as_nobody(directory: Path, data: Path) -> Server:
    return Server(data, user="nobody", group="nogroup", extra_groups=[], cwd="/")


@case
def directory_that_may_not_be_written(directory):
    data = directory / "data"
    filled(data)
    try:
        for_nobody(directory)
    except PermissionError as error:
        raise Skip(str(error)) from None
    subprocess.run(["chmod", "-R", "a-w", data], check=True)
    with serve_as_nobody(directory, data) as server:
        said = server.refusal()
    assert str(data) in said and ("ermission denied" in said or "read-only" in said.lower()), said
    subprocess.run(["chmod", "-R", "u+w", data], check=True)
    with Server(data) as server:
        assert is_whole(server.ready()), "a refused directory is left as it was"
        server.stop()


class Mounted:
    """A small ext4 file system of its own, so that it can be full or read-only."""

    def __init__(self, directory: Path, megabytes: int):
        self.image, self.point = directory / "image", directory / "mounted"
        self.point.mkdir()
        with self.image.open("wb") as f:
            f.truncate(megabytes << 20)
        done = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], capture_output=True, text=True)
        if done.returncode == 0:
            done = subprocess.run(["mount", "-o", "loop", self.image, self.point], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")

    def __enter__(self):
        return self.point

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", self.point], check=False)


def fill_up(file: Path, leave_bytes: int = 0) -> None:
    """Takes the file system's free space, all but `leave_bytes`."""
    free = os.statvfs(file.parent).f_bavail * os.statvfs(file.parent).f_frsize
    with file.open("wb") as f:
        try:
            os.posix_fallocate(f.fileno(), 0, max(free - leave_bytes, 4096))
            while leave_bytes == 0:
                f.seek(0, os.SEEK_END)
                f.write(b"\0" * 4096)
                f.flush()
        except OSError:
            pass


@case
def disk_full_at_the_start(directory):
    try:
        with Mounted(directory, 64) as point:
            fill_up(point / "filler", leave_bytes=1 << 20)
            with Server(point / "data") as server:
                said = server.refusal()
            assert "space" in said.lower() and str(point) in said, said
            (point / "filler").unlink()
    except FileNotFoundError as error:
        raise Skip(str(error)) from None


@case
def disk_full_while_writing(directory):
    """Writes fail with 53100 when the disk is full; reads go on; nothing acknowledged is lost; room heals it."""
    with Mounted(directory, 256) as point:
        with Server(small(point / "data")) as server:
            server.ready()
            server.sql("CREATE TABLE grow (id int PRIMARY KEY, filler text)")
            fill_up(point / "filler", leave_bytes=8 << 20)
            written, refused = 0, ""
            for i in range(2000):
                done = server.psql(f"INSERT INTO grow VALUES ({i}, repeat('x', 500000))", check=False)
                if done.returncode != 0:
                    refused = done.stderr
                    break
                written += 1
            assert refused, f"{written} rows of 500 kB found room on a full disk"
            if server.process.poll() is None:
                assert "53100" in refused, refused
                assert server.sql("SELECT count(*) FROM grow") == str(written), "reads go on"
                (point / "filler").unlink()
                server.wait_for(lambda: server.psql("INSERT INTO grow VALUES (100000, 'after')", check=False).returncode == 0)
                server.stop()
                written += 1
            else:
                said = server.log()
                assert "space" in said.lower() and "panicked" not in said.split("abort")[0], said[-2000:]
                (point / "filler").unlink()
        with Server(point / "data") as server:
            found = int(server.ready().sql("SELECT count(*) FROM grow"))
            assert found >= written, f"{written} acknowledged, {found} found"
            server.stop()


@case
def disk_mounted_read_only(directory):
    with Mounted(directory, 256) as point:
        filled(point / "data")
        done = subprocess.run(["mount", "-o", "remount,ro", point], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"the file system cannot be made read-only: {done.stderr.strip()}")
        with Server(point / "data") as server:
            said = server.refusal()
        assert "ead-only" in said and str(point) in said, said


@case
def directories_of_earlier_releases_open(directory):
    archives = sorted(GOLDEN.glob("*.tar.xz"))
    assert archives, f"no archive in {GOLDEN}"
    for archive in archives:
        with tarfile.open(archive) as tar:
            tar.extractall(directory)
        with Server(directory / "data") as server:
            found = server.ready().sql(golden.QUESTION)
            assert found == golden.ANSWER, f"{archive.name}: {found}"
            server.stop()
        shutil.rmtree(directory / "data")


@case
def import_of_a_file_that_is_not_sqlite(directory):
    letter = directory / "letter.txt"
    letter.write_text("Dear reader,\n" * 500)
    done = command("import", "--data", str(directory / "data"), str(letter))
    assert done.returncode != 0 and str(letter) in done.stderr, done
    assert "panicked" not in done.stderr, done.stderr


@case
def import_of_a_file_that_is_missing(directory):
    done = command("import", "--data", str(directory / "data"), str(directory / "missing.db"))
    assert done.returncode != 0 and "missing.db" in done.stderr, done


@case
def check_of_a_good_directory(directory):
    data = directory / "data"
    filled(data)
    done = command("check", "--data", str(data))
    assert done.returncode == 0, done


if __name__ == "__main__":
    run_cases()
