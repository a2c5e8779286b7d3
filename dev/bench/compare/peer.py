"""What the driver asks of every peer."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import machine
import work

HERE = Path(__file__).parent
# How long a worker may answer later than it was told to.
GRACE_SECONDS = 60


@dataclass
class Tools:
    """What peers share: where things are put, Stepgate's program, and PostgreSQL, which starts when it is needed."""

    scratch: Path
    stepgate: Path
    postgres: machine.Postgres | None = None

    def cluster(self):
        if self.postgres is None:
            self.postgres = machine.Postgres(self.scratch)
        return self.postgres

    def end(self):
        if self.postgres is not None:
            self.postgres.end()


class Peer:
    name = ""
    title = ""
    # Package names and versions. An `npm` list goes into one folder, a `pip` list into one virtual environment.
    pip: list[str] = []
    npm: list[str] = []
    # The store: for its bytes.
    store = "files"
    # What one request of a client is, by the name that tables have for it.
    modes = {"alone": "one step a run"}
    # Steps of one run, by mode.
    steps = {"alone": 1, "long": 20}
    # Which ways the kill test is made: name and what is set.
    kills = {"default": "as it ships"}
    # Settings that are not the default ones, in words for the page.
    settings = ""
    # A sentence instead of figures.
    sentence = ""

    def __init__(self, tools):
        self.tools = tools
        self.home = tools.scratch / "installed" / (self.pip or self.npm or ["none"])[0].replace("/", "-").replace("==", "-")
        self.place = tools.scratch / "runs" / self.name
        self.files = self.place / "files"
        self.kill_way = "default"

    # Installing.

    def install(self, say):
        done = self.home / ".done"
        wanted = " ".join(self.pip + self.npm)
        if not wanted or (done.exists() and done.read_text(encoding="utf-8") == wanted):
            return
        say(f"installing {wanted}")
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        if self.pip:
            checked([sys.executable, "-m", "venv", self.home])
            checked([self.home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *self.pip])
        if self.npm:
            checked(["npm", "install", "--prefix", self.home, "--no-audit", "--no-fund", "--ignore-scripts", *self.npm])
        done.write_text(wanted, encoding="utf-8")

    @property
    def python(self):
        return self.home / "bin/python"

    # Running.

    def clear(self):
        """An empty place with the file that is read."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.files.mkdir(parents=True)
        (self.files / "read.txt").write_text(work.CONTENT, encoding="utf-8")
        self.prepare()

    def prepare(self):
        pass

    def start(self):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError

    def kill(self):
        raise NotImplementedError

    def roots(self):
        """The processes whose time and writes count, and all that they start."""
        raise NotImplementedError

    def measure(self, mode, act, clients, seconds):
        """Clients that each take the next run when the last one is answered: runs, seconds, and the latencies in ms."""
        raise NotImplementedError

    def kept_bytes(self):
        """What the peer has stored so far."""
        if self.store == "postgres":
            cluster = self.tools.cluster()
            return int(cluster.sql(f"SELECT pg_database_size('{self.database}')"))
        if self.store == "sqlite":
            # Pages count, and not the files: a write-ahead log is as long as it once was.
            with sqlite3.connect(f"file:{self.file()}?mode=ro", uri=True, timeout=30) as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                return pages * connection.execute("PRAGMA page_size").fetchone()[0]
        return machine.size_bytes([self.place])

    def file(self):
        return self.place / "store.db"

    @property
    def database(self):
        return self.name.replace("-", "_")

    def begin(self, step):
        """Sends a step that acts and then hangs, and does not wait for it."""
        raise NotImplementedError

    def tell(self, step, seconds):
        """The same step asked for again, or what the peer says of it: a few words."""
        raise NotImplementedError

    def after_restart(self):
        """What an operator would do after a restart, if anything is needed."""


class Library(Peer):
    """A library: workers of ours run it, and they are its clients, too."""

    # Workers that 64 clients are spread over. One client is in one worker. Chosen by trying, see docs/performance.md.
    workers_max = 1
    source = ""

    def arguments(self, number):
        return {}

    def start(self):
        self.workers = []
        for number in range(self.workers_max):
            self.workers.append(self.worker(number))

    def worker(self, number):
        arguments = {"place": str(self.place), "number": number, **self.arguments(number)}
        return machine.Worker(self.python, HERE / self.source, self.place / "log", **arguments)

    def end(self):
        for worker in self.workers:
            worker.end()

    def kill(self):
        machine.kill([worker.pid for worker in self.workers])
        for worker in self.workers:
            worker.child.wait()

    def roots(self):
        pids = [worker.pid for worker in self.workers]
        return pids + ([self.tools.cluster().pid] if self.store == "postgres" else [])

    def measure(self, mode, act, clients, seconds):
        workers = self.workers[: min(len(self.workers), clients)]
        for number, worker in enumerate(workers):
            share = clients // len(workers) + (number < clients % len(workers))
            worker.say(do="run", act=act, mode=mode, steps=self.steps[mode], clients=share, seconds=seconds,
                       prefix=f"{mode}-{act}-{clients}-{os.urandom(4).hex()}-{number}")
        answers = [worker.hear(seconds + GRACE_SECONDS) for worker in workers]
        if failures := [failure for answer in answers for failure in answer["failures"]]:
            raise RuntimeError(f"{self.name}: {failures}")
        latencies = [latency * 1000 for answer in answers for latency in answer["latencies"]]
        return {"runs": len(latencies), "seconds": max(answer["seconds"] for answer in answers),
                "p50_ms": percentile(latencies, 50), "p99_ms": percentile(latencies, 99)}

    def begin(self, step):
        self.workers[0].ask(do="begin", step=step)

    def tell(self, step, seconds):
        return self.workers[0].ask(seconds + GRACE_SECONDS, do="tell", step=step, patience=seconds)


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)] if ordered else None


def checked(command, **settings):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          timeout=900, **settings)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def http(method, url, body=None, headers=None, seconds=30):
    """One request. The status, and the body as JSON or text."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode(errors="replace")
    try:
        return status, json.loads(text)
    except json.JSONDecodeError:
        return status, text


# A request is made by replacing ID and NUMBER in a text. Neither the clients' time nor their wrk counts for the peer.
LUA = """
local number = 0
local salt = {salt}
request = function()
  number = number + 1
  local id = string.format("%08x-0000-4000-8000-%012x", salt, number)
  local body = {body}
  return wrk.format("POST", {path}, {headers}, body)
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("=> %d %d %f %f %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"""


def wrk(place, url, path, headers, body, clients, seconds):
    """Closed-loop clients over HTTP, one connection each: wrk, which takes little of the processor.

    `path`, `headers` and `body` are Lua expressions over `id` and `number`."""
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is not installed: apt install wrk")
    script = place / "wrk.lua"
    salt = int.from_bytes(os.urandom(4))
    script.write_text(LUA.format(salt=salt, path=path, headers=headers, body=body), encoding="utf-8")
    out = checked(["wrk", "--threads", 1, "--connections", clients, "--duration", f"{seconds}s", "--timeout", "30s",
                   "--script", script, url])
    line = next(line for line in out.splitlines() if line.startswith("=> "))
    requests, micros, p50, p99, refused, broken = (float(word) for word in line[3:].split())
    if refused or broken or not requests:
        raise RuntimeError(f"{url}: {requests:.0f} requests, {refused:.0f} refused, {broken:.0f} broken: {out}")
    return {"runs": int(requests), "seconds": micros / 1e6, "p50_ms": p50 / 1000, "p99_ms": p99 / 1000}
