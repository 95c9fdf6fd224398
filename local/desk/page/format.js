// Numbers, times and names as the reader's language writes them.
import { T } from "./texts.js";

const LOCALE = undefined; // the browser's
const DAY_SECONDS = 86_400;
const UNITS = [["day", DAY_SECONDS], ["hour", 3600], ["minute", 60], ["second", 1]];

const whole = new Intl.NumberFormat(LOCALE);
const withSign = new Intl.NumberFormat(LOCALE, { signDisplay: "exceptZero" });
const DECIMAL = new Intl.NumberFormat(LOCALE, { numberingSystem: "latn" }).formatToParts(0.5)[1].value;
const MAX_PRICE = 1_000_000_000;
const moments = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "medium" });
const clocks = new Intl.DateTimeFormat(LOCALE, { timeStyle: "medium" });
const minutes = new Intl.DateTimeFormat(LOCALE, { timeStyle: "short" });
const days = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short" });
const ages = new Intl.RelativeTimeFormat(LOCALE, { numeric: "always" });

export const number = (value) => whole.format(value);
// The whole number that was typed, or NaN: "3,5" is neither 3 nor 35. A field of the type `number` would leave out the comma in some languages.
export const wholeIn = (text) => (/^\s*-?\d{1,15}\s*$/.test(text) ? Number(text) : NaN);
export const signed = (value) => withSign.format(value);
export const moment = (iso) => (iso ? moments.format(new Date(iso)) : "");
export const clock = (seconds) => clocks.format(seconds * 1000);
export const minute = (seconds) => minutes.format(seconds * 1000);
export const day = (seconds) => days.format(seconds * 1000);

// Prices are in minor units of the stack's currency. Its digits come from the stack, because a browser's may differ from ISO 4217. Without a
// currency, prices are shown and typed as they are stored.
export const money = { code: "", digits: 0 };
export function useCurrency({ code, digits }) {
  const formatOf = (options) => new Intl.NumberFormat(LOCALE, { ...options, minimumFractionDigits: digits, maximumFractionDigits: digits });
  Object.assign(money, { code, digits, shown: formatOf(code ? { style: "currency", currency: code } : {}), typed: formatOf({ useGrouping: false, numberingSystem: "latn" }) });
}
export const price = (units) => (units === undefined ? "" : money.shown.format(units / 10 ** money.digits));
export const typedPrice = (units) => (units === undefined ? "" : money.typed.format(units / 10 ** money.digits));
export const priceFault = (text) => (!text.trim() || unitsOf(text) <= MAX_PRICE ? "" : T.product.noPrice(text, typedPrice(1250), typedPrice(MAX_PRICE)));

// The minor units of a typed price, or NaN. Three digits after a separator other than the language's decimal one are thousands, or unclear if the
// currency has three decimals.
export function unitsOf(text) {
  const [, whole, group, point, rest = ""] = text.replace(/[\s'’]/g, "").match(/^(\d+|[1-9]\d{0,2}([.,])\d{3}(?:\2\d{3})*)(?:([.,])(\d+))?$/) ?? [];
  const isThousands = !group && point !== DECIMAL && /^[1-9]\d{0,2},\d{3}$/.test(`${whole},${rest}`);
  const decimals = isThousands ? "" : rest;
  if (decimals.length > money.digits || (point && point === group) || (isThousands && money.digits > 2)) return NaN;
  return Number(`${whole}${rest}`.replace(/[.,]/g, "") + "0".repeat(money.digits - decimals.length));
}

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

// A user or a role as people call it: the last part of an ARN.
export function person(actor = "") {
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
