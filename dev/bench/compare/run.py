#!/usr/bin/env python3
"""Stepgate beside its peers: the same work, the same durability, in turns on one machine.

Installs the peers by name and version into a scratch folder, runs them one after the other with Stepgate in the same
round, kills each between an act and its record, and writes a table and plots. See docs/performance.md.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import signal

import sys
import time
from pathlib import Path

import kill
import machine
import measure
import peer_agentplane
import peer_contextforge
import peer_ctrlrun
import peer_dbos
import peer_langgraph
import peer_restate
import peer_stepgate
import peer_temporal
import report
from peer import HERE, Tools

ROOT = HERE.parents[2]
# By the names of --only.
GROUPS = {
    "restate": [peer_restate.Restate],
    "dbos": peer_dbos.driver(),
    "temporal": peer_temporal.driver(),
    "langgraph": peer_langgraph.driver(),
    "ctrlrun": peer_ctrlrun.driver(),
    "contextforge": [peer_contextforge.ContextForge],
    "agentplane": [peer_agentplane.Agentplane],
}
EXAMPLES = """\
examples:
  cargo build --release && python3 dev/bench/compare/run.py     everything: about 20 minutes
  run.py --quick                                                everything once, briefly: is it all there?
  run.py --only restate,dbos --rounds 5                         some peers
  run.py --only dbos,kill                                       the kill test of one
  run.py --only rates --rounds 1 --more --json docs/performance/figures.json --docs docs
                                                                another round (4 minutes) for the page
  run.py --report --json docs/performance/figures.json --docs docs
                                                                no measurement: the page from the file
"""


def main():
    arguments = parse()
    # Whoever ends this ends everything that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    scratch = arguments.scratch.expanduser().resolve()
    if scratch.is_relative_to(ROOT):
        sys.exit("the scratch folder must be outside of the clone")
    figures = load(arguments.json)
    if not arguments.report:
        scratch.mkdir(parents=True, exist_ok=True)
        tools = Tools(scratch, arguments.stepgate)
        if not tools.stepgate.exists():
            sys.exit(f"there is no {tools.stepgate}: cargo build --release, or name one with --stepgate")
        say = Progress()
        try:
            take(arguments, tools, figures, say)
        finally:
            figures["machine"] = figures["machine"] or machine_words(tools)
            tools.end()
            machine.Process.kill_all()
            save(arguments.json, figures)
    if arguments.docs:
        report.write(figures, arguments.docs)
    print(report.tables(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--only", default="all", metavar="NAMES",
                        help=f"peers, with commas: {', '.join(GROUPS)}; and rates, kill, flushes for these parts alone")
    parser.add_argument("--rounds", type=int, choices=range(1, 21), default=3, metavar="N", help="rounds; their median counts (3)")
    parser.add_argument("--seconds", type=int, choices=range(1, 61), default=3, metavar="N", help="of one figure (3)")
    parser.add_argument("--quick", action="store_true", help="one round of one second each: to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures here; what is measured anew replaces its own; parts that are not measured stay")
    parser.add_argument("--more", action="store_true", help="add these rounds to those of --json")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="put the tables into DIR/performance.md and the plots beside it")
    parser.add_argument("--report", action="store_true", help="measure nothing: only make tables and plots of --json")
    parser.add_argument("--stepgate", type=Path, default=target / "release/stepgate", metavar="FILE", help="Stepgate's program")
    parser.add_argument("--scratch", type=Path, default=Path("~/.cache/stepgate-compare"), metavar="DIR",
                        help="where peers are installed and run (~/.cache/stepgate-compare)")
    return parser.parse_args()


def take(arguments, tools, figures, say):
    wanted = set(arguments.only.split(","))
    parts = wanted & {"rates", "kill", "flushes"} or {"rates", "kill", "flushes"}
    chosen = [name for name in GROUPS if name in wanted or not wanted & set(GROUPS)]
    if unknown := wanted - set(GROUPS) - {"rates", "kill", "flushes", "all"}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}: {', '.join(GROUPS)}")
    rounds, seconds = (1, 1) if arguments.quick else (arguments.rounds, arguments.seconds)
    ours = [peer_stepgate.Stepgate(tools), peer_stepgate.StepgatePostgres(tools)]
    peers = [made(tools) for name in chosen for made in GROUPS[name]]
    for peer in ours + peers:
        peer.install(say)
        figures["peers"][peer.name] = words(peer)
    rated = [peer for peer in peers if not peer.sentence]
    if "rates" in parts:
        figures["rounds"] = figures["rounds"] if arguments.more else []
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            one_round(tools, ours, rated, seconds, arguments.quick, figures["rounds"], say)
            save(arguments.json, figures)
    if "kill" in parts:
        for peer in ours[:1] + peers:
            for way in peer.kills:
                figures["kills"][f"{peer.name} {way}"] = kill.kill_test(peer, way, say)
                peer.kill_way = "default"
    if "flushes" in parts:
        for peer in ours + rated:
            figures["flushes"][peer.name] = measure.flushes_of(peer)
            say(f"{peer.name}: {figures['flushes'][peer.name]}")
    figures["machine"] = machine_words(tools)


def one_round(tools, ours, peers, seconds, is_quick, rounds, say):
    """Everything once, Stepgate first and last. The file that is appended to is in Stepgate's own measurement."""
    rounds.append(one := {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cells": [], "bench": [],
                          "others_percent": None})
    others = machine.Others()
    one["bench"] = measure.bench_of(tools, is_quick, say)
    for peer in [*ours, *peers, ours[0]]:
        try:
            one["cells"] += measure.round_of(peer, seconds, say)
        except (OSError, RuntimeError) as error:
            # The others are worth measuring all the same.
            say(f"{peer.name} failed: {error}")
            one.setdefault("failed", {})[peer.name] = str(error)
    one["others_percent"] = others.percent()
    say(f"others took {one['others_percent']:.1f} % of the processor")


def words(peer):
    return {"title": peer.title, "version": peer.version(), "settings": peer.settings, "modes": peer.modes,
            "store": peer.store, "sentence": peer.sentence, "kills": peer.kills,
            "packages": peer.pip + peer.npm}


def machine_words(tools):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    program = hashlib.sha256(tools.stepgate.read_bytes()).hexdigest()
    return {"stepgate_sha256": program, "cores": os.cpu_count(), "memory_gib": round(memory), "system": f"{platform.system()} {platform.release().split('-')[0]}",
            "python": platform.python_version(), "postgresql": tools.postgres.version if tools.postgres else None}


def load(path):
    empty = {"machine": {}, "peers": {}, "rounds": [], "kills": {}, "flushes": {}}
    if path and path.exists():
        return {**empty, **json.loads(path.read_text(encoding="utf-8"))}
    return empty


def save(path, figures):
    if path:
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


class Progress:
    """One line for each thing that is done, with the time since the start."""

    def __init__(self):
        self.start = time.monotonic()

    def __call__(self, text):
        print(f"{time.monotonic() - self.start:7.1f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
