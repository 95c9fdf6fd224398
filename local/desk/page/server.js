// Talks to the desk's server: with the token, and about one stack.
import { T } from "./texts.js";

const RETRY_MILLISECONDS = 2000;

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

// It is unknown whether the server did what it was asked.
export class LostAnswerError extends Error {}

// The service refused a command. `code` is its reason, and `fields` are what it may be about.
export class RefusedError extends Error {
  constructor({ code, message, field }) {
    super(T.refused(message, code));
    this.code = code;
    this.fields = [field || T.fieldOf[code]].flat();
  }
}

export async function request(path, options = {}) {
  try {
    return await fetch(path, { ...options, headers: { ...options.headers, "X-Desk-Token": TOKEN } });
  } catch {
    throw new LostAnswerError(T.gone);
  }
}

async function checked(answer) {
  if (!answer.ok) throw new (answer.status === 504 ? LostAnswerError : Error)((await answer.text()).trim());
  return answer;
}

export async function ask(path, options) {
  return (await checked(await request(path, options))).json();
}

// Sends a command, and returns the answer of what takes it. `lost` says what to do if the answer is lost.
export async function send(command, path = "/data/command", lost = T.lostAnswer) {
  const answer = await ask(path, { method: "POST", body: JSON.stringify(command) }).catch((error) => {
    throw error instanceof LostAnswerError ? new Error(lost(error.message)) : error;
  });
  if (!answer.done) throw new RefusedError(answer);
  return answer;
}

// Sends a command, and returns what came of it in words.
export async function carryOut(command) {
  const { result, status, warnings } = await send(command);
  if (result === "APPLIED") return warnings ? T.warned(warnings) : T.applied;
  return status ? T.order.unchanged(T.outcomes[result], T.order.statuses[status]) : T.outcomes[result];
}

// Calls `hear` with each line of JSON of an endless answer, until it ends or the signal ends it.
export async function listen(path, hear, signal) {
  const answer = await checked(await request(path, { signal }));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error(T.ended);
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => hear(JSON.parse(line)));
  }
}

// Listens again and again, until the returned function is called. Not in a hidden tab, because a browser has few connections to one
// server for all of its tabs, unless it is `isKept`.
export function follow(path, hear, fail, isKept = false) {
  let stream;
  const start = async () => {
    const { signal } = (stream = new AbortController());
    while (!signal.aborted) {
      await listen(path, hear, signal).catch((error) => signal.aborted || fail(error));
      await pause(RETRY_MILLISECONDS);
    }
  };
  const look = () => (document.hidden && !isKept ? stream?.abort() : start());
  if (!isKept) document.addEventListener("visibilitychange", look);
  look();
  return () => {
    document.removeEventListener("visibilitychange", look);
    stream?.abort();
  };
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export const randomId = (prefix) => `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
