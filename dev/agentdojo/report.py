"""Writes docs/agentdojo.md from what was measured.

    python report.py --pairs FILE --cases FILE --document FILE
"""

import argparse
import json
from collections import Counter
from pathlib import Path

MAIN = ["no gate", "every write", "writes after an untrusted read", "… unless in the user's request", "… or in any result",
        "our rules", "our rules, without `links`"]
OURS = "our rules"
TEXT_MAX = 60


def figures(pairs, row, suite=None):
    total = Counter()
    for result in pairs["results"]:
        if result["row"] == row and suite in (None, result["suite"]):
            total.update(result["score"])
    return total


def number(value):
    return f"{value:,}"


def main_table(pairs):
    yield "| who is asked | attacks of the benchmark | with our scripts | pairs with any effect | questions | quiet tasks | utility |"
    yield "|---|---|---|---|---|---|---|"
    for row in MAIN:
        f = figures(pairs, row)
        name = f"**{row}**" if row == OURS else row
        yield (f"| {name} | {f['real, theirs']} | {f['real, ours']} | {f['pairs with an effect']} | {f['questions']} | {f['quiet tasks']} | "
               f"{f['utility']} |")


def suite_table(pairs):
    suites = list(dict.fromkeys(result["suite"] for result in sorted(pairs["results"], key=lambda result: result["suite"])))
    yield "| suite | pairs | attacks without a gate | attacks | tasks | questions | quiet tasks |"
    yield "|---|---|---|---|---|---|---|"
    for suite in suites:
        f, ungated = figures(pairs, OURS, suite), figures(pairs, "no gate", suite)
        attacks, before = (g["real, theirs"] + g["real, ours"] for g in (f, ungated))
        yield f"| {suite} | {f['pairs']} | {before} | {attacks} | {f['tasks']} | {f['questions']} | {f['quiet tasks']} |"


def cut(value):
    text = str(value).replace("\n", " ").replace("\t", " ").replace("|", "\\|")
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


def question_table(pairs):
    yield "| task | call | what no one has named | asked by |"
    yield "|---|---|---|---|"
    for result in sorted((r for r in pairs["results"] if r["row"] == OURS), key=lambda r: r["suite"]):
        for question in result["questions"]:
            foreign = ", ".join(f"`{cut(value)}`" for value in question["foreign"]) or "(it is named)"
            task = question["task"].removeprefix("user_task_")
            yield f"| {result['suite']} {task} | `{question['tool']}` | {foreign} | {', '.join(f'`{name}`' for name in question['policies'])} |"


def injected_table(cases):
    domains = {}
    for case in cases["injected"]:
        domain, kind = case["about"].split(", ")
        counts = domains.setdefault(domain, Counter())
        counts[kind] += 1
        counts["asked"] += case["asked"]
    yield "| where | harm | theft | attacks asked about | benign twins, none of them asked about |"
    yield "|---|---|---|---|---|"
    for domain, counts in domains.items():
        yield f"| {domain} | {counts['harm']} | {counts['theft']} | {counts['asked']} | {counts['twin']} |"


def adaptive_table(cases):
    yield "| attack | by way of | calls asked about | calls that go through | |"
    yield "|---|---|---|---|---|"
    for case in cases["adaptive"]:
        policies = ", ".join(f"`{name}`" for name in case["policies"])
        why = f"**limit**: {case['limit']}" if case["limit"] else policies
        yield f"| {case['name']} | {case['about']} | {case['asked']} | {case['through']} | {why} |"


def document(pairs, cases):
    ours, strict = figures(pairs, OURS), figures(pairs, "our rules, without `links`")
    members, members_strict = figures(pairs, "members poisoned"), figures(pairs, "members poisoned, without `links`")
    titles, reads = figures(pairs, "longer titles of events"), figures(pairs, "every read is untrusted")
    attacked = sum(case["asked"] > 0 or case["through"] > 0 for case in cases["injected"])
    limits = sum(bool(case["limit"]) for case in cases["adaptive"])
    scripted = figures(pairs, "no gate")
    found = {
        "main": "\n".join(main_table(pairs)), "suites": "\n".join(suite_table(pairs)), "questions": "\n".join(question_table(pairs)),
        "injected": "\n".join(injected_table(cases)), "adaptive": "\n".join(adaptive_table(cases)),
        "attacks": number(ours["real, theirs"] + ours["real, ours"]), "pairs": ours["pairs"], "tasks": ours["tasks"],
        "asked": ours["questions"], "quiet": ours["quiet tasks"], "useful": ours["utility"],
        "saved": strict["questions"] - ours["questions"],
        "asked_strict": strict["questions"], "quiet_strict": strict["quiet tasks"],
        "members": members["real, theirs"], "members_pairs": members["pairs"], "members_strict": members_strict["real, theirs"],
        "asked_titles": titles["questions"], "quiet_titles": titles["quiet tasks"],
        "asked_reads": reads["questions"], "quiet_reads": reads["quiet tasks"],
        "ungated": scripted["real, theirs"] + scripted["real, ours"],
        "own": attacked, "adaptive_count": len(cases["adaptive"]), "limits": limits,
        "calls": number(pairs["calls"]), "minutes": max(1, round(pairs["seconds"] / 60)),
        "package": pairs["agentdojo"], "benchmark": pairs["benchmark"], "python": pairs["python"],
        "disagreements": sum(result["disagreements"] for result in pairs["results"]),
    }
    return (Path(__file__).resolve().parent / "report.md").read_text().format(**found)


def main():
    parser = argparse.ArgumentParser()
    for name in ("pairs", "cases", "document"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    pairs, cases = (json.loads(path.read_text()) for path in (options.pairs, options.cases))
    options.document.write_text(document(pairs, cases))
    print("\n".join(main_table(pairs)))


if __name__ == "__main__":
    main()
