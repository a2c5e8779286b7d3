"""Stepgate itself: `stepgate serve`, reached over HTTP by the same clients as other servers, and `stepgate bench`."""

import json
import os
import shutil
import subprocess
import sys
import threading

import machine
import work
from peer import HERE, Peer, checked, http, wrk

# As `stepgate bench` does: all clients are one agent at one address, whose limits would else be measured.
CONFIG = """\
[serve]
connections_max = 4096
connections_per_address_max = 4096
requests_per_second_max = 1000000
requests_burst_max = 1000000
agent_bytes_per_hour_max = 1099511627776
"""
# For the kill test: a tool of ours, which a policy of ours permits.
TOOL = """
[policy]
directory = "{place}/policies"

[servers.compare]
command = "{python}"
args = ["{server}", "{files}"]
mode = "execute_gated"
concurrency = 64
{in_doubt}
"""
POLICY = """
@id("compare/act")
permit (principal, action == Action::"compare.act", resource);
"""
IN_DOUBT = {
    "ask": 'in_doubt = "ask"',
    "redispatch": 'in_doubt = "redispatch"',
    "honours_key": "honours_key = true",
}


class Stepgate(Peer):
    name = "stepgate"
    title = "Stepgate on SQLite, over HTTP"
    store = "sqlite"
    modes = {"alone": "one proposal a request, with an id of its own; a person or a client may ask it again"}
    kills = {"ask": '`in_doubt = "ask"`', "redispatch": '`in_doubt = "redispatch"`',
             "honours_key": "`honours_key = true`, and the tool keeps its word"}
    settings = "limits on requests and connections of one agent are raised, as `stepgate bench` does"

    def version(self):
        return checked([self.tools.stepgate, "--version"]).split()[-1]

    def prepare(self):
        self.data = self.place / "data"
        self.data.mkdir(mode=0o700)
        text = CONFIG
        if self.kill_way in IN_DOUBT:
            text += TOOL.format(place=self.place, python=sys.executable, server=HERE / "tool_server.py", files=self.files,
                                in_doubt=IN_DOUBT[self.kill_way])
            (self.place / "policies").mkdir()
            (self.place / "policies" / "compare.cedar").write_text(POLICY, encoding="utf-8")
        if self.kill_way == "honours_key":
            (self.files / "honours").touch()
        (self.data / "stepgate.toml").write_text(text, encoding="utf-8")
        self.port = machine.free_port()

    def environment(self):
        known = {key: value for key, value in os.environ.items() if not key.startswith("STEPGATE_")}
        return {**known, **({"STEPGATE_STORE": self.tools.cluster().url(self.database)} if self.store == "postgres" else {})}

    def start(self):
        command = [self.tools.stepgate, "--data", self.data, "serve", "--quiet", "--bind", f"127.0.0.1:{self.port}"]
        self.server = machine.Process(command, self.place / "log", env=self.environment())
        self.url = f"http://127.0.0.1:{self.port}"
        machine.until(lambda: http("GET", f"{self.url}/readyz")[0] == 200, 30, "stepgate starts")
        self.token = (self.data / "agent.token").read_text(encoding="utf-8").strip()
        (self.data / "sandbox" / "read.txt").write_text(work.CONTENT, encoding="utf-8")
        if self.kill_way in IN_DOUBT:
            tried = lambda: self.step("compare.act", {"step": "try"}, os.urandom(6).hex())
            machine.until(lambda: tried() == "SUCCESS", 15, "the tool can be called")
        else:
            said = self.step("READ_FILE", {"path": "/sandbox/read.txt"}, os.urandom(6).hex())
            if said != "SUCCESS":
                raise RuntimeError(f"stepgate says {said}")

    def end(self):
        self.server.end()

    def kill(self):
        self.server.kill()

    def roots(self):
        return [self.server.pid] + ([self.tools.cluster().pid] if self.store == "postgres" else [])

    def file(self):
        return self.data / "stepgate.db"

    def measure(self, mode, act, clients, seconds):
        if act == "read":
            action, args = "READ_FILE", '{"path":"/sandbox/read.txt"}'
        else:
            content = json.dumps(work.CONTENT)
            action, args = "WRITE_FILE", '{"path":"/sandbox/w]] .. number %% %d .. [[.txt","content":%s}' % (work.FILES, content)
        body = '[[{"schema_version":"1.0.0","id":"]] .. id .. [[","reasoning":"a measurement","action":"%s","args":%s}]]'
        # Lua's [[ ]] takes everything as it is.
        headers = f'{{["Authorization"]="Bearer {self.token}", ["Content-Type"]="application/json"}}'
        return wrk(self.place, self.url, '"/v1/steps"', headers, body % (action, args), clients, seconds)

    def step(self, action, args, step, seconds=30):
        """Asks for a step. Its id follows from the step's name, so it can be asked for again."""
        number = int.from_bytes(step.encode()[-6:])
        proposal = {"schema_version": "1.0.0", "id": f"0000c0de-0000-4000-8000-{number:012x}", "reasoning": "a kill test",
                    "action": action, "args": args}
        headers = {"Authorization": f"Bearer {self.token}"}
        status, answer = http("POST", f"{self.url}/v1/steps", proposal, headers, seconds)
        if not isinstance(answer, dict):
            return f"{status}"
        error = answer.get("error") or {}
        return " ".join(str(word) for word in [answer.get("outcome"), error.get("code"), error.get("message")] if word)

    def begin(self, step):
        def call():
            try:
                self.step("compare.act", {"step": step}, step, 120)
            except OSError:
                pass  # it is killed

        threading.Thread(target=call, daemon=True).start()

    def tell(self, step, seconds):
        try:
            said = self.step("compare.act", {"step": step}, step, seconds)
        except OSError:
            said = "no answer"
        return said

    def after_restart(self):
        done = subprocess.run([self.tools.stepgate, "--data", self.data, "attention", "--json"], capture_output=True,
                              text=True, check=False, timeout=30, env=self.environment())
        kinds = [json.loads(line).get("kind") for line in done.stdout.splitlines()]
        return f"`stepgate attention` lists {kinds.count('in_doubt')} in doubt" if kinds else "`stepgate attention` lists none"


class StepgatePostgres(Stepgate):
    name = "stepgate-postgres"
    title = "Stepgate on PostgreSQL, over HTTP"
    store = "postgres"
    kills = {"ask": '`in_doubt = "ask"`'}

    def prepare(self):
        super().prepare()
        self.tools.cluster().fresh(self.database)


def bench(tools, store, clients, steps):
    """`stepgate bench` in process: one JSON object for each action and number of clients."""
    place = tools.scratch / "runs" / "bench"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [tools.stepgate, *(["--store", store] if store else []), "--json", "bench", "--dir", place, "--rounds", "1",
               "--steps", str(steps), "--clients", ",".join(map(str, clients)), "--actions", "READ_FILE,WRITE_FILE"]
    known = {key: value for key, value in os.environ.items() if not key.startswith("STEPGATE_")}
    lines = checked(command, env=known).splitlines()
    shutil.rmtree(place, ignore_errors=True)
    return [json.loads(line) for line in lines if line.strip()]
