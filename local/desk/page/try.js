// Places orders through the stack's HTTP API, takes them further, and shows what the event bus says of them.
"use strict";

const LOOK_MILLISECONDS = 1000;
const LOOKS_PER_SHELF = 10; // what is listed changes seldom
const LOOKS_PER_ORDERS = 5; // events tell what becomes of them; this is for what has not arrived
const MOST_ORDERS = 20;
const MOST_EVENTS = 100;
const WAIT_SECONDS = 10;

const AVAILABILITY = { IN_STOCK: "in stock", LOW: "few left", BACKORDER: "on backorder", OUT: "sold out", DISCONTINUED: "discontinued" };

// Orders of this session by id, the oldest first: what the API said of them last, and the events that were heard.
const orders = new Map();
const cards = new Map();
const products = new Map();

let ids = [];

// ---------------------------------------------------------------- the server, and the API behind it

// Sends a request. Returns the status, the document (text, where that is no JSON), and the status in words.
async function call(method, path, document, headers = {}) {
  const began = performance.now();
  const body = document === undefined ? undefined : JSON.stringify(document);
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const { status, phrase, said } = await ask(`/api${path}`, { method, body, headers: { ...type, ...headers } });
  const milliseconds = Math.round(performance.now() - began);
  return { status, ok: status < 400, said, words: `${status} ${phrase} after ${milliseconds} ms` };
}

function problemOf({ said, words }) {
  const detail = said.detail ?? said.message ?? said;
  return `${said.code ? `${said.code}: ` : ""}${String(detail).trim()} (${words})`;
}

// ---------------------------------------------------------------- the shelf

function availabilityOf(product) {
  const number = product.units === undefined ? "" : ` (${product.units.toLocaleString("en")})`;
  return AVAILABILITY[product.availability] + number;
}

function rowOf(product) {
  const choice = element("input", { type: "radio", name: "product", value: product.productId, required: true });
  const name = element("span", { className: "name" }, product.name ?? product.productId, element("small", { textContent: product.productId }));
  const price = element("span", { className: "price" });
  const availability = element("span", { className: "availability" });
  const row = element("li", {}, element("label", {}, choice, name, price, availability));
  return { row, price, availability };
}

function showShelf(found) {
  const rows = found.map((product) => {
    const shown = products.get(product.productId) ?? rowOf(product);
    products.set(product.productId, { ...shown, name: product.name ?? product.productId });
    shown.row.dataset.availability = product.availability;
    setText(shown.price, product.price === undefined ? "" : (product.price / 100).toFixed(2));
    setText(shown.availability, availabilityOf(product));
    return shown.row;
  });
  // Moving what has the focus would take it away.
  const shelf = byId("shelf");
  if (rows.length !== shelf.children.length || rows.some((row, at) => row !== shelf.children[at])) shelf.replaceChildren(...rows);
  byId("shelf-empty").hidden = rows.length > 0;
}

async function lookAtShelf(look) {
  if (look % LOOKS_PER_SHELF === 0 || ids.length === 0) ids = await ask("/data/shelf");
  const answer = await call("GET", `/products?ids=${ids.map(encodeURIComponent).join(",")}`);
  if (!answer.ok) throw new Error(problemOf(answer));
  showShelf(answer.said.products);
}

// ---------------------------------------------------------------- orders

function remember() {
  for (const id of [...orders.keys()].slice(0, -MOST_ORDERS)) {
    orders.delete(id);
    cards.get(id)?.item.remove();
    cards.delete(id);
  }
  sessionStorage.setItem("orders", JSON.stringify([...orders.values()]));
}

function titleOf(order) {
  return order.items.map((item) => `${item.quantity.toLocaleString("en")} × ${products.get(item.productId)?.name ?? item.productId}${atLocation(item)}`).join(", ");
}

function holdOf(order) {
  if (order.status !== "PENDING" || order.expiresAt === undefined) return "";
  const seconds = Math.ceil((Date.parse(order.expiresAt) - Date.now()) / 1000);
  return seconds > 0 ? `held for ${seconds.toLocaleString("en")} more seconds` : "its hold is over, and it will expire";
}

function cardOf(order) {
  const status = element("p", { className: "status" });
  const hold = element("p", { className: "hold" });
  const life = element("ol", { className: "life", ariaLive: "polite" });
  const buttons = Object.fromEntries(
    Object.entries(ACTIONS).map(([action, label]) => {
      const button = element("button", { type: "button", textContent: label, ariaLabel: `${label} ${order.orderId}` });
      button.addEventListener("click", () => attempt(() => takeFurther(order.orderId, action)));
      return [action, button];
    }),
  );
  const title = element("h3");
  const actions = element("div", { className: "actions" }, ...Object.values(buttons));
  const item = element("li", { tabIndex: -1 }, title, element("small", { textContent: order.orderId }), status, hold, actions, life);
  item.dataset.order = order.orderId;
  byId("orders").prepend(item);
  return { item, title, status, hold, life, buttons };
}

function showOrder(order) {
  orders.set(order.orderId, order);
  if (!cards.has(order.orderId)) cards.set(order.orderId, cardOf(order));
  const { item, title, status, life, buttons } = cards.get(order.orderId);
  const focused = document.activeElement;
  item.dataset.status = order.status;
  setText(title, titleOf(order));
  setText(status, statusOf(order));
  const allowed = possible(order);
  for (const [action, button] of Object.entries(buttons)) button.hidden = !allowed.includes(action);
  // Who works by keyboard goes on from here.
  if (item.contains(focused) && focused.hidden) (buttons[allowed[0]] ?? item).focus();
  for (const step of order.life.slice(life.children.length)) life.append(element("li", { textContent: `${clock(step.at)} ${step.kind}` }));
  showHold(order);
  byId("orders-empty").hidden = true;
  remember();
}

function showHold(order) {
  const { hold } = cards.get(order.orderId);
  setText(hold, holdOf(order));
  hold.hidden = hold.textContent === "";
}

// What is newer counts: answers may arrive in another order than they were given.
function update(said) {
  const order = orders.get(said.orderId);
  if (order !== undefined && (order.version ?? 0) <= said.version) showOrder({ ...said, life: order.life });
}

async function lookAtOrder(id) {
  const answer = await call("GET", `/orders/${id}`);
  if (answer.ok) update(answer.said);
}

async function place() {
  const productId = byId("order").elements.product.value;
  const { name } = products.get(productId);
  const quantity = byId("quantity").valueAsNumber;
  const hold = byId("hold").value === "" ? {} : { holdSeconds: byId("hold").valueAsNumber };
  const wanted = { orderId: randomId("try"), userId: "you", items: [{ productId, quantity }], ...hold };
  const headers = byId("wait").checked ? { Prefer: `wait=${WAIT_SECONDS}` } : {};
  // It is listed before there is an answer, so that its first event finds it.
  showOrder({ ...wanted, status: "SENT", life: [] });
  const answer = await call("POST", "/orders", wanted, headers);
  const order = answer.ok && answer.status !== 202 ? answer.said : answer.said.order;
  if (order !== undefined) update(order);
  if (answer.ok) {
    report(`${wanted.orderId}, ${quantity.toLocaleString("en")} × ${name}: ${answer.status === 202 ? "accepted" : "placed"} (${answer.words})`);
    return;
  }
  refuse(problemOf(answer));
  // Above that nobody knows whether there will be one.
  if (order === undefined && answer.status < 500) forget(wanted.orderId);
}

function forget(id) {
  orders.delete(id);
  cards.get(id).item.remove();
  cards.delete(id);
  byId("orders-empty").hidden = orders.size > 0;
  remember();
}

async function takeFurther(id, action) {
  const items = movable(orders.get(id), action).map(({ productId, quantity }) => ({ productId, quantity }));
  const taken = action === "return" ? { stepId: randomId("back"), items, restock: true } : undefined;
  const answer = await call("POST", `/orders/${id}/${action === "return" ? "returns" : action}`, taken);
  if (answer.ok) report(`${ACTIONS[action]} ${id}: ${answer.said.result} (${answer.words})`);
  else refuse(`${ACTIONS[action]} ${id}: ${problemOf(answer)}`);
  await lookAtOrder(id);
}

// ---------------------------------------------------------------- events

function subjectOf(data) {
  if (data.orderId === undefined) return `${data.productId}${atLocation(data)}: ${data.available ?? data.stockCount} available`;
  return `${data.orderId}: ${titleOf(data)}`;
}

function hear(event) {
  const { metadata, data } = event.detail;
  const list = byId("events");
  // The bus may say a thing twice.
  if ([...list.children].some((item) => item.dataset.id === metadata.eventId)) return;
  const kind = event["detail-type"];
  const at = Date.parse(metadata.occurredAt) / 1000;
  const item = element("li", { className: orders.has(data.orderId) ? "own" : "" }, element("time", { textContent: clock(at) }), ` ${kind} `, element("small", { textContent: subjectOf(data) }));
  item.dataset.id = metadata.eventId;
  list.prepend(item);
  while (list.children.length > MOST_EVENTS) list.lastChild.remove();
  byId("events-empty").hidden = true;
  const order = orders.get(data.orderId);
  if (order === undefined) return;
  showOrder({ ...order, life: [...order.life, { kind, at }] });
  update(data);
}

// Each line is an event, a problem, or says that the server still listens.
function hearLine(line) {
  const { event, problem } = JSON.parse(line);
  if (problem !== undefined) throw new Error(problem);
  live("listening", "on");
  if (event !== undefined) hear(event);
}

async function listen() {
  const answer = await request("/data/events");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(hearLine);
  }
  throw new Error("the server has ended");
}

async function keepListening() {
  for (;;) {
    await listen().catch((error) => live(`not listening: ${error.message}`, "off"));
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
  }
}

// ---------------------------------------------------------------- the page

async function lookAround(look) {
  try {
    await lookAtShelf(look);
    notice("");
  } catch (error) {
    notice(error.message);
  }
  if (look % LOOKS_PER_ORDERS > 0) return;
  for (const { orderId, status } of [...orders.values()]) {
    if (["SENT", "PENDING", "CONFIRMED"].includes(status)) await lookAtOrder(orderId).catch(() => {});
  }
}

async function main() {
  let placing = false;
  byId("order").addEventListener("submit", async (event) => {
    event.preventDefault();
    // Enter twice is one order.
    if (placing) return;
    placing = true;
    await attempt(place);
    placing = false;
  });
  for (const order of JSON.parse(sessionStorage.getItem("orders") ?? "[]")) showOrder(order);
  setInterval(() => orders.forEach(showHold), LOOK_MILLISECONDS);
  keepListening();
  for (let look = 0; ; look += 1) {
    if (!document.hidden) await lookAround(look);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
  }
}

main();
