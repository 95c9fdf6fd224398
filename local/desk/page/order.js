// One order: its status, what can be done with it, its lines, and what happened.
import { barcode } from "./barcode.js";
import { may } from "./caller.js";
import { itemsInWords, locationName, moment, nameOf, number, person } from "./format.js";
import { calledIn, isWhole, missingOf, movable, possible, readOrder, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, checkbox, facts, folded, form, html, link, messageOf, note, notesOf, nothing, problem, repeat, table, units } from "./parts.js";
import { idOf, refuse } from "./messages.js";
import { carryOut } from "./server.js";
import { T } from "./texts.js";

export const read = ([orderId]) => readOrder(orderId);

export const follows = ({ orders, isAll }, [orderId]) => !isAll || orders.includes(orderId);

const isBegun = (order) => order.items.some((item) => item.fulfilled > 0);
const notes = (fields) => notesOf(fields, ["reference", "reason"].filter((name) => fields[name]));

// The one thing that comes next.
function mainAction(order) {
  const { orderId } = order;
  const key = `order ${orderId}`;
  const action = possible(order).find((each) => each in T.order.work);
  if (action === undefined) return messageOf(key);
  const part = () => (isWhole(order) ? {} : { stepId: idOf(key), items: unitsIn(movable(order, action)) });
  const send = (fields) => change(key, T.order.work[action](orderId), () => carryOut({ action, orderId, ...part(), ...notes(fields) }));
  const text = action === "fulfil" && (isBegun(order) || !isWhole(order)) ? T.order.handOverRest : T.order.actions[action];
  return form(key, { text, send, kind: "primary" }, action === "fulfil" ? note(key, "reference", T.order.tracking) : nothing);
}

const warningOf = (restock) => ({ warning: T.order.warning(restock), yes: T.order.yesCancel, kind: "danger" });

// Some units of an order.
function partOf(order, action) {
  const { orderId, names } = order;
  const [key, items, texts] = [`${action} ${orderId}`, movable(order, action), T.order.parts[action]];
  const nameIn = ({ productId }) => `units ${productId}`;
  const send = (fields, stepId) => {
    const part = items.map((item) => ({ ...item, quantity: fields[nameIn(item)].valueAsNumber })).filter((item) => item.quantity > 0);
    if (part.length === 0) return refuse(key, T.order.nothingEntered, [nameIn(items[0])]);
    const restock = !fields.lost?.checked;
    const words = T.order.workPart(T.order.actions[action], itemsInWords(part, names), orderId);
    const command = { action, orderId, stepId, items: unitsIn(part), ...(texts.lost && { restock }), ...notes(fields) };
    return change(key, words, () => carryOut(command), action === "cancel" ? warningOf(restock) : undefined);
  };
  return form(
    key,
    { text: texts.button, send, kind: action === "cancel" ? "danger" : "" },
    repeat(items, nameIn, (item) => units(key, nameIn(item), texts.units(calledIn(names, item)), { max: item.quantity, value: 0 })),
    action === "cancel" ? nothing : note(key, "reference", action === "fulfil" ? T.order.tracking : T.order.reference),
    action === "fulfil" ? nothing : note(key, "reason", T.order.reason),
    texts.lost ? checkbox("lost", texts.lost) : nothing,
  );
}

// Its message is that of the form below it.
function cancelAll(order) {
  const { orderId } = order;
  const press = () => change(`cancel ${orderId}`, T.order.workCancel(orderId), () => carryOut({ action: "cancel", orderId }), warningOf(true));
  return html`<div class="actions">${button(isBegun(order) ? T.order.cancelRest : T.order.cancelAll, press, { kind: "danger" })}</div>`;
}

function partsOf(order) {
  const open = movable(order, "fulfil").reduce((sum, item) => sum + item.quantity, 0);
  const able = possible(order).filter((action) => action !== "fulfil" || open > 1);
  return ["fulfil", "return", "cancel"].filter((action) => may(`orders.${action}`)).map((action) => {
    const all = action === "cancel" && isWhole(order) ? cancelAll(order) : nothing;
    // What came of a form stays, and stays there, when the form has gone.
    const content = able.includes(action) ? [all, partOf(order, action)] : messageOf(`${action} ${order.orderId}`);
    return folded(T.order.parts[action].title, content);
  });
}

function aboutOf({ userId, placedBy, createdAt, expiresAt, confirmedAt, fulfilledAt, confirmationRejected: late, locations = [], locationsAsked = [], split, attributes = {} }) {
  const [from, asked] = [locations, locationsAsked].map((ids) => ids.map((locationId) => locationName({ locationId })).join(", "));
  return facts([
    [T.order.customer, link(userId, "orders", "of", userId)],
    [T.order.placed, moment(createdAt)],
    [T.order.placedBy, person(placedBy)],
    [T.order.holdEnds, moment(expiresAt)],
    [T.order.paid, moment(confirmedAt)],
    [T.order.shipped, moment(fulfilledAt)],
    [T.order.lateAt, moment(late?.at)],
    [T.order.mayComeFrom, split ? T.order.split(from) : from],
    [T.order.lookedAt, asked],
    ...Object.entries(attributes).map(([name, value]) => [name, String(value)]),
  ]);
}

// Without the columns that are empty: those of `name`, which is the attribute that they show.
function listOf(title, columns, rows) {
  const used = columns.filter(({ name }) => name === undefined || rows.some((row) => row[name]));
  return card(title, table({ label: title, columns: used, rows, keyOf: (row) => rows.indexOf(row) }));
}

function linesOf({ items, names }) {
  const amount = (text, attribute, name) => ({ text, name, kind: "amount", cell: (item) => number(item[attribute] ?? 0) });
  const product = ({ productId, locationId }) => link(nameOf(names, productId), "product", ...[productId, locationId].filter(Boolean));
  return listOf(
    T.order.items,
    [
      { text: T.order.product, cell: (item) => html`<div>${product(item)}<small>${item.productId}</small></div>` },
      { text: T.order.location, name: "locationId", cell: locationName },
      amount(T.order.ordered, "quantity"),
      amount(T.order.backordered, "backordered", "backordered"),
      amount(T.order.shipped, "fulfilled"),
      amount(T.order.cancelled, "cancelled", "cancelled"),
      amount(T.order.returned, "returned", "returned"),
    ],
    items,
  );
}

function stepsOf({ steps = [], names }) {
  const what = ({ action, restock }) => T.order.step(T.order.steps[action] ?? action, restock !== false);
  const noted = (text, name) => ({ text, name, cell: (step) => step[name] ?? "" });
  const columns = [
    { text: T.order.when, cell: ({ at }) => moment(at) },
    { text: T.order.what, cell: what },
    { text: T.order.items, name: "items", cell: ({ items = [] }) => itemsInWords(items, names) },
    { text: T.order.by, name: "actor", cell: ({ actor }) => person(actor) },
    noted(T.order.reference, "reference"),
    noted(T.order.reason, "reason"),
  ];
  return steps.length ? listOf(T.order.stepsTitle, columns, steps) : nothing;
}

export function draw(order) {
  return {
    title: T.order.title(order.orderId),
    content: html`${order.confirmationRejected ? problem(T.order.late) : nothing}
      <div class="order">
        <section class="card"><h2 class="status">${statusOf(order)}</h2>${missingOf(order)}${aboutOf(order)}${mainAction(order)}${barcode(order.orderId)}<p>${link(T.labels.print, "labels", "order", order.orderId)}</p></section>${linesOf(order)}
      </div>
      <div class="cards parts">${partsOf(order)}</div>${stepsOf(order)}`,
  };
}
