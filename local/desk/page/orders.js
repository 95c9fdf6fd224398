// Lists of orders. Addresses: #/orders (to ship), #/orders/at/<location> (to ship from there; empty: the default location),
// #/orders/held (waiting for payment) and #/orders/of/<user>.
import { age, itemsInWords, locationName, moment, number } from "./format.js";
import { carryOut, missingOf, movable, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, checkbox, choice, hrefOf, html, link, messageOf, nothing, problem, steady, table } from "./parts.js";
import { changed, idOf, redraw, refuse, reread, say } from "./messages.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const QUERIES = { at: (location) => ({ location }), of: (user) => ({ user }), held: () => ({ held: "" }) };
const REDRAW_MILLISECONDS = 20_000; // the ages grow
const EVERYWHERE = "#"; // no location has this name
const SELECTED = "orders hand over";
// What a row does, by its status.
const ACTIONS = { PENDING: "confirm", CONFIRMED: "fulfil" };

// Locations of orders that were listed.
const locations = new Set();
const idOfRow = ({ row }) => row.orderId;
const keyOf = ({ orderId }) => `orders ${orderId}`;

export function start(state) {
  Object.assign(state, { pages: 1, chosen: new Set(), tracking: {}, fates: {}, names: {}, ...state });
  state.timer = setInterval(redraw, REDRAW_MILLISECONDS);
}

export const stop = (state) => clearInterval(state.timer);

export async function read([kind, id = ""], state) {
  const found = await ask(`/data/orders?${new URLSearchParams({ pages: state.pages, ...QUERIES[kind]?.(id) })}`);
  for (const { items } of found.orders) for (const { locationId } of items) if (locationId) locations.add(locationId);
  const rows = steady(state.rows, found.orders, (order) => order.orderId);
  const gone = rows.filter((each) => each.isGone).map(idOfRow);
  // What happened to those that have left the list.
  const fates = gone.map((orderId) => state.fates[orderId] ?? ask(`/data/order?id=${encodeURIComponent(orderId)}`).then(statusOf).catch(() => T.allOrders.gone));
  const known = await Promise.all(fates);
  Object.assign(state, { rows, fates: Object.fromEntries(gone.map((orderId, at) => [orderId, known[at]])), names: { ...state.names, ...found.names } });
  return found;
}

// Goods that come in change what can ship.
export const follows = ({ event }, [kind]) => event !== undefined && (kind === undefined || kind === "at" || event.detail.data.orderId !== undefined);

// ---------------------------------------------------------------- handing over

const linesHere = (order, [kind, id]) => movable(order, "fulfil").filter(({ locationId = "" }) => kind !== "at" || locationId === id);

// Hands an order over, or, where another location has lines to ship as well, what this one has.
function handOver(order, ids, reference) {
  const [here, all] = [linesHere(order, ids), movable(order, "fulfil")];
  const part = here.length < all.length ? { stepId: idOf(keyOf(order)), items: unitsIn(here) } : {};
  return carryOut({ action: "fulfil", orderId: order.orderId, ...part, ...(reference && { reference }) });
}

const trackingOf = (state, { orderId }) => (state.chosen.has(orderId) ? state.tracking[orderId]?.trim() : "");

async function handOverSelected(orders, state, ids) {
  let failed = 0;
  const work = async () => {
    for (const [at, order] of orders.entries()) {
      say(SELECTED, T.allOrders.progress(number(at), number(orders.length)));
      try {
        say(keyOf(order), T.done(T.order.work.fulfil(order.orderId), await handOver(order, ids, trackingOf(state, order))));
        changed(keyOf(order));
        state.chosen.delete(order.orderId);
      } catch (error) {
        failed += 1;
        refuse(keyOf(order), T.failed(T.order.work.fulfil(order.orderId), error.message));
      }
    }
    return T.allOrders.progress(number(orders.length - failed), number(orders.length));
  };
  const isDone = await change(SELECTED, T.allOrders.handOver(orders.length), work);
  if (isDone && failed) refuse(SELECTED, `${T.allOrders.progress(number(orders.length - failed), number(orders.length))}. ${T.allOrders.notAll(failed)}`);
}

function act(order, action, state, ids) {
  const { orderId } = order;
  const [here, all] = [linesHere(order, ids), movable(order, "fulfil")];
  const isPart = action === "fulfil" && here.length < all.length;
  const words = isPart ? T.allOrders.workAt(itemsInWords(unitsIn(here), state.names), orderId, locationName({ locationId: ids[1] })) : T.order.work[action](orderId);
  const work = () => (action === "fulfil" ? handOver(order, ids, trackingOf(state, order)) : carryOut({ action, orderId }));
  return change(keyOf(order), words, work);
}

// ---------------------------------------------------------------- the list

function choose(state, orderIds, isChosen) {
  orderIds.forEach((orderId) => (isChosen ? state.chosen.add(orderId) : state.chosen.delete(orderId)));
  redraw();
}

function boxOf(state) {
  return ({ row: { orderId }, isGone }) =>
    html`<input type="checkbox" aria-label=${T.allOrders.select(orderId)} ?disabled=${isGone} .checked=${!isGone && state.chosen.has(orderId)} @change=${(event) => choose(state, [orderId], event.target.checked)}>`;
}

// Enter goes on with the next tracking number: a scanner ends each with it.
function goOn(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const fields = [...document.querySelectorAll("[name=tracking], #hand-over")];
  const at = fields.indexOf(event.target);
  (fields[at + 1] ?? fields[0]).focus();
}

function trackingField({ orderId }, state) {
  const take = (event) => {
    state.tracking[orderId] = event.target.value;
  };
  return html`<input name="tracking" maxlength="128" autocomplete="off" aria-label=${T.allOrders.trackingOf(orderId)} placeholder=${T.allOrders.tracking} value=${state.tracking[orderId] ?? ""} @input=${take} @keydown=${goOn}>`;
}

function actionOf(state, ids) {
  return ({ row, isGone }) => {
    const action = isGone ? undefined : ACTIONS[row.status];
    const text = T.order.actions[action];
    const press = action ? button(text, () => act(row, action, state, ids), { label: T.allOrders.act(text, row.orderId) }) : nothing;
    const tracking = action === "fulfil" && state.chosen.has(row.orderId) ? trackingField(row, state) : nothing;
    return html`<div class="actions">${tracking}${press}${messageOf(keyOf(row))}</div>`;
  };
}

const since = (iso) => (iso ? html`<time datetime=${iso} title=${moment(iso)}>${age(iso)}</time>` : "");

function columnsOf([kind, id], state) {
  const isToShip = kind === undefined || kind === "at";
  const items = (order) => itemsInWords(isToShip ? linesHere(order, [kind, id]) : order.items, state.names);
  const status = ({ row, isGone }) => (isGone ? state.fates[row.orderId] : [statusOf(row, state.names), isToShip ? missingOf(row, state.names) : ""]);
  return [
    isToShip && { text: T.allOrders.action, kind: "box", cell: boxOf(state) },
    { text: T.allOrders.order, kind: "wide", cell: ({ row }) => html`<div>${link(row.orderId, "order", row.orderId)}${kind === "of" ? "" : html`<small>${link(row.userId, "orders", "of", row.userId)}</small>`}</div>` },
    { text: T.allOrders.items, cell: ({ row }) => html`<div>${items(row)}</div>` },
    kind === "held" && { text: T.allOrders.holdEnds, cell: ({ row }) => since(row.expiresAt) },
    { text: isToShip ? T.allOrders.paid : T.allOrders.placed, cell: ({ row }) => since(isToShip ? row.confirmedAt : row.createdAt) },
    { text: T.allOrders.status, cell: (each) => html`<div>${status(each)}</div>` },
    { text: T.allOrders.action, kind: "wide act", cell: actionOf(state, [kind, id]) },
  ].filter(Boolean);
}

function selection(state, ids) {
  const there = state.rows.filter(({ isGone }) => !isGone).map(({ row }) => row);
  const chosen = there.filter(({ orderId }) => state.chosen.has(orderId));
  const able = there.filter((order) => order.shippable).map(({ orderId }) => orderId);
  const onChange = (event) => choose(state, event.target.checked ? able : there.map(({ orderId }) => orderId), event.target.checked);
  const text = chosen.length ? T.allOrders.handOver(chosen.length) : T.allOrders.handOverNone;
  return html`<section class="card selection"><div class="actions">
    ${checkbox("all", T.allOrders.selectAll(number(able.length)), { checked: able.length > 0 && able.every((orderId) => state.chosen.has(orderId)), onChange })}
    ${button(text, () => handOverSelected(chosen, state, ids), { id: "hand-over", kind: "primary", isDisabled: chosen.length === 0 })}
    ${chosen.length ? html`<a class="button" href=${hrefOf("pick", ...chosen.map(({ orderId }) => orderId))}>${T.allOrders.pick}</a>` : nothing}
    ${messageOf(SELECTED)}
  </div></section>`;
}

// One warehouse's list, once any order comes from a location that has a name.
function whereOf([kind, id]) {
  if (kind === "at" && id) locations.add(id);
  if (locations.size === 0) return nothing;
  const names = ["", ...[...locations].sort()].map((locationId) => [locationId, locationName({ locationId })]);
  const onChange = (event) => {
    location.href = event.target.value === EVERYWHERE ? hrefOf("orders") : hrefOf("orders", "at", event.target.value);
  };
  return choice("location", T.allOrders.shipsFrom, [[EVERYWHERE, T.allOrders.everywhere], ...names], { value: kind === "at" ? id : EVERYWHERE, onChange });
}

function tabs(ids) {
  const [kind] = ids;
  const tab = (text, isHere, ...path) => html`<a href=${hrefOf("orders", ...path)} aria-current=${isHere ? "page" : nothing}>${text}</a>`;
  return html`<div class="filters"><div class="tabs" role="navigation" aria-label=${T.allOrders.lists}>
    ${tab(T.allOrders.toShip, kind === undefined || kind === "at")}${tab(T.allOrders.held, kind === "held", "held")}${kind === "of" ? tab(T.allOrders.title.of(ids[1]), true, ...ids) : nothing}
  </div>${kind === undefined || kind === "at" ? whereOf(ids) : nothing}</div>`;
}

export function draw({ orders, isAll, unreadable }, state, ids) {
  const [kind, id] = ids;
  const list = kind === "at" || kind === undefined ? "toShip" : kind;
  const title = kind === "at" ? T.allOrders.title.at(locationName({ locationId: id })) : kind === "of" ? T.allOrders.title.of(id) : T.allOrders.title[list];
  const { rows } = state;
  const readMore = () => {
    state.pages += 1;
    reread();
  };
  const classOf = ({ row, isGone }) => (isGone ? "is-gone" : state.chosen.has(row.orderId) ? "is-chosen" : "");
  const shown = rows.length
    ? [table({ label: title, columns: columnsOf(ids, state), rows, keyOf: idOfRow, classOf }), html`<p class="hint">${T.allOrders.shown(T.orders(orders.length), isAll)}</p>`, isAll ? nothing : button(T.allOrders.more, readMore, { id: "more" })]
    : T.allOrders.none[list];
  return {
    title,
    about: T.allOrders.about[list],
    content: [tabs(ids), unreadable.map((orderId) => problem(T.allOrders.unreadable(orderId))), list === "toShip" && rows.length ? selection(state, ids) : nothing, html`<section class="card orders">${shown}</section>`],
  };
}
