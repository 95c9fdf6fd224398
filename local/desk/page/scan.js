// Ships order after order with a scanner: the order, its goods, the tracking number of the parcel, and the order again to hand it over.
import { live } from "lit-html/directives/live.js";
import { cameraOf } from "./camera.js";
import { may, ownLocations } from "./caller.js";
import { draftOf, drop } from "./drafts.js";
import { clock, itemsInWords, number, wholeIn } from "./format.js";
import { meaningOf } from "./meaning.js";
import { changed, idOf, page, refuse, say } from "./messages.js";
import { calledIn, missingOf, movable, readOrder, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, hint, html, labelled, link, messageOf, nothing, problem } from "./parts.js";
import { sendForm } from "./scanner.js";
import { api, carryOut, pathOf } from "./server.js";
import { sound } from "./sound.js";
import { T } from "./texts.js";

const KEY = "scan";
const LEAST_MILLISECONDS = 500; // before an Enter that hands over: a scanner may end a scan with two
const [MOST_ELEMENTS, MOST_CHARACTERS] = [10, 128]; // that a step keeps of each product

const OF_GOODS = ["BAD_CHECK_DIGIT", "VARIABLE_MEASURE"]; // codes that are hardly those of a parcel

const focus = () => document.querySelector("[name=scanned]")?.focus();

function accept(text) {
  sound("good");
  say(KEY, text);
}

function reject(text) {
  sound("bad");
  refuse(KEY, text);
}

// ---------------------------------------------------------------- the order that is open, and its entries: also after a reload

const openId = () => draftOf(KEY).values.orderId;
// What was scanned or typed, in sequence: units of a product, fewer of them if negative, or a reference. The draft compares it as text.
const entries = () => JSON.parse(draftOf(KEY).values.entries ?? "[]");
const keep = (orderId, all) => changed(KEY, { orderId, entries: JSON.stringify(all) });
const add = (entry) => keep(openId(), [...entries(), entry]);
const close = () => drop(draftOf(KEY));

// The order as it was read last; undefined if none is open, or it has not been read since the reload.
const orderIn = ({ order }) => (order?.orderId === openId() ? order : undefined);
const linesOf = (order) => (order.status === "CONFIRMED" ? movable(order, "fulfil") : []);
const notToShip = (order) => T.scan.notToShip(order.orderId, statusOf(order));

function packed() {
  const totals = new Map();
  for (const { productId, units } of entries()) if (productId) totals.set(productId, (totals.get(productId) ?? 0) + units);
  return totals;
}

const packedOf = ({ productId }) => packed().get(productId) ?? 0;
const isBegun = () => [...packed().values()].some((units) => units > 0);
const missing = (order) => linesOf(order).map((line) => ({ ...line, quantity: line.quantity - packedOf(line) })).filter(({ quantity }) => quantity > 0);
const isComplete = (order) => isBegun() && missing(order).length === 0;
const referenceIn = () => entries().findLast(({ reference }) => reference !== undefined)?.reference ?? "";

// The element strings of each product's codes, such as lots. A step keeps some of them.
function elements() {
  const found = Object.groupBy(entries().filter((entry) => entry.elements), ({ productId }) => productId);
  return Object.fromEntries(Object.entries(found).map(([productId, all]) => [productId, [...new Set(all.map((entry) => entry.elements))]]));
}

export function start(state) {
  // One scan is dealt with after the other, also if the order is still being read.
  state.work ??= Promise.resolve();
}

// The order that is open may change elsewhere.
export async function read(_, state) {
  const orderId = openId();
  try {
    const order = orderId && (await readOrder(orderId));
    if (openId() === orderId) state.order = order;
  } catch (error) {
    if (!error.code) throw error;
    close();
    refuse(KEY, error.message);
  }
  return {};
}

export const follows = ({ orders, isAll }) => openId() !== undefined && (!isAll || orders.includes(openId()));

// ---------------------------------------------------------------- scans

async function open(state, orderId) {
  const order = await readOrder(orderId);
  const lines = linesOf(order);
  if (lines.length === 0) return reject(notToShip(order));
  state.order = order;
  keep(orderId, []);
  return accept(T.scan.isOpen(orderId, T.scan.units(lines.reduce((sum, { quantity }) => sum + quantity, 0))));
}

function toGo(order) {
  const left = missing(order).reduce((sum, { quantity }) => sum + quantity, 0);
  return left ? T.scan.toGo(T.scan.units(left)) : T.scan.isComplete;
}

function pack(order, { productId, units, elements: said }) {
  const line = linesOf(order).find((each) => each.productId === productId);
  if (line === undefined) return reject(T.scan[order.items.some((item) => item.productId === productId) ? "notOpen" : "notInOrder"](productId, order.orderId));
  const [name, before] = [calledIn(order.names, line), packedOf(line)];
  if (before + units > line.quantity) return reject(T.scan.tooMany(number(units), name, number(before), number(line.quantity)));
  const kept = elements()[productId] ?? [];
  const isKept = !said || kept.includes(said) || (kept.length < MOST_ELEMENTS && said.length <= MOST_CHARACTERS);
  add({ productId, units, elements: isKept ? said : undefined });
  return accept(`${T.scan.packed(number(before + units), number(line.quantity), name)} ${toGo(order)}${isKept ? "" : ` ${T.scan.notKept}`}`);
}

// A second number never takes the place of the first one unnoticed. It may be the rest of it, in a code of its own.
function referOnce(state, reference, orderIds) {
  const before = referenceIn();
  if (!before || before === reference) return refer(reference, orderIds);
  const whole = before + reference;
  const join = () => queue(state, () => orderIn(state) && referenceIn() === before && refer(whole));
  return reject(html`${T.scan.hasParcel(reference, before)} ${whole.length > MOST_CHARACTERS ? nothing : button(T.scan.join(whole), join)}`);
}

function refer(reference, orderIds = []) {
  add({ reference });
  accept(T.scan.parcel(reference, orderIds.filter((orderId) => orderId !== openId()).join(", ")));
}

function finish(state) {
  const order = orderIn(state);
  if (!order) return reject(T.scan.scanOrder);
  if (linesOf(order).length === 0) return reject(notToShip(order));
  if (isComplete(order)) return handOver(state);
  return reject(T.scan.missing(itemsInWords(missing(order), order.names)));
}

// Only an order comes first. To callers of some locations, the API says whether another one has it.
async function noOrder(text) {
  const found = ownLocations() && (await api("GET", pathOf("orders", text)).catch((error) => error));
  return reject(found?.code === "OTHER_LOCATION" ? T.scan.otherLocation(text) : T.scan.noOrder(text));
}

// `isReference`: the field for it has the focus.
async function deal(state, text, isReference) {
  if (openId() !== undefined && !orderIn(state)) await read(undefined, state);
  const order = orderIn(state);
  const { orderIds = [], reference, why, refusal, ...product } = await meaningOf(text, order?.items);
  if (product.productId !== undefined) return order ? pack(order, product) : reject(T.scan.scanOrder);
  const isOfGoods = OF_GOODS.includes(refusal);
  if (reference !== undefined && order && isReference) return refer(reference, orderIds);
  if (reference !== undefined && order && isComplete(order)) return isOfGoods ? reject(T.scan.goodsOrParcel(why)) : referOnce(state, reference, orderIds);
  if (!order && refusal && !isOfGoods) return noOrder(text);
  if (orderIds.length === 0) return reject(why);
  if (orderIds.length === 1) return choose(state, orderIds[0]);
  return reject(html`${T.scan.several} ${orderIds.map((orderId) => button(orderId, () => queue(state, () => choose(state, orderId))))}`);
}

function choose(state, orderId) {
  const order = orderIn(state);
  if (orderId === order?.orderId) return finish(state);
  return order && isBegun() ? reject(T.scan.another(orderId, order.orderId)) : open(state, orderId);
}

function queue(state, work) {
  state.work = state.work.then(work).catch((error) => reject(error.message));
}

export const scan = (text, state, isReference = false) => queue(state, () => deal(state, text.trim(), isReference));

function take(event, state) {
  event.preventDefault();
  const { scanned } = event.currentTarget.elements;
  if (scanned.value.trim()) scan(scanned.value, state);
  else if (event.timeStamp - (state.taken ?? -Infinity) > LEAST_MILLISECONDS) queue(state, () => finish(state));
  scanned.value = "";
  state.taken = event.timeStamp;
}

// ---------------------------------------------------------------- other steps

async function handOver(state) {
  const { orderId, names, items: all } = orderIn(state);
  const items = [...packed()].filter(([, quantity]) => quantity > 0).map(([productId, quantity]) => ({ ...all.find((item) => item.productId === productId), quantity }));
  const [reference, scanned] = [referenceIn(), elements()];
  const notes = { ...(reference && { reference }), ...(Object.keys(scanned).length && { scanned }) };
  const command = { action: "fulfil", orderId, stepId: idOf(KEY), items: unitsIn(items), ...notes };
  const work = async () => {
    const outcome = await carryOut(command);
    state.last = { orderId, words: T.scan.lastAt(itemsInWords(items, names), clock(Date.now() / 1000)) };
    close();
    return outcome;
  };
  // In production the first one asks.
  const isDone = await change(KEY, T.order.work.fulfil(orderId), work, { isAgreed: state.isAgreed });
  state.isAgreed = isDone || state.isAgreed;
  sound(isDone ? "good" : "bad");
  // Someone else may have been faster.
  if (!isDone) await page.read();
  focus();
}

function undo(order) {
  const { productId, units, reference } = entries().at(-1);
  keep(order.orderId, entries().slice(0, -1));
  const line = order.items.find((item) => item.productId === productId);
  say(KEY, T.scan.undone(line ? itemsInWords([{ ...line, quantity: units }], order.names) : reference));
  focus();
}

function setUnits(order, line, field) {
  const quantity = wholeIn(field.value);
  const isValid = quantity >= 0 && quantity <= line.quantity;
  if (!isValid) return reject(T.scan.wrongUnits(number(line.quantity), calledIn(order.names, line)));
  if (quantity !== packedOf(line)) add({ productId: line.productId, units: quantity - packedOf(line) });
  return say(KEY, `${T.scan.packed(number(quantity), number(line.quantity), calledIn(order.names, line))} ${toGo(order)}`);
}

function lineOf(order, line) {
  const name = calledIn(order.names, line);
  const units = packedOf(line);
  return html`<li class=${units === line.quantity ? "good" : ""}><label>
    <input type="text" inputmode="numeric" aria-label=${T.scan.unitsOf(name)} .value=${live(`${units}`)} @change=${({ target }) => setUnits(order, line, target)}>
    <b>${T.scan.of(number(line.quantity))}</b><div>${name}<small>${line.productId}</small></div></label></li>`;
}

function referenceField(state) {
  const hear = (event) => {
    event.preventDefault();
    page.draw(); // without the keys of the scan
    scan(event.detail, state, true);
  };
  const type = ({ target }) => target.value.trim() !== referenceIn() && refer(target.value.trim());
  return labelled(T.order.tracking, html`<input name="reference" maxlength=${MOST_CHARACTERS} autocomplete="off" .value=${live(referenceIn())} @change=${type} @scan=${hear}>`);
}

function orderOf(state, order) {
  const lines = linesOf(order).map((line) => lineOf(order, line));
  const units = T.scan.units([...packed().values()].reduce((sum, each) => sum + each, 0));
  const [away, question] = isBegun() ? [T.scan.discard, { warning: T.scan.discardWarning(units, referenceIn()), yes: T.scan.discard, kind: "danger" }] : [T.scan.close, { isAgreed: true }];
  const leave = async () => {
    if (await page.isMeant(T.scan.discard, question)) {
      close();
      say(KEY, T.scan.closed(order.orderId));
    }
    focus();
  };
  const text = isComplete(order) ? T.order.actions.fulfil : T.scan.handOverPacked;
  const go = lines.length && isBegun() ? button(text, () => queue(state, () => orderIn(state) && isBegun() && handOver(state)), { kind: "primary" }) : nothing;
  const back = entries().length ? button(T.scan.undo, () => queue(state, () => entries().length && undo(order))) : nothing;
  const title = html`${link(T.order.title(order.orderId), "order", order.orderId)} <small>${order.userId}</small>`;
  const list = lines.length ? html`<ul>${lines}</ul>${referenceField(state)}` : problem(notToShip(order));
  return card(title, missingOf(order), list, html`<div class="actions">${go}${back}${button(away, leave)}</div>`);
}

export function draw(_, state) {
  const [order, { last }] = [orderIn(state), state];
  const input = html`<input name="scanned" data-first autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="go" @scan=${sendForm}>`;
  const lastOne = last ? card(T.scan.last, html`<p>${link(T.order.title(last.orderId), "order", last.orderId)}: ${last.words}</p>`) : nothing;
  return {
    content: html`<div class="scan">
      <section class="card"><form @submit=${(event) => take(event, state)}>
        ${labelled(order ? T.scan.goods : T.scan.orderId, input)}<button>${T.scan.enter}</button>${cameraOf(KEY, (text) => scan(text, state))}${messageOf(KEY)}
      </form>${may("products.read") ? nothing : hint(T.scan.onlyIds)}</section>
      ${order ? orderOf(state, order) : nothing}${lastOne}
    </div>`,
  };
}
