// What to fetch for some orders, to be printed: #/pick/<location>/<order>/<order>. The location is that of the list they were selected in: empty for
// the default location, and * for all.
import { barcode } from "./barcode.js";
import { inWords, locationName, moment, nameOf, number } from "./format.js";
import { EVERYWHERE, forget, locationChoice, missingOf, movable, namesOf, remembered, statusOf } from "./order_facts.js";
import { button, card, html, link, nothing, problem, table } from "./parts.js";
import { page } from "./messages.js";
import { api, pagesOf, pathOf } from "./server.js";
import { T } from "./texts.js";

const MOST_PAGES = 3;

// Finds orders among the oldest ones to ship from a location, page by page. All that were paid before `end` are listed; undefined if all are.
async function readList(wanted, where) {
  const found = new Map();
  let [end, pages] = ["", 0];
  for await (const { orders, next } of pagesOf("/orders", { status: "CONFIRMED", locationId: where === EVERYWHERE ? undefined : where })) {
    for (const order of orders) if (wanted.includes(order.orderId)) found.set(order.orderId, order);
    end = next && (orders.at(-1)?.confirmedAt ?? end);
    pages += 1;
    if (pages === MOST_PAGES || found.size === wanted.length) break;
  }
  return { found, end };
}

// One order that is not listed is looked up, and those beyond what was listed are as the list of orders showed them.
export async function read([where, ...ids]) {
  const wanted = [...new Set(ids)];
  const { found, end } = wanted.length > 1 ? await readList(wanted, where) : { found: new Map() };
  const lookUp = (orderId) => api("GET", pathOf("orders", orderId)).catch((error) => ({ orderId, problem: error.message }));
  const others = wanted.filter((orderId) => !found.has(orderId));
  for (const order of others.map(remembered)) if (order?.confirmedAt >= end) found.set(order.orderId, order);
  const alone = others.find((orderId) => !found.has(orderId));
  if (alone !== undefined) found.set(alone, await lookUp(alone));
  const names = await namesOf([...found.values()].filter(({ items }) => items));
  const orderOf = (orderId) => (found.has(orderId) ? { ...found.get(orderId), names } : { orderId, problem: T.pick.notListed(orderId) });
  return { orders: wanted.map(orderOf), at: new Date().toISOString() };
}

export function follows({ orders, isAll }, [, ...ids]) {
  forget(isAll ? orders : ids);
  return !isAll || orders.some((orderId) => ids.includes(orderId));
}

// A box to tick, the units, and the product.
function tableOf(label, lines, hasPlaces) {
  const columns = [
    { text: T.pick.tick, kind: "box", cell: () => html`<span class="tick"></span>` },
    { text: T.pick.units, kind: "amount", cell: (line) => html`<strong>${number(line.quantity)}</strong>` },
    { text: T.order.product, cell: ({ name, productId }) => html`<div>${name}<small>${productId}</small></div>` },
    hasPlaces && { text: T.order.location, cell: locationName },
  ].filter(Boolean);
  return table({ label, columns, rows: lines, keyOf: inWords });
}

// The units of each product at each location, as one walks past them.
function totalsOf(lines) {
  const totals = new Map();
  for (const line of lines) totals.set(inWords(line), { ...line, quantity: line.quantity + (totals.get(inWords(line))?.quantity ?? 0) });
  return [...totals.values()].sort((one, other) => locationName(one).localeCompare(locationName(other)) || one.name.localeCompare(other.name));
}

function orderOf({ order, lines }, hasPlaces) {
  if (order.problem) return problem(order.problem);
  const content = lines.length ? tableOf(order.orderId, lines, hasPlaces) : T.pick.nothing(statusOf(order));
  return card(link(T.pick.order(order.orderId, order.userId), "order", order.orderId), barcode(order.orderId), missingOf(order), content);
}

function linesOf(order) {
  if (order.status !== "CONFIRMED") return [];
  return movable(order, "fulfil").map((line) => ({ ...line, name: nameOf(order.names, line.productId) }));
}

export function draw({ orders, at }, state) {
  const places = new Set(orders.flatMap(linesOf).map(({ locationId = "" }) => locationId));
  const hasPlaces = [...places].some(Boolean);
  const isHere = ({ locationId = "" }) => state.where === undefined || locationId === state.where;
  const picked = orders.map((order) => ({ order, lines: linesOf(order).filter(isHere) }));
  const totals = totalsOf(picked.flatMap(({ lines }) => lines));
  const choose = (where) => {
    state.where = where;
    page.draw();
  };
  return {
    title: T.pick.title,
    about: T.pick.about(T.orders(orders.length), moment(at)),
    controls: button(T.pick.print, () => print(), { kind: "primary" }),
    content: html`${hasPlaces ? html`<div class="filters">${locationChoice(T.order.location, places, state.where, choose)}</div>` : nothing}
      <div class="pick">${card(T.nav.products, totals.length ? tableOf(T.nav.products, totals, hasPlaces) : T.pick.nothingAtAll)}
        ${picked.map((each) => orderOf(each, hasPlaces))}</div>`,
  };
}
