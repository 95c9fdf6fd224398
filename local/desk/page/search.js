// What a text names: orders, customers, products and locations. A single one is shown at once.
import { statusOf } from "./order_facts.js";
import { card, hint, hrefOf, html, link, nothing } from "./parts.js";
import { number } from "./format.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const HITS = {
  orders: (order) => ({ text: order.orderId, more: T.pair(order.userId, statusOf(order)), path: ["order", order.orderId] }),
  customers: (userId) => ({ text: userId, path: ["orders", "of", userId] }),
  products: ({ productId, name, available }) => ({ text: name ?? productId, more: T.find.product(productId, number(available)), path: ["product", productId] }),
  locations: (locationId) => ({ text: locationId, more: T.find.location, path: ["orders", "at", locationId] }),
};

export async function read([text]) {
  const found = await ask(`/data/search?${new URLSearchParams({ text })}`);
  const hits = Object.keys(HITS).flatMap((kind) => found[kind].map((one) => ({ kind, ...HITS[kind](one) })));
  // Going back leads to where the reader came from.
  if (hits.length === 1) location.replace(hrefOf(...hits[0].path));
  return { hits, isAll: found.isAll };
}

function listOf(kind, hits) {
  const items = hits.map(({ text, more, path }) => html`<li>${link(text, ...path)}<small>${more ?? nothing}</small></li>`);
  return hits.length ? card(T.find.kinds[kind], html`<ul class="hits">${items}</ul>`) : nothing;
}

export function draw({ hits, isAll }, state, [text]) {
  const title = T.find.title(text);
  if (hits.length === 0) return { title, content: card(T.find.none(text), hint(T.find.canBeFound)) };
  const lists = Object.keys(HITS).map((kind) => listOf(kind, hits.filter((hit) => hit.kind === kind)));
  return { title, about: isAll ? "" : T.find.notAll, content: lists };
}
