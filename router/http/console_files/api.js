// Calls of the gateway, and what its refusals mean for the person in front of the page.

const KEY = "pointsman.key";
const listeners = new Set();

export class Refusal extends Error {
  constructor(status, error, retryAfter) {
    super(error?.message || `the gateway answered ${status}`);
    this.status = status;
    this.reason = error?.reason || "";
    this.retryAfter = error?.retry_after_seconds ?? retryAfter ?? null;
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** Be told when a call was refused for want of a (valid) key. */
export const whenKeyIsWanted = (listener) => listeners.add(listener);

export async function call(path, { method = "GET", body, accept = "application/json", signal } = {}) {
  const headers = { accept };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    headers["x-pointsman-console"] = "1";
  }
  const text = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: text, signal, cache: "no-store", credentials: "omit" });
  if (!response.ok) {
    let told = null;
    try { told = (await response.json()).error; } catch { /* a proxy's own page, for instance */ }
    const refusal = new Refusal(response.status, told, Number(response.headers.get("retry-after")) || null);
    if (refusal.status === 401) listeners.forEach((listener) => listener(refusal));
    throw refusal;
  }
  return response;
}

export const read = async (path, options) => (await call(path, options)).json();

/** What went wrong and the way out, as text. */
export function explained(error) {
  if (error instanceof Refusal) return { what: error.message, way: wayOut(error) };
  if (error instanceof TypeError) {
    return { what: "The gateway can't be reached.", way: "See whether `pointsman serve` still runs, then try again." };
  }
  return { what: error.message || String(error), way: "Try again; the server's log tells more." };
}

function wayOut({ status, reason, retryAfter, message }) {
  const later = retryAfter ? `Try again in ${Math.ceil(retryAfter)} s.` : "Try again shortly.";
  if (status === 401) return "Give a valid API key below.";
  if (reason === "POLICY_CHANGED") return "The threshold in force has been read again; look at it and save once more.";
  if (status === 403 && /http\.origins/.test(message)) return "Set that and start the gateway again, or open the console at its loopback address.";
  if (status === 403) return "Ask somebody with the role admin, or use a key that has it.";
  if (status === 404) return "It may have been erased or be beyond its retention; take the newest list.";
  if (status === 429) return `The gateway is busy, or your limit is used up. ${later}`;
  if (status === 503) return `A dependency is away; the section Corpus and dependencies tells which. ${later}`;
  if (status === 504) return "Give it more time, or ask something narrower.";
  if (status >= 500) return "Try again; the server's log tells more.";
  return "Change what it names and try again.";
}

/** The events of a server-sent stream, as {event, data}; comments are passed over. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const frame = { event: "message", data: "" };
        for (const line of rest.slice(0, end).split("\n")) {
          if (line.startsWith("event: ")) frame.event = line.slice(7);
          else if (line.startsWith("data: ")) frame.data += line.slice(6);
        }
        rest = rest.slice(end + 2);
        if (frame.data) yield { event: frame.event, data: JSON.parse(frame.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
