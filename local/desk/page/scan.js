// Hands over order after order with a scanner: an order's id opens it, products' ids tick its lines, and a person's Enter hands over.
import { clock, itemsInWords, nameOf, number } from "./format.js";
import { calledIn, isWhole, missingOf, movable, readOrder, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, html, labelled, link, messageOf, nothing, problem } from "./parts.js";
import { changed, idOf, refuse, say } from "./messages.js";
import { sendForm } from "./scanner.js";
import { carryOut } from "./server.js";
import { T } from "./texts.js";

const KEY = "scan";
const LEAST_MILLISECONDS = 500; // before an Enter that hands over: a scanner may end a scan with two
const linesOf = ({ order }) => (order.status === "CONFIRMED" ? movable(order, "fulfil") : []);
const ticked = (state) => linesOf(state).filter(({ productId }) => state.ticked.has(productId));
const missing = (state) => linesOf(state).filter(({ productId }) => !state.ticked.has(productId));
const called = ({ order }, line) => calledIn(order.names, line);
const notToShip = (order) => T.scan.notToShip(order.orderId, statusOf(order));
const focus = () => document.querySelector("[name=scanned]")?.focus();
const open = (state, order) => Object.assign(state, { order, ticked: new Set() });

export function start(state) {
  // One scan is dealt with after the other, also if the order is still being read.
  state.work ??= Promise.resolve();
}

// The order that is open may change elsewhere.
export async function read(_, state) {
  const { order } = state;
  const found = order && (await readOrder(order.orderId));
  if (state.order === order) state.order = found;
  return {};
}

export const follows = ({ orders, isAll }, _, { order }) => order !== undefined && (!isAll || orders.includes(order.orderId));

async function scanOrder(state, orderId) {
  const order = await readOrder(orderId);
  const lines = linesOf({ order });
  if (lines.length === 0) return refuse(KEY, notToShip(order));
  open(state, order);
  return say(KEY, T.scan.isOpen(orderId, T.scan.lines(lines.length)));
}

function tick(state, line, isOn = true) {
  state.ticked[isOn ? "add" : "delete"](line.productId);
  // Other units are another step.
  changed(KEY);
  const left = missing(state).length;
  say(KEY, T.scan.ticked(number(line.quantity), called(state, line), left ? T.scan.lines(left) : ""));
}

async function scanProduct(state, text) {
  const { orderId, items, names } = state.order;
  // A name that only one line has is as good as its id.
  const named = items.filter(({ productId }) => nameOf(names, productId).toLowerCase() === text.toLowerCase());
  const id = named.length === 1 && !items.some(({ productId }) => productId === text) ? named[0].productId : text;
  const isIt = ({ productId }) => productId === id;
  if (ticked(state).some(isIt)) return refuse(KEY, T.scan.twice(id));
  if (missing(state).some(isIt)) return tick(state, missing(state).find(isIt));
  if (items.some(isIt)) return refuse(KEY, T.scan.notOpen(id));
  const refused = () => refuse(KEY, T.scan.notInOrder(id, orderId));
  // Nothing of this order has been fetched yet: it may be another one's id.
  return state.ticked.size ? refused() : scanOrder(state, id).catch(refused);
}

async function handOver(state, isPart) {
  const [{ orderId, names }, items] = [state.order, ticked(state)];
  const part = isPart || !isWhole(state.order) ? { stepId: idOf(KEY), items: unitsIn(items) } : {};
  const work = async () => {
    const outcome = await carryOut({ action: "fulfil", orderId, ...part });
    state.last = { orderId, words: T.scan.lastAt(itemsInWords(items, names), clock(Date.now() / 1000)) };
    open(state, undefined);
    return outcome;
  };
  // In production the first one asks.
  state.isAgreed = (await change(KEY, T.order.work.fulfil(orderId), work, { isAgreed: state.isAgreed })) || state.isAgreed;
  focus();
}

function finish(state) {
  if (!state.order) return refuse(KEY, T.scan.scanOrder);
  if (linesOf(state).length === 0) return refuse(KEY, notToShip(state.order));
  if (missing(state).length === 0) return handOver(state, false);
  return refuse(KEY, T.scan.missing(itemsInWords(missing(state), state.order.names)));
}

function queue(state, work) {
  state.work = state.work.then(work).catch((error) => refuse(KEY, error.message));
}

export const scan = (text, state) => queue(state, () => (state.order ? scanProduct : scanOrder)(state, text.trim()));

function take(event, state) {
  event.preventDefault();
  const { scanned } = event.currentTarget.elements;
  if (scanned.value.trim()) scan(scanned.value, state);
  else if (event.timeStamp - (state.taken ?? -Infinity) > LEAST_MILLISECONDS) queue(state, () => finish(state));
  scanned.value = "";
  state.taken = event.timeStamp;
}

function lineOf(state, line) {
  const toggle = ({ target }) => {
    tick(state, line, target.checked);
    focus();
  };
  return html`<li><label><input type="checkbox" .checked=${state.ticked.has(line.productId)} @change=${toggle}><b>${T.scan.times(number(line.quantity))}</b>
    <div>${called(state, line)}<small>${line.productId}</small></div></label></li>`;
}

function orderOf(state) {
  const { order } = state;
  const lines = linesOf(state).map((line) => lineOf(state, line));
  const putAside = () => {
    open(state, undefined);
    say(KEY, T.scan.aside(order.orderId));
    focus();
  };
  const isPart = missing(state).length > 0;
  const text = isPart ? T.scan.handOverTicked : T.order.actions.fulfil;
  const go = ticked(state).length ? button(text, () => queue(state, () => state.order && handOver(state, isPart)), { kind: "primary" }) : nothing;
  const title = html`${link(T.order.title(order.orderId), "order", order.orderId)} <small>${order.userId}</small>`;
  const list = lines.length ? html`<ul>${lines}</ul>` : problem(notToShip(order));
  return card(title, missingOf(order), list, html`<div class="actions">${go}${button(T.scan.putAside, putAside)}</div>`);
}

export function draw(_, state) {
  const { order, last } = state;
  const input = html`<input name="scanned" data-first autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="go" @scan=${sendForm}>`;
  const lastOne = last ? card(T.scan.last, html`<p>${link(T.order.title(last.orderId), "order", last.orderId)}: ${last.words}</p>`) : nothing;
  return {
    content: html`<div class="scan">
      <section class="card"><form @submit=${(event) => take(event, state)}>
        ${labelled(order ? T.scan.productId : T.scan.orderId, input)}<button>${T.scan.enter}</button>${messageOf(KEY)}
      </form></section>
      ${order ? orderOf(state) : nothing}${lastOne}
    </div>`,
  };
}
