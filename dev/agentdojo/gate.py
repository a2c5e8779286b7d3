"""A real gateway for one measurement: the `stepgate` binary, a tool server, and a client that is agent, user and operator.

Only Python's own library is used, so that the ordinary tests can run it, too.
"""

import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

WAIT_S = 30
# The program around the model says what the user asked for: here that is this program, which has no model.
SETTINGS = """
[serve]
requests_per_second_max = 1000000
requests_burst_max = 1000000
[policy]
reload_ms = 3600000
[requests]
told_by = ["agent"]
"""


def configuration(directories, servers):
    """`stepgate.toml` for these lists and tool servers: by name a URL and what is declared about its tools. JSON's texts, numbers and
    lists are TOML's, too."""
    lines = []
    for name, entries in directories.items():
        lines += [f"[directory.{name}]", f"entries = {json.dumps(entries)}"]
    for server, (url, tools) in servers.items():
        lines += [f"[servers.{server}]", f"url = {json.dumps(url)}"]
        for tool, declared in tools.items():
            lines.append(f"[servers.{server}.tools.{tool}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in declared.items()]
            lines += ['in_doubt = "ask"'] if declared["mode"] != "read_only" else []
    return SETTINGS + "\n".join(lines) + "\n"


class Text(str):
    """A result that is text alone, without structured content."""


class ToolServer:
    """A tool server over streamable HTTP, in a thread of this process, so that its tools act on the environment of the
    current run. `call(tool, args)` returns the result, or raises: then the tool says that it failed."""

    def __init__(self, tools, call):
        self.tools, self.call = tools, call
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if "id" not in message:
                    return self.answer(202, b"")
                body = {"jsonrpc": "2.0", "id": message["id"], "result": server.result_of(message)}
                self.answer(200, json.dumps(body).encode())

            def do_GET(self):
                self.answer(405, b"")

            do_DELETE = do_GET

            def answer(self, status, body):
                head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                self.wfile.write(head.encode() + body)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def result_of(self, message):
        params = message.get("params", {})
        if message["method"] == "initialize":
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "measured", "version": "1"}}
        if message["method"] == "tools/list":
            return {"tools": self.tools}
        if message["method"] != "tools/call":
            return {}
        try:
            result = self.call(params["name"], params.get("arguments", {}))
        except Exception as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if isinstance(result, Text):
            return {"content": [{"type": "text", "text": result}]}
        # Structured content is an object. What is none is wrapped as the official Python SDK wraps it.
        structured = result if isinstance(result, dict) else {"result": result}
        return {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@dataclass
class Answer:
    """What became of a call."""
    outcome: str                                   # SUCCESS, EXECUTION_ERROR, DENIED, VALIDATION_ERROR
    asked: bool = False                            # a person was asked
    policies: set = field(default_factory=set)     # the policies that matched
    facts: dict = field(default_factory=dict)      # what policies knew
    reason: str = ""
    result: object = None                          # structured content


class Gate:
    """A gateway with a data directory of its own, which goes away with it."""

    def __init__(self, binary, config, policies):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.data = Path(tempfile.mkdtemp(prefix="stepgate-measured-", dir=memory))
        (self.data / "policies").mkdir()
        for file in policies:
            shutil.copy(file, self.data / "policies" / Path(file).name)
        (self.data / "stepgate.toml").write_text(config)
        self.log = open(self.data / "log", "w+")
        command = [binary, "--data", self.data, "serve", "--quiet", "--bind", "127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPGATE_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        for line in self.process.stdout:
            if found := re.search(r"http://(127\.0\.0\.1):(\d+)", line):
                self.address = (found[1], int(found[2]))
            if line.startswith("stop"):
                break
        else:
            raise RuntimeError(f"the gateway does not start:\n{(self.data / 'log').read_text()}")
        self.agent, self.operator = ((self.data / f"{role}.token").read_text().strip() for role in ("agent", "operator"))
        self.connection = http.client.HTTPConnection(*self.address, timeout=120)
        off = self.send("GET", "/readyz", self.operator)[1].get("off")
        if off:
            raise RuntimeError(f"tools are off: {off}")

    def send(self, method, path, token, body=None, **headers):
        text = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        self.connection.request(method, path, text, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else {}

    def session(self, request):
        """A new session in which the user has asked for this."""
        session = uuid7()
        status, answer = self.send("POST", f"/v1/sessions/{session}/requests", self.agent, {"text": request})
        if status >= 300:
            raise RuntimeError(f"the request was not recorded: {status} {answer}")
        return session

    def call(self, session, action, args, approve):
        """One step of the agent. Where a person is asked, `approve` is what the person decides."""
        body = {"schema_version": "1.0.0", "id": str(uuid.uuid4()), "reasoning": "measured", "action": action, "args": args}
        status, answer = self.send("POST", "/v1/steps", self.agent, body, Stepgate_Session=session)
        if status == 429 or status >= 500:
            raise RuntimeError(f"the gateway does not answer: {status} {answer}")
        if status != 202:
            return Answer(answer["outcome"], result=structured_of(answer))
        approval = answer["result"]["approval_id"]
        shown = self.send("GET", f"/v1/approvals/{approval}", self.operator)[1]
        meta = shown["context"]["needs_approval"]["meta"]
        asked = dict(asked=True, policies=set(meta["policies"]), facts=meta.get("facts", {}), reason=shown["context"]["reason"])
        status, decided = self.send("POST", f"/v1/approvals/{approval}/{'approve' if approve else 'deny'}", self.operator, {})
        if status >= 300:
            raise RuntimeError(f"no decision: {status} {decided}")
        _, answer = self.send("POST", "/v1/steps", self.agent, body, Stepgate_Session=session, Prefer=f"wait={WAIT_S}")
        return Answer(answer["outcome"], result=structured_of(answer), **asked)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)


def structured_of(answer):
    result = answer.get("result")
    return result.get("structuredContent") if isinstance(result, dict) and "structuredContent" in result else result


def uuid7():
    """Python has it only since 3.14."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | 7 << 76 | 2 << 62 | int.from_bytes(os.urandom(10), "big") & ~(0xF << 76) & ~(3 << 62) & (1 << 80) - 1
    return str(uuid.UUID(int=number))
