// One session in detail: its diagram, its last minutes, and all that is known of it.

import { Plot } from "./plot.js";
import { drawDiagram, diagramOf } from "./diagram.js";
import { amount, keep, limit, make, rate, share, span, start, write } from "./words.js";

const element = (id) => document.getElementById(id);

/** What is known of a session, as pairs of a name and a text. */
function factsOf(session) {
  const pairs = [
    ["client", session.client],
    ["target", session.target],
    ["server", session.server],
    ["listener", session.listener],
    ["user", session.user],
    ["sent by relay", session.peer],
    ["trace", session.trace],
    ["path", session.path],
    ["why this path", session.chosen && `${session.chosen.reason}: ${session.chosen.why}`],
    ["age", span(session.seconds)],
    ["moved", `↓ ${amount(session.bytes_down)}, ↑ ${amount(session.bytes_up)}`],
  ];
  for (const way of ["down", "up"]) {
    const known = session.limits?.[way];
    if (known) pairs.push([`what limits ${way === "down" ? "↓" : "↑"}`, `${limit(known.by)}: ${known.why}`]);
  }
  for (const [side, name] of [["down", "client's section"], ["up", "server's section"]]) {
    if (session[side]) pairs.push([name, sectionWords(session[side])]);
  }
  return pairs.filter(([, text]) => text != null && text !== "");
}

function sectionWords(section) {
  const loss = section.segments_out ? section.retransmitted / section.segments_out : null;
  return [
    `start ${start(section)}`,
    `${section.congestion}, window ${section.window} packets, ${section.queued} queued`,
    `RTT ${span(section.rtt_seconds)} (without queues ${span(section.base_rtt_seconds)})`,
    `delivers ${rate(section.delivery_rate)}, resent ${section.retransmitted} of ${section.segments_out} (${share(loss)})`,
    `busy ${span(section.busy_seconds)}, of that held by the peer's window ${span(section.rwnd_limited_seconds)}, by our buffer ${span(section.sndbuf_limited_seconds)}`,
  ].join("; ");
}

export class Detail {
  constructor() {
    this.dialog = element("detail");
    this.dialog.addEventListener("close", () => (this.number = null));
    element("close").addEventListener("click", () => this.dialog.close());
    this.diagram = make("ol.diagram");
    element("detail-diagram").append(this.diagram);
    this.facts = make("dl");
    element("detail-facts").append(this.facts);
  }

  open(session, snapshot) {
    this.number = session.session;
    this.plots = {
      rate: new Plot("Rate", [{ name: "↓", colour: "down" }, { name: "↑", colour: "up" }], rate, 125),
      rtt: new Plot("Round trip", [{ name: "client", colour: "near" }, { name: "server", colour: "far" }], span, 0.001),
    };
    element("detail-plot").replaceChildren(this.plots.rate.element, this.plots.rtt.element);
    if (!this.dialog.open) this.dialog.showModal();
    this.draw(session, snapshot);
    element("detail-title").focus();
  }

  /** What a snapshot brings; nothing where the session has ended. */
  draw(session, snapshot) {
    if (this.number == null) return;
    if (!session) {
      // It may only have fallen off the list of those that move most.
      return write(element("detail-title"), `Session ${this.number}: not in the list any more`);
    }
    write(element("detail-title"), `Session ${session.session}`);
    const ends = {
      client: { name: session.client, kind: "end", note: session.user ?? "" },
      server: { name: session.target ?? "–", kind: "end" },
    };
    drawDiagram(this.diagram, diagramOf(session.path, [session], session.rate, snapshot, ends));
    this.plots.rate.push([session.rate.down, session.rate.up]);
    this.plots.rtt.push([session.down?.rtt_seconds ?? null, session.up?.rtt_seconds ?? null]);
    const create = ([name]) => make("div", make("dt", name), make("dd"));
    keep(this.facts, factsOf(session), ([name]) => name, create, (child, [, text]) => write(child.lastChild, text));
  }
}
