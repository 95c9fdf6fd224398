// What a text names: orders, customers, products and locations. A single one is shown at once.
import { number } from "./format.js";
import { statusOf } from "./order_facts.js";
import { card, hint, hrefOf, html } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

// What to show of each kind, and where it leads.
const HITS = {
  orders: (order) => [order.orderId, T.pair(order.userId, statusOf(order)), "order", order.orderId],
  customers: (userId) => [userId, "", "orders", "of", userId],
  products: ({ productId, name, available }) => [name ?? productId, T.find.product(productId, number(available)), "product", productId],
  locations: (locationId) => [locationId, T.find.location, "orders", "at", locationId],
};

export async function read([text]) {
  const { isAll, areOrdersRead, ...found } = await ask(`/data/search?${new URLSearchParams({ text })}`);
  const lists = Object.entries(HITS).map(([kind, hitOf]) => [kind, found[kind].map(hitOf)]).filter(([, hits]) => hits.length > 0);
  const [[, , ...path] = [], ...others] = lists.flatMap(([, hits]) => hits);
  // Going back leads to where the reader came from.
  if (path.length && !others.length) location.replace(hrefOf(...path));
  return { lists, about: [isAll ? "" : T.find.notAll, areOrdersRead ? "" : T.find.wholeIds].filter(Boolean).join(" ") };
}

export function draw({ lists, about }, state, [text]) {
  const itemOf = ([words, more, ...path], isFirst) => html`<li><a href=${hrefOf(...path)} ?data-first=${isFirst}>${words}</a><small>${more}</small></li>`;
  const cards = lists.map(([kind, hits], at) => card(T.find.kinds[kind], html`<ul class="hits">${hits.map((hit, n) => itemOf(hit, at + n === 0))}</ul>`));
  return { title: T.find.title(text), about, content: cards.length ? cards : card(T.find.none, hint(T.find.canBeFound)) };
}
