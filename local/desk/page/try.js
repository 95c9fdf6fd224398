// Places orders through the stage's HTTP API, and takes them further.
import { itemsInWords, moment, number, price } from "./format.js";
import { changed, idOf } from "./messages.js";
import { movable, possible, statusOf } from "./order_facts.js";
import { button, card, change, checkbox, field, form, hint, html, link, messageOf, nothing, repeat, units } from "./parts.js";
import { api, call as send, pathOf, refusalOf as reasonOf } from "./server.js";
import { T } from "./texts.js";

const MOST_ORDERS = 20;
const MOST_PRODUCTS = 100; // that the API shows at once
const WAIT_SECONDS = 10;
const KINDS = { OUT: "bad", DISCONTINUED: "bad", IN_STOCK: "good" };

export function start(state) {
  // Orders of this tab by id, the oldest first, as the API has shown them last; and which of them have `changed` since.
  state.orders ??= new Map(JSON.parse(sessionStorage.getItem("orders") ?? "[]").map((order) => [order.orderId, order]));
  state.changed ??= new Set();
}

async function call(method, path, how) {
  const began = performance.now();
  const answer = await send(method, path, how);
  const milliseconds = Math.round(performance.now() - began);
  return Object.assign(answer, { words: T.try.answer(answer.status, answer.statusText, number(milliseconds)) });
}

function refusalOf(answer) {
  const error = reasonOf(answer, (why) => why);
  return Object.assign(error, { message: T.try.refusal(error.message, answer.words) });
}

export async function read(_, state, isAfresh) {
  const { products: levels } = await api("GET", "/stock", { query: { limit: MOST_PRODUCTS } });
  const ids = [...new Set(levels.map(({ productId }) => productId))].sort();
  const { products } = ids.length ? await api("GET", "/products", { query: { ids: ids.join(",") } }) : { products: [] };
  const open = [...state.orders.values()].filter(({ orderId, status }) => isOpen.includes(status) && (isAfresh || state.changed.has(orderId)));
  state.changed.clear();
  await Promise.allSettled(open.map(({ orderId }) => lookAt(state, orderId)));
  return products;
}

const isOpen = ["SENT", "PENDING", "CONFIRMED"];

export const rowsOf = (products) => products;
export const keyOf = ({ productId }) => productId;

export function follows({ orders, products, isAll }, _, state) {
  for (const orderId of isAll ? orders : state.orders.keys()) state.changed.add(orderId);
  return !isAll || products.length > 0 || orders.some((orderId) => state.orders.has(orderId));
}

function keep({ orders }, order) {
  orders.set(order.orderId, order);
  for (const id of [...orders.keys()].slice(0, -MOST_ORDERS)) orders.delete(id);
  sessionStorage.setItem("orders", JSON.stringify([...orders.values()]));
}

// Answers may arrive in another order than they were given.
function update(state, said) {
  const order = state.orders.get(said.orderId);
  if (order !== undefined && (order.version ?? 0) <= said.version) keep(state, said);
}

async function lookAt(state, id) {
  update(state, await api("GET", pathOf("orders", id)));
}

const place = (state) => ({ product, quantity, hold, wait }, orderId) => {
  const items = [{ productId: product.value, quantity: quantity.valueAsNumber }];
  const wanted = { orderId, userId: "you", items, ...(hold.value && { holdSeconds: hold.valueAsNumber }) };
  const send = async () => {
    // Listed before there is an answer, so that a change finds it.
    keep(state, { ...wanted, status: "SENT" });
    const answer = await call("POST", "/orders", { body: wanted, headers: wait.checked ? { Prefer: `wait=${WAIT_SECONDS}` } : {} });
    const isAccepted = answer.status === 202;
    const order = answer.ok && !isAccepted ? answer.document : answer.document.order;
    if (order !== undefined) update(state, order);
    if (answer.ok) return T.try.result(isAccepted ? T.try.accepted : T.try.placed, answer.words);
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
    const answer = await call("POST", pathOf("orders", orderId, action === "return" ? "returns" : action), { body: step });
    await lookAt(state, orderId);
    if (!answer.ok) throw refusalOf(answer);
    return T.try.result(T.outcomes[answer.document.result] ?? T.applied, answer.words);
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
  const press = (action) => button(T.order.actions[action], () => takeFurther(state, order, action), { label: T.try.named(T.order.actions[action], orderId), kind: action === "cancel" ? "danger" : "" });
  return html`<li data-order=${orderId}><h3>${itemsInWords(items, names)}</h3><small>${link(orderId, "order", orderId)}</small>
    <p class=${status === "REJECTED" ? "bad" : ""}>${statusOf(order, names)}</p>${status === "PENDING" && expiresAt ? hint(T.try.held(moment(expiresAt))) : nothing}
    <div class="actions">${possible(order).map(press)}${messageOf(orderId)}</div></li>`;
}

export function draw(_, state) {
  const { rows } = state;
  const shelf = html`<fieldset><legend>${T.try.product}</legend>
    ${rows.length ? html`<ul class="shelf">${repeat(rows, keyOf, productOf)}</ul>` : hint(T.try.noProducts)}</fieldset>`;
  const quantity = units("place", "quantity", T.try.quantity, { value: 1, min: 1, max: 1_000_000 });
  const hold = units("place", "hold", T.try.hold, { required: false, min: 60, max: 604_800, placeholder: T.try.asSet });
  const placed = form("place", { text: T.try.place, kind: "primary", send: place(state) }, shelf, quantity, hold, checkbox("wait", T.try.wait, { checked: true }));
  const orders = [...state.orders.values()].reverse();
  const listed = orders.length ? html`<ol class="tried">${repeat(orders, ({ orderId }) => orderId, (order) => orderOf(state, order))}</ol>` : hint(T.try.noOrders);
  const content = html`<div class="trial">${card(T.try.placeTitle, placed)}${card(T.try.orders, listed)}</div>`;
  return { title: T.try.title, content };
}
