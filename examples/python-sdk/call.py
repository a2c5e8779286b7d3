"""Calls a tool through Stepgate with the Python SDK, so that the call survives everything on the way.

    python call.py                                   list the tools
    python call.py TOOL '{"argument": "value"}'      call one
    python call.py --tasks TOOL '{…}'                call one, and let it become a task

STEPGATE_TOKEN has the agent's token, STEPGATE_URL the gateway (http://127.0.0.1:7420).
"""

import argparse
import asyncio
import json
import os
import sys
import uuid

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT

from tasks import Tasks

URL = os.environ.get("STEPGATE_URL", "http://127.0.0.1:7420")
# A person may take a while; Stepgate answers with a notice before this is over.
TIMEOUT = httpx2.Timeout(30, read=120)
# Verdicts that are no end: the call goes on, and the same call again joins it.
OPEN = ("APPROVAL_REQUIRED", "IN_PROGRESS")
# Errors after which nobody knows what became of the call.
UNKNOWN = (CONNECTION_CLOSED, REQUEST_TIMEOUT, INTERNAL_ERROR)
# Answers in a row that may be lost before it gives up: about two minutes.
LOST_MAX = 240


async def with_client(use, tasks=False):
    """Connects, and uses the connection for one thing."""
    headers = {"Authorization": f"Bearer {os.environ['STEPGATE_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http:
        transport = streamable_http_client(f"{URL}/mcp", http_client=http)
        async with Client(transport, extensions=[Tasks(said)] if tasks else None) as client:
            return await use(client)


async def call(tool, arguments, reasoning, tasks=False):
    """Calls until there is an outcome. The key is made once: with it, asking again is never acting again."""
    meta = {"stepgate/idempotency-key": str(uuid.uuid4()), "stepgate/reasoning": reasoning}

    async def once(client):
        return await client.call_tool(tool, arguments, meta=meta, progress_callback=progressed)

    lost_in_a_row = 0
    while True:
        try:
            result = await with_client(once, tasks)
        except Exception as lost:
            lost_in_a_row += 1
            if not is_lost(lost) or lost_in_a_row > LOST_MAX:
                raise
            said("the answer was lost; asking again with the same key")
            await asyncio.sleep(0.5)
            continue
        lost_in_a_row = 0
        if (result.meta or {}).get("stepgate/verdict") not in OPEN:
            return result
        said(result.content[0].text)


def refusals(error):
    """What the gateway itself said against the request: the SDK wraps it in groups."""
    if isinstance(error, BaseExceptionGroup):
        return [said for one in error.exceptions for said in refusals(one)]
    return [error] if isinstance(error, MCPError) else []


def is_lost(error):
    """Whether nobody knows what became of the call. An answer of the gate, even a refusal, is none of these."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_lost(one) for one in error.exceptions)
    if isinstance(error, MCPError):
        return error.code in UNKNOWN
    return isinstance(error, (httpx2.TransportError, ConnectionError))


async def progressed(_progress, _total, message):
    said(message or "it goes on")


def said(words):
    print(words, file=sys.stderr, flush=True)


async def main():
    parser = argparse.ArgumentParser(description="Calls a tool through Stepgate.")
    parser.add_argument("tool", nargs="?")
    parser.add_argument("arguments", nargs="?", default="{}")
    parser.add_argument("--reasoning", default="the example was tried")
    parser.add_argument("--tasks", action="store_true")
    asked = parser.parse_args()
    if asked.tool is None:
        listed = await with_client(lambda client: client.list_tools())
        for tool in listed.tools:
            print(f"{tool.name}\t{tool.description}")
        return 0
    try:
        result = await call(asked.tool, json.loads(asked.arguments), asked.reasoning, asked.tasks)
    except Exception as error:
        refused = refusals(error)
        if not refused:
            raise
        said(refused[0].message)
        return 1
    print(result.model_dump_json(by_alias=True, exclude_none=True))
    return 1 if result.is_error else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
