// Numbers, times and names as the reader's language writes them.
import { T } from "./texts.js";

const LOCALE = undefined; // the browser's
const DAY_SECONDS = 86_400;
const UNITS = [["day", DAY_SECONDS], ["hour", 3600], ["minute", 60], ["second", 1]];

const whole = new Intl.NumberFormat(LOCALE);
const withSign = new Intl.NumberFormat(LOCALE, { signDisplay: "exceptZero" });
const amounts = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const moments = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "medium" });
const clocks = new Intl.DateTimeFormat(LOCALE, { timeStyle: "medium" });
const minutes = new Intl.DateTimeFormat(LOCALE, { timeStyle: "short" });
const days = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short" });
const ages = new Intl.RelativeTimeFormat(LOCALE, { numeric: "always" });

export const number = (value) => whole.format(value);
export const signed = (value) => withSign.format(value);
export const price = (cents) => (cents === undefined ? "" : amounts.format(cents / 100));
export const moment = (iso) => (iso ? moments.format(new Date(iso)) : "");
export const clock = (seconds) => clocks.format(seconds * 1000);
export const minute = (seconds) => minutes.format(seconds * 1000);
export const day = (seconds) => days.format(seconds * 1000);

// At most two digits after the point, and none for great numbers.
export function measured(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString(LOCALE, { maximumFractionDigits: digits });
}

// How long ago a moment was, or how far ahead it is: "3 hours ago".
export function age(iso) {
  const seconds = (Date.parse(iso) - Date.now()) / 1000;
  const [unit, length] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? UNITS.at(-1);
  return ages.format(Math.trunc(seconds / length), unit);
}

// A user or a role as people call it: the last part of an ARN, or of the desk's own "desk:anna".
export function person(actor = "") {
  if (actor.startsWith("desk:")) return T.atTheDesk(actor.slice(5));
  return actor.startsWith("arn:") ? actor.split(/[:/]/).at(-1) : actor;
}

// A product may be called as what every object has: constructor.
export const nameOf = (names, productId) => (Object.hasOwn(names, productId) ? names[productId] : productId);

export const locationName = ({ locationId = "" }) => locationId || T.defaultLocation;

// Where the units of a line or a product are; at the default location nothing is said.
export const atLocation = ({ locationId }) => (locationId ? T.at(locationId) : "");

export const inWords = (product) => product.productId + atLocation(product);

// A product with several locations, where units of it are booked.
export const bookedAt = (product) => product.productId + (product.total ? T.at(locationName(product)) : atLocation(product));

export const itemsInWords = (items, names = {}) => items.map((item) => `${number(item.quantity)} ${nameOf(names, item.productId)}${atLocation(item)}`).join(", ");
