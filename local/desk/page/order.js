// One order: its status, what can be done with it, its lines, and what happened.
import { atLocation, inWords, itemsInWords, locationName, moment, nameOf, number, person } from "./format.js";
import { carryOut, missingOf, movable, possible, statusOf, unitsIn } from "./order_facts.js";
import { button, card, change, checkbox, facts, folded, form, html, link, messageOf, note, notesOf, nothing, problem, table, units } from "./parts.js";
import { refuse } from "./messages.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

export const read = ([orderId]) => ask(`/data/order?id=${encodeURIComponent(orderId)}`);

export const follows = ({ event }, [orderId]) => event?.detail.data.orderId === orderId;

// ---------------------------------------------------------------- what can be done

const isBegun = (order) => order.items.some((item) => item.fulfilled > 0);

// The one thing that comes next.
function mainAction(order) {
  const { orderId } = order;
  const action = possible(order).find((each) => each === "confirm" || each === "fulfil");
  const key = `order ${orderId}`;
  if (action === undefined) return messageOf(key);
  const send = (fields) => change(key, T.order.work[action](orderId), () => carryOut({ action, orderId, ...(fields.reference ? notesOf(fields, ["reference"]) : {}) }));
  const text = action === "fulfil" && isBegun(order) ? T.order.handOverRest : T.order.actions[action];
  return form(key, { text, send, kind: "primary" }, action === "fulfil" ? note(key, "reference", T.order.tracking) : nothing);
}

const warningOf = (restock = true) => ({ warning: T.order.warning(restock), yes: T.order.yesCancel, kind: "danger" });

// Some units of an order. A part has a step id, so that it is not moved twice.
function partOf(order, action) {
  const { orderId, names } = order;
  const [key, items, texts] = [`${action} ${orderId}`, movable(order, action), T.order.parts[action]];
  const send = (fields, stepId) => {
    const quantityOf = ({ productId }) => fields[`units ${productId}`].valueAsNumber;
    const part = items.map((item) => ({ ...item, quantity: quantityOf(item) })).filter((item) => item.quantity > 0);
    if (part.length === 0) return refuse(key, T.order.nothingEntered, [`units ${items[0].productId}`]);
    const restock = texts.lost ? { restock: !fields.lost.checked } : {};
    const command = { action, orderId, stepId, items: unitsIn(part), ...restock, ...notesOf(fields, ["reference", "reason"].filter((name) => fields[name])) };
    return change(key, T.order.workPart(T.order.actions[action], itemsInWords(part, names), orderId), () => carryOut(command), action === "cancel" ? warningOf(restock.restock) : undefined);
  };
  return form(
    key,
    { text: texts.button, send, kind: action === "cancel" ? "danger" : "" },
    items.map((item) => units(key, `units ${item.productId}`, texts.units(nameOf(names, item.productId) + atLocation(item)), { max: item.quantity, value: 0 })),
    action === "cancel" ? nothing : note(key, "reference", action === "fulfil" ? T.order.tracking : T.order.reference),
    action === "fulfil" ? nothing : note(key, "reason", T.order.reason),
    texts.lost ? checkbox("lost", texts.lost) : nothing,
  );
}

function cancelAll(order) {
  const { orderId } = order;
  const [key, text] = [`cancel all ${orderId}`, isBegun(order) ? T.order.cancelRest : T.order.cancelAll];
  const press = () => change(key, T.order.workCancel(orderId), () => carryOut({ action: "cancel", orderId }), warningOf());
  return html`<div class="actions">${button(text, press, { kind: "danger" })}${messageOf(key)}</div>`;
}

function partsOf(order) {
  const able = possible(order);
  const open = movable(order, "fulfil").reduce((sum, item) => sum + item.quantity, 0);
  // What came of a form stays when the form has gone.
  const said = (...keys) => keys.map((key) => messageOf(`${key} ${order.orderId}`));
  return [
    able.includes("fulfil") && open > 1 ? folded(T.order.parts.fulfil.title, partOf(order, "fulfil")) : said("fulfil"),
    able.includes("return") ? folded(T.order.parts.return.title, partOf(order, "return")) : said("return"),
    able.includes("cancel") ? folded(T.order.parts.cancel.title, cancelAll(order), partOf(order, "cancel")) : said("cancel all", "cancel"),
  ];
}

// ---------------------------------------------------------------- what it is

function aboutOf(order) {
  const { userId, createdAt, expiresAt, confirmedAt, fulfilledAt, confirmationRejected: late, locations = [], split, attributes } = order;
  const from = locations.map((locationId) => locationName({ locationId })).join(", ");
  return facts([
    [T.order.customerName, link(userId, "orders", "of", userId)],
    [T.allOrders.placed, moment(createdAt)],
    [T.allOrders.holdEnds, moment(expiresAt)],
    [T.allOrders.paid, moment(confirmedAt)],
    [T.order.shipped, moment(fulfilledAt)],
    [T.order.lateAt, moment(late?.at)],
    [T.order.mayComeFrom, split ? T.order.split(from) : from],
    ...Object.entries(attributes),
  ]);
}

// Columns in which something is, and those of `always`.
const used = (columns, rows) => columns.filter(({ isUsed }) => isUsed === undefined || rows.some(isUsed));

function linesOf({ items, names }) {
  const amount = (text, name, isUsed) => ({ text, kind: "amount", cell: (item) => number(item[name] ?? 0), isUsed });
  const columns = [
    { text: T.order.product, cell: ({ productId, locationId }) => html`<div>${link(nameOf(names, productId), "product", ...[productId, locationId].filter(Boolean))}<small>${productId}</small></div>` },
    { text: T.order.location, cell: locationName, isUsed: (item) => item.locationId },
    amount(T.order.ordered, "quantity"),
    amount(T.order.shipped, "fulfilled"),
    amount(T.order.cancelled, "cancelled", (item) => item.cancelled),
    amount(T.order.returned, "returned", (item) => item.returned),
  ];
  return card(T.allOrders.items, table({ label: T.allOrders.items, columns: used(columns, items), rows: items, keyOf: inWords }));
}

function stepsOf({ steps = [], names }) {
  if (steps.length === 0) return nothing;
  const what = ({ action, restock }) => (restock === false ? T.order.notSold(T.order.steps[action] ?? action) : (T.order.steps[action] ?? action));
  const columns = [
    { text: T.order.when, cell: (step) => moment(step.at) },
    { text: T.order.what, cell: what },
    { text: T.allOrders.items, cell: (step) => itemsInWords(step.items ?? [], names), isUsed: (step) => step.items },
    { text: T.order.by, cell: (step) => person(step.actor), isUsed: (step) => step.actor },
    { text: T.order.reference, cell: (step) => step.reference ?? "", isUsed: (step) => step.reference },
    { text: T.order.reason, cell: (step) => step.reason ?? "", isUsed: (step) => step.reason },
  ];
  return card(T.order.stepsTitle, table({ label: T.order.stepsTitle, columns: used(columns, steps), rows: steps, keyOf: (step) => steps.indexOf(step) }));
}

export function draw(order) {
  const status = statusOf(order);
  return {
    title: T.order.title(order.orderId),
    content: [
      order.confirmationRejected ? problem(T.order.late) : nothing,
      html`<div class="order"><section class="card"><h2 class="status">${status}</h2>${missingOf(order, order.names)}${aboutOf(order)}${mainAction(order)}</section>${linesOf(order)}</div>`,
      html`<div class="cards parts">${partsOf(order)}</div>`,
      stepsOf(order),
    ],
  };
}
