// What to fetch for some orders, to be printed: #/pick/<order>/<order>.
import { inWords, locationName, moment, nameOf, number } from "./format.js";
import { missingOf, movable, statusOf } from "./order_facts.js";
import { button, card, choice, html, link, nothing, problem, table } from "./parts.js";
import { redraw } from "./messages.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const EVERYWHERE = "#"; // no location has this name

const readOne = (orderId) => ask(`/data/order?id=${encodeURIComponent(orderId)}`).catch((error) => ({ orderId, problem: error.message }));

export async function read(ids) {
  return { orders: await Promise.all([...new Set(ids)].map(readOne)), at: new Date().toISOString() };
}

export const follows = ({ event }, ids) => ids.includes(event?.detail.data.orderId);

// A box to tick, the units, and the product.
function tableOf(label, lines, hasPlaces) {
  const columns = [
    { text: T.pick.tick, kind: "box", cell: () => html`<span class="tick"></span>` },
    { text: T.pick.units, kind: "amount", cell: (line) => html`<strong>${number(line.quantity)}</strong>` },
    { text: T.pick.product, cell: ({ name, productId }) => html`<div>${name}${name === productId ? nothing : html`<small>${productId}</small>`}</div>` },
    hasPlaces && { text: T.pick.location, cell: locationName },
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
  return html`<section class="card"><h2>${link(T.pick.order(order.orderId, order.userId), "order", order.orderId)}</h2>${missingOf(order, order.names)}${content}</section>`;
}

const linesOf = (order) => (order.status === "CONFIRMED" ? movable(order, "fulfil").map((line) => ({ ...line, name: nameOf(order.names, line.productId) })) : []);

export function draw({ orders, at }, state) {
  const { where = EVERYWHERE } = state;
  const places = [...new Set(orders.flatMap(linesOf).map(({ locationId = "" }) => locationId))].sort();
  const picked = orders.map((order) => ({ order, lines: linesOf(order).filter(({ locationId = "" }) => where === EVERYWHERE || locationId === where) }));
  const totals = totalsOf(picked.flatMap(({ lines }) => lines));
  const hasPlaces = places.some(Boolean);
  const choose = (event) => {
    state.where = event.target.value;
    redraw();
  };
  const products = card(T.pick.products, totals.length ? tableOf(T.pick.products, totals, hasPlaces) : T.pick.nothingAtAll);
  const names = [[EVERYWHERE, T.pick.everywhere], ...places.map((locationId) => [locationId, locationName({ locationId })])];
  return {
    title: T.pick.title,
    about: T.pick.about(T.orders(orders.length), moment(at)),
    controls: button(T.pick.print, () => print(), { kind: "primary" }),
    content: [hasPlaces ? html`<div class="filters">${choice("where", T.pick.where, names, { value: where, onChange: choose })}</div>` : nothing, html`<div class="pick">${products}${picked.map((each) => orderOf(each, hasPlaces))}</div>`],
  };
}
