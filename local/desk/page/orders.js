// What an order's status means, and what can be done with an order.
"use strict";

const STATUS = {
  SENT: "not answered yet",
  PENDING: "its stock is taken, and it is not paid",
  CONFIRMED: "it is paid",
  FULFILLED: "it is handed over",
  CANCELLED: "its stock is back",
  EXPIRED: "its hold ended, and its stock is back",
};
const ACTIONS = { confirm: "Confirm", fulfil: "Fulfil", cancel: "Cancel", return: "Take back" };
const POSSIBLE = { PENDING: ["confirm", "cancel"], CONFIRMED: ["fulfil", "cancel", "return"], FULFILLED: ["return"] };

function randomId(prefix) {
  return `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
}

function statusOf(order) {
  const { status, reason, shortages = [] } = order;
  if (status !== "REJECTED") return `${status}: ${STATUS[status]}`;
  return `${status}: ${reason}` + shortages.map(({ wanted, available }) => `, ${wanted.toLocaleString("en")} wanted and ${available.toLocaleString("en")} there`).join("");
}

// The units of each product that were handed over and did not come back.
function kept(order) {
  const left = order.items.map(({ productId, fulfilled = 0, returned = 0 }) => ({ productId, quantity: fulfilled - returned }));
  return left.filter((item) => item.quantity > 0);
}

// The units of each product that are neither handed over nor cancelled.
function stillOpen(order) {
  const left = order.items.map(({ productId, quantity, fulfilled = 0, cancelled = 0 }) => ({ productId, quantity: quantity - fulfilled - cancelled }));
  return left.filter((item) => item.quantity > 0);
}

function possible(order) {
  return (POSSIBLE[order.status] ?? []).filter((action) => action !== "return" || kept(order).length > 0);
}
