// The dashboard: what comes from the relay goes to the parts of the page.

import { Detail } from "./detail.js";
import { follow, token } from "./feed.js";
import { Plot } from "./plot.js";
import { drawDiagrams, diagramsOf } from "./diagram.js";
import { Sessions } from "./sessions.js";
import { drawTables } from "./tables.js";
import { count, median, rate, span, write } from "./words.js";

const MAX_DIAGRAMS = 6;
const element = (id) => document.getElementById(id);

let newest = null;
const detail = new Detail();
const sessions = new Sessions((number) => detail.open(sessions.get(number), newest));
const plots = {
  rate: new Plot("Rate", [{ name: "↓", colour: "down" }, { name: "↑", colour: "up" }], rate, 125),
  sessions: new Plot("Sessions", [{ name: "", colour: "many" }], (value) => count(Math.round(value)), 5),
  rtt: new Plot("Round trip", [{ name: "clients", colour: "near" }, { name: "servers", colour: "far" }], span, 0.001),
};
element("plots").append(...Object.values(plots).map((plot) => plot.element));

function state(word, text) {
  element("state").dataset.state = word;
  write(element("state"), text);
}

function banner(text) {
  element("banner").hidden = !text;
  write(element("banner"), text);
}

function summary(snapshot) {
  write(element("about"), `${snapshot.version}, up ${span(snapshot.uptime_seconds)}, pipes ${snapshot.pipes_open - snapshot.pipes_idle} of ${snapshot.pipes_open} in use`);
  document.title = `ekiden: ${count(snapshot.open)} session${snapshot.open === 1 ? "" : "s"}`;
  const roundTrips = (side) => median(snapshot.sessions.map((session) => session[side]?.rtt_seconds));
  // The first snapshot knows of no time before it.
  const known = newest != null || snapshot.rate.down + snapshot.rate.up > 0;
  plots.rate.push(known ? [snapshot.rate.down, snapshot.rate.up] : [null, null]);
  plots.sessions.push([snapshot.open]);
  plots.rtt.push([roundTrips("down"), roundTrips("up")]);
}

function diagrams(snapshot) {
  drawDiagrams(element("diagrams"), diagramsOf(snapshot, MAX_DIAGRAMS));
  const more = snapshot.paths.length - MAX_DIAGRAMS;
  const note = snapshot.paths.length ? (more > 0 ? `the busiest ${MAX_DIAGRAMS} paths, and ${more} more` : "") : "no session takes one now";
  write(element("diagrams-note"), note);
}

function take(snapshot) {
  element("door").hidden = true;
  element("main").hidden = false;
  state("live", "live");
  banner("");
  summary(snapshot);
  newest = snapshot;
  if (document.hidden) return;
  diagrams(snapshot);
  sessions.take(snapshot);
  drawTables(snapshot);
  detail.draw(sessions.get(detail.number), snapshot);
}

function broken(error, wait) {
  const why = error instanceof TypeError ? "the relay cannot be reached" : error.message;
  state("lost", "not connected");
  banner(`${why}; trying again in ${wait} s. What is shown below is from before.`);
  for (const plot of Object.values(plots)) plot.push(plot.keys.map(() => null));
}

/** Asks for the token; completes when somebody has given one. */
function wanted(trouble) {
  state("wait", "token wanted");
  banner("");
  element("main").hidden = true;
  element("door").hidden = false;
  write(element("door-trouble"), trouble ?? "");
  element("token").focus();
  return new Promise((given) => {
    element("door").onsubmit = (event) => {
      event.preventDefault();
      token.set(element("token").value.trim());
      element("token").value = "";
      state("wait", "connecting");
      given();
    };
  });
}

const THEMES = ["system", "light", "dark"];

function theme(word) {
  document.documentElement.dataset.theme = word;
  localStorage.setItem("ekiden-theme", word);
  write(element("theme"), `theme: ${word}`);
  for (const plot of Object.values(plots)) plot.draw();
}

const nextTheme = () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);

const KEYS = {
  j: () => sessions.move(1),
  ArrowDown: () => sessions.move(1),
  k: () => sessions.move(-1),
  ArrowUp: () => sessions.move(-1),
  PageDown: () => sessions.move(10),
  PageUp: () => sessions.move(-10),
  Enter: () => sessions.openChosen(),
  "/": () => element("filter").focus(),
  t: nextTheme,
};

function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || element("main").hidden || element("detail").open) return;
  const at = event.target;
  if (at === element("filter")) {
    if (event.key === "Escape") {
      at.value = "";
      at.dispatchEvent(new Event("input"));
    }
    if (["Escape", "Enter", "ArrowDown"].includes(event.key)) element("window").focus();
    return;
  }
  // Keys that scroll or press belong to whatever has the focus, unless that is the list or nothing.
  if (event.key.length > 1 && ![document.body, element("window")].includes(at)) return;
  if (at.matches("input, textarea") || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
}

document.addEventListener("keydown", key);
element("theme").addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Object.values(plots).forEach((plot) => plot.draw()));
theme(THEMES.find((word) => word === localStorage.getItem("ekiden-theme")) ?? "system");
follow({ snapshot: take, broken, token: wanted });
