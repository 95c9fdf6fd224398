// What a text names: orders, customers, products, locations and dead letters. A single one is shown at once.
import { about, may, worksAt } from "./caller.js";
import { moment, number } from "./format.js";
import { withCode } from "./messages.js";
import { statusOf } from "./order_facts.js";
import { card, hint, hrefOf, html, mayOpen, repeat } from "./parts.js";
import { api, ask, isLocal, pathOf } from "./server.js";
import { T } from "./texts.js";

const MOST_HITS = 50;
const [NOT_FOUND, INVALID] = [404, 400];

// What to show of each kind, and where it leads.
const HITS = {
  orders: (order) => [order.orderId, T.pair(order.userId, statusOf(order)), "order", order.orderId],
  customers: (userId) => [userId, "", "orders", "of", userId],
  products: ({ productId, name, availability }) => [name ?? productId, T.find.product(productId, T.try.availability[availability]), "product", productId],
  locations: (locationId) => [locationId, T.find.location, "orders", "at", locationId],
  deadLetters: ({ orderIds, messageId, source, code }) => [orderIds.join(", ") || messageId, T.find.letter(source, code), "dead-letters", messageId],
};

// What the API knows, or `nothing` if the text names nothing there, could not be its id, or belongs to others.
async function look(permission, path, query, nothing) {
  if (!may(permission)) return nothing;
  return api("GET", path, { query }).catch((error) => {
    if ([NOT_FOUND, INVALID].includes(error.problem?.status) || error.code === "OTHER_LOCATION") return nothing;
    throw error;
  });
}

// One read for each kind.
async function findExactly(text) {
  const [order, ofCustomer, named] = await Promise.all([
    look("orders.read", pathOf("orders", text), {}, undefined),
    look("orders.read", "/orders", { userId: text, limit: 1 }, { orders: [] }),
    text.includes(",") ? { products: [] } : look("products.read", "/products", { ids: text }, { products: [] }),
  ]);
  return {
    orders: order ? [order] : [],
    customers: ofCustomer.orders.length || ofCustomer.next ? [text] : [],
    products: named.products,
    locations: about.locations.filter((locationId) => locationId === text),
  };
}

// Products by the beginnings of their words, orders by a reference, and locations. `unsearched` is what was left out.
async function findOthers(text) {
  const unsearched = [];
  const [products, orders] = await Promise.all([
    look("products.read", "/products", { search: text, limit: MOST_HITS }, undefined),
    about.movements ? look("orders.read", "/orders", { reference: text, limit: MOST_HITS }, { orders: [], completeUntil: undefined, unreadable: [] }) : undefined,
  ]);
  const isPart = (locationId) => locationId && locationId.toLowerCase().startsWith(text.toLowerCase());
  if (may("products.read")) {
    if (products === undefined) unsearched.push(["words"]);
    else if (products.next) unsearched.push(["otherProducts"]);
  }
  if (may("orders.read")) {
    if (orders === undefined) unsearched.push(["references"]);
    else if (orders.completeUntil !== undefined) unsearched.push(["laterReferences", orders.completeUntil && moment(orders.completeUntil)]);
  }
  const unread = [...(products?.unreadable ?? []), ...(orders?.unreadable ?? [])];
  if (unread.length) unsearched.push(["rows", unread.length]);
  return { orders: orders?.orders ?? [], products: products?.products ?? [], locations: about.locations.filter(isPart), hasMore: orders?.next !== undefined, unsearched };
}

// By a part of an order's id or, if the message has none, by the whole text anywhere in it.
function isAbout({ orderIds, body }, text) {
  const word = new RegExp(`(?<![\\w-])${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(?![\\w-])`);
  return orderIds.some((orderId) => orderId.toLowerCase().includes(text.toLowerCase())) || (orderIds.length === 0 && word.test(body));
}

// Only an operator's machine may read dead letters.
async function findLetters(text) {
  if (!isLocal()) return { hits: [], unsearched: [] };
  try {
    const { deadLetters, more } = await ask("/local/dead-letters");
    const hits = deadLetters.filter((letter) => isAbout(letter, text));
    return { hits, unsearched: more.map(({ queue, listed }) => ["otherLetters", queue, number(listed)]) };
  } catch (error) {
    return { hits: [], unsearched: [["deadLetters", error.message]] };
  }
}

async function find(text) {
  const exact = await findExactly(text);
  if (Object.values(exact).some((hits) => hits.length)) return { ...exact, unsearched: [["parts"]] };
  const [{ hits, unsearched: letters }, { unsearched, ...others }] = await Promise.all([findLetters(text), findOthers(text)]);
  return { ...others, deadLetters: hits, unsearched: [...unsearched, ...letters] };
}

export async function read([text]) {
  const { hash } = location;
  const { unsearched, hasMore, ...found } = await find(text);
  const lists = Object.keys(HITS).map((kind) => [kind, (found[kind] ?? []).filter((hit) => kind !== "locations" || worksAt({ locationId: hit }))]).filter(([, hits]) => hits.length > 0);
  // Unless there may be others, or the reader has moved on. Going back leads to where the reader came from.
  const isOnly = lists.length === 1 && lists[0][1].length === 1 && unsearched.every(([what]) => what === "parts" || what === "laterReferences");
  const [, , ...path] = isOnly ? HITS[lists[0][0]](lists[0][1][0]) : [];
  if (isOnly && mayOpen(path[0]) && location.hash === hash) location.replace(hrefOf(...path));
  return { lists, about: withCode([hasMore ? T.find.notAll : "", ...unsearched.map(([what, ...how]) => T.find.unsearched[what](...how))].filter(Boolean).join(" ")) };
}

export function draw({ lists, about: words }, state, [text]) {
  const itemOf = ([shown, more, ...path], isFirst) => html`<li>${mayOpen(path[0]) ? html`<a href=${hrefOf(...path)} ?data-first=${isFirst}>${shown}</a>` : shown}<small>${more}</small></li>`;
  const listOf = ([kind, hits], at) => repeat(hits, (hit) => hit.orderId ?? hit.productId ?? hit.messageId ?? hit, (hit, n) => itemOf(HITS[kind](hit), at + n === 0), (why) => html`<li>${why}</li>`);
  const cards = lists.map((list, at) => card(T.find.kinds[list[0]], html`<ul class="hits">${listOf(list, at)}</ul>`));
  return { title: T.find.title(text), about: words, content: cards.length ? cards : card(words[0] ? T.find.noneYet : T.find.none, hint(T.find.canBeFound(isLocal()))) };
}
