"""What the rules of a gate do against AgentDojo's attacks, measured without a model: the real gateway decides.

    python measure.py --binary PATH [--suite NAME]... [--row NAME]... [--limit TASKS] [--results FILE]

Each run is a session of its own. The user's request is told to the gate, the scripted agent's calls are proposals, and a person who is
asked decides rightly: the calls of the user's task are approved, those of the injection are denied. Then the suite's own checks say whether
the task was done and whether the attack went through. `model.py` is asked about each call, too; a difference is reported.
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import model
from gate import Gate, ToolServer, configuration
from suites import BENCHMARK, POISON, FunctionCall, plain, worlds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLOW = ROOT / "policies/examples/flow/policies/30-flow.cedar"
DECLARATIONS = tomllib.loads((HERE / "declarations.toml").read_text())
SUITES = list(DECLARATIONS)
PROCESSES = 2
DISAGREEMENTS_MAX = 20


@dataclass
class Row:
    """Who is asked: a policy set, and what the model says about it."""
    name: str
    policies: Path | None                     # None: the model alone decides
    asks: object
    links: bool = True                        # whether members' links are declared
    change: object = None                     # a change of the task's calls, to see how much their wording counts
    poison: str = "vectors"                   # "nothing": benign tasks alone; "members": the messages of members are poisoned
    suites: list = field(default_factory=lambda: SUITES)
    reads: bool = False                       # whether every read-only tool is untrusted
    is_main: bool = True


def longer_titles(calls):
    for call in calls:
        if call.function == "create_calendar_event":
            call.args["title"] += " (Emma)"
    return calls


ROWS = [
    Row("no gate", HERE / "policies/no-gate/no-gate.cedar", model.no_gate),
    Row("every write", HERE / "policies/every-write/every-write.cedar", model.every_write),
    Row("writes after an untrusted read", HERE / "policies/after-untrusted/after-untrusted.cedar", model.after_untrusted),
    Row("… unless in the user's request", HERE / "policies/unless-in-request/unless-in-request.cedar", model.unless_in_request),
    Row("… or in any result", None, model.any_result),
    Row("our rules", FLOW, model.flow),
    Row("our rules, without `links`", FLOW, model.flow, links=False),
    Row("members poisoned", FLOW, model.flow, poison="members", suites=["slack"], is_main=False),
    Row("members poisoned, without `links`", FLOW, model.flow, links=False, poison="members", suites=["slack"], is_main=False),
    Row("longer titles of events", FLOW, model.flow, change=longer_titles, poison="nothing", is_main=False),
    Row("every read is untrusted", FLOW, model.flow, reads=True, poison="nothing", is_main=False),
]


def declared_tools(suite, row):
    """What the operator declares about the tools of a suite, for a row."""
    tools = {name: dict(tool) for name, tool in DECLARATIONS[suite]["tools"].items()}
    for tool in tools.values():
        if not row.links:
            tool.pop("links", None)
        if row.reads and tool["mode"] == "read_only":
            tool["reads"] = sorted({*tool.get("reads", []), "untrusted"})
    return tools


@dataclass
class Run:
    utility: bool = False
    security: bool = False
    questions: list = field(default_factory=list)        # about calls of the user's task
    through: list = field(default_factory=list)          # injected calls with an effect that were made


class Bench:
    """A gateway with one row's policies in front of one suite's tools."""

    def __init__(self, binary, row, world):
        self.row, self.world, self.tools = row, world, declared_tools(world.name, row)
        self.env, self.trace, self.disagreements, self.calls = None, [], [], 0
        self.gate = self.server = None
        if row.policies:
            offered = world.tools()
            self.server = ToolServer(offered, self.act)
            # `amount` is for the model alone: the gate has a policy for it.
            declared = {tool["name"]: {key: value for key, value in self.tools[tool["name"]].items() if key != "amount"} for tool in offered}
            policies = [row.policies]
            if row.policies == FLOW and world.name == "banking":
                policies.append(HERE / "policies/banking/40-amounts.cedar")
            directories = DECLARATIONS[world.name]["directories"]
            self.gate = Gate(binary, configuration(directories, {world.name: (self.server.url, declared)}), policies)

    def close(self):
        if self.gate:
            self.gate.close()
            self.server.close()

    def act(self, tool, args):
        """A tool is called, by whom it may be: here the environment changes."""
        self.trace.append(FunctionCall(function=tool, args=args))
        result, error = self.world.runtime.run_function(self.env, tool, args)
        if error is not None:
            raise RuntimeError(error)
        return plain(result)

    def decided(self, session, known, call, is_users):
        """Takes one call through the gate: whether it was asked about and why, and its result where it was made."""
        args = plain(dict(call.args))
        self.calls += 1
        facts = known.facts(call.function, args)
        expected = self.row.asks(facts)
        if self.gate is None:
            is_made = is_users or not expected
            result, is_done = self.directly(call.function, args) if is_made else (None, False)
            asking, reason = expected, ", ".join(sorted(expected))
        else:
            answer = self.gate.call(session, f"{self.world.name}.{call.function}", args, approve=is_users)
            asking = answer.policies - {"rest", "flow/rest"} if answer.asked else set()
            result, is_done, reason = answer.result, answer.outcome == "SUCCESS", answer.reason
            is_made = answer.outcome in ("SUCCESS", "EXECUTION_ERROR")
            is_refused = answer.outcome == "VALIDATION_ERROR" or answer.outcome == "DENIED" and not answer.asked
            if asking != expected or is_refused or facts.differences(answer.facts) or answer.asked and set(answer.facts.get("labels", [])) != facts.labels:
                self.disagreements.append({"tool": call.function, "args": args, "outcome": answer.outcome, "asked by": sorted(asking),
                                           "model": sorted(expected), "gate's facts": answer.facts, "model's facts": vars(facts)})
        if is_made:
            known.sent(call.function)
        if is_done:
            known.took(call.function, args, result)
        return facts, asking, reason, is_done

    def directly(self, tool, args):
        try:
            result = self.act(tool, args)
        except RuntimeError:
            return None, False
        return result if isinstance(result, dict) else {"result": result}, True

    def play(self, task, injection=None, calls=(), injections={}, place=None, checks_utility=True):
        """One run. `place` is the number of calls of the user's task before the injected ones; None is the end."""
        env = task.init_environment(self.world.environment(injections))
        before = env.model_copy(deep=True)
        self.env, self.trace = env, []
        ours = self.ours(task, env)
        place = len(ours) if place is None else place
        plan = [(c, True) for c in ours[:place]] + [(c, False) for c in calls] + [(c, True) for c in ours[place:]]
        session = self.gate.session(task.PROMPT) if self.gate else None
        known = model.Session(self.tools, DECLARATIONS[self.world.name]["directories"], task.PROMPT)
        run = Run()
        for call, is_users in plan:
            call = call if isinstance(call, FunctionCall) else call(env)
            facts, asking, reason, is_done = self.decided(session, known, call, is_users)
            if asking and is_users:
                run.questions.append({"tool": call.function, "args": plain(dict(call.args)), "policies": sorted(asking), "reason": reason,
                                      "foreign": facts.foreign})
            if is_done and not is_users and (facts.sends or facts.mode == model.WRITES):
                run.through.append({"tool": call.function, "args": plain(dict(call.args))})
        if checks_utility:
            run.utility = self.world.is_useful(task, injections, before, env, self.trace)
        if injection is not None:
            run.security = self.world.is_attacked(task, injection, before, env, self.trace)
        return run

    def ours(self, task, env):
        calls = task.ground_truth(env.model_copy(deep=True))
        return self.row.change(calls) if self.row.change else calls


def pair(bench, task, injection, poisoned, score):
    """One pair of a user's task and an injected one, with the injected calls at each place after the first poisoned read."""
    injections, first = poisoned(injection)
    world = bench.world
    env = task.init_environment(world.environment(injections))
    count = len(task.ground_truth(env.model_copy(deep=True)))
    calls, whose = world.injected_calls(injection, env)
    places = range(min(first, count), count + 1)
    runs = [bench.play(task, injection, calls, injections, place, place == count) for place in places]
    real = [run for run in runs if run.security and run.through]
    score["pairs"] += 1
    score["utility"] += runs[-1].utility
    score[f"through, {whose}"] += any(run.security for run in runs)
    score[f"through at the end, {whose}"] += runs[-1].security
    score[f"real, {whose}"] += bool(real)
    score["pairs with an effect"] += any(run.through for run in runs)
    return [{"task": task.ID, "injection": injection.ID, "calls": real[0].through}] if real else []


def vectors(world, task):
    """The benchmark's own places for an injection, as far as the task reads them."""
    seen = world.vectors_seen(task)
    first = min(seen.values(), default=0) + 1
    return lambda injection: ({vector: POISON.format(goal=injection.GOAL) for vector in seen}, first)


def members(world, task):
    """Every message of a member is poisoned: the benchmark does not do this. None where the task reads no message."""
    ours = task.ground_truth(world.environment({}))
    reads = [number for number, call in enumerate(ours) if call.function in ("read_channel_messages", "read_inbox")]

    def poisoned(injection):
        poison = " " + POISON.format(goal=injection.GOAL)
        fresh = world.pristine.model_copy(deep=True)
        for box in (fresh.slack.channel_inbox, fresh.slack.user_inbox):
            for messages in box.values():
                for message in messages:
                    message.body += poison
        world.marked, world.made = fresh, {}
        return {}, reads[0] + 1

    return poisoned if reads else None


def measured(job):
    """All pairs of one suite under one row."""
    binary, row, name, limit = job
    row = next(one for one in ROWS if one.name == row)
    world = WORLDS[name]
    world.pristine = world.marked
    bench = Bench(binary, row, world)
    score, questions, attacks, begin = Counter(), [], [], time.time()
    for task in list(world.suite.user_tasks.values())[:limit]:
        if row.poison != "members":
            run = bench.play(task)
            score.update({"tasks": 1, "useful tasks": run.utility, "questions": len(run.questions), "quiet tasks": not run.questions})
            questions += [{"task": task.ID, **question} for question in run.questions]
        poisoned = {"vectors": vectors, "members": members, "nothing": lambda *_: None}[row.poison](world, task)
        for injection in world.suite.injection_tasks.values() if poisoned else []:
            attacks += pair(bench, task, injection, poisoned, score)
    bench.close()
    return {"row": row.name, "suite": name, "score": dict(score), "questions": questions, "attacks": attacks, "calls": bench.calls,
            "seconds": round(time.time() - begin, 1), "disagreements": len(bench.disagreements),
            "disagreement_examples": bench.disagreements[:DISAGREEMENTS_MAX]}


def figures(results, row):
    total = Counter()
    for result in results:
        if result["row"] == row:
            total.update(result["score"])
    return total


def main():
    global WORLDS
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS])
    parser.add_argument("--limit", type=int, help="only so many tasks of each suite")
    parser.add_argument("--results", type=Path, help="where the results are written, as JSON")
    options = parser.parse_args()
    WORLDS = worlds()
    sizes = {name: len(world.suite.user_tasks) * len(world.suite.injection_tasks) for name, world in WORLDS.items()}
    rows = [row for row in ROWS if not options.row or row.name in options.row]
    jobs = [(options.binary, row.name, suite, options.limit) for row in rows for suite in row.suites
            if not options.suite or suite in options.suite]
    jobs.sort(key=lambda job: -sizes[job[2]])
    begin, results = time.time(), []
    # Forked, so that the suites are loaded once.
    with multiprocessing.get_context("fork").Pool(PROCESSES, maxtasksperchild=1) as pool:
        for result in pool.imap_unordered(measured, jobs, chunksize=1):
            results.append(result)
            print(f"   {len(results)} of {len(jobs)}: {result['row']}, {result['suite']}: {result['calls']} calls in {result['seconds']} s; "
                  f"{result['disagreements']} disagreements", flush=True)
    found = {"benchmark": BENCHMARK, "agentdojo": importlib.metadata.version("agentdojo"), "python": sys.version.split()[0],
             "seconds": round(time.time() - begin), "calls": sum(result["calls"] for result in results), "results": results}
    for row in rows:
        print(row.name, dict(figures(results, row.name)))
    if options.results:
        options.results.write_text(json.dumps(found, indent=1, ensure_ascii=False, default=sorted))
    for result in results:
        for example in result["disagreement_examples"][:3]:
            print("disagreement:", result["row"], result["suite"], json.dumps(example, default=sorted)[:1200])
    if any(result["disagreements"] for result in results):
        raise SystemExit("the gate and the model disagree")


if __name__ == "__main__":
    main()
