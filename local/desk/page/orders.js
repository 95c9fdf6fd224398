// Lists of orders. Addresses: #/orders (to ship), #/orders/at/<location> (to ship from there; empty: the default location),
// #/orders/held (waiting for payment), #/orders/shipped/<days>, #/orders/refund (late payments), #/orders/rejected,
// #/orders/cancelled, #/orders/expired, #/orders/of/<user> and #/orders/product/<product>/<location>.
import { about, may } from "./caller.js";
import { saveOrders } from "./csv.js";
import { age, atLocation, itemsInWords, locationName, moment, number } from "./format.js";
import { EVERYWHERE, forget, isWhole, locationChoice, missingOf, movable, namesOf, possible, readOrder, remember, statusOf, stepOf, unitsIn } from "./order_facts.js";
import { button, change, checkbox, choice, hrefOf, html, link, messageOf, nothing, problem, table } from "./parts.js";
import { live } from "lit-html/directives/live.js";
import { changed, draftOf, drop, idOf } from "./drafts.js";
import { page, refuse, say } from "./messages.js";
import { command as commanded, outcomeOf, pagesOf } from "./server.js";
import { T } from "./texts.js";

// The beginning of a day at this place.
function dayBefore(days) {
  const at = new Date();
  at.setHours(0, 0, 0, 0);
  at.setDate(at.getDate() - days);
  return at.toISOString();
}

const SHIPPED = { today: () => ({ from: dayBefore(0) }), yesterday: () => ({ from: dayBefore(1), to: dayBefore(0) }), week: () => ({ from: dayBefore(6) }), all: () => ({}) };
const QUERIES = {
  toShip: () => ({ status: "CONFIRMED" }),
  at: (locationId) => ({ status: "CONFIRMED", locationId }),
  held: () => ({ status: "PENDING" }),
  shipped: (days) => ({ status: "FULFILLED", ...SHIPPED[days || "today"]() }),
  refund: () => ({ latePayment: "true" }),
  rejected: () => ({ status: "REJECTED" }),
  cancelled: () => ({ status: "CANCELLED" }),
  expired: () => ({ status: "EXPIRED" }),
  of: (userId) => ({ userId }),
  product: (productId, locationId = "") => ({ productId, locationId }),
};
const TABS = ["held", "shipped", "refund", "rejected", "cancelled", "expired"];
const [MOST_EMPTY_PAGES, MOST_LOOKS] = [3, 2]; // a page of a list may be empty, or its orders gone
const REDRAW_MILLISECONDS = 20_000; // the ages grow
// What comes next for a row, by the order's status.
const NEXT = { PENDING: "confirm", CONFIRMED: "fulfil" };
const SELECTED = "orders hand over";
const FILE = "orders file";
// Locations of the setting, and of orders that were listed.
const locations = new Set();
export const keyOf = ({ orderId }) => orderId;
const keyIn = ({ orderId }) => `orders ${orderId}`;
const isToShip = (kind) => kind === undefined || kind === "toShip" || kind === "at";
const linesHere = (order, [kind, id]) => movable(order, "fulfil").filter(({ locationId = "" }) => kind !== "at" || locationId === id);

export function start(state) {
  for (const locationId of about.locations.filter(Boolean)) locations.add(locationId);
  Object.assign(state, { pages: 1, chosen: new Set(), names: {}, ...state, timer: setInterval(page.draw, REDRAW_MILLISECONDS) });
}

export const stop = (state) => clearInterval(state.timer);

function queryOf([kind = "toShip", id = "", where]) {
  const isKnown = Object.hasOwn(QUERIES, kind) && ((kind !== "of" && kind !== "product") || id) && (kind !== "shipped" || Object.hasOwn(SHIPPED, id || "today"));
  if (!isKnown) throw new Error(T.allOrders.noList([kind, id].filter(Boolean).join("/")));
  return QUERIES[kind](id, where);
}

// The first pages of a list, or more if they are empty.
async function readPages(query, pages) {
  const found = [];
  for await (const page of pagesOf("/orders", query)) {
    found.push(page);
    const isEmpty = found.every(({ orders }) => orders.length === 0);
    if (found.length >= (isEmpty ? MOST_EMPTY_PAGES : pages)) break;
  }
  const { next, completeUntil } = found.at(-1);
  return { orders: found.flatMap(({ orders }) => orders), unreadable: found.flatMap(({ unreadable }) => unreadable), completeUntil, isAll: next === undefined };
}

export async function read(ids, state, isAfresh) {
  const found = await readPages(queryOf(ids), state.pages);
  for (const { items } of found.orders) for (const { locationId } of items) if (locationId) locations.add(locationId);
  if (isToShip(ids[0])) {
    forget();
    remember(found.orders);
  }
  const listed = new Set(found.orders.map(keyOf));
  // What happened to those that have left the list.
  const isUnknown = (row) => !listed.has(row.orderId) && row.status in NEXT;
  const look = async (row) => Object.assign(row, await readOrder(row.orderId).catch(() => ({})));
  await Promise.all((state.rows ?? []).filter(isUnknown).slice(0, MOST_LOOKS).map(look));
  state.names = await namesOf(found.orders, isAfresh ? {} : state.names);
  return found;
}

export const rowsOf = ({ orders }) => orders;

// Goods that come in change what can ship.
export const follows = ({ orders, products, isAll }, [kind]) => !isAll || orders.length > 0 || (isToShip(kind) && products.length > 0);

// The number that was typed for an order, until it is handed over.
const trackingOf = (order) => draftOf(keyIn(order)).values.tracking ?? "";

// What comes next for an order, in words and as a command. Where another location has lines to ship as well, it is about a part.
function nextOf(order, state, ids) {
  const { orderId, status } = order;
  if (status === "PENDING") return { words: T.order.work.confirm(orderId), command: { action: "confirm", orderId } };
  const reference = trackingOf(order).trim();
  const command = { action: "fulfil", orderId, ...(reference && { reference }) };
  const here = linesHere(order, ids);
  if (isWhole(order) && here.length === movable(order, "fulfil").length) return { words: T.order.work.fulfil(orderId), command: { ...command, ...stepOf(order, () => idOf(keyIn(order))) } };
  const words = T.allOrders.workAt(itemsInWords(unitsIn(here), state.names), orderId, locationName({ locationId: ids[1] }));
  return { words, command: { ...command, stepId: idOf(keyIn(order)), items: unitsIn(here) } };
}

// A row shows at once what came of its order.
async function carryOut(order, command) {
  const answer = await commanded(command);
  order.status = answer.status;
  return outcomeOf(answer);
}

function handOverSelected(orders, state, ids) {
  let failed = 0;
  const progress = (done) => T.allOrders.progress(number(done), number(orders.length));
  // What is sent is what the reader saw when it was pressed.
  const steps = orders.map((order) => ({ order, ...nextOf(order, state, ids), draft: draftOf(keyIn(order)) }));
  const work = async (tell) => {
    for (const [at, { order, words, command, draft }] of steps.entries()) {
      tell(progress(at - failed));
      try {
        say(keyIn(order), T.done(words, await carryOut(order, command)));
        drop(draft);
        state.chosen.delete(order.orderId);
      } catch (error) {
        failed += 1;
        refuse(keyIn(order), T.failed(words, error.message));
      }
    }
    if (!failed) return progress(orders.length);
    await page.read();
    throw new Error(T.allOrders.notAll(progress(orders.length - failed), failed));
  };
  return change(SELECTED, T.allOrders.handOver(orders.length), work);
}

function choose(state, orderIds, isChosen) {
  // Other orders are another change.
  changed(SELECTED);
  orderIds.forEach((orderId) => (isChosen ? state.chosen.add(orderId) : state.chosen.delete(orderId)));
  page.draw();
}

// Enter goes on with the next tracking number, as a scan does.
function goOn(event) {
  if (event.type === "keydown" && event.key !== "Enter") return;
  event.preventDefault();
  const fields = [...document.querySelectorAll("[name=tracking]"), document.getElementById("hand-over")];
  fields[fields.indexOf(event.target) + 1]?.focus();
}

function trackingField(order) {
  return html`<input name="tracking" maxlength="128" autocomplete="off" aria-label=${T.allOrders.trackingOf(order.orderId)} placeholder=${T.allOrders.tracking}
    .value=${live(trackingOf(order))} @input=${({ target }) => changed(keyIn(order), { tracking: target.value })} @keydown=${goOn} @scan=${goOn}>`;
}

// The time by which a list is sorted. Orders that have left a list keep theirs.
function timeOf({ createdAt, confirmedAt, statusAt, confirmationRejected }, kind) {
  if (isToShip(kind)) return confirmedAt;
  if (kind === "held" || kind === "of" || kind === "product") return createdAt;
  return kind === "refund" ? confirmationRejected.at : statusAt;
}

const since = (iso) => html`<time datetime=${iso} title=${moment(iso)}>${age(iso)}</time>`;

function columnsOf(ids, state) {
  const [kind = "toShip"] = ids;
  const box = ({ orderId, isGone }) =>
    html`<input type="checkbox" aria-label=${T.allOrders.select(orderId)} ?disabled=${isGone} .checked=${!isGone && state.chosen.has(orderId)}
      @change=${({ target }) => choose(state, [orderId], target.checked)}>`;
  const customer = ({ userId }) => (kind === "of" ? nothing : html`<small>${link(userId, "orders", "of", userId)}</small>`);
  const isHere = ({ isGone }) => isToShip(kind) && !isGone;
  const items = (row) => itemsInWords(isHere(row) ? linesHere(row, ids) : row.items, state.names);
  const next = (row) => {
    const text = possible(row).includes(NEXT[row.status]) && T.order.actions[NEXT[row.status]];
    const act = () => {
      const { words, command } = nextOf(row, state, ids);
      return change(keyIn(row), words, () => carryOut(row, command));
    };
    const press = text && !row.isGone ? button(text, act, { label: T.pair(text, row.orderId) }) : nothing;
    const hasField = isHere(row) && may("orders.fulfil") && (state.chosen.has(row.orderId) || trackingOf(row));
    return html`<div class="actions">${hasField ? trackingField(row) : nothing}${press}${messageOf(keyIn(row))}</div>`;
  };
  return [
    isToShip(kind) && { text: "", kind: "box", cell: box },
    { text: T.allOrders.order, kind: "wide", cell: (row) => html`<div>${link(row.orderId, "order", row.orderId)}${customer(row)}</div>` },
    { text: T.order.items, cell: (row) => html`<div>${items(row)}</div>` },
    kind === "held" && { text: T.order.holdEnds, cell: ({ expiresAt }) => (expiresAt ? since(expiresAt) : nothing) },
    { text: T.allOrders.times[kind] ?? T.order.placed, cell: (row) => since(timeOf(row, kind)) },
    { text: T.allOrders.status, cell: (row) => html`<div>${statusOf(row, state.names)}${isHere(row) ? missingOf(row, state.names) : nothing}</div>` },
    { text: "", kind: "wide act", cell: next },
  ].filter(Boolean);
}

function selection(state, ids) {
  const there = state.rows.filter(({ isGone }) => !isGone);
  const chosen = there.filter(({ orderId }) => state.chosen.has(orderId));
  const able = there.filter((order) => order.shippable).map(({ orderId }) => orderId);
  const onChange = ({ target }) => choose(state, target.checked ? able : [...state.chosen], target.checked);
  return html`<section class="card selection"><div class="actions">
    ${checkbox("all", T.allOrders.selectAll(number(able.length)), { checked: able.length > 0 && able.every((orderId) => state.chosen.has(orderId)), onChange })}
    ${may("orders.fulfil") ? button(T.allOrders.handOver(chosen.length), () => handOverSelected(chosen, state, ids), { id: "hand-over", kind: "primary", isDisabled: chosen.length === 0 }) : nothing}
    ${chosen.length ? html`<a class="button" href=${hrefOf("pick", ids[0] === "at" ? (ids[1] ?? "") : EVERYWHERE, ...chosen.map(({ orderId }) => orderId))}>${T.pick.title}</a>` : nothing}${messageOf(SELECTED)}
  </div></section>`;
}

// The lists; and one warehouse's, once any order comes from a location that has a name.
function tabs([kind, id, ...more]) {
  const tab = (text, isHere, ...path) => html`<a href=${hrefOf("orders", ...path)} aria-current=${isHere ? "page" : nothing}>${text}</a>`;
  if (kind === "at" && id) locations.add(id);
  const go = (locationId) => {
    location.href = locationId === undefined ? hrefOf("orders") : hrefOf("orders", "at", locationId);
  };
  const goTo = ({ target }) => {
    location.href = hrefOf("orders", "shipped", target.value);
  };
  const days = kind === "shipped" ? choice("days", T.allOrders.when, Object.entries(T.allOrders.days), { value: id || "today", onChange: goTo }) : nothing;
  const where = isToShip(kind) && locations.size ? locationChoice(T.allOrders.shipsFrom, ["", ...locations], kind === "at" ? id : undefined, go) : nothing;
  return html`<div class="filters"><div class="tabs" role="navigation" aria-label=${T.allOrders.lists}>${tab(T.allOrders.tabs.toShip, isToShip(kind))}
    ${TABS.map((name) => tab(T.allOrders.tabs[name], kind === name, name))}${kind === "of" || kind === "product" ? tab(T.allOrders.titles[kind](id), true, kind, id, ...more) : nothing}</div>${where}${days}</div>`;
}

export function draw({ orders, isAll, unreadable, completeUntil }, state, ids) {
  const [kind = "toShip", id, where] = ids;
  const { rows } = state;
  const title = T.allOrders.titles[kind](kind === "at" ? locationName({ locationId: id }) : id) + (where ? atLocation({ locationId: where }) : "");
  const list = kind === "at" ? "toShip" : kind;
  const readMore = () => {
    state.pages += 1;
    page.read();
  };
  const save = async () => {
    const isHere = () => page.isShown(state);
    const tell = (count) => isHere() && say(FILE, T.allOrders.saving(T.orders(count)));
    const count = await saveOrders(queryOf(ids), title, tell, isHere).catch(({ message }) => void refuse(FILE, message));
    if (count !== undefined && isHere()) say(FILE, T.allOrders.saved(T.orders(count)));
  };
  const classOf = ({ isGone, orderId }) => (isGone ? "is-gone" : state.chosen.has(orderId) ? "is-chosen" : "");
  const shown = html`${table({ label: title, columns: columnsOf(ids, state), rows, keyOf, classOf })}
    <p class="hint">${T.allOrders.shown(T.orders(orders.length), isAll)}</p>${isAll ? nothing : button(T.allOrders.more, readMore)}
    ${button(T.allOrders.file, save)}${messageOf(FILE)}`;
  return {
    title,
    about: T.allOrders.about[list] ?? T.allOrders.complete(completeUntil && moment(completeUntil)),
    content: html`${tabs(ids)}${unreadable.map((orderId) => problem(T.allOrders.unreadable(orderId)))}
      ${list === "toShip" && rows.length ? selection(state, ids) : nothing}<section class="card orders">${rows.length ? shown : T.allOrders.none[list]}</section>`,
  };
}
