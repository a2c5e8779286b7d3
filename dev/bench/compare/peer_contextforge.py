"""ContextForge: a gateway that passes calls on to tools. It has no durable step, so only the kill test is made."""

import json
import os
import sys
import threading

import machine
from peer import HERE, Peer, checked, http

VERSION = "1.0.7.post20260921"
ADMIN = "admin@example.com"
# What its own command line puts into a token of an administrator.
TOKEN = """
import jwt, sys, time, uuid
who, secret, now = sys.argv[1], sys.argv[2], int(time.time())
print(jwt.encode({"sub": who, "iat": now, "exp": now + 3600, "iss": "mcpgateway", "aud": "mcpgateway-api", "jti": str(uuid.uuid4()),
    "is_admin": True, "token_use": "session", "teams": None,
    "user": {"email": who, "is_admin": True, "auth_provider": "cli"}}, secret))
"""


class ContextForge(Peer):
    name, title = "contextforge", "ContextForge"
    pip = [f"mcp-contextforge-gateway=={VERSION}"]
    version = staticmethod(lambda: VERSION)
    kills = {"default": "as it ships, with a REST tool"}
    sentence = ("It passes calls on to tools and has no durable step: of a call it keeps a count and a time, which it writes from a buffer "
                "once a minute, and no key under which the call could be asked for again. So it is only in the kill test.")

    def prepare(self):
        self.port, self.tool_port = machine.free_port(), machine.free_port()
        # Made for this run, and gone with it.
        self.secrets = [os.urandom(32).hex() for _ in range(3)]
        self.tool = machine.Process([sys.executable, HERE / "tool_http.py", self.files, str(self.tool_port)], self.place / "tool.log")
        self.is_new = True

    def start(self):
        environment = {**os.environ, "JWT_SECRET_KEY": self.secrets[0], "AUTH_ENCRYPTION_SECRET": self.secrets[1],
                       "BASIC_AUTH_PASSWORD": f"Aa1!{self.secrets[2]}", "PLATFORM_ADMIN_PASSWORD": f"Aa1!{self.secrets[2]}",
                       "PLATFORM_ADMIN_EMAIL": ADMIN, "DATABASE_URL": f"sqlite:///{self.file()}", "MCPGATEWAY_UI_ENABLED": "false",
                       "LOG_LEVEL": "ERROR", "SSRF_ALLOW_LOCALHOST": "true", "HOST": "127.0.0.1", "PORT": str(self.port)}
        command = [self.python, "-m", "uvicorn", "mcpgateway.main:app", "--host", "127.0.0.1", "--port", str(self.port)]
        self.server = machine.Process(command, self.place / "log", env=environment, cwd=self.place)
        self.url = f"http://127.0.0.1:{self.port}"
        machine.until(lambda: http("GET", f"{self.url}/health")[0] == 200, 90, "contextforge starts")
        self.headers = {"Authorization": f"Bearer {checked([self.python, '-c', TOKEN, ADMIN, self.secrets[0]]).strip()}"}
        if self.is_new:
            schema = {"type": "object", "properties": {"step": {"type": "string"}}}
            tool = {"name": "act", "url": f"http://127.0.0.1:{self.tool_port}/act", "integration_type": "REST",
                    "request_type": "POST", "input_schema": schema, "visibility": "public"}
            status, said = http("POST", f"{self.url}/tools", {"tool": tool}, self.headers)
            if status >= 300:
                raise RuntimeError(f"contextforge: {status} {said}")
            self.is_new = False

    def end(self):
        self.server.end()
        self.tool.end()

    def kill(self):
        self.server.kill()

    def roots(self):
        return [self.server.pid]

    def call(self, step, seconds):
        call = {"jsonrpc": "2.0", "id": step, "method": "tools/call", "params": {"name": "act", "arguments": {"step": step}}}
        return http("POST", f"{self.url}/rpc", call, self.headers, seconds)

    def begin(self, step):
        def call():
            try:
                self.call(step, 120)
            except OSError:
                pass  # it is killed

        threading.Thread(target=call, daemon=True).start()

    def tell(self, step, seconds):
        try:
            _status, said = self.call(step, seconds)
        except OSError:
            return "no answer"
        result = said.get("result", said) if isinstance(said, dict) else said
        return "answered: " + json.loads(result["content"][0]["text"])["said"] if "content" in result else str(said)
