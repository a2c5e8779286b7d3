"""The tool of the kill test for gateways that pass calls on over HTTP: it acts, then it hangs.

    python3 tool_http.py DIRECTORY PORT
"""

import http.server
import json
import sys

import work


class Tool(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        step = json.loads(self.rfile.read(int(self.headers["content-length"])))["step"]
        body = json.dumps({"said": work.act(sys.argv[1], step)}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Tool).serve_forever()
