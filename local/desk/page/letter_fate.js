// What became of a dead letter that was sent again, as far as the API shows it.
import { statusOf } from "./order_facts.js";
import { html, link } from "./parts.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

const orUnknown = (asked) => asked.catch(() => undefined);

// An order is decided once it exists. A command is a step of its order, unless the order did not allow it.
async function ofOrder({ source, message: { orderId, action = "expire", stepId } }) {
  const order = await orUnknown(api("GET", pathOf("orders", orderId)));
  if (!order) return undefined;
  const ends = [...(order.steps ?? []).filter((step) => step.action === action), ...(action === "amend" ? (order.rejectedAmends ?? []) : [])];
  const isDone = (source.startsWith("OrderQueue") && action !== "amend") || ends.some((end) => end.stepId === stepId);
  const state = html`${link(T.letters.order(orderId), "order", orderId)}: ${statusOf(order)}.`;
  return { words: isDone ? state : html`${T.letters.fate.notCarriedOut} ${state}`, isDone };
}

async function ofAdjustment({ message: { productId, locationId, adjustmentId } }) {
  const history = await orUnknown(api("GET", pathOf("products", productId, "history"), { query: { locationId } }));
  const isDone = history?.entries.some((entry) => entry.adjustmentId === adjustmentId);
  return isDone && { words: html`${T.letters.fate.booked} ${link(productId, "product", ...[productId, locationId].filter(Boolean))}`, isDone };
}

// A newer event may have replaced its details at once.
async function ofEvent({ message: { productId, details = {} } }) {
  const product = await orUnknown(api("GET", pathOf("stock", productId)));
  const isDone = product && Object.entries(details).every(([name, value]) => String(value.text ?? value) === String(product[name]));
  return isDone && { words: html`${T.letters.fate.changed} ${link(productId, "product", productId)}`, isDone };
}

// `sent` is the message's id in its queue. If the message fails again, the new dead letter has this id as its original one.
export async function fateOf({ sent, source, message }, letters) {
  const back = letters.find(({ originalMessageId }) => originalMessageId === sent);
  if (back) return { words: link(T.letters.fate.back(back.code), "dead-letters", back.messageId), isBack: true };
  const ask = { StockQueue: ofAdjustment, CatalogueQueue: ofEvent }[source] ?? ofOrder;
  const found = message && (await ask({ source, message }));
  return found || { words: T.letters.fate.notYet };
}
