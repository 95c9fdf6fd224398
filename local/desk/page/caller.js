// Who uses the desk, and what they may do.
import { api } from "./server.js";

// What the API says: the `caller`, the `stage` and its `locations`, the `currency`, and whether `movements` are recorded.
export const about = {};
export const readAbout = async () => Object.assign(about, await api("GET", "/about"));

export const may = (permission) => {
  const granted = [about.caller?.permissions].flat();
  return granted.includes("*") || granted.includes(permission);
};

// The locations that the caller is restricted to; null if they are all.
export const ownLocations = () => about.caller?.locations ?? null;
export const worksAt = ({ locationId = "" }) => ownLocations()?.includes(locationId) ?? true;
