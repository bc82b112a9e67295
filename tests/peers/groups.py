"""Groups of two servers with data and a third node: how each is made, broken, healed and asked for its master.

The nodes are numbered 0 and 1 for the servers a and b, and 2 for the third.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

from common import account, give
from servers import beside_postgres
from wire import Closed, Wire

PATIENCE_S = 180
TABLE = "create table takeover (id bigint primary key)"


def until(done, what):
    """Waits for it; `done` may raise while the nodes are on their way."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            if done():
                return
            error = None
        except (OSError, Closed, TypeError, ValueError, KeyError, StopIteration) as seen:
            error = seen
        if time.monotonic() > limit:
            raise RuntimeError(f"not in {PATIENCE_S} s: {what} ({error})")
        time.sleep(0.05)


def free_ports(count):
    """All are held until all are known, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def descendants(pid):
    """The process and all that it has started, directly or not."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = open(f"/proc/{entry}/stat").read()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Holdfast:
    """`holdfast cluster run` for the servers a and b and the witness w, or for the servers a, b and c, whose commits wait for any
    one of the other two."""

    name = "Holdfast"

    def __init__(self, home, binary, servers=2):
        self.names, self.servers = ("abw" if servers == 2 else "abc"), servers
        self.binary, self.home = os.path.abspath(binary), os.path.join(home, "holdfast")
        ports = free_ports(servers + 3)
        self.ports, self.links = ports[:servers], ports[servers:]
        self.config = os.path.join(self.home, "cluster.toml")
        self.runtime = f"/dev/shm/takeovers-{os.getpid()}"
        self.environment = os.environ | {"XDG_RUNTIME_DIR": self.runtime}
        self.log = None
        self.supervisors = [None, None, None]
        self.command = None
        for directory in [self.home, self.runtime]:
            os.mkdir(directory, 0o700)
        self.log = open(os.path.join(self.home, "log"), "a")
        self.make()
        for node in [2, 1, 0]:
            self.start(node)
        until(lambda: self.is_whole(0), "a is the master, the others its standbys")
        with Wire(port=self.ports[0]) as wire:
            wire.run(TABLE)

    def version(self):
        return subprocess.run([self.binary, "--version"], capture_output=True, text=True).stdout.strip()

    def popen(self, *words, **more):
        return subprocess.Popen([self.binary, *words], env=self.environment, stderr=self.log, **more)

    def make(self):
        directory = lambda node: os.path.join(self.home, self.names[node])
        os.mkdir(directory(0), 0o700)
        self.configure(0, f'node_name = "a"\nlisten = "127.0.0.1:{self.ports[0]}"\n')
        server = self.popen("serve", "--data", directory(0), stdout=subprocess.PIPE)
        server.stdout.readline()
        source = f"127.0.0.1:{self.ports[0]}"
        for node in range(1, self.servers):
            words = ["--from", source, "--data", directory(node), "--name", self.names[node]]
            assert self.popen("standby", "create", *words, stdout=self.log).wait() == 0, "a standby cannot be made"
            self.configure(node, f'listen = "127.0.0.1:{self.ports[node]}"\n')
        server.terminate()
        server.wait()
        for node in range(self.servers if self.servers > 2 else 0):
            others = ", ".join(name for name in self.names if name != self.names[node])
            self.configure(node, f'synchronous_standby_names = "ANY 1 ({others})"\n')
        with open(self.config, "w") as out:
            out.write('name = "takeovers"\n')
            for node in range(3):
                out.write(f'[node.{self.names[node]}]\nlinks = ["127.0.0.1:{self.links[node]}"]\ndata = "{directory(node)}"\n')
                out.write("witness = true\n" if node >= self.servers else "")
            out.write(f"[database]\nnodes = {json.dumps(list(self.names[: self.servers]))}\n")

    def configure(self, node, lines):
        with open(os.path.join(self.home, self.names[node], "holdfast.toml"), "a") as out:
            out.write(lines)

    def start(self, node):
        words = ["cluster", "run", "--node", self.names[node], "--config", self.config]
        self.supervisors[node] = self.popen(*words, stdout=subprocess.PIPE)
        self.supervisors[node].stdout.readline()

    def record(self):
        """The newest record that a node knows."""
        known = []
        for node in reversed(range(3)):
            try:
                known.append(self.status(node)["record"])
            except (OSError, ValueError):
                continue
            if self.servers == 2 and known[-1]:
                break  # The witness is never lost here.
        return max(filter(None, known), key=lambda record: (record["epoch"], record["serving"]))

    def status(self, node):
        words = ["cluster", "status", "--json", "--node", self.names[node], "--config", self.config]
        told = self.popen(*words, stdout=subprocess.PIPE).communicate()[0]
        return json.loads(told)

    def is_whole(self, master):
        record = self.record()
        is_whole = record["sync_set"] == list(self.names[: self.servers])
        return record["master"] == self.names[master] and record["serving"] and is_whole

    def master(self):
        return self.names.index(self.record()["master"])

    def processes(self, node):
        server = self.status(node)["server"]["pid"]
        return server, [self.supervisors[node].pid, server]

    def breaks(self, fault, node):
        if fault == "switchover":
            to, at = self.names[(node + 1) % self.servers], self.names[(node + 2) % 3]
            words = [self.binary, "cluster", "switchover", "--to", to, "--node", at, "--config", self.config]
            # As a person would: refused while a node has not shown where its trail ends, and asked for again.
            again = 'for i in 1 2 3 4 5 6 7 8 9; do "$@" && exit 0; sleep 1; done; exit 1'
            self.command = subprocess.Popen(
                ["sh", "-c", again, "sh", *words], env=self.environment, stdout=self.log, stderr=self.log
            )
        elif fault == "stop":
            self.supervisors[node].terminate()
        else:
            hit = (node + 1) % self.servers if fault == "standby" else node
            server, both = self.processes(hit)
            self.broken = {"server": [server], "server stopped": [server]}.get(fault, both)
            if fault.startswith("supervisor"):
                self.broken = both[:1]
            is_stop = fault in ["frozen", "standby"] or fault.endswith("stopped")
            signal_all(self.broken, signal.SIGSTOP if is_stop else signal.SIGKILL)
            if fault == "supervisor":
                # As systemd does.
                self.supervisors[node].wait()
                self.start(node)

    def heals(self, fault, node):
        """Continues what was stopped; may be called again."""
        if fault in ["frozen", "standby"] or fault.endswith("stopped"):
            signal_all(self.broken, signal.SIGCONT)

    def restores(self, fault, node):
        if self.command is not None:
            assert self.command.wait() == 0, "the switchover has failed"
            self.command = None
        if fault in ["node", "stop"]:
            self.supervisors[node].wait()
            self.start(node)
        until(lambda: self.is_whole(self.master()), f"both nodes serve after {fault}")
        # Else crashes of servers that follow each other are answered by restarts in place.
        for command in ["freeze", "thaw"]:
            words = [self.binary, "cluster", command, "--node", self.names[node], "--config", self.config]
            subprocess.run(words, env=self.environment, stdout=self.log, stderr=self.log, check=True)

    def end(self):
        for node in range(self.servers):
            try:
                signal_all(self.processes(node)[1], signal.SIGKILL)
            except (OSError, TypeError, ValueError, KeyError):
                pass
        for supervisor in self.supervisors:
            if supervisor is not None:
                supervisor.kill()
        shutil.rmtree(self.runtime, ignore_errors=True)


class Patroni:
    """Patroni for the servers a and b, with a member of etcd at each of the three nodes."""

    names = "abw"

    def __init__(self, home, ttl):
        self.home, self.ttl = os.path.join(home, "patroni"), ttl
        self.name = f"Patroni, ttl {ttl} s"
        ports = free_ports(10)
        self.ports, self.apis, self.etcd_clients, self.etcd_peers = ports[:2], ports[2:4], ports[4:7], ports[7:]
        self.etcds, self.agents, self.command = [None] * 3, [None] * 2, None
        os.mkdir(self.home, 0o700)
        give(self.home)
        self.log = open(os.path.join(self.home, "log"), "a")
        for node in range(3):
            self.start_etcd(node)
        for node in range(2):
            self.configure(node)
            self.start(node)
            until(lambda: self.roles().get(self.names[node]), f"{self.names[node]} runs")
        until(lambda: self.is_whole(0), "a is the master, b its synchronous standby")
        with Wire(port=self.ports[0], user="postgres", database="postgres") as wire:
            wire.run("create role holdfast superuser login")
            wire.run("create database holdfast owner holdfast")
        with Wire(port=self.ports[0]) as wire:
            wire.run(TABLE)

    def version(self):
        told = lambda *words: subprocess.run(words, capture_output=True, text=True).stdout.split("\n")[0]
        return ", ".join([told("patroni", "--version"), told("etcd", "--version"), told(beside_postgres("postgres"), "--version")])

    def popen(self, *words):
        return subprocess.Popen(words, stdout=self.log, stderr=self.log, cwd=self.home, start_new_session=True, **account())

    def start_etcd(self, node):
        url = lambda port: f"http://127.0.0.1:{port}"
        name = self.names[node]
        members = ",".join(f"{one}={url(port)}" for one, port in zip(self.names, self.etcd_peers))
        client, peer = url(self.etcd_clients[node]), url(self.etcd_peers[node])
        self.etcds[node] = self.popen(
            "etcd", "--name", name, "--data-dir", os.path.join(self.home, f"etcd-{name}"),
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", members, "--log-level", "warn",
        )

    def config(self, node):
        return os.path.join(self.home, f"{self.names[node]}.json")

    def configure(self, node):
        name, third = self.names[node], self.ttl // 3
        place = lambda port: {"listen": f"127.0.0.1:{port}", "connect_address": f"127.0.0.1:{port}"}
        trust = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        users = {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}
        settings = {
            "scope": "takeovers",
            "name": name,
            "restapi": place(self.apis[node]),
            "etcd3": {"hosts": [f"127.0.0.1:{port}" for port in self.etcd_clients]},
            "bootstrap": {
                "dcs": {
                    "ttl": self.ttl, "loop_wait": third, "retry_timeout": third, "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
                },
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
            },
            "postgresql": place(self.ports[node]) | {
                "data_dir": os.path.join(self.home, name),
                "bin_dir": os.path.dirname(beside_postgres("postgres")),
                "pgpass": os.path.join(self.home, f"pgpass-{name}"),
                "pg_hba": trust,
                "authentication": {kind: {"username": user, "password": "unused"} for kind, user in users.items()},
                "parameters": {"unix_socket_directories": self.home},
            },
        }
        with open(self.config(node), "w") as out:
            json.dump(settings, out)  # YAML contains JSON.
        give(self.config(node))

    def start(self, node):
        self.agents[node] = self.popen("patroni", self.config(node))

    def roles(self):
        """{name: role}, as the first node that answers sees the cluster."""
        for api in self.apis:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{api}/cluster", timeout=2) as answer:
                    members = json.load(answer)["members"]
            except OSError:
                continue
            return {one["name"]: one["role"] for one in members if one["state"] in ["running", "streaming"]}
        return {}

    def is_whole(self, master):
        roles = self.roles()
        return roles.get(self.names[master]) == "leader" and roles.get(self.names[1 - master]) == "sync_standby"

    def master(self):
        return next(self.names.index(name) for name, role in self.roles().items() if role == "leader")

    def postmaster(self, node):
        return int(open(os.path.join(self.home, self.names[node], "postmaster.pid")).readline())

    def processes(self, node):
        server = descendants(self.postmaster(node))
        return server, server + descendants(self.agents[node].pid) + [self.etcds[node].pid]

    def breaks(self, fault, node):
        if fault == "switchover":
            leader, candidate = self.names[node], self.names[1 - node]
            words = ["--master", leader, "--candidate", candidate, "--force", "takeovers"]
            self.command = self.popen("patronictl", "-c", self.config(node), "switchover", *words)
        elif fault == "stop":
            self.agents[node].terminate()
        elif fault == "server":
            os.kill(self.postmaster(node), signal.SIGKILL)
        else:
            self.broken = self.processes(node)[1]
            signal_all(self.broken, signal.SIGSTOP if fault == "frozen" else signal.SIGKILL)

    def heals(self, fault, node):
        if fault == "frozen":
            signal_all(self.broken, signal.SIGCONT)

    def restores(self, fault, node):
        if self.command is not None:
            assert self.command.wait() == 0, "the switchover has failed"
            self.command = None
        if fault in ["node", "stop"]:
            self.agents[node].wait()
            if fault == "node":
                self.etcds[node].wait()
                self.start_etcd(node)
            self.start(node)
        # A killed PostgreSQL comes back as the master.
        until(lambda: self.is_whole(0) or self.is_whole(1), f"both are back after {fault}")

    def end(self):
        for node in range(2):
            try:
                signal_all(self.processes(node)[1], signal.SIGKILL)
            except (OSError, ValueError):
                pass
        for process in self.etcds + self.agents:
            if process is not None:
                process.kill()
