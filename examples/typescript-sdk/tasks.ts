// The Tasks extension for the TypeScript SDK's client: a call that waits for a person becomes a task, and the
// task is asked after until it has ended. The task's id is the run's: `stepgate runs show ID` shows the same.

import type { CallToolResult, Client } from "@modelcontextprotocol/client";
import {
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  type JsonRpcResponse,
} from "@modelcontextprotocol/ext-tasks/client";

const PROTOCOL_VERSION = "2026-07-28";

/** Where to, and as whom. */
export interface Gate {
  url: URL;
  headers: Record<string, string>;
  clientInfo: { name: string; version: string };
  timeoutMs: number;
}

/** Calls a tool, and follows its task where it becomes one. */
export async function callAsTask(
  client: Client,
  gate: Gate,
  name: string,
  args: Record<string, unknown>,
  metadata: Record<string, string>,
): Promise<CallToolResult> {
  const session = createTaskSessionFromClient(client, {
    endpointId: gate.url.href,
    rawDispatch: (request) => send(gate, request as unknown as Request),
    v2RequestFraming: {
      protocolVersion: PROTOCOL_VERSION,
      clientInfo: gate.clientInfo,
      clientCapabilities: {},
    },
  });
  try {
    const execution = await session.callTool(name, args as never, { metadata });
    if (execution.kind === "task") process.stderr.write(`task ${execution.handle.taskId}\n`);
    const { outcome } = await execution.settle();
    return resultFromTaskOutcome(outcome) as unknown as CallToolResult;
  } finally {
    await session.close();
  }
}

interface Request {
  method: string;
  params: { name?: string; taskId?: string };
}

/** One request and its answer, which the SDK's own client would refuse: it does not know tasks. */
async function send(gate: Gate, { method, params }: Request): Promise<JsonRpcResponse> {
  const answer = await fetch(gate.url, {
    method: "POST",
    headers: {
      ...gate.headers,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": PROTOCOL_VERSION,
      "Mcp-Method": method,
      "Mcp-Name": params.name ?? params.taskId ?? "",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    signal: AbortSignal.timeout(gate.timeoutMs),
  });
  const message = lastMessage(await answer.text());
  return message.error
    ? { kind: "error", error: message.error }
    : { kind: "result", result: message.result };
}

/** The answer is one message, or the last of a stream of them. */
function lastMessage(body: string) {
  const lines = body.split("\n").filter((line) => line.startsWith("data:"));
  return JSON.parse(lines.at(-1)?.slice("data:".length) ?? body);
}
