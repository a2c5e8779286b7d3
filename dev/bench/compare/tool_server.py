"""A tool server (MCP over standard input and output) with one tool, for Stepgate's kill test: it acts, then it hangs.

    python3 tool_server.py DIRECTORY

The act is one line in DIRECTORY/effects, flushed to the disk. Where DIRECTORY/honours exists, what was done is not done again.
"""

import json
import os
import sys
import threading

import work

SCHEMA = {"type": "object", "properties": {"step": {"type": "string"}}, "required": ["step"], "additionalProperties": False}
TOOL = {"name": "act", "description": "Writes one line and hangs.", "inputSchema": SCHEMA}


def answer(place, method, params):
    match method:
        case "initialize":
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "compare", "version": "1"}}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": once(place, params["arguments"]["step"])}]}
        case _:
            return {}


def once(place, step):
    if step == "try":
        return "tried"
    # The act is its own record: what stands in the file was done. Each step has one key, so its name will do.
    if os.path.exists(f"{place}/honours") and step in lines(f"{place}/effects"):
        return "done before"
    return work.act(place, step)


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def main(place):
    lock = threading.Lock()

    def handle(message):
        body = {"jsonrpc": "2.0", "id": message["id"], "result": answer(place, message["method"], message.get("params", {}))}
        with lock:
            sys.stdout.write(json.dumps(body) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=handle, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
