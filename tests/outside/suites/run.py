"""What real clients do on PostgreSQL 15 and on Holdfast, counted. Not part of CI: it installs packages.

    python3 tests/outside/suites/run.py HOLDFAST SCRATCH [asyncpg] [alembic] [django] [sqlalchemy]

Starts a private PostgreSQL and a Holdfast below SCRATCH, installs the clients into a virtual environment there, runs each
suite on both, and prints a table: client, passed/total on PostgreSQL, passed/total on Holdfast. What fails on Holdfast is in
SCRATCH/SUITE-holdfast.log. Fails where PostgreSQL 15 is not installed; a suite ends after SUITE_SECONDS_MAX.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "support"))
from holdfast import SCRATCH, Server, free_port, small  # noqa: E402

POSTGRES = Path("/usr/lib/postgresql/15/bin")
SUITE_SECONDS_MAX = 1800
PACKAGES = ["asyncpg==0.32.0", "alembic==1.20.1", "Django==5.2.19", "SQLAlchemy==2.0.58", "psycopg[binary]==3.3.9", "pytest"]
VENV = SCRATCH / "venv"


def as_postgres(*words):
    """Runs a program of PostgreSQL's, which refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd="/")


def start_postgres():
    """A private PostgreSQL; returns its port and how to stop it."""
    home, port = SCRATCH / "postgres", free_port()
    home.mkdir()
    if os.geteuid() == 0:
        shutil.chown(home, "postgres")
    data = home / "data"
    as_postgres(POSTGRES / "initdb", "-D", data, "-U", "holdfast", "--auth=trust", "--no-locale", "-E", "UTF8", "-N")
    options = f"-p {port} -k {home} -c fsync=off -c timezone=UTC -c listen_addresses=127.0.0.1"
    as_postgres(POSTGRES / "pg_ctl", "-D", data, "-o", options, "-l", home / "log", "-w", "start")
    subprocess.run([POSTGRES / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "holdfast", "holdfast"], check=True)
    return port, lambda: as_postgres(POSTGRES / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def run(words, log, directory, port):
    """Runs a program of the virtual environment; returns its output."""
    environment = os.environ | {"SUITE_PORT": str(port), "PYTHONPATH": str(directory)}
    try:
        done = subprocess.run(
            [str(VENV / "bin" / words[0]), *map(str, words[1:])],
            cwd=directory, env=environment, text=True, timeout=SUITE_SECONDS_MAX,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace") + "\nended: SUITE_SECONDS_MAX"
    log.write_text(text)
    return text


def steps(program):
    """A suite that prints `step<TAB>ok` or what went wrong, one line each."""

    def suite(log, directory, port):
        text = run(["python", HERE / program], log, directory, port)
        findings = [line.split("\t", 1)[1] for line in text.splitlines() if line.count("\t") == 1]
        return findings.count("ok"), len(findings)

    return suite


def sqlalchemy(log, directory, port):
    """SQLAlchemy's own suite for dialects, with psycopg 3."""
    (directory / "conftest.py").write_text(
        "from sqlalchemy.dialects import registry\n"
        "import pytest\n"
        "pytest.register_assert_rewrite('sqlalchemy.testing.assertions')\n"
        "from sqlalchemy.testing.plugin.pytestplugin import *\n"
    )
    (directory / "test_suite.py").write_text("from sqlalchemy.testing.suite import *\n")
    url = f"postgresql+psycopg://holdfast@127.0.0.1:{port}/holdfast"
    (directory / "setup.cfg").write_text(
        f"[db]\ndefault = {url}\n[sqla_testing]\nprofile_file = profiles.txt\nrequirement_cls = sqlalchemy.testing.requirements:SuiteRequirements\n"
    )
    text = run(["pytest", "-q", "-p", "no:cacheprovider", "test_suite.py"], log, directory, port)
    count = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)", text.splitlines()[-1] if text else "")}
    passed = count.get("passed", 0)
    return passed, sum(count.values())


SUITES = {
    "asyncpg": steps("asyncpg_steps.py"),
    "alembic": steps("alembic_steps.py"),
    "django": steps("django_steps.py"),
    "sqlalchemy": sqlalchemy,
}


def main():
    wanted = sys.argv[3:] or list(SUITES)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    if not VENV.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
    port, stop = start_postgres()
    try:
        with Server(small(SCRATCH / f"holdfast-{time.time_ns()}")) as server:
            server.ready()
            print(f"| {'client':12} | PostgreSQL 15 | Holdfast |\n|---|---|---|")
            for name in wanted:
                counts = []
                for on, at in [("postgres", port), ("holdfast", server.port)]:
                    directory = SCRATCH / f"{name}-{on}"
                    shutil.rmtree(directory, ignore_errors=True)
                    directory.mkdir()
                    counts.append(SUITES[name](SCRATCH / f"{name}-{on}.log", directory, at))
                shown = " | ".join(f"{passed}/{total}" for passed, total in counts)
                print(f"| {name:12} | {shown} |", flush=True)
    finally:
        stop()


main()
