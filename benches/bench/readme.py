"""Puts the two tables people want to see, figures and bars, into the README, between its markers."""

import os

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def update(path, page):
    """Replaces what stands between the markers of the file at `path`; says whether there were any."""
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as f:
        text = f.read()
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        return False
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{before}{BEGIN}\n{excerpt(page)}\n{END}{after}")
    return True


def excerpt(page):
    """The list of what was measured on, and the tables up to the bars."""
    lines = page.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("- "))
    last = next(i for i, line in enumerate(lines) if line.startswith("## Ratios"))
    return "\n".join(line for line in lines[first:last] if not line.startswith("## ")).strip()
