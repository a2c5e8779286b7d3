"""Tables in Markdown, and their places in the page. Every figure is the median of the rounds that measured it."""

import re
from statistics import mean, median

import plots

BEGIN = "<!-- begin of what dev/bench/compare/run.py writes: {} -->"
END = "<!-- end -->"
FIELDS = ("steps_per_second", "p50_ms", "p99_ms", "cpu_ms_per_step", "written_bytes_per_step", "kept_bytes_per_step")


def rounds(figures):
    """Those that came to their end."""
    return [one for one in figures["rounds"] if one["others_percent"] is not None]


def cells(one, peer, mode, act, clients):
    wanted = (peer, mode, act, clients)
    return [cell for cell in one["cells"] if (cell["peer"], cell["mode"], cell["act"], cell["clients"]) == wanted]


def figure(figures, *cell):
    """The medians of a cell over all rounds, or None."""
    found = [each for one in rounds(figures) for each in cells(one, *cell)]
    return {field: median(each[field] for each in found) for field in FIELDS} if found else None


def in_process(figures, act, clients):
    """Stepgate without HTTP, from `stepgate bench`, with the append-only file of the same runs."""
    action = {"read": "READ_FILE", "write": "WRITE_FILE"}[act]
    found = [each for one in rounds(figures) for each in one["bench"] if (each["action"], each["clients"]) == (action, clients)]
    middle = lambda name: median(each[name] for each in found)
    return {"steps_per_second": middle("steps_per_second"), "p50_ms": middle("latency_p50_ms"), "p99_ms": middle("latency_p99_ms"),
            "file": middle("append_only_steps_per_second"), "part": middle("part_of_append_only")} if found else None


def times(figures, peer, mode, act, clients):
    """How many times the peer's rate Stepgate's is, over HTTP and on the same kind of store: each round by itself."""
    ours = "stepgate-postgres" if figures["peers"][peer]["store"] == "postgres" else "stepgate"
    rate = lambda one, *cell: mean(each["steps_per_second"] for each in cells(one, *cell))
    ratios = [rate(one, ours, "alone", act, clients) / rate(one, peer, mode, act, clients)
              for one in rounds(figures) if cells(one, peer, mode, act, clients)]
    return median(ratios) if ratios else None


def number(value):
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:,.1f}" if value >= 1 else f"{value:,.2f}"


def row(*columns):
    return "| " + " | ".join(str(column) for column in columns) + " |"


def header(*names):
    return [row(*names), "|" + "---|" * len(names)]


def measured(figures):
    """Peers with figures, Stepgate first."""
    return [name for name in sorted(figures["peers"], key=lambda name: not name.startswith("stepgate"))
            if figure(figures, name, "alone", "read", 1)]


def title(figures, name):
    return figures["peers"][name]["title"]


def rates(figures, act):
    lines = header("", "1 client: steps/s", "p50 ms", "p99 ms", "64 clients: steps/s", "p50 ms", "p99 ms", "Stepgate, 1 client", "64 clients")
    bench = [in_process(figures, act, clients) for clients in (1, 64)]
    if all(bench):
        lines.append(row("a file that is appended to", *(text for one in bench for text in (number(one["file"]), "", "")), "", ""))
        lines.append(row("Stepgate on SQLite, in process", *(text for one in bench for text in three(one)), "", ""))
    for name in measured(figures):
        ours = name.startswith("stepgate")
        found = [figure(figures, name, "alone", act, clients) for clients in (1, 64)]
        ratios = ["" if ours else f"{number(times(figures, name, 'alone', act, clients))} ×" for clients in (1, 64)]
        lines.append(row(title(figures, name), *(text for one in found for text in three(one)), *ratios))
    return lines


def three(one):
    return number(one["steps_per_second"]), f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}"


def ways(figures):
    lines = header("", "way", "1 client: steps/s", "64 clients: steps/s", "Stepgate, 1 client", "64 clients")
    for name in measured(figures):
        for mode, text in figures["peers"][name]["modes"].items():
            found = [figure(figures, name, mode, "read", clients) for clients in (1, 64)]
            if mode == "alone" or not all(found):
                continue
            ratios = [f"{number(times(figures, name, mode, 'read', clients))} ×" for clients in (1, 64)]
            lines.append(row(title(figures, name), text, *(number(one["steps_per_second"]) for one in found), *ratios))
    return lines


def costs(figures):
    lines = header("", "processor ms a step, 1 client", "64 clients", "bytes kept a step", "bytes written a step, 1 client", "64 clients")
    for name in measured(figures):
        one, many = (figure(figures, name, "alone", "read", clients) for clients in (1, 64))
        lines.append(row(title(figures, name), f"{one['cpu_ms_per_step']:.2f}", f"{many['cpu_ms_per_step']:.2f}", number(many["kept_bytes_per_step"]),
                         number(one["written_bytes_per_step"]), number(many["written_bytes_per_step"])))
    return lines


def kills(figures):
    lines = header("", "setting", "acts of each of 5 steps after the restart", "after their clients asked again", "what is said then")
    for found in figures["kills"].values():
        peer = figures["peers"][found["peer"]]
        told = "; ".join(sorted({plain(text) for text in found["told"]}))
        told += f"; {found['operator']}" if found["operator"] else ""
        lines.append(row(peer["title"], peer["kills"][found["way"]], *(counts(found[when]) for when in ("effects_after_restart", "effects_after_asking")), told))
    return lines


def counts(effects):
    return ", ".join(str(effect) for effect in effects)


def plain(text):
    """Without what differs from step to step."""
    return re.sub(r"act_[0-9a-f]+", "ID", re.sub(r"kill-\d+", "STEP", text)).replace("|", "\\|")


def peers(figures):
    lines = header("", "version", "one run of a client", "settings")
    for name in sorted(figures["peers"], key=lambda name: not name.startswith("stepgate")):
        peer = figures["peers"][name]
        if not peer["sentence"]:
            lines.append(row(peer["title"], peer["version"], peer["modes"]["alone"], peer["settings"] or "those that it ships with"))
    return lines


def absent(figures):
    return [f"- **{peer['title']}** ({peer['version']}). {peer['sentence']}" for peer in figures["peers"].values() if peer["sentence"]]


def machine(figures):
    found = figures["machine"]
    others = [f"{one['others_percent']:.0f}" for one in rounds(figures)]
    times = ", ".join(one["time"][:16].replace("T", " ") for one in rounds(figures))
    return [f"Measured at {times} UTC on {found['cores']} cores with {found['memory_gib']} GiB, {found['system']}, PostgreSQL {found['postgresql']}, "
            f"Python {found['python']}; Stepgate's program has the SHA-256 {found['stepgate_sha256'][:16]}…. Others took {', '.join(others)} % of the processor in these rounds."] if others else \
        ["No round on a quiet machine yet, so this page has no rates: `run.py --only rates` takes them."]


def plotted(figures, names, lines):
    """The lines under their plots, or a sentence as long as nothing was measured."""
    if not rounds(figures):
        return ["No round yet."]
    return [*(f"![{words}](performance/{name}.svg)\n" for name, words in names.items()), *lines(figures)]


def read(figures):
    names = {"rate-64": "READ steps a second, 64 clients", "rate-1": "READ steps a second, 1 client",
             "latency-64": "Time of a READ step, 64 clients"}
    return plotted(figures, names, lambda figures: rates(figures, "read"))


def write_rates(figures):
    return plotted(figures, {}, lambda figures: rates(figures, "write"))


def flushes(figures):
    lines = header("", "flushes of a step, 1 client")
    return lines + [row(title(figures, name), f"{found['flushes_per_step']:.1f}") for name, found in figures["flushes"].items() if found]


PARTS = {
    "machine": machine,
    "peers": peers,
    "absent": absent,
    "flushes": flushes,
    "read": read,
    "ways": lambda figures: plotted(figures, {}, ways),
    "write": write_rates,
    "costs": lambda figures: plotted(figures, {"processor-64": "Processor time of a READ step, 64 clients"}, costs),
    "kills": kills,
}


def tables(figures):
    return "\n\n".join("\n".join(part(figures)) for part in PARTS.values())


def write(figures, docs):
    """Replaces the tables between their marks in the page, and the plots beside it."""
    page = docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        begin = BEGIN.format(name)
        before, found, rest = text.partition(begin)
        if not found:
            raise RuntimeError(f"{page} has no `{begin}`")
        after = rest.partition(END)[2]
        text = f"{before}{begin}\n" + "\n".join(part(figures)) + f"\n{END}{after}"
    page.write_text(text, encoding="utf-8")
    if not rounds(figures):
        return
    (docs / "performance").mkdir(exist_ok=True)
    for name, picture in plots.pictures(figures).items():
        (docs / "performance" / f"{name}.svg").write_text(picture, encoding="utf-8")
