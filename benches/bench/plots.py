"""Draws the figures of a run as one HTML page: a row of bars for each figure, with the range of the rounds."""

import html
import statistics

from bench.treatments import EARLIER, EKIDEN, FLOOR

COLOURS = {EKIDEN: "#0b6e99", EARLIER: "#7fb3c8", FLOOR: "#999999"}
OTHERS = "#c9a66b"
NAME, WIDTH, ROW, VALUE = 130, 420, 20, 90  # in pixels

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 46rem; padding: 0 1rem }}
svg {{ width: 100%; height: auto }}
text {{ font: 12px system-ui, sans-serif; fill: currentColor }}
</style>
<h1>{title}</h1>
<p>{about}</p>
<ul>{facts}</ul>
{figures}
"""


def bars(results, column):
    """Returns an SVG with one bar for each treatment that has values. The bar ends at the median, the line is the
    range."""
    rows = [(t, results.values[t.name, column.key]) for t in results.treatments if results.values.get((t.name, column.key))]
    scale = WIDTH / max(max(values) for _, values in rows)
    parts = []
    for number, (treatment, values) in enumerate(rows):
        top, median = number * ROW, statistics.median(values)
        low, high, middle = NAME + min(values) * scale, NAME + max(values) * scale, top + ROW / 2
        colour = COLOURS.get(treatment.kind, OTHERS)
        parts += [
            f'<text x="{NAME - 6}" y="{top + 14}" text-anchor="end">{html.escape(treatment.name)}</text>',
            f'<rect x="{NAME}" y="{top + 3}" width="{median * scale:.1f}" height="{ROW - 6}" fill="{colour}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="currentColor"/>',
            f'<text x="{NAME + WIDTH + 8}" y="{top + 14}">{median:.{column.digits}f}</text>',
        ]
    size = f"0 0 {NAME + WIDTH + VALUE} {len(rows) * ROW}"
    return f'<svg viewBox="{size}" role="img" aria-label="{html.escape(column.title)}">{"".join(parts)}</svg>'


def title_of(columns, number):
    """Returns the title of a column. The title of a quantile starts with the title of the previous column."""
    title = columns[number].title
    return f"{columns[number - 1].title.split(',')[0]}, {title}" if title.startswith("p99") else title


def page(run, title, header):
    """Returns the page. `header` is the header of the Markdown page, whose second paragraph and list are included."""
    about = html.escape(header[2])
    facts = "".join(f"<li>{html.escape(line[2:])}</li>" for line in header if line.startswith("- "))
    columns = run.results.columns()
    figures = "\n".join(
        f"<h2>{html.escape(title_of(columns, number))}</h2>\n"
        f"<p>{'More' if column.higher_is_better else 'Less'} is better.</p>\n{bars(run.results, column)}"
        for number, column in enumerate(columns) if any(key == column.key for _, key in run.results.values))
    return PAGE.format(title=html.escape(title), about=about, facts=facts, figures=figures)
