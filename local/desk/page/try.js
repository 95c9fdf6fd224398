// Places orders through the stack's HTTP API, takes them further, and lists the events of its bus.
import { atLocation, clock, itemsInWords, moment, number, price } from "./format.js";
import { changed, idOf, page } from "./messages.js";
import { movable, possible, statusOf } from "./order_facts.js";
import { button, card, change, checkbox, field, form, hint, html, link, messageOf, nothing, repeat, units } from "./parts.js";
import { RefusedError, ask, request } from "./server.js";
import { T } from "./texts.js";

const MOST_ORDERS = 20;
const MOST_EVENTS = 100;
const WAIT_SECONDS = 10;
const KINDS = { OUT: "bad", DISCONTINUED: "bad", IN_STOCK: "good" };

export function start(state) {
  // Orders of this tab by id, the oldest first, as the API or the bus has shown them last.
  state.orders ??= new Map(JSON.parse(sessionStorage.getItem("orders") ?? "[]").map((order) => [order.orderId, order]));
  state.events ??= [];
}

async function call(method, path, document, headers = {}) {
  const began = performance.now();
  const body = document && JSON.stringify(document);
  const answer = await request(`/as/operator${path}`, { method, body, headers: { ...(body && { "Content-Type": "application/json" }), ...headers }, lost: method === "GET" ? undefined : T.lostAnswer });
  const milliseconds = Math.round(performance.now() - began);
  const said = answer.headers.get("Content-Type")?.endsWith("json") ? JSON.parse(answer.said) : answer.said;
  return { status: answer.status, isGood: answer.ok, said, words: T.try.answer(answer.status, answer.statusText, number(milliseconds)) };
}

function refusalOf({ said, words }) {
  const message = T.try.refusal(String(said.detail ?? said.message ?? said).trim(), words);
  return said.code ? new RefusedError({ code: said.code, message }) : new Error(message);
}

export async function read(_, state, isAfresh) {
  state.ids ??= await ask("/data/shelf");
  const answer = await call("GET", `/products?ids=${state.ids.map(encodeURIComponent).join(",")}`);
  if (!answer.isGood) throw refusalOf(answer);
  const open = [...state.orders.values()].filter(({ status }) => ["SENT", "PENDING", "CONFIRMED"].includes(status));
  // Later their events tell what becomes of them.
  if (isAfresh) await Promise.allSettled(open.map(({ orderId }) => lookAt(state, orderId)));
  return answer.said.products;
}

export const rowsOf = (products) => products;
export const keyOf = ({ productId }) => productId;

export const follows = ({ event }) => event !== undefined;

function keep({ orders }, order) {
  orders.set(order.orderId, order);
  for (const id of [...orders.keys()].slice(0, -MOST_ORDERS)) orders.delete(id);
  sessionStorage.setItem("orders", JSON.stringify([...orders.values()]));
}

// Answers and events may arrive in another order than they were given.
function update(state, said) {
  const order = state.orders.get(said.orderId);
  if (order !== undefined && (order.version ?? 0) <= said.version) keep(state, said);
}

async function lookAt(state, id) {
  const answer = await call("GET", `/orders/${id}`);
  if (answer.isGood) update(state, answer.said);
}

export function hear({ event }, state) {
  if (event === undefined) return;
  const { metadata, data } = event.detail;
  const heard = { id: metadata.eventId, kind: event["detail-type"], time: clock(Date.parse(metadata.occurredAt) / 1000), data };
  // The bus may deliver an event twice.
  if (state.events.some(({ id }) => id === heard.id)) return;
  state.events = [heard, ...state.events].slice(0, MOST_EVENTS);
  // There may be a product that was not listed before.
  if (data.orderId === undefined) state.ids = undefined;
  update(state, data);
  page.draw();
}

const place = (state) => ({ product, quantity, hold, wait }, orderId) => {
  const items = [{ productId: product.value, quantity: quantity.valueAsNumber }];
  const wanted = { orderId, userId: "you", items, ...(hold.value && { holdSeconds: hold.valueAsNumber }) };
  const send = async () => {
    // Listed before there is an answer, so that its first event finds it.
    keep(state, { ...wanted, status: "SENT" });
    const answer = await call("POST", "/orders", wanted, wait.checked ? { Prefer: `wait=${WAIT_SECONDS}` } : {});
    const isAccepted = answer.status === 202;
    const order = answer.isGood && !isAccepted ? answer.said : answer.said.order;
    if (order !== undefined) update(state, order);
    if (answer.isGood) return T.try.result(isAccepted ? T.try.accepted : T.try.placed, answer.words);
    // Only a server error leaves open whether there will be an order: the same id is sent again then.
    if (answer.status < 500) changed("place");
    if (order === undefined && answer.status < 500) state.orders.delete(orderId);
    throw refusalOf(answer);
  };
  // The form keeps its values, for another order.
  change("place", itemsInWords(items, namesOf(state)), send);
};

function takeFurther(state, order, action) {
  const { orderId } = order;
  const step = action === "return" ? { stepId: idOf(orderId), items: movable(order, action), restock: true } : undefined;
  return change(orderId, T.order.actions[action], async () => {
    const answer = await call("POST", `/orders/${orderId}/${action === "return" ? "returns" : action}`, step);
    await lookAt(state, orderId);
    if (!answer.isGood) throw refusalOf(answer);
    return T.try.result(T.outcomes[answer.said.result] ?? T.applied, answer.words);
  });
}

const namesOf = ({ rows }) => Object.fromEntries(rows.map(({ productId, name }) => [productId, name ?? productId]));

function productOf(row, at) {
  const availability = row.isGone ? T.try.notListed : T.try.availability[row.availability];
  const left = row.units === undefined ? "" : ` (${number(row.units)})`;
  return html`<li><label><input type="radio" name="product" value=${row.productId} ?checked=${at === 0} ?disabled=${row.isGone} required>
    <span>${row.name ?? row.productId}<small>${row.productId}</small></span><span>${price(row.price)}</span><span class=${KINDS[row.availability] ?? ""}>${availability}${left}</span>
  </label></li>`;
}

function orderOf(state, order) {
  const { orderId, status, items, expiresAt } = order;
  const names = namesOf(state);
  const life = state.events.filter(({ data }) => data.orderId === orderId).reverse();
  const press = (action) => button(T.order.actions[action], () => takeFurther(state, order, action), { label: T.try.named(T.order.actions[action], orderId), kind: action === "cancel" ? "danger" : "" });
  return html`<li data-order=${orderId}><h3>${itemsInWords(items, names)}</h3><small>${link(orderId, "order", orderId)}</small>
    <p class=${status === "REJECTED" ? "bad" : ""}>${statusOf(order, names)}</p>${status === "PENDING" && expiresAt ? hint(T.try.held(moment(expiresAt))) : nothing}
    <div class="actions">${possible(order).map(press)}${messageOf(orderId)}</div>
    <ol class="hint" aria-live="polite">${life.map(({ kind, time }) => html`<li>${time} ${kind}</li>`)}</ol></li>`;
}

function eventOf(state, { kind, time, data }) {
  const subject = data.orderId === undefined ? `${data.productId}${atLocation(data)}` : data.orderId;
  const fact = data.orderId === undefined ? T.try.available(number(data.available ?? data.stockCount)) : itemsInWords(data.items, namesOf(state));
  return html`<li class=${state.orders.has(data.orderId) ? "own" : ""}>${time} ${kind}<small>${T.done(subject, fact)}</small></li>`;
}

export function draw(_, state) {
  const { rows } = state;
  const shelf = html`<fieldset><legend>${T.try.product}</legend>
    ${rows.length ? html`<ul class="shelf">${repeat(rows, keyOf, productOf)}</ul>` : hint(T.try.noProducts)}</fieldset>`;
  const quantity = units("place", "quantity", T.try.quantity, { value: 1, min: 1, max: 1_000_000 });
  const hold = field("place", "hold", T.try.hold, { type: "number", required: false, min: 60, max: 604_800, placeholder: T.try.asSet });
  const placed = form("place", { text: T.try.place, kind: "primary", send: place(state) }, shelf, quantity, hold, checkbox("wait", T.try.wait, { checked: true }));
  const orders = [...state.orders.values()].reverse();
  const listed = orders.length ? html`<ol class="tried">${repeat(orders, ({ orderId }) => orderId, (order) => orderOf(state, order))}</ol>` : hint(T.try.noOrders);
  const heard = repeat(state.events, ({ id }) => id, (event) => eventOf(state, event));
  const events = state.events.length ? html`<ol class="heard" tabindex="0" aria-label=${T.try.events}>${heard}</ol>` : hint(T.try.noEvents);
  const content = html`<div class="trial">${card(T.try.placeTitle, placed)}${card(T.try.orders, listed)}${card(T.try.events, events)}</div>`;
  return { title: T.try.title, content };
}
