"""Copies the tables of figures and bars into the README, between the markers of a benchmark."""

import os

SHOWN = ("## Figures", "## Bars")


def update(path, page, name):
    """Replaces the text between the markers `name` in the file at `path`. Returns whether the file has these
    markers."""
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return False
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{before}{begin}\n{excerpt(page)}\n{end}{after}")
    return True


def excerpt(page):
    """Returns the list of machine and versions, and the tables up to the bars."""
    lines = page.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("- "))
    last = next((i for i, line in enumerate(lines) if line.startswith("## ") and line not in SHOWN), len(lines))
    return "\n".join(line for line in lines[first:last] if not line.startswith("## ")).strip()
