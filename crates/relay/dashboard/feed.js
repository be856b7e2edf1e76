// What the relay says: one request at a time, and the stream of snapshots, which comes back by itself.
//
// The token goes along in a header and is kept for this tab only. A cookie would go to every port of this host.

const KEPT = "ekiden-token";
const SILENCE = 10_000; // ms: a snapshot comes every second
const LONGEST_WAIT = 15; // s

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** Why something could not be had. */
export class Refused extends Error {
  constructor(status, words) {
    super(words.trim() || `the relay answered ${status}`);
    this.status = status;
  }
}

async function request(path, signal) {
  const given = token.get();
  const headers = given ? { Authorization: `Bearer ${given}` } : {};
  const response = await fetch(path, { headers, signal, cache: "no-store" });
  if (!response.ok) throw new Refused(response.status, await response.text());
  return response;
}

export const ask = async (path, signal) => (await request(path, signal)).json();

/** The data of server-sent events (HTML, section 9.2), as far as this relay writes them. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split("\n\n");
    text = whole.pop();
    for (const event of whole) {
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

/** Reads the stream until it ends; silence ends it too. */
async function read(tell) {
  const control = new AbortController();
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => control.abort(new Error("nothing comes from the relay any more")), SILENCE);
  };
  try {
    heard();
    const response = await request("/api/stream", control.signal);
    for await (const data of events(response.body)) {
      heard();
      tell.snapshot(JSON.parse(data));
    }
  } catch (error) {
    throw control.signal.aborted ? control.signal.reason : error;
  } finally {
    clearTimeout(silence);
    control.abort();
  }
  throw new Error("the relay has ended the stream");
}

/**
 * Follows the relay for ever. `tell.snapshot` hears what comes; `tell.broken` why nothing comes, and in how many seconds
 * there will be another try; `tell.token` completes when somebody has given a token.
 */
export async function follow(tell) {
  let wait = 1;
  const heard = { snapshot: (snapshot) => { wait = 1; tell.snapshot(snapshot); } };
  for (;;) {
    try {
      const access = await ask("/api/access");
      if (access.token && !token.get()) await tell.token(null);
      await read(heard);
    } catch (error) {
      if (error.status === 401) {
        token.forget();
        await tell.token(error.message);
        continue;
      }
      tell.broken(error, wait);
      await new Promise((resume) => setTimeout(resume, wait * 1000));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }
}
