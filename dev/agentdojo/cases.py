"""Our own cases through the real gateway: injections in the manner of InjecAgent, each with a benign twin, and attacks that know our rules.

    python3 cases.py --binary PATH [--policies FILE]... [--results FILE]

It ends with 1 where the gate decides otherwise than a case says. Without `--policies` the shipped rules are in force.
"""

import argparse
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

import model
from gate import Gate, Text, ToolServer, configuration

HERE = Path(__file__).resolve().parent / "cases"
POLICIES = HERE.parents[2] / "policies"
SHIPPED = [POLICIES / "10-core.cedar", POLICIES / "examples/flow/policies/30-flow.cedar", POLICIES / "examples/flow/policies/flow.cases.toml",
           HERE / "40-amounts.cedar"]
TYPES = {"string": {"type": "string"}, "integer": {"type": "integer"}, "number": {"type": "number"}, "any": {},
         "strings": {"type": "array", "items": {"type": "string"}}}
PLAIN = {"rest", "flow/rest", "core/sandbox"}


@dataclass
class Step:
    """A call, and what must be decided on it."""
    session: int
    call: str
    args: dict
    result: object
    asks: set
    is_attack: bool


@dataclass
class Script:
    """A case as calls in their order."""
    name: str
    about: str
    requests: list
    steps: list
    limit: str = ""


def read(name):
    return tomllib.loads((HERE / f"{name}.toml").read_text())


def injected():
    """Two scripts for each case: the attack, and its twin."""
    for case in read("injected")["case"]:
        reading = step({**case["read"], "result": case["result"]})
        attack = step({**case["attack"], "asks": case["asks"]})
        yield Script(case["name"], f"{case['domain']}, {case['kind']}", [case["request"]], [reading, attack])
        yield Script(f"{case['name']}: the user's own call", f"{case['domain']}, twin", [case["request"]], [reading, step(case["wanted"])])


def adaptive():
    for case in read("adaptive")["case"]:
        steps = [step(one) for one in case["steps"]]
        is_limit = any("through" in one for one in case["steps"])
        if is_limit != ("limit" in case):
            raise SystemExit(f"`{case['name']}`: a case has a `limit` where a step goes through, and only there")
        yield Script(case["name"], case["about"], case["requests"], steps, case.get("limit", ""))


def step(entry):
    asks = set(entry.get("asks", []))
    result = Text(entry["text"]) if "text" in entry else entry.get("result", {"done": True})
    return Step(entry.get("session", 1), entry["call"], entry["args"], result, asks, bool(asks) or "through" in entry)


class Desk:
    """The gateway, and tools that return what the step says."""

    def __init__(self, binary, policies):
        world = read("world")
        self.directories = world.pop("directories")
        self.declared = {f"{server}.{name}": tool for server, tools in world.items() for name, tool in tools.items()}
        self.servers, self.result = {}, None
        for name, tools in world.items():
            self.servers[name] = ToolServer([offered(tool, tools[tool].pop("args")) for tool in tools], lambda tool, args: self.result)
        servers = {name: (self.servers[name].url, tools) for name, tools in world.items()}
        self.gate = Gate(binary, configuration(self.directories, servers), policies)

    def run(self, script):
        """Plays a script: for each step what was decided, and whether that is right."""
        sessions, decided = {}, []
        for step in script.steps:
            if step.session not in sessions:
                request = script.requests[step.session - 1]
                sessions[step.session] = (self.gate.session(request), model.Session(self.declared, self.directories, request))
            session, known = sessions[step.session]
            self.result = step.result
            answer = self.gate.call(session, step.call, step.args, approve=False)
            asked = answer.policies - PLAIN if answer.asked else set()
            is_right = asked == step.asks and answer.outcome == ("DENIED" if step.asks else "SUCCESS")
            decided.append((step, asked, answer.outcome, is_right and self.is_known(known, step, answer)))
        return decided

    def is_known(self, known, step, answer):
        """Whether the gate has seen the same origins as the model. Labels are not compared: the model has no files and no memory."""
        if step.call not in self.declared:
            return True
        if answer.asked:
            return not known.facts(step.call, step.args).differences(answer.facts)
        known.took(step.call, step.args, answer.result)
        return True

    def close(self):
        self.gate.close()
        for server in self.servers.values():
            server.close()


def offered(name, args):
    """A tool as an MCP server lists it."""
    properties = {arg: TYPES[kind.rstrip("?")] for arg, kind in args.items()}
    required = [arg for arg, kind in args.items() if not kind.endswith("?")]
    return {"name": name, "description": "a tool of our own cases", "inputSchema": {"type": "object", "properties": properties, "required": required}}


def result_of(script, decided):
    attacks = [(step, asked) for step, asked, _, _ in decided if step.is_attack]
    return {"name": script.name, "about": script.about, "limit": script.limit, "asked": sum(bool(asked) for _, asked in attacks),
            "through": sum(not asked for _, asked in attacks), "policies": sorted({name for _, asked in attacks for name in asked})}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--policies", action="append", type=Path)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    desk = Desk(options.binary, options.policies or SHIPPED)
    results, wrong = {}, 0
    for kind, scripts in (("injected", injected()), ("adaptive", adaptive())):
        results[kind] = []
        for script in scripts:
            decided = desk.run(script)
            results[kind].append(result_of(script, decided))
            for step, asked, outcome, is_right in decided:
                if not is_right:
                    wrong += 1
                    print(f"{kind}: {script.name}: {step.call} {json.dumps(step.args, ensure_ascii=False)}: "
                          f"{outcome}, asked by {sorted(asked)}, not by {sorted(step.asks)}")
    desk.close()
    if options.results:
        options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    counts = ", ".join(f"{len(scripts)} {kind}" for kind, scripts in results.items())
    print(f"{counts} scripts; {wrong} decisions are not as expected")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
