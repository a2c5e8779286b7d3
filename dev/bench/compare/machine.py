"""The machine: processes and what they cost, directories and what they hold, ports, and a PostgreSQL of our own."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROGRAMS = ["/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/15/bin"]


def stat(pid):
    """State, parent, and the processor time of a process in ticks. None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name may have spaces: what follows is after its last bracket.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # With the times of children that have ended and were waited for.
    return fields[0], int(fields[1]), sum(int(field) for field in fields[11:15])


def tree(roots):
    """These processes and all that descend from them."""
    stats = {int(name): stat(name) for name in os.listdir("/proc") if name.isdigit()}
    children = {}
    for pid, one in stats.items():
        if one:
            children.setdefault(one[1], []).append(pid)
    found, left = [], [pid for pid in roots if stats.get(pid)]
    while left:
        pid = left.pop()
        found.append(pid)
        left.extend(children.get(pid, []))
    return found


def cpu_seconds(roots):
    return sum(one[2] for one in map(stat, tree(roots)) if one) / TICKS


class Others:
    """How much of the processor others take meanwhile: a round beside other work is no round."""

    def __init__(self):
        self.start = self.now()

    def now(self):
        with open("/proc/stat", encoding="utf-8") as file:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return time.monotonic(), (user + nice + system + irq + softirq + steal) / TICKS, cpu_seconds([os.getpid()])

    def percent(self):
        seconds, busy, ours = (late - early for late, early in zip(self.now(), self.start))
        return 100 * max(0.0, busy - ours) / (seconds * os.cpu_count())


def written_bytes(roots):
    """What these processes have handed to the disk so far."""
    total = 0
    for pid in tree(roots):
        try:
            text = Path(f"/proc/{pid}/io").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += int(text.split("write_bytes: ")[1].split()[0])
    return total


def size_bytes(directories):
    """How long all files in the directories are. Their blocks say less: RocksDB takes those of its log in advance."""
    total = 0
    for directory in directories:
        for folder, _folders, files in os.walk(directory):
            for file in files:
                try:
                    total += os.lstat(os.path.join(folder, file)).st_size
                except FileNotFoundError:
                    continue
    return total


def kill(roots):
    """SIGKILL for all of them at once: stopped first, so that no parent sees a child die."""
    pids = tree(roots)
    for sign in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                continue


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(condition, seconds, what):
    """Waits for a condition, but not for ever."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if value := condition():
                return value
        except (OSError, RuntimeError):
            pass  # not yet
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {seconds} s")


class Process:
    """One process of a peer, with its output in a file."""

    # All that were started: none stays behind.
    started = []

    def __init__(self, arguments, log, **settings):
        self.log = log
        with open(log, "ab") as output:
            settings.setdefault("stdin", subprocess.DEVNULL)
            self.child = subprocess.Popen(arguments, stdout=settings.pop("stdout", output), stderr=output, **settings)
        self.pid = self.child.pid
        Process.started.append(self)

    def end(self, seconds=30):
        """An orderly end, or after that time the other one. Ends what it started, too."""
        family = tree([self.pid])
        self.child.terminate()
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        for pid in family[1:]:
            if stat(pid) and stat(pid)[1] == 1:
                kill([pid])

    def kill(self):
        kill([self.pid])
        self.child.wait()

    @classmethod
    def kill_all(cls):
        for process in cls.started:
            if process.child.poll() is None:
                process.kill()


class Worker(Process):
    """A peer's file, run by the Python that the peer is installed in. See work.py."""

    def __init__(self, python, file, log, **arguments):
        command = [python, str(file), json.dumps(arguments)]
        super().__init__(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = []
        self.hear(60)

    def hear(self, seconds):
        timer = threading.Timer(seconds, self.child.kill)
        timer.start()
        try:
            for line in self.child.stdout:
                if line.startswith("=> "):
                    return json.loads(line[3:])
        finally:
            timer.cancel()
        raise RuntimeError(f"the worker ended: see {self.log}")

    def say(self, **command):
        self.child.stdin.write(json.dumps(command) + "\n")
        self.child.stdin.flush()

    def ask(self, seconds=60, **command):
        self.say(**command)
        return self.hear(seconds)

    def end(self, seconds=10):
        try:
            self.ask(do="stop")
            self.child.stdin.close()
            self.child.wait(seconds)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass
        super().end(seconds)


class Postgres:
    """A cluster of our own, which flushes each commit. PostgreSQL refuses root, so root runs it as `postgres`."""

    SETTINGS = {
        "listen_addresses": "127.0.0.1",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": "1GB",
        "max_connections": "300",
        "max_wal_size": "4GB",
        "unix_socket_directories": "",
    }

    def __init__(self, scratch):
        self.programs = next((Path(path) for path in PROGRAMS if Path(path, "initdb").exists()), None)
        if self.programs is None:
            raise RuntimeError("PostgreSQL is not installed: apt install postgresql")
        self.user = "postgres" if os.getuid() == 0 else None
        # Another user cannot reach into root's home.
        self.place = tempfile.mkdtemp(prefix="stepgate-compare-", dir="/var/tmp" if self.user else scratch)
        if self.user:
            who = pwd.getpwnam(self.user)
            os.chown(self.place, who.pw_uid, who.pw_gid)
        self.data, self.port = f"{self.place}/data", free_port()
        self.run("initdb", "--pgdata", self.data, "--auth", "trust", "--username", "compare", "--encoding", "UTF8",
                 "--no-sync")
        with open(f"{self.data}/postgresql.conf", "a", encoding="utf-8") as file:
            for key, value in {**self.SETTINGS, "port": self.port}.items():
                file.write(f"{key} = '{value}'\n")
        self.server = Process([self.programs / "postgres", "-D", self.data], f"{self.place}/log", user=self.user,
                              group=self.user and "postgres", extra_groups=[] if self.user else None, cwd=self.place)
        until(lambda: self.answers(), 30, "PostgreSQL starts")
        self.pid = self.server.pid
        self.version = self.sql("SHOW server_version").split()[0]

    def run(self, program, *arguments):
        settings = {"user": self.user, "group": "postgres", "extra_groups": []} if self.user else {}
        done = subprocess.run([self.programs / program, *arguments], capture_output=True, text=True, cwd=self.place,
                              check=False, timeout=120, **settings)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr}")
        return done.stdout

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return self.sql("SELECT 1")

    def sql(self, text, database="postgres"):
        return self.run("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text, self.url(database)).strip()

    def url(self, database):
        return f"postgresql://compare@127.0.0.1:{self.port}/{database}"

    def fresh(self, database):
        """An empty database, and nothing left to be written of others."""
        self.sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        self.sql(f"CREATE DATABASE {database}")
        self.sql("CHECKPOINT")
        return self.url(database)

    def end(self):
        # SIGINT: a fast shutdown.
        self.server.child.send_signal(signal.SIGINT)
        try:
            self.server.child.wait(30)
        except subprocess.TimeoutExpired:
            self.server.kill()
        shutil.rmtree(self.place, ignore_errors=True)
