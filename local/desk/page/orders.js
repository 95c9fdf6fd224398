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
const POSSIBLE = { PENDING: ["confirm", "cancel"], CONFIRMED: ["fulfil", "cancel"], FULFILLED: ["return"] };

function randomId(prefix) {
  return `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
}

function statusOf(order) {
  const { status, reason, shortage } = order;
  if (status !== "REJECTED") return `${status}: ${STATUS[status]}`;
  return `${status}: ${reason}` + (shortage ? `, ${shortage.wanted.toLocaleString("en")} wanted and ${shortage.available.toLocaleString("en")} there` : "");
}

// The units of each product that the customer still has.
function kept(order) {
  const left = order.items.map(({ productId, quantity, returned }) => {
    const back = Object.values(returned ?? {}).reduce((sum, one) => sum + one.quantity, 0);
    return { productId, quantity: quantity - back };
  });
  return left.filter((item) => item.quantity > 0);
}

function possible(order) {
  return (POSSIBLE[order.status] ?? []).filter((action) => action !== "return" || kept(order).length > 0);
}
