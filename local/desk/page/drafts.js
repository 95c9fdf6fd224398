// What was typed and not sent, and the ids of changes: kept in this tab until they are done, also across a reload.
import { randomId } from "./server.js";

// The address of the page that is shown: the browser's is ahead of it until the next page has been loaded.
let [address, visit] = ["", ""];
export const here = () => address;
export const arrive = (at) => ([address, visit] = [at, randomId("visit")]);

const stored = (place) => ({ place, visit, values: {}, ...JSON.parse(sessionStorage.getItem(place)) });
export const draftOf = (key) => stored(`draft ${address} ${key}`);
export const isTyped = (key) => Object.keys(draftOf(key).values).length > 0;
// Whether the reader has left the page since.
export const isKept = (key) => isTyped(key) && draftOf(key).visit !== visit;

function put(draft) {
  try {
    sessionStorage.setItem(draft.place, JSON.stringify(draft));
  } catch {
    sessionStorage.removeItem(draft.place); // it is full
  }
  return draft;
}

// Sent again after a lost answer, a command takes effect once: its id stays until it succeeds or its contents change.
export const idOf = (key) => put({ id: randomId("desk"), ...draftOf(key) }).id;

export function changed(key, values = {}) {
  const draft = draftOf(key);
  put({ ...draft, id: randomId("desk"), values: { ...draft.values, ...values } });
}

// It is done, unless the reader has gone on typing.
export function drop({ place, id }) {
  if (stored(place).id === id) sessionStorage.removeItem(place);
}
