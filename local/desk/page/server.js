// The one place that talks to the HTTP API and, on an operator's machine, to the desk's own server.
import { withFirst } from "./caller.js";
import { bearer, ended } from "./session.js";
import { T } from "./texts.js";

const READ_SECONDS = 60;
const SEND_SECONDS = 30;
const PAGE_ROWS = 100; // the most that the API lists at once

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

// What the page itself says: where it is, `desk` (local or hosted), the address of the `api`, whether that is the `embedded` AWS, and how to `signIn`.
export const config = JSON.parse(document.getElementById("config").text);
export const isLocal = () => config.desk === "local";

// The API refused a request. `code` is its reason, `fields` are what it may be about, and `problem` is all that it said.
export class RefusedError extends Error {
  constructor(problem) {
    const { code, message, field, permission } = problem;
    super(permission ? T.notPermitted(permission) : code ? withFirst(T.refused(message, code), problem) : message);
    Object.assign(this, { code, fields: [field || T.fieldOf[code]].flat(), problem });
  }
}

// JSON, in which integers that a browser would round are text.
const parsed = (text) =>
  JSON.parse(text, (_, value, { source } = {}) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? source : value));

// Returns the answer, with its text in `said`, unless that takes too long. `lost` says more if it is unknown whether what was asked was done.
export async function request(address, { seconds = READ_SECONDS, lost = (why) => why, headers, ...options } = {}) {
  const signal = AbortSignal.timeout(seconds * 1000);
  try {
    const token = await bearer();
    const allowed = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(address, { ...options, headers: { ...allowed, ...(TOKEN && { "X-Desk-Token": TOKEN }), ...headers }, signal });
    if (token && answer.status === 401) throw ended();
    return Object.assign(answer, { said: await answer.text() });
  } catch (error) {
    if (error.isSignedOut) throw error;
    throw new Error(lost(signal.aborted ? T.late(T.seconds(seconds)) : T.gone(isLocal())));
  }
}

// ---------------------------------------------------------------- the HTTP API

export const pathOf = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;

// Calls the API. Returns its answer with the parsed `document`, if that is JSON. Parts of the query that are undefined are left out.
export async function call(method, path, { query = {}, body, headers = {}, ...how } = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined));
  const address = `${config.api}${path}${search.size ? `?${String(search).replaceAll("+", "%20")}` : ""}`;
  const typed = body && { "Content-Type": "application/json" };
  const sent = method === "GET" ? {} : { seconds: SEND_SECONDS, lost: T.lostAnswer };
  const answer = await request(address, { method, body: body && JSON.stringify(body), headers: { ...typed, ...headers }, ...sent, ...how });
  const isJson = answer.headers.get("Content-Type")?.includes("json");
  return Object.assign(answer, { document: isJson ? parsed(answer.said) : {} });
}

// What an answer that is not good says. Only the service's own answers have a code: what others say does not mean that nothing was done.
export function refusalOf({ status, said, document }, lost = T.lostAnswer) {
  const { code, detail, message } = document;
  const words = code ? detail : message === undefined ? said.trim() : (T.statuses[status] ?? T.answered(status, message));
  return code === undefined && status >= 500 ? new Error(lost(words)) : new RefusedError({ ...document, status, message: words });
}

// Calls the API, and returns the document of its answer.
export async function api(method, path, how = {}) {
  const answer = await call(method, path, how);
  if (!answer.ok) throw refusalOf(answer, method === "GET" ? (why) => why : T.lostAnswer);
  return answer.document;
}

// The pages of a list, one after the other. `get` may be more patient than `api`.
export async function* pagesOf(path, query, get = api) {
  let cursor;
  do {
    const page = await get("GET", path, { query: { ...query, limit: PAGE_ROWS, cursor } });
    yield page;
    cursor = page.next;
  } while (cursor !== undefined);
}

const OF_ORDERS = { confirm: "confirm", fulfil: "fulfil", unfulfil: "unfulfil", cancel: "cancel", return: "returns" };
const OF_PRODUCTS = { discontinue: "discontinue", listAgain: "list-again", adjust: "adjustments", transfer: "transfers" };

function requestOf({ action, ...command }) {
  const { orderId, productId, ...body } = command;
  if (action in OF_ORDERS) return ["POST", pathOf("orders", orderId, OF_ORDERS[action]), { body }];
  if (action === "amend") return ["PATCH", pathOf("orders", orderId), { body }];
  if (action in OF_PRODUCTS) return ["POST", pathOf("products", productId, OF_PRODUCTS[action]), { body }];
  if (action === "create") return ["POST", "/products", { body: command }];
  if (action === "change") return ["PATCH", pathOf("products", productId), { body }];
  if (action === "delist") return ["DELETE", pathOf("products", productId), { query: body }];
  return ["POST", "/counts", { body: { action, ...command } }];
}

// Sends a command by its route, and returns the answer.
export const command = (order) => api(...requestOf(order));

// What came of a command, in words.
export function outcomeOf(answer) {
  const { result, status, warnings } = answer;
  if (status === "ACCEPTED") return T.order.accepted;
  if (result === "APPLIED") return warnings ? T.warned(warnings) : T.applied;
  const words = status in T.order.statuses ? T.order.unchanged(T.outcomes[result], T.order.statuses[status]) : T.outcomes[result];
  return withFirst(words, answer);
}

export const carryOut = async (order) => outcomeOf(await command(order));

// ---------------------------------------------------------------- the desk's own server

export async function ask(path, { lost = (why) => why, ...options } = {}) {
  const { ok, status, said } = await request(path, { ...options, lost });
  if (!ok) throw new Error(status === 504 ? lost(said.trim()) : said.trim());
  return JSON.parse(said);
}

// Sends a change, and returns the answer. `lost` says what to do if the answer is lost.
export async function send(change, path, lost) {
  const answer = await ask(path, { method: "POST", body: JSON.stringify(change), seconds: SEND_SECONDS, lost });
  if (!answer.done) throw new RefusedError(answer);
  return answer;
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export const randomId = (prefix) => `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
