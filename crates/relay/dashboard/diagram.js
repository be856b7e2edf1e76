// A path as a diagram: from the clients by way of relays to the servers, and what is known of each section.

import { count, keep, limit, make, median, rate, share, span, write } from "./words.js";

/** The relays of a path; where the relay has chosen, its name is theirs. */
export function hopsOf(path, named) {
  if (named[path]) return named[path];
  return path === "direct" || path === "-" ? [] : path.split(",");
}

/** Fewest sent segments that tell a share of losses. Where this relay only receives, the sender knows the losses. */
const MIN_SEGMENTS = 100;

const lossOf = (sections) => {
  const sum = (field) => sections.reduce((total, section) => total + (section?.[field] ?? 0), 0);
  const sent = sum("segments_out");
  return sent >= MIN_SEGMENTS ? sum("retransmitted") / sent : null;
};

/** What limits sessions in one place ("down", "up" or "relay"), what most bytes suffer from first. */
function limitsAt(place, sessions) {
  const found = new Map();
  for (const session of sessions) {
    for (const direction of ["down", "up"]) {
      const known = session.limits?.[direction];
      if (!known || (known.section ?? "") !== place) continue;
      const key = `${direction} ${known.by}`;
      const before = found.get(key) ?? { direction, by: known.by, why: known.why, weight: 0, sessions: 0 };
      before.weight += session.rate?.[direction] ?? 0;
      before.sessions += 1;
      found.set(key, before);
    }
  }
  return [...found.values()].sort((a, b) => b.weight - a.weight).slice(0, 2);
}

/** A section that this relay has an end of: `side` is "down" or "up". Its loss is that of the bytes that this relay sends there. */
function ownSection(side, sessions, flow) {
  const sections = sessions.map((session) => session[side]).filter(Boolean);
  return {
    rtt: median(sections.map((section) => section.rtt_seconds)),
    base: median(sections.map((section) => section.min_rtt_seconds)),
    loss: lossOf(sections),
    sends: side === "down" ? "↓ " : "↑ ",
    rate: flow,
    limits: limitsAt(side, sessions),
  };
}

/** A section between other relays, as those have told. */
function toldSection(from, to, snapshot, flow) {
  const known = snapshot.sections.find((section) => section.from === from && section.to === to);
  const losses = [known?.down.loss, known?.up.loss].filter((loss) => loss != null);
  return {
    rtt: known?.up.rtt_seconds ?? known?.down.rtt_seconds ?? null,
    loss: losses.length ? Math.max(...losses) : null,
    rate: flow,
    limits: [],
    told: known ? `told by ${from}` : "not measured from here",
  };
}

/** The stops and sections of what `sessions` take together. */
export function diagramOf(path, sessions, flow, snapshot, ends) {
  const hops = hopsOf(path, snapshot.hops);
  const stops = [ends.client, { name: "this relay", kind: "here", limits: limitsAt("relay", sessions) }];
  const up = ownSection("up", sessions, flow);
  if (up.rtt == null && hops.length) up.rtt = toldSection(null, hops[0], snapshot, flow).rtt;
  const sections = [ownSection("down", sessions, flow), up];
  hops.forEach((name, at) => {
    const pool = snapshot.pools.find((known) => known.relay === name);
    stops.push({ name, kind: pool && !pool.up ? "relay lost" : "relay", note: pool && !pool.up ? "unreachable" : "" });
    sections.push(toldSection(name, hops[at + 1] ?? null, snapshot, flow));
  });
  stops.push(ends.server);
  return { path, stops, sections };
}

/** One diagram for each path, the busiest first. */
export function diagramsOf(snapshot, most) {
  return snapshot.paths.slice(0, most).map((sum) => {
    const sessions = snapshot.sessions.filter((session) => session.path === sum.path);
    const many = `${count(sum.sessions)} session${sum.sessions === 1 ? "" : "s"}`;
    const ends = { client: { name: "clients", kind: "end", note: many }, server: { name: "servers", kind: "end" } };
    return diagramOf(sum.path, sessions, sum.rate, snapshot, ends);
  });
}

const widthOf = (flow) => (flow ? Math.min(5, Math.max(0, Math.round(Math.log10((flow.down + flow.up) * 8 + 1)) - 3)) : 0);

function chips(limits) {
  return limits.map(({ direction, by, why, sessions }) => {
    const arrow = direction === "down" ? "↓" : "↑";
    const chip = make("span.chip", `${arrow} ${limit(by)}${sessions > 1 ? ` ×${sessions}` : ""}`);
    chip.title = why ?? "";
    return chip;
  });
}

function drawStop(element, stop) {
  element.className = `stop ${stop.kind}`;
  const [name, note, limits] = element.children[1].children;
  write(name, stop.name);
  element.title = stop.name;
  write(note, stop.note ?? "");
  limits.replaceChildren(...chips(stop.limits ?? []));
}

function drawSection(element, section) {
  element.className = `section flow${widthOf(section.rate)}${section.rtt == null ? " unknown" : ""}`;
  const [above, , below] = element.children;
  write(above, section.rtt == null ? "–" : span(section.rtt));
  above.title = section.base ? `round trip now; without queues ${span(section.base)}` : "round trip";
  const [down, up, loss, limits, told] = below.children;
  write(down, `↓ ${rate(section.rate.down)}`);
  write(up, `↑ ${rate(section.rate.up)}`);
  write(loss, section.loss == null ? "" : `${section.sends ?? ""}loss ${share(section.loss)}`);
  loss.className = section.loss > 0.01 ? "loss bad" : "loss";
  limits.replaceChildren(...chips(section.limits));
  write(told, section.told ?? "");
}

function makePart(part) {
  if (part.stop) {
    return make("li", make("span.dot"), make("span.label", make("b"), make("small"), make("span.chips")));
  }
  const below = make("span.below", make("span.down"), make("span.up"), make("span.loss"), make("span.chips"), make("small"));
  return make("li", make("span.above"), make("span.line"), below);
}

/** Draws a diagram into `element`, an <ol>. */
export function drawDiagram(element, diagram) {
  const parts = diagram.stops.flatMap((stop, at) => (at ? [{ section: diagram.sections[at - 1] }, { stop }] : [{ stop }]));
  keep(element, parts.map((part, at) => ({ ...part, at })), ({ at, stop }) => `${at} ${stop ? "stop" : "section"}`, makePart,
    (child, part) => (part.stop ? drawStop(child, part.stop) : drawSection(child, part.section)));
}

/** Draws several, each under the name of its path. */
export function drawDiagrams(element, diagrams) {
  const create = ({ path }) => make("figure", make("figcaption", path), make("ol.diagram"));
  keep(element, diagrams, ({ path }) => path, create, (child, diagram) => drawDiagram(child.querySelector("ol"), diagram));
}
