// What all pages say of an order, and what can be done with it.
import { atLocation, nameOf, number } from "./format.js";
import { problem } from "./parts.js";
import { send } from "./server.js";
import { T } from "./texts.js";

const POSSIBLE = { PENDING: ["confirm", "cancel"], CONFIRMED: ["fulfil", "cancel", "return"], FULFILLED: ["return"] };

// The units of each product that an action can move: those that are still to ship, or those that the customer has.
export function movable(order, action) {
  const left = order.items.map(({ productId, locationId, quantity, fulfilled = 0, cancelled = 0, returned = 0 }) => ({
    productId,
    locationId,
    quantity: action === "return" ? fulfilled - returned : quantity - fulfilled - cancelled,
  }));
  return left.filter((item) => item.quantity > 0);
}

// Of confirm, fulfil, cancel and return.
export function possible(order) {
  return (POSSIBLE[order.status] ?? []).filter((action) => action === "confirm" || movable(order, action).length > 0);
}

const unitsOf = (order, name) => order.items.reduce((sum, item) => sum + (item[name] ?? 0), 0);

function rejectionOf({ reason, shortages = [], items }, names) {
  const called = (one) => nameOf(names, one.productId) + atLocation(one);
  if (shortages.length) return shortages.map((short) => T.order.short(called(short), number(short.wanted), number(short.available))).join(", ");
  // The row does not say which product it was.
  return (T.order.rejections[reason] ?? T.order.rejections.other)(items.length === 1 ? called(items[0]) : T.order.oneOfItsProducts, reason);
}

// The one status of an order: "paid, 1 of 3 shipped".
export function statusOf(order, names = order.names ?? {}) {
  const { status, items } = order;
  const [ordered, shipped, cancelled, returned] = ["quantity", "fulfilled", "cancelled", "returned"].map((name) => unitsOf(order, name));
  if (status === "REJECTED") return T.order.rejected(rejectionOf(order, names));
  if (status === "CONFIRMED" && shipped > 0) return T.order.partlyShipped(number(shipped), number(ordered - cancelled), items.length > 1);
  const parts = [status !== "CANCELLED" && cancelled > 0 && T.order.partlyCancelled(number(cancelled)), returned > 0 && T.order.partlyReturned(number(returned))];
  return [T.order.statuses[status] ?? status, ...(status === "EXPIRED" ? [] : parts)].filter(Boolean).join(", ");
}

// The products that a shipment would lack.
export function missingOf({ status, shippable, missing = [] }, names) {
  if (status !== "CONFIRMED" || shippable) return [];
  if (shippable === undefined) return [problem(T.allOrders.unknown)];
  const words = missing.map((one) => T.allOrders.missing(nameOf(names, one.productId) + atLocation(one), number(one.wanted), number(one.onHand)));
  return [problem(T.allOrders.cannotShip(words.join(", ")))];
}

// Units as commands name them: a product is in one line of an order only.
export const unitsIn = (items) => items.map(({ productId, quantity }) => ({ productId, quantity }));

// Sends a command, and says what came of it.
export async function carryOut(command) {
  const { result, status } = await send(command);
  return result === "APPLIED" ? T.applied : T.order.unchanged(T.outcomes[result], T.order.statuses[status]);
}
