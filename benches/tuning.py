#!/usr/bin/env python3
"""Draws the pictures of docs/tuning.md from the results of two experiments:

    ekiden-lab run examples/tuning-window.toml --virtual --blocks 6 --out results/window
    ekiden-lab run examples/tuning-loss.toml --virtual --blocks 6 --out results/loss
    python3 benches/tuning.py results/window results/loss
"""

import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 60, 50, 60
BLUE, RED, GREY = "#0b6bcb", "#c2410c", "#888888"  # with enough contrast on a light and on a dark background
STYLE = """<style>
.back { fill: #ffffff } .grid { stroke: #dddddd } text { fill: #222222 }
@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } }
</style>"""
PICTURES = pathlib.Path(__file__).parent.parent / "docs" / "pictures"


def measured(folder, factor):
    """Returns the minimum, median and maximum Mbit/s of each level and treatment."""
    found = {}
    for line in (pathlib.Path(folder) / "runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        if run["invalid"] is None:
            place = (run["levels"][factor], run["treatment"])
            found.setdefault(place, []).append(run["metrics"]["mbit_s"])
    return {place: (min(all), sorted(all)[len(all) // 2], max(all)) for place, all in found.items()}


class Picture:
    """A chart with levels on the x axis and 0 to 100 Mbit/s on the y axis. `places` are the positions of the levels."""

    def __init__(self, title, levels, places, below):
        self.places = places
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="13" role="img">',
            f"<title>{title}</title>",
            STYLE,
            f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
        ]
        self.text(LEFT, 24, title, size=15)
        for rate in range(0, 101, 20):
            self.parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{self.y(rate):.1f}" y2="{self.y(rate):.1f}" class="grid"/>'
            )
            self.text(LEFT - 6, self.y(rate) + 4, rate, anchor="end")
        for place, level in zip(places, levels):
            self.text(self.x(place), HEIGHT - 40, level, anchor="middle")
        self.text((LEFT + WIDTH - 20) / 2, HEIGHT - 16, below, anchor="middle")
        self.text(16, 170, "Mbit/s", anchor="middle", more=' transform="rotate(-90 16 170)"')

    def x(self, place):
        first, last = self.places[0], self.places[-1]
        return LEFT + 30 + (WIDTH - 150) * (place - first) / (last - first)

    def y(self, rate):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / 100

    def text(self, x, y, text, anchor="start", size=13, more=""):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{text}</text>'
        )

    def line(self, places, rates, colour, dashes=""):
        points = " ".join(f"{self.x(place):.1f},{self.y(rate):.1f}" for place, rate in zip(places, rates))
        self.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dashes} points="{points}"/>')

    def dots(self, ranges, colour):
        for place, (least, median, most) in zip(self.places, ranges):
            x = f"{self.x(place):.1f}"
            self.parts.append(
                f'<line x1="{x}" x2="{x}" y1="{self.y(least):.1f}" y2="{self.y(most):.1f}" stroke="{colour}" '
                f'stroke-width="2"/><circle cx="{x}" cy="{self.y(median):.1f}" r="4.5" fill="{colour}"/>'
            )

    def legend(self, x, y, text, colour):
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{colour}"/>')
        self.text(x + 12, y + 4, text)

    def write(self, name):
        (PICTURES / name).write_text("\n".join([*self.parts, "</svg>"]) + "\n")


def rate_of_window(kib):
    """Returns the Mbit/s of one window per round trip, at most the payload rate of the link."""
    return min(kib * 1024 * 8 / 0.1 / 1e6, 100 * 1448 / 1514)


def windows(folder):
    sizes = {"128 KiB": 128, "256 KiB": 256, "512 KiB": 512, "1 MiB": 1024, "4 MiB": 4096}
    found = measured(folder, "window")
    places = [math.log2(kib) for kib in sizes.values()]
    picture = Picture("One connection over 100 ms and 100 Mbit/s, by its window", list(sizes), places, "window of the receiver")
    curve = [places[0] + (places[-1] - places[0]) * step / 100 for step in range(101)]
    picture.line(curve, [rate_of_window(2 ** place) for place in curve], GREY, ' stroke-dasharray="6 4"')
    picture.dots([found[level, "direct"] for level in sizes], BLUE)
    picture.legend(300, 250, "measured in virtual time, slow start included", BLUE)
    picture.legend(300, 272, "dashed: window / round trip, and the line", GREY)
    picture.write("tuning-window.svg")


def losses(folder):
    found = measured(folder, "loss")
    levels = ["0", "0.01%", "0.1%", "1%"]
    places = list(range(len(levels)))
    picture = Picture("One connection over 100 ms and 100 Mbit/s, by loss", levels, places, "packets lost")
    for treatment, colour, y in (("bbr", BLUE, 150), ("cubic", RED, 172)):
        ranges = [found[level, treatment] for level in levels]
        picture.line(places, [median for _, median, _ in ranges], colour)
        picture.dots(ranges, colour)
        picture.legend(400, y, f"{treatment}: median, least and most", colour)
    picture.write("tuning-loss.svg")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    windows(sys.argv[1])
    losses(sys.argv[2])
