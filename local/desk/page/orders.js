// What an order's status means, and what can be done with an order.
"use strict";

const STATUS = {
  SENT: "not answered yet",
  PENDING: "its stock is taken, and it is not paid",
  CONFIRMED: "it is paid, and not all of it is handed over",
  FULFILLED: "it is handed over",
  CANCELLED: "its stock is back, except for lost units",
  EXPIRED: "its hold ended, and its stock is back",
};
const ACTIONS = { confirm: "Confirm", fulfil: "Fulfil", cancel: "Cancel", return: "Take back" };
const POSSIBLE = { PENDING: ["confirm", "cancel"], CONFIRMED: ["fulfil", "cancel", "return"], FULFILLED: ["return"] };

// Where the units of a line or a product are; at the default location nothing is said.
const atLocation = ({ locationId }) => (locationId ? ` at ${locationId}` : "");

function randomId(prefix) {
  return `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
}

function statusOf(order) {
  const { status, reason, shortages = [] } = order;
  if (status !== "REJECTED") return `${status}: ${STATUS[status]}`;
  return `${status}: ${reason}` + shortages.map((short) => `, ${short.wanted.toLocaleString("en")} wanted and ${short.available.toLocaleString("en")} available${atLocation(short)}`).join("");
}

// The units of each product that an action can move: those that are still to come, or those that the customer has.
function movable(order, action) {
  const left = order.items.map(({ productId, locationId, quantity, fulfilled = 0, cancelled = 0, returned = 0 }) => ({
    productId,
    locationId,
    quantity: action === "return" ? fulfilled - returned : quantity - fulfilled - cancelled,
  }));
  return left.filter((item) => item.quantity > 0);
}

function possible(order) {
  return (POSSIBLE[order.status] ?? []).filter((action) => action === "confirm" || movable(order, action).length > 0);
}
