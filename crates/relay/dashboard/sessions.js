// The sessions: sorted, filtered, and only those drawn that can be seen. What a session is in detail is told to `open`.

import { ask } from "./feed.js";
import { amount, count, keep, limit, make, rate, span, write } from "./words.js";

const ROW = 30; // px, as in style.css
const AROUND = 6; // rows drawn beyond the window
const AGAIN = 5000; // ms between two looks at all sessions

const limitsOf = (session) =>
  ["down", "up"].filter((way) => session.limits?.[way]).map((way) => `${way === "down" ? "↓" : "↑"} ${limit(session.limits[way].by)}`).join(", ");

/** Name, class, what is shown, and what is sorted by; a number sorts the largest first. */
const COLUMNS = [
  { name: "#", style: "number wide", show: (s) => String(s.session), by: (s) => s.session },
  { name: "client", style: "", show: (s) => s.client, by: (s) => s.client },
  { name: "target", style: "", show: (s) => s.target ?? "–", by: (s) => s.target ?? "" },
  { name: "path", style: "middle", show: (s) => s.path, by: (s) => s.path },
  { name: "limit", style: "wide", show: (s) => limitsOf(s) || "–", by: (s) => limitsOf(s) },
  { name: "RTT client", style: "number wide", show: (s) => span(s.down?.rtt_seconds), by: (s) => s.down?.rtt_seconds ?? -1 },
  { name: "RTT server", style: "number middle", show: (s) => span(s.up?.rtt_seconds), by: (s) => s.up?.rtt_seconds ?? -1 },
  { name: "age", style: "number wide", show: (s) => span(s.seconds), by: (s) => s.seconds },
  { name: "moved", style: "number wide", show: (s) => amount(s.bytes_down + s.bytes_up), by: (s) => s.bytes_down + s.bytes_up },
  { name: "↑ rate", style: "number middle", show: (s) => rate(s.rate.up), by: (s) => s.rate.up },
  { name: "↓ rate", style: "number", show: (s) => rate(s.rate.down), by: (s) => s.rate.down },
];

const searched = (session) =>
  [session.client, session.target, session.path, session.user, session.peer, session.listener, session.server, limitsOf(session)]
    .filter(Boolean).join(" ").toLowerCase();

export class Sessions {
  /** `open` hears of the session that somebody wants to see. */
  constructor(open) {
    this.open = open;
    this.known = [];
    this.total = 0;
    this.all = null;
    this.column = COLUMNS.length - 1;
    this.turned = false;
    this.chosen = null;
    this.find();
    this.listen();
  }

  find() {
    const element = (id) => document.getElementById(id);
    this.window = element("window");
    this.table = element("rows");
    this.body = this.table.tBodies[0];
    this.filter = element("filter");
    this.note = element("sessions-note");
    this.every = element("all");
    this.above = make("tr.space");
    this.below = make("tr.space");
    [this.above, this.below].forEach((row) => row.setAttribute("aria-hidden", "true"));
    COLUMNS.forEach((column, at) => {
      const button = make("button", column.name);
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(at));
      const head = make("th", button);
      head.className = column.style;
      head.scope = "col";
      element("columns").append(head);
    });
  }

  listen() {
    this.window.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.window);
    this.filter.addEventListener("input", () => this.arrange());
    this.every.addEventListener("click", () => (this.all ? this.listBusiest() : this.listAll()));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-key]");
      if (row) this.choose(Number(row.dataset.key), true);
    });
  }

  sortBy(at) {
    this.turned = this.column === at && !this.turned;
    this.column = at;
    this.arrange();
  }

  /** What a snapshot brings. */
  take(snapshot) {
    this.busiest = snapshot.sessions;
    this.total = snapshot.open;
    if (this.all) {
      const fresh = new Map(snapshot.sessions.map((session) => [session.session, session]));
      this.known = this.all.map((session) => fresh.get(session.session) ?? session);
    } else {
      this.known = snapshot.sessions;
    }
    this.arrange();
  }

  listBusiest() {
    clearTimeout(this.again);
    this.all = null;
    this.known = this.busiest;
    this.arrange();
  }

  /** All of them, asked for now and again; rates are what has moved between two answers. */
  async listAll() {
    this.all ??= this.known;
    try {
      const [answer, now] = [await ask("/api/sessions"), performance.now()];
      if (!this.all) return;
      const before = this.asked ?? { at: now, moved: new Map() };
      const seconds = Math.max((now - before.at) / 1000, 0.001);
      this.all = answer.sessions.map((session) => {
        const then = before.moved.get(session.session) ?? { down: session.bytes_down, up: session.bytes_up };
        const per = (moved, was) => Math.max(0, moved - was) / seconds;
        return { ...session, rate: { down: per(session.bytes_down, then.down), up: per(session.bytes_up, then.up) } };
      });
      const moved = answer.sessions.map((session) => [session.session, { down: session.bytes_down, up: session.bytes_up }]);
      this.asked = { at: now, moved: new Map(moved) };
      this.take({ sessions: this.busiest, open: answer.sessions.length });
    } catch {
      // The stream says that the relay is away; the next look may find it again.
    }
    clearTimeout(this.again);
    if (this.all) this.again = setTimeout(() => this.listAll(), AGAIN);
  }

  /** Sorts and filters, and draws. */
  arrange() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { by } = COLUMNS[this.column];
    const found = words.length ? this.known.filter((session) => words.every((word) => searched(session).includes(word))) : this.known;
    const keyed = found.map((session) => [by(session), session]);
    keyed.sort(([a, one], [b, other]) => (typeof a === "number" ? b - a : a < b ? -1 : a > b ? 1 : 0) || other.session - one.session);
    if (this.turned) keyed.reverse();
    this.shown = keyed.map(([, session]) => session);
    this.describe();
    this.draw();
  }

  describe() {
    const known = this.known.length;
    const of = this.shown.length < known ? `${count(this.shown.length)} of ${count(known)}` : count(known);
    const more = this.total - known;
    write(this.note, more > 0 ? `${of}, those that move most, and ${count(more)} more` : of);
    this.every.hidden = more <= 0 && !this.all;
    write(this.every, this.all ? "only the busiest" : `list all ${count(this.total)}`);
    this.every.setAttribute("aria-pressed", String(Boolean(this.all)));
    this.table.setAttribute("aria-rowcount", String(this.shown.length + 1));
    [...document.getElementById("columns").children].forEach((head, at) => {
      const falls = typeof this.shown[0] === "undefined" || typeof COLUMNS[at].by(this.shown[0]) === "number";
      head.setAttribute("aria-sort", at !== this.column ? "none" : falls !== this.turned ? "descending" : "ascending");
    });
  }

  /** Draws the rows that can be seen. */
  draw() {
    if (!this.shown) return;
    const head = this.table.tHead.offsetHeight;
    const first = Math.max(0, Math.floor((this.window.scrollTop - head) / ROW) - AROUND);
    const last = Math.min(this.shown.length, Math.ceil((this.window.scrollTop + this.window.clientHeight) / ROW) + AROUND);
    this.above.remove();
    this.below.remove();
    const rows = this.shown.slice(first, last).map((session, at) => ({ session, at: first + at }));
    keep(this.body, rows, ({ session }) => session.session, () => this.row(), (row, { session, at }) => this.fill(row, session, at));
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${(this.shown.length - last) * ROW}px`;
    this.body.prepend(this.above);
    this.body.append(this.below);
    if (!this.shown.length) this.body.append(this.nothing());
    else this.body.querySelector("tr.nothing")?.remove();
  }

  row() {
    return make("tr", ...COLUMNS.map(({ style }) => Object.assign(make("td"), { className: style })));
  }

  fill(row, session, at) {
    const chosen = session.session === this.chosen;
    row.className = chosen ? "chosen" : "";
    row.setAttribute("aria-rowindex", String(at + 2));
    row.setAttribute("aria-selected", String(chosen));
    COLUMNS.forEach((column, place) => {
      const [cell, text] = [row.children[place], column.show(session)];
      write(cell, text);
      if (!column.style.includes("number") && cell.title !== text) cell.title = text;
    });
  }

  nothing() {
    const words = this.filter.value ? "No session is like that." : "No session is open.";
    const row = this.body.querySelector("tr.nothing") ?? make("tr.nothing", make("td"));
    row.firstChild.colSpan = COLUMNS.length;
    write(row.firstChild, words);
    return row;
  }

  choose(number, opens) {
    this.chosen = number;
    this.draw();
    if (opens) this.open(number);
  }

  /** Goes `steps` rows down and keeps them in sight. */
  move(steps) {
    if (!this.shown?.length) return;
    const from = this.shown.findIndex((session) => session.session === this.chosen);
    const to = Math.min(this.shown.length - 1, Math.max(0, from < 0 ? 0 : from + steps));
    const [top, head] = [to * ROW, this.table.tHead.offsetHeight];
    if (top < this.window.scrollTop) this.window.scrollTop = top;
    const bottom = top + ROW + head - this.window.clientHeight;
    if (bottom > this.window.scrollTop) this.window.scrollTop = bottom;
    this.choose(this.shown[to].session, false);
  }

  openChosen() {
    if (this.chosen != null && this.get(this.chosen)) this.open(this.chosen);
  }

  get(number) {
    return this.known.find((session) => session.session === number);
  }
}
