// Numbers and words as people read them, and the few things that every part of the page does with elements.

const SPACE = "\u202f";

function scaled(amount, step, units) {
  let at = 0;
  while (amount >= step && at < units.length - 1) {
    amount /= step;
    at += 1;
  }
  const digits = amount >= 100 || at === 0 ? 0 : amount >= 10 ? 1 : 2;
  return `${amount.toFixed(digits)}${SPACE}${units[at]}`;
}

/** Bytes per second, as the bits per second that lines are sold by. */
export const rate = (bytes) => scaled(bytes * 8, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);

export const amount = (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);

export const count = (number) => number.toLocaleString("en");

export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)}${SPACE}µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.1 ? 1 : 0)}${SPACE}ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)}${SPACE}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${SPACE}min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}${SPACE}h ${Math.floor((seconds % 3600) / 60)}${SPACE}min`;
  return `${Math.floor(seconds / 86400)}${SPACE}d ${Math.floor((seconds % 86400) / 3600)}${SPACE}h`;
}

/** A share, in per cent; what is more than nothing never looks like nothing. */
export function share(part) {
  if (part == null || Number.isNaN(part)) return "–";
  if (part === 0) return `0${SPACE}%`;
  return part < 0.0001 ? `<0.01${SPACE}%` : `${(part * 100).toFixed(part < 0.1 ? 2 : 0)}${SPACE}%`;
}

const LIMITS = {
  client_slow: "client slow",
  server_slow: "server slow",
  window: "window",
  send_buffer: "send buffer",
  loss: "loss",
  slow_start: "slow start",
  path_rate: "path rate",
  relay_cpu: "relay CPU",
  rate_limit: "rate limit",
  share: "our share",
};

/** What limits a direction; words that this page does not know are shown as they are. */
export const limit = (word) => LIMITS[word] ?? String(word).replaceAll("_", " ");

/** How a section began the session: `reused 3 times`, `resumed, jump 512 KiB confirmed`. The words are those of the relay. */
export function start({ start: word, earlier_sessions: earlier, jump }) {
  const times = earlier > 1 ? ` ${count(earlier)} times` : earlier === 1 ? " once" : "";
  return `${word}${times}${jump ? `, jump ${amount(jump.bytes)} ${jump.outcome}` : ""}`;
}

export function median(values) {
  const known = values.filter((value) => value != null && value > 0).sort((a, b) => a - b);
  return known.length ? known[known.length >> 1] : null;
}

/** An element: `make("td.number", "12")`. Text is only ever text. */
export function make(what, ...inside) {
  const [name, ...classes] = what.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  element.append(...inside.filter((part) => part != null));
  return element;
}

/** Writes text where it has changed, so that a selection survives. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Gives `parent` one child for each item, the same for the same key as before. */
export function keep(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, at) => {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
    update?.(child, item);
  });
  known.forEach((child) => child.remove());
}
