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

const inOrder = (values) => JSON.stringify(values, Object.keys(values).sort());
export function changed(key, typed) {
  const draft = draftOf(key);
  const values = { ...draft.values, ...typed };
  put({ ...draft, values, id: (typed && draft.failed?.[inOrder(values)]) ?? randomId("desk") });
}

// It may have been done all the same: with the same contents as now, it will be the same change.
export const fail = ({ place, id, values }) => id && stored(place).id === id && put({ ...stored(place), failed: { [inOrder(values)]: id } });

// It is done, unless the reader has gone on typing.
export function drop({ place, id }) {
  if (stored(place).id === id) sessionStorage.removeItem(place);
}
