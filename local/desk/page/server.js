// Talks to the desk's server: with the token, and about one stack.
import { T } from "./texts.js";

const RETRY_MILLISECONDS = 2000;
const READ_SECONDS = 60;
const SEND_SECONDS = 30;
const SILENT_SECONDS = 10; // a stream has a line about every second

// The address that the command prints ends with the token. The browser keeps it for other tabs, and the address loses it.
export const TOKEN = (() => {
  const [, given] = location.hash.match(/^#token=(.+)$/) ?? [];
  if (given !== undefined) {
    localStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return localStorage.getItem("token") ?? "";
})();

addEventListener("hashchange", () => {
  // The address of a newer server was opened in this tab.
  if (location.hash.startsWith("#token=")) location.reload();
});

// The service refused a command. `code` is its reason, and `fields` are what it may be about.
export class RefusedError extends Error {
  constructor({ code, message, field }) {
    super(T.refused(message, code));
    this.code = code;
    this.fields = [field || T.fieldOf[code]].flat();
  }
}

const open = (path, options) => fetch(path, { ...options, headers: { ...options.headers, "X-Desk-Token": TOKEN } });

// Returns the answer, with its text in `said`, unless that takes too long. `lost` says more if it is unknown whether the server did what it was asked.
export async function request(path, { seconds = READ_SECONDS, lost = (why) => why, ...options } = {}) {
  const signal = AbortSignal.timeout(seconds * 1000);
  try {
    const answer = await open(path, { ...options, signal });
    return Object.assign(answer, { said: await answer.text() });
  } catch {
    throw new Error(lost(signal.aborted ? T.late(T.seconds(seconds)) : T.gone));
  }
}

export async function ask(path, { lost = (why) => why, ...options } = {}) {
  const { ok, status, said } = await request(path, { ...options, lost });
  if (!ok) throw new Error(status === 504 ? lost(said.trim()) : said.trim());
  return JSON.parse(said);
}

export const pathOf = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
export const api = (method, path, { query = {} } = {}) => ask(`/api${path}?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined))}`, { method });

// Sends a command, and returns the answer of what takes it. `lost` says what to do if the answer is lost.
export async function send(command, path = "/data/command", lost = T.lostAnswer) {
  const answer = await ask(path, { method: "POST", body: JSON.stringify(command), seconds: SEND_SECONDS, lost });
  if (!answer.done) throw new RefusedError(answer);
  return answer;
}

// Sends a command, and returns what came of it in words.
export async function carryOut(command) {
  const { result, status, warnings } = await send(command);
  if (result === "APPLIED") return warnings ? T.warned(warnings) : T.applied;
  return status in T.order.statuses ? T.order.unchanged(T.outcomes[result], T.order.statuses[status]) : T.outcomes[result];
}

// What comes next, unless that takes too long.
const silence = () => pause(SILENT_SECONDS * 1000).then(() => Promise.reject(new Error(T.silent(T.seconds(SILENT_SECONDS)))));
const next = (coming) => Promise.race([coming.catch(() => Promise.reject(new Error(T.gone))), silence()]);

// Calls `hear` with each line of JSON of an endless answer, until it ends or falls silent, or the signal ends it.
export async function listen(path, hear, signal) {
  const answer = await next(open(path, { signal }));
  if (!answer.ok) throw new Error((await next(answer.text())).trim());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await next(reader.read());
    if (done) throw new Error(T.ended);
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => hear(JSON.parse(line)));
  }
}

// Listens again and again, until the returned function is called. Not in a hidden tab, because a browser has few connections to one
// server for all of its tabs, unless it is `isKept`. Then `fail` gets no error.
export function follow(path, hear, fail, isKept = false) {
  let stream;
  const look = async () => {
    stream?.abort();
    const { signal } = (stream = new AbortController());
    if (document.hidden && !isKept) return;
    if (!navigator.onLine) await pause(RETRY_MILLISECONDS); // some requests still get through
    await listen(path, hear, signal).catch((error) => fail(signal.aborted ? undefined : error));
    await pause(RETRY_MILLISECONDS);
    if (!signal.aborted) look();
  };
  // A stream may outlive its network.
  const reasons = [[window, "online"], [window, "offline"], ...(isKept ? [] : [[document, "visibilitychange"]])];
  reasons.forEach(([where, name]) => where.addEventListener(name, look));
  look();
  return () => {
    reasons.forEach(([where, name]) => where.removeEventListener(name, look));
    stream?.abort();
  };
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export const randomId = (prefix) => `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
