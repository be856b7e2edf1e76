// Lines over the last minutes, on a canvas.

import { make, write } from "./words.js";

const SAMPLES = 180; // one a second
const [LEFT, TOP, BOTTOM] = [4, 6, 6];

/** The next of 1, 2 or 5 times a power of ten. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

/** A titled plot with a line for each of `lines` ({ name, colour }); `format` writes values. */
export class Plot {
  constructor(title, lines, format, floor = 0) {
    this.format = format;
    this.floor = floor;
    this.samples = lines.map(() => []);
    this.canvas = make("canvas");
    this.canvas.setAttribute("role", "img");
    this.title = title;
    this.keys = lines.map(({ name, colour }) => {
      const value = make("b", "–");
      const key = make(`span.key.${colour}`, make("i"), name ? `${name} ` : "", value);
      return { key, value, name };
    });
    this.top = make("span.top");
    const head = make("div.head", make("h3", title), make("p", ...this.keys.map(({ key }) => key)));
    this.element = make("div.plot.card", head, make("div.area", this.canvas, this.top, make("span.ago", "3 min")));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** Adds one value for each line; null is a gap. */
  push(values) {
    values.forEach((value, at) => {
      this.samples[at].push(value);
      if (this.samples[at].length > SAMPLES) this.samples[at].shift();
      write(this.keys[at].value, value == null ? "–" : this.format(value));
    });
    const words = this.keys.map(({ name, value }) => `${name} ${value.textContent}`.trim()).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: now ${words}`);
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const scale = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      [this.canvas.width, this.canvas.height] = [across, down];
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const most = nice(Math.max(this.floor, 1e-9, ...this.samples.flat().filter((value) => value != null)));
    write(this.top, this.format(most));
    this.grid(pen, width, height);
    const x = (at, length) => width - ((length - 1 - at) / (SAMPLES - 1)) * (width - LEFT);
    const y = (value) => height - BOTTOM - (value / most) * (height - TOP - BOTTOM);
    this.samples.forEach((samples, line) => this.line(pen, samples, x, y, line));
  }

  grid(pen, width, height) {
    pen.strokeStyle = getComputedStyle(this.top).borderTopColor;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const part of [0, 0.5, 1]) {
      const at = Math.round(TOP + part * (height - TOP - BOTTOM)) + 0.5;
      pen.moveTo(0, at);
      pen.lineTo(width, at);
    }
    pen.stroke();
  }

  line(pen, samples, x, y, line) {
    const colour = getComputedStyle(this.keys[line].key).color;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.6;
    pen.lineJoin = "round";
    for (const run of runs(samples)) {
      pen.beginPath();
      run.forEach((at) => pen.lineTo(x(at, samples.length), y(samples[at])));
      pen.stroke();
      pen.lineTo(x(run.at(-1), samples.length), y(0));
      pen.lineTo(x(run[0], samples.length), y(0));
      pen.globalAlpha = 0.1;
      pen.fill();
      pen.globalAlpha = 1;
    }
  }
}

/** The places of values without a gap between them. */
function runs(samples) {
  const all = [];
  let run = null;
  samples.forEach((value, at) => {
    if (value == null) run = null;
    else if (run) run.push(at);
    else all.push((run = [at]));
  });
  return all;
}
