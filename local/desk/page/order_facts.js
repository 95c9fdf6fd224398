// What all pages say of an order, and what can be done with it.
import { may, ownLocations, worksAt } from "./caller.js";
import { atLocation, locationName, nameOf, number } from "./format.js";
import { choice, problem } from "./parts.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

const POSSIBLE = { PENDING: ["confirm", "cancel"], CONFIRMED: ["fulfil", "cancel", "return"], FULFILLED: ["return"] };
export const EVERYWHERE = "*"; // no location has this name

const NAMES_AT_ONCE = 100;

// The names of the products in orders, added to those that are `known`. Without the permission, ids stand for them.
export async function namesOf(orders, known = {}) {
  const ids = new Set(orders.flatMap(({ items }) => items.map(({ productId }) => productId)));
  const wanted = may("products.read") ? [...ids].filter((id) => !Object.hasOwn(known, id)) : [];
  const parts = Array.from({ length: Math.ceil(wanted.length / NAMES_AT_ONCE) }, (_, at) => wanted.slice(NAMES_AT_ONCE * at, NAMES_AT_ONCE * (at + 1)));
  const found = await Promise.all(parts.map((some) => api("GET", "/products", { query: { ids: some.join(",") } })));
  const named = found.flatMap(({ products }) => products).map(({ productId, name = productId }) => [productId, name]);
  return { ...known, ...Object.fromEntries(named) };
}

// The orders of the latest list of orders to ship, as they were last read: their list may be too long to be read again.
const listed = new Map();
export const remember = (orders) => orders.forEach((order) => listed.set(order.orderId, order));
export const forget = (orderIds = [...listed.keys()]) => orderIds.forEach((orderId) => listed.delete(orderId));
export const remembered = (orderId) => listed.get(orderId);

export async function readOrder(orderId) {
  const order = await api("GET", pathOf("orders", orderId));
  if (listed.has(orderId)) remember([order]);
  return { ...order, names: await namesOf([order]) };
}

export const calledIn = (names, line) => nameOf(names, line.productId) + atLocation(line);

// Whether all lines are at the caller's locations. Otherwise, commands name the lines that are.
export const isWhole = ({ items }) => items.every(worksAt);

// The units of each product that an action can move: those that are still to ship, or those that the customer has.
export function movable(order, action) {
  const left = order.items.map(({ productId, locationId, quantity, fulfilled = 0, cancelled = 0, returned = 0 }) => ({
    productId,
    locationId,
    quantity: action === "return" ? fulfilled - returned : quantity - fulfilled - cancelled,
  }));
  return left.filter((item) => item.quantity > 0 && worksAt(item));
}

// Confirm, fulfil, cancel and return, as far as the caller may.
export function possible(order) {
  return (POSSIBLE[order.status] ?? []).filter((action) => may(`orders.${action}`) && (action === "confirm" ? isWhole(order) : movable(order, action).length > 0));
}

function rejectionOf({ reason, shortages = [], limits = [], items }, names) {
  if (limits.length) return limits.map(({ limit, wanted, bought }) => T.order.tooMany(number(limit), number(wanted), number(bought))).join(", ");
  if (shortages.length) return shortages.map((short) => T.order.short(calledIn(names, short), number(short.wanted), number(short.available))).join(", ");
  // The row does not say which product it was.
  return T.order.rejections[reason]?.(items.length === 1 ? calledIn(names, items[0]) : T.order.oneOfItsProducts) ?? reason;
}

// The one status of an order: "paid, 1 of 3 shipped".
export function statusOf(order, names = order.names ?? {}) {
  const { status, items } = order;
  const sum = (name) => items.reduce((total, item) => total + (item[name] ?? 0), 0);
  const [ordered, shipped, cancelled, returned] = ["quantity", "fulfilled", "cancelled", "returned"].map(sum);
  if (status === "REJECTED") return T.order.rejected(rejectionOf(order, names));
  if (status === "CONFIRMED" && shipped > 0) return T.order.partlyShipped(number(shipped), number(ordered - cancelled), items.length > 1);
  const hasEnded = status === "CANCELLED" || status === "EXPIRED";
  const parts = [!hasEnded && cancelled && T.order.partlyCancelled(number(cancelled)), returned && T.order.partlyReturned(number(returned))];
  return [T.order.statuses[status] ?? status, ...parts].filter(Boolean).join(", ");
}

// The products that a shipment would lack, where that was looked up: in the lists of orders to ship, and of one order.
export function missingOf({ status, shippable, missing = [], names: own }, names = own) {
  if (status !== "CONFIRMED" || shippable) return [];
  const words = missing.map((one) => T.order.missing(calledIn(names, one), number(one.wanted), number(one.onHand)));
  return [problem(shippable === undefined ? T.order.unknown : T.order.cannotShip(words.join(", ")))];
}

// Units as commands name them: a product is in one line of an order only.
export const unitsIn = (items) => items.map(({ productId, quantity }) => ({ productId, quantity }));

// `go` is called with the location, or undefined for all of the caller's.
export function locationChoice(text, locations, value, go) {
  const names = [...(ownLocations() ?? locations)].sort().map((locationId) => [locationId, locationName({ locationId })]);
  const onChange = ({ target }) => go(target.value === EVERYWHERE ? undefined : target.value);
  return choice("location", text, [[EVERYWHERE, T.order.everywhere], ...names], { value: value ?? EVERYWHERE, onChange });
}
