// What a text names: orders, customers, products, locations and dead letters. A single one is shown at once.
import { moment, number } from "./format.js";
import { statusOf } from "./order_facts.js";
import { card, hint, hrefOf, html, repeat } from "./parts.js";
import { withCode } from "./messages.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

// What to show of each kind, and where it leads.
const HITS = {
  orders: (order) => [order.orderId, T.pair(order.userId, statusOf(order)), "order", order.orderId],
  customers: (userId) => [userId, "", "orders", "of", userId],
  products: ({ productId, name, available }) => [name ?? productId, T.find.product(productId, number(available)), "product", productId],
  locations: (locationId) => [locationId, T.find.location, "orders", "at", locationId],
  deadLetters: ({ orderIds, messageId, queue, code }) => [orderIds.join(", ") || messageId, T.find.letter(queue, code), "dead-letters", messageId],
};

export async function read([text]) {
  const { hash } = location;
  const { isAll, unsearched, ...found } = await ask(`/data/search?${new URLSearchParams({ text })}`);
  const lists = Object.keys(HITS).map((kind) => [kind, found[kind] ?? []]).filter(([, hits]) => hits.length > 0);
  // Unless there may be others, or the reader has moved on. Going back leads to where the reader came from.
  const isOnly = lists.length === 1 && lists[0][1].length === 1 && unsearched.every(({ what }) => what === "parts" || what === "laterReferences") && location.hash === hash;
  if (isOnly) location.replace(hrefOf(...HITS[lists[0][0]](lists[0][1][0]).slice(2)));
  return { lists, about: withCode([isAll ? "" : T.find.notAll, ...unsearched.map((one) => T.find.unsearched[one.what]({ ...one, until: one.until && moment(one.until) }))].filter(Boolean).join(" ")) };
}

export function draw({ lists, about }, state, [text]) {
  const itemOf = ([words, more, ...path], isFirst) => html`<li><a href=${hrefOf(...path)} ?data-first=${isFirst}>${words}</a><small>${more}</small></li>`;
  const listOf = ([kind, hits], at) => repeat(hits, (hit) => hit.orderId ?? hit.productId ?? hit.messageId ?? hit, (hit, n) => itemOf(HITS[kind](hit), at + n === 0), (why) => html`<li>${why}</li>`);
  const cards = lists.map((list, at) => card(T.find.kinds[list[0]], html`<ul class="hits">${listOf(list, at)}</ul>`));
  return { title: T.find.title(text), about, content: cards.length ? cards : card(about[0] ? T.find.noneYet : T.find.none, hint(T.find.canBeFound)) };
}
