"""Renders a run as Markdown: machine, versions, figures, ratios and bars."""

import os
import platform
import time
from collections import Counter

from bench import plots
from bench.bars import bars
from bench.treatments import version_of

REFERENCES = ("splice-loop", "haproxy", "haproxy-1m", "haproxy-tuned")


def processor():
    with open("/proc/cpuinfo") as f:
        return next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "unknown")


TITLE = "One relay hop, measured"
ABOUT = ("Written by `make bench` (benches/relay.py). nginx serves, curl and wrk ask, one relay between them, each in "
         "its own network namespace, joined by veth. CPU is that of the relay alone, user and system, with all its "
         "children. Cells are medians [least – most] of the rounds.")


def header(run, title, about, drivers):
    """Returns the header with machine and versions. `drivers` are the programs that generate load."""
    programs = sorted({t.program for t in run.results.treatments} - {"splice_loop"}) + list(drivers)
    versions = ", ".join(version_of(p) for p in dict.fromkeys(programs))
    mode = "quick run: rough figures" if run.quick else "normal run"
    return [
        f"# {title}",
        "",
        about,
        "",
        f"- {time.strftime('%Y-%m-%d %H:%M %Z')}, Linux {platform.release()}, {processor()}, {os.cpu_count()} cores",
        f"- {versions}",
        f"- {mode}, {run.rounds_done} of {run.rounds} rounds in shuffled order (seed {run.seed}), load average before "
        f"the run {run.load:.1f}",
        f"- congestion control: {run.default_control or 'cubic'}"
        + (", the system's default" if run.default_control else " for all connections"),
    ]


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def cell(values, digits):
    """Returns `median [least – most]`."""
    if not values:
        return "–"
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    if len(values) == 1:
        return f"{median:.{digits}f}"
    return f"{median:.{digits}f} [{ordered[0]:.{digits}f} – {ordered[-1]:.{digits}f}]"


def cell_of(results, name, column):
    text = cell(results.values.get((name, column.key)), column.digits)
    failed = results.failed(name, column.key)
    return f"{text}, failed {failed}x" if failed else text


def figures(results):
    columns = results.columns()
    rows = [[t.name] + [cell_of(results, t.name, c) for c in columns] for t in results.treatments]
    return markdown_table(["treatment"] + [c.title for c in columns], rows)


def ratio_text(value):
    return "–" if value is None else f"{value:.2f}"


def ratios(results, title, reference_of):
    """Returns a table of medians, each divided by the median of the reference treatment of its column."""
    columns = results.columns()
    rows = [[t.name] + [ratio_text(results.ratio(t.name, reference_of(c), c.key)) for c in columns]
            for t in results.treatments]
    if all(text == "–" for row in rows for text in row[1:]):
        return []
    return ["", f"**Divided by {title}**", ""] + markdown_table(["treatment"] + [c.title for c in columns], rows)


def all_ratios(results):
    lines = []
    for name in REFERENCES:
        lines += ratios(results, name, lambda column, name=name: name)
    best = "; ".join(f"{c.title}: {results.best_peer(c)}" for c in results.columns() if results.best_peer(c))
    return lines + ratios(results, f"the best peer ({best})", results.best_peer)


def bar_table(bars):
    rows = [[b.what, b.figure, b.wanted, b.verdict] for b in bars]
    return markdown_table(["bar", "measured", "wanted", "verdict"], rows) if rows else []


def notes(run):
    lines = [f"- {text}" + (f" ({count} times)" if count > 1 else "")
             for text, count in Counter(run.results.notes).items()]
    lines += [f"- soak: {run.soak}"] if run.soak else []
    return ["", "## Notes", ""] + lines if lines else []


DRIVERS = ("nginx", "curl", "wrk")


def plots_page(run):
    return plots.page(run, TITLE, header(run, TITLE, ABOUT, DRIVERS))


def page(run):
    lines = header(run, TITLE, ABOUT, DRIVERS) + ["", "## Figures", ""] + figures(run.results)
    lines += ["", "## Bars", ""] + (bar_table(bars(run.results, run.soak)) or ["No way into ekiden was measured."])
    lines += ["", "## Ratios of medians"] + all_ratios(run.results)
    return "\n".join(lines + notes(run)) + "\n"
