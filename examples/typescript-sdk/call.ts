// Calls a tool through Stepgate with the TypeScript SDK, so that the call survives everything on the way.
//
//     node call.ts                                   list the tools
//     node call.ts TOOL '{"argument": "value"}'      call one
//     node call.ts --tasks TOOL '{…}'                call one, and let it become a task
//
// STEPGATE_TOKEN has the agent's token, STEPGATE_URL the gateway (http://127.0.0.1:7420).

import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import {
  Client,
  ProtocolError,
  StreamableHTTPClientTransport,
  type CallToolResult,
} from "@modelcontextprotocol/client";
import { callAsTask } from "./tasks.ts";

const url = new URL("/mcp", process.env.STEPGATE_URL ?? "http://127.0.0.1:7420");
const headers = { Authorization: `Bearer ${process.env.STEPGATE_TOKEN}` };
const clientInfo = { name: "stepgate-example", version: "1.0.0" };

// A person may take a while; Stepgate answers with a notice before this is over.
const TIMEOUT_MS = 120_000;
// Verdicts that are no end: the call goes on, and the same call again joins it.
const OPEN = ["APPROVAL_REQUIRED", "IN_PROGRESS"];
// The gateway could not answer, and the call may go on.
const INTERNAL_ERROR = -32603;
// Answers in a row that may be lost before it gives up: about two minutes.
const LOST_MAX = 240;

async function withClient<T>(use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(clientInfo, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

/** Calls until there is an outcome. The key is made once: with it, asking again is never acting again. */
async function call(
  name: string,
  args: Record<string, unknown>,
  reasoning: string,
  tasks: boolean,
): Promise<CallToolResult> {
  const _meta = { "stepgate/idempotency-key": randomUUID(), "stepgate/reasoning": reasoning };
  const once = (client: Client) =>
    tasks
      ? callAsTask(client, { url, headers, clientInfo, timeoutMs: TIMEOUT_MS }, name, args, _meta)
      : client.callTool({ name, arguments: args, _meta }, { timeout: TIMEOUT_MS, onprogress });
  for (let lost = 0; ; ) {
    try {
      const result = await withClient(once);
      lost = 0;
      if (!OPEN.includes(String(result._meta?.["stepgate/verdict"]))) return result;
      say(result.content.map((part) => (part.type === "text" ? part.text : "")).join("\n"));
    } catch (error) {
      // An answer of the gate, even a refusal, is final; after anything else nobody knows.
      const isFinal = error instanceof ProtocolError && error.code !== INTERNAL_ERROR;
      if (isFinal || ++lost > LOST_MAX) throw error;
      say("the answer was lost; asking again with the same key");
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

function onprogress(progress: { message?: string }) {
  say(progress.message ?? "it goes on");
}

function say(words: string) {
  process.stderr.write(`${words}\n`);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tasks: { type: "boolean", default: false },
    reasoning: { type: "string", default: "the example was tried" },
  },
});
const [tool, args = "{}"] = positionals;
if (tool === undefined) {
  const { tools } = await withClient((client) => client.listTools());
  for (const { name, description } of tools) console.log(`${name}\t${description}`);
} else {
  try {
    const result = await call(tool, JSON.parse(args), values.reasoning, values.tasks);
    console.log(JSON.stringify(result));
    process.exitCode = result.isError ? 1 : 0;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    say(error.message);
    process.exitCode = 1;
  }
}
