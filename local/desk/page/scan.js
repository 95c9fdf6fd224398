// Hands over order after order with a scanner: an order's id opens it, products' ids tick its lines, and Enter hands over.
import { atLocation, clock, itemsInWords, nameOf, number } from "./format.js";
import { carryOut, missingOf, movable, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, html, labelled, link, messageOf, nothing, problem } from "./parts.js";
import { changed, idOf, refuse, say } from "./messages.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const KEY = "scan";
const readOrder = (orderId) => ask(`/data/order?id=${encodeURIComponent(orderId)}`);
const linesOf = ({ order }) => (order.status === "CONFIRMED" ? movable(order, "fulfil") : []);
const isTicked = ({ ticked }, { productId }) => ticked.has(productId);
const called = ({ order }, line) => nameOf(order.names, line.productId) + atLocation(line);
const notToShip = (order) => T.scan.notToShip(order.orderId, statusOf(order));

export function start(state) {
  // One scan is dealt with after the other, also if the order is still being read.
  state.work ??= Promise.resolve();
}

// The order that is open may change elsewhere.
export async function read(_, state) {
  if (state.order) state.order = await readOrder(state.order.orderId);
  return {};
}

let openOrder = "";
export const follows = ({ event }) => openOrder !== "" && event?.detail.data.orderId === openOrder;

function open(state, order) {
  Object.assign(state, { order, ticked: new Set(), asksForPart: false });
  openOrder = order?.orderId ?? "";
}

const focus = () => document.querySelector("[data-first]")?.focus();

async function scanOrder(state, orderId) {
  const order = await readOrder(orderId);
  const lines = linesOf({ order });
  if (lines.length === 0) return refuse(KEY, notToShip(order));
  open(state, order);
  return say(KEY, T.scan.isOpen(orderId, T.scan.lines(lines.length)));
}

function tick(state, line, isOn = true) {
  if (isOn) state.ticked.add(line.productId);
  else state.ticked.delete(line.productId);
  state.asksForPart = false;
  // Other units are another step.
  changed(KEY);
  const words = T.scan.ticked(number(line.quantity), called(state, line));
  const left = linesOf(state).filter((each) => !isTicked(state, each)).length;
  say(KEY, left === 0 ? T.scan.allTicked(words) : isOn ? T.scan.moreToTick(words, T.scan.lines(left)) : T.scan.missing(T.scan.lines(left)));
}

async function scanProduct(state, id) {
  const { order } = state;
  const line = linesOf(state).find(({ productId }) => productId === id);
  if (line && isTicked(state, line)) return refuse(KEY, T.scan.twice(called(state, line)));
  if (line) return tick(state, line);
  const item = order.items.find(({ productId }) => productId === id);
  if (item) return refuse(KEY, T.scan.notOpen(called(state, item)));
  if (state.ticked.size > 0) return refuse(KEY, T.scan.notInOrder(id, order.orderId));
  // Nothing of this order has been fetched yet: it may be another one's id.
  return scanOrder(state, id).catch(() => refuse(KEY, T.scan.notInEither(id, order.orderId)));
}

async function handOver(state, isPart) {
  const { order } = state;
  const { orderId } = order;
  const items = linesOf(state).filter((line) => isTicked(state, line));
  const part = isPart ? { stepId: idOf(KEY), items: unitsIn(items) } : {};
  const work = async () => {
    const said = await carryOut({ action: "fulfil", orderId, ...part });
    state.last = { orderId, words: T.scan.lastAt(itemsInWords(items, order.names), clock(Date.now() / 1000)) };
    open(state, undefined);
    return said;
  };
  // In production the first one asks.
  state.isAgreed = (await change(KEY, T.order.work.fulfil(orderId), work, { isAgreed: state.isAgreed })) || state.isAgreed;
  focus();
}

function finish(state) {
  if (!state.order) return refuse(KEY, T.scan.scanOrder);
  const lines = linesOf(state);
  const missing = lines.filter((line) => !isTicked(state, line));
  if (lines.length === 0) return refuse(KEY, notToShip(state.order));
  if (missing.length === 0) return handOver(state, false);
  state.asksForPart = state.ticked.size > 0;
  return refuse(KEY, T.scan.missing(itemsInWords(missing, state.order.names)));
}

function take(event, state) {
  event.preventDefault();
  const { scanned } = event.currentTarget.elements;
  const id = scanned.value.trim();
  scanned.value = "";
  const work = () => (id === "" ? finish(state) : state.order ? scanProduct(state, id) : scanOrder(state, id));
  state.work = state.work.then(work).catch((error) => refuse(KEY, error.message));
}

// ---------------------------------------------------------------- drawing

function lineOf(state, line) {
  const toggle = (event) => {
    tick(state, line, event.target.checked);
    focus();
  };
  return html`<li><label><input type="checkbox" .checked=${isTicked(state, line)} @change=${toggle}><b>${T.scan.ticked(number(line.quantity), "")}</b>
    <span class="name">${called(state, line)}<small>${line.productId}</small></span></label></li>`;
}

function orderOf(state) {
  const { order, ticked, asksForPart } = state;
  const lines = linesOf(state);
  const putAside = () => {
    open(state, undefined);
    say(KEY, T.scan.aside(order.orderId));
    focus();
  };
  return html`<section class="card"><h2>${link(T.order.title(order.orderId), "order", order.orderId)} <small>${order.userId}</small></h2>
    ${missingOf(order, order.names)}<ul>${lines.length ? lines.map((line) => lineOf(state, line)) : problem(notToShip(order))}</ul>
    <div class="actions">${asksForPart && ticked.size ? button(T.scan.handOverTicked, () => handOver(state, true), { kind: "primary" }) : nothing}${button(T.scan.putAside, putAside)}</div></section>`;
}

export function draw(_, state) {
  const { order, last } = state;
  const label = order ? T.scan.productId : T.scan.orderId;
  return {
    title: T.scan.title,
    about: T.scan.about,
    content: html`<div class="scan">
      <section class="card"><form @submit=${(event) => take(event, state)}>${labelled(label, html`<input name="scanned" data-first autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="go">`)}<button>${T.scan.enter}</button>${messageOf(KEY)}</form></section>
      ${order ? orderOf(state) : nothing}
      ${last ? card(T.scan.last, html`<p>${link(T.order.title(last.orderId), "order", last.orderId)}: ${last.words}</p>`) : nothing}
    </div>`,
  };
}
