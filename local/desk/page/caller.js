// Who uses the desk, and what they may do.
import { moment, person } from "./format.js";
import { api } from "./server.js";
import { T } from "./texts.js";

const PRODUCTS = 100; // that show at which locations there are some

// What the API says: the `caller`, the `stage` and its `locations`, the `currency`, and whether `movements` are recorded and `changes` noted.
export const about = {};
export const readAbout = async () => Object.assign(about, await api("GET", "/about"));

export const may = (permission) => {
  const granted = [about.caller?.permissions].flat();
  return granted.includes("*") || granted.includes(permission);
};

// The locations that the caller is restricted to; null if they are all.
export const ownLocations = () => about.caller?.locations ?? null;
export const worksAt = ({ locationId = "" }) => ownLocations()?.includes(locationId) ?? true;

// The locations that forms suggest: the caller's, those of the setting, and some at which there are products.
export const knownLocations = () => [...new Set(ownLocations() ?? [...about.locations, ...(about.found ?? [])])].filter(Boolean).sort();
export async function readLocations() {
  if (ownLocations() !== null || !may("stock.read") || about.found) return;
  const { products } = await api("GET", "/stock", { query: { limit: PRODUCTS } });
  about.found = products.map(({ locationId = "" }) => locationId);
}

// What came of a command, after who was first and when, if an earlier step of the order is the reason. The API has said so in its own words, at the
// end. If nothing is left to do, that is all there is to say.
export function withFirst(words, { code, earlierStep: step }) {
  if (!step) return words;
  const who = step.actor === about.caller?.name ? T.you : person(step.actor);
  const rest = code === "NOT_OPEN" ? T.unchanged : words.replace(/ \(already .*?\)(?= \(\w+\)$)/s, "");
  return T.withFirst(T.order.steps[step.action], who, moment(step.at), rest);
}
