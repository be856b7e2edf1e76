// Everything below the sessions: events, pools, choices, profiles, interfaces, lanes and the fleet.

import { amount, count, keep, make, rate, share, span, write } from "./words.js";

/** A table of `rows`, each a list of texts with its key first; `numbers` says which columns are numbers. */
function table(element, heads, numbers, rows, empty) {
  if (!rows.length) return element.replaceChildren(make("p.note", empty));
  let body = element.querySelector("tbody");
  if (!body) {
    const title = (name, at) => Object.assign(make(numbers.includes(at) ? "th.number" : "th", name), { scope: "col" });
    const head = make("tr", ...heads.map(title));
    body = make("tbody");
    element.replaceChildren(make("div.scroll", make("table", make("thead", head), body)));
  }
  const create = () => make("tr", ...heads.map((_, at) => make(numbers.includes(at) ? "td.number" : "td")));
  keep(body, rows, ([key]) => key, create, (row, [, ...texts]) => {
    texts.forEach((text, at) => write(row.children[at], text));
    row.className = texts.includes("unreachable") ? "bad" : "";
  });
}

function events(snapshot) {
  const create = () => make("li", make("time"), make("span"));
  keep(document.getElementById("events"), snapshot.events, ({ number }) => number, create, (row, { line, trouble }) => {
    const at = line.indexOf(" ");
    const time = new Date(line.slice(0, at));
    row.firstChild.dateTime = line.slice(0, at);
    write(row.firstChild, time.toLocaleTimeString([], { hour12: false }));
    row.firstChild.title = time.toLocaleString();
    write(row.lastChild, line.slice(at + 1));
    row.className = trouble ? "bad" : "";
  });
}

function pools(snapshot) {
  const rows = snapshot.pools.map((pool) => [
    pool.relay, pool.relay, pool.up ? (pool.slow ? "slow" : "reachable") : "unreachable", `${pool.ready} of ${pool.wanted}`,
    pool.hits + pool.misses ? share(pool.hits / (pool.hits + pool.misses)) : "–", count(pool.misses), count(pool.stale),
  ]);
  table(document.getElementById("pools"), ["relay", "state", "ready", "found ready", "misses", "stale"], [2, 3, 4, 5], rows,
    "No next relay is configured.");
}

function choices(snapshot) {
  const rows = snapshot.choices.map((choice) => {
    const ways = choice.candidates.map((way) => `${way.path} ${span(way.predicted_seconds)}${way.out ? " (out)" : ""}`);
    const likely = `${amount(choice.likely_bytes)} ${choice.likely_direction === "down" ? "↓" : "↑"}`;
    return [`${choice.prefix} ${likely}`, choice.prefix, likely, choice.path, ways.join(", ")];
  });
  table(document.getElementById("choices"), ["targets", "likely", "path", "predicted"], [], rows,
    'None: no route has path = "auto", or no session has come yet.');
}

function profiles(snapshot) {
  const element = document.getElementById("profiles");
  if (!snapshot.profiles.length) return element.replaceChildren(make("p.note", "No profile has met the kernel yet: the first session brings it."));
  element.querySelector(":scope > p")?.remove();
  const create = () => make("div.granted", make("h3"), make("p.chips"));
  keep(element, snapshot.profiles, ({ place }) => place, create, (child, { place, profile, settings }) => {
    write(child.firstChild, `${place}: ${profile}`);
    keep(child.lastChild, settings, (setting) => setting, () => make("span.chip"), (chip, setting) => {
      const at = setting.lastIndexOf(": ");
      const granted = setting.slice(at + 2) === "applied";
      write(chip, granted ? setting.slice(0, at) : setting);
      chip.className = granted ? "chip good" : "chip bad";
      chip.title = setting;
    });
  });
}

function more(snapshot) {
  const element = (id) => document.getElementById(id);
  const { interfaces, lanes, fleet } = snapshot;
  element("more").hidden = !interfaces.length && !lanes.length && !fleet;
  const shared = interfaces.map((one) => [
    one.interface, one.interface, rate(one.rate_bits_per_second / 8), rate(one.sent_bits_per_second / 8), count(one.sending),
    one.level_bits_per_second == null ? "–" : rate(one.level_bits_per_second / 8), one.fairness == null ? "–" : one.fairness.toFixed(3),
  ]);
  const through = lanes.map((lane, at) => [
    `${at} ${lane.listener}`, lane.listener, lane.by, lane.stands ? "open" : "opening", count(lane.packets_sent),
    count(lane.packets_received), count(lane.packets_dropped),
  ]);
  const heads = ["interface", "rate", "sent", "sending", "level", "fairness"];
  table(element("interfaces"), heads, [1, 2, 3, 4, 5], shared, "");
  table(element("lanes"), ["tunnel", "by", "lane", "sent", "received", "dropped"], [3, 4, 5], through, "");
  const words = fleet && `Fleet ${fleet.name ?? "(reads only)"}: ${fleet.relays} relays, ${fleet.draining} draining, ${fleet.missing} missing; etcd ${fleet.etcd_up ? "reachable" : `unreachable: ${fleet.etcd_trouble}`}`;
  element("fleet").replaceChildren(...(words ? [make("p", words)] : []));
}

/** Draws all of them. */
export function drawTables(snapshot) {
  [events, pools, choices, profiles, more].forEach((draw) => draw(snapshot));
}
