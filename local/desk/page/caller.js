// Who uses the desk, and what they may do.
import { moment, person } from "./format.js";
import { api } from "./server.js";
import { T } from "./texts.js";

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

// Adds to what came of a command who was first, if an earlier step of the order is the reason. The API has said so in its own words, at the end.
export function withFirst(words, { earlierStep: step }) {
  if (!step) return words;
  const who = step.actor === about.caller?.name ? T.you : person(step.actor);
  return T.withFirst(words.replace(/ \(already .*?\)(?= \(\w+\)$)/s, ""), T.order.steps[step.action], who, moment(step.at));
}
