"""Plots as SVG, by hand. Each has a ground of its own, and follows the reader's choice of light or dark."""

import math
from html import escape

import report

STYLE = """
  .ground { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .line { stroke: #d1d9e0 }
  .ours { fill: #0b6bcb } .theirs { fill: #8c959f } .mark { stroke: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #151b23 } .text { fill: #f0f6fc } .faint { fill: #9198a1 } .line { stroke: #3d444d }
    .ours { fill: #4493f8 } .theirs { fill: #656c76 } .mark { stroke: #f0f6fc }
  }
  text { font: 13px system-ui, sans-serif } .title { font-weight: 600 }
"""
WIDTH, NAMES, RIGHT, ROW, TOP = 860, 300, 90, 24, 64


def pictures(figures):
    of = lambda clients, field: [(name, report.figure(figures, name, "alone", "read", clients)[field]) for name in report.measured(figures)]
    return {
        "rate-1": bars(figures, "READ steps a second, 1 client", "more is better", of(1, "steps_per_second")),
        "rate-64": bars(figures, "READ steps a second, 64 clients", "more is better", of(64, "steps_per_second")),
        "latency-64": spans(figures, "Time of a READ step, 64 clients", "p50 to p99 in ms, logarithmic; less is better", of(64, "p50_ms"), of(64, "p99_ms")),
        "processor-64": bars(figures, "Processor time of a READ step in ms, 64 clients", "its own processes and its database; less is better", of(64, "cpu_ms_per_step")),
    }


def bars(figures, title, note, values):
    most = max(value for _name, value in values)
    rows = []
    for index, (name, value) in enumerate(values):
        width = max(1.0, (WIDTH - NAMES - RIGHT) * value / most)
        rows.append(f'<rect class="{kind(name)}" x="{NAMES}" y="{y(index)}" width="{width:.1f}" height="16" rx="2"/>')
        rows.append(text(NAMES + width + 6, y(index) + 13, report.number(value)))
    return picture(figures, title, note, values, rows)


def spans(figures, title, note, lows, highs):
    least = math.floor(math.log10(min(value for _name, value in lows)))
    most = math.ceil(math.log10(max(value for _name, value in highs)))
    x = lambda value: NAMES + (WIDTH - NAMES - RIGHT) * (math.log10(value) - least) / (most - least)
    bottom = y(len(lows)) - 4
    rows = []
    for power in range(least, most + 1):
        at = x(10**power)
        rows.append(f'<line class="line" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        rows.append(text(at, bottom + 14, f"{10**power:g}", "faint", "middle"))
    for index, ((name, low), (_name, high)) in enumerate(zip(lows, highs)):
        rows.append(f'<rect class="{kind(name)}" x="{x(low):.1f}" y="{y(index)}" width="{max(2.0, x(high) - x(low)):.1f}" height="16" rx="2"/>')
        rows.append(text(x(high) + 6, y(index) + 13, f"{low:.0f} to {high:.0f}"))
    return picture(figures, title, note, lows, rows, 20)


def picture(figures, title, note, values, rows, more=0):
    height = y(len(values)) + 10 + more
    names = [text(NAMES - 10, y(index) + 13, report.title(figures, name), "text", "end") for index, (name, _value) in enumerate(values)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="text title" x="16" y="26">{escape(title)}</text>',
        text(16, 46, note, "faint"),
        *names, *rows, "</svg>",
    ]
    return "\n".join(parts) + "\n"


def y(index):
    return TOP + index * ROW


def kind(name):
    return "ours" if name.startswith("stepgate") else "theirs"


def text(x, at, words, style="text", anchor="start"):
    return f'<text class="{style}" x="{x:.1f}" y="{at}" text-anchor="{anchor}">{escape(str(words))}</text>'
