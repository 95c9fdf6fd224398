// Changes of what an order contains: more and fewer units, other products and locations, all at once.
import { about, may, ownLocations } from "./caller.js";
import { locationName, signed, wholeIn } from "./format.js";
import { EVERYWHERE, calledIn, movable, rejectionOf } from "./order_facts.js";
import { choice, change, field, folded, form, html, messageOf, note, notesOf, nothing, repeat, units } from "./parts.js";
import { changed, draftOf } from "./drafts.js";
import { page, refuse } from "./messages.js";
import { carryOut } from "./server.js";
import { T } from "./texts.js";

const MOST_UNITS = 1_000_000;
const unitsOf = ({ productId }) => `units ${productId}`;
const placeOf = ({ productId }) => `place ${productId}`;
const keyOf = ({ orderId }) => `amend ${orderId}`;

const canChange = ({ status }) => status === "PENDING" || (status === "CONFIRMED" && about.amendPaid);

// Where units may come from: one name for each place.
const placesOf = ({ items }) => [...new Set([...(ownLocations() ?? about.locations), ...items.map(({ locationId = "" }) => locationId)])].sort();

// Units that were handed over hold the others where they are.
const moves = (order, line) => placesOf(order).length > 1 && !line.fulfilled;

// A number that is not typed yet changes nothing.
const numberIn = (text = "", otherwise) => (Number.isNaN(wholeIn(text)) ? otherwise : wholeIn(text));

// The lines that differ from the order's as units that shall be open, and the differences in words. `typed` are the values of the fields that differ.
function changesIn(order, typed) {
  const { names, items: all } = order;
  const changes = movable(order, "fulfil").map((line) => {
    const { productId, quantity: before, locationId: here = "" } = line;
    const [quantity, there] = [numberIn(typed[unitsOf(line)], before), typed[placeOf(line)] ?? here];
    const isMoved = there !== here && quantity > 0;
    const words = [quantity !== before && T.order.difference(signed(quantity - before), calledIn(names, line)), isMoved && T.order.moved(calledIn(names, { productId }), locationName({ locationId: there }))];
    return { productId, quantity, ...(isMoved && { locationId: there }), words: words.filter(Boolean) };
  });
  const [productId, quantity, place = EVERYWHERE] = [typed.productId?.trim(), numberIn(typed.quantity, 0), typed.place];
  if (productId && quantity) {
    const where = place === EVERYWHERE ? {} : { locationId: place };
    changes.push({ productId, quantity, ...where, words: [T.order.difference(signed(quantity), calledIn(names, { productId, ...where }))] });
  }
  const items = changes.filter(({ words }) => words.length).map(({ words, ...item }) => item);
  const left = all.reduce((sum, { quantity: ordered, fulfilled = 0, cancelled = 0 }) => sum + ordered - fulfilled - cancelled, 0);
  const less = movable(order, "fulfil").reduce((sum, { quantity: before }) => sum + before, 0) - changes.reduce((sum, { quantity: after }) => sum + after, 0);
  return { items, words: changes.flatMap(({ words }) => words).join(", "), isEmpty: left === less };
}

// Staff see how much is short.
async function amend(command, names) {
  try {
    return await carryOut(command);
  } catch (error) {
    const { code, problem = {} } = error;
    if (problem.shortages || problem.limits) error.message = T.refused(rejectionOf({ items: [], ...problem }, names), code);
    // It is rejected for good, so the next attempt is another change.
    if (problem.status === 409) changed(keyOf(command));
    throw error;
  }
}

function send(order, typed, stepId, fields) {
  const key = keyOf(order);
  const { orderId, version } = order;
  const { items, words, isEmpty } = changesIn(order, typed);
  const isTwice = new Set(items.map(({ productId }) => productId)).size < items.length || movable(order, "fulfil").some(({ productId }) => productId === typed.productId?.trim());
  if (isTwice) return refuse(key, T.order.twice(typed.productId.trim()), ["productId"]);
  if (items.length === 0) return refuse(key, T.order.nothingChanged, []);
  const command = { action: "amend", orderId, stepId, ifVersion: version, items, ...notesOf(fields, ["reason"]) };
  return change(key, T.order.workAmend(orderId, words), () => amend(command, order.names), isEmpty ? { warning: T.order.amendsToNothing, yes: T.order.yesAmend, kind: "danger" } : undefined);
}

export function amendOf(order) {
  const key = keyOf(order);
  const { title, button: text } = T.order.parts.amend;
  if (!may("orders.amend")) return nothing;
  if (!canChange(order)) return folded(title, messageOf(key));
  const places = placesOf(order).map((locationId) => [locationId, locationName({ locationId })]);
  const lines = movable(order, "fulfil");
  const lineOf = (line) => html`${units(key, unitsOf(line), T.order.parts.amend.units(calledIn(order.names, line)), { max: MOST_UNITS, value: line.quantity })}
    ${moves(order, line) ? choice(placeOf(line), T.order.from(calledIn(order.names, { productId: line.productId })), places, { value: line.locationId ?? "" }) : nothing}`;
  const other = [
    field(key, "productId", T.order.addProduct, { required: false, maxLength: 64 }),
    units(key, "quantity", T.order.addUnits, { required: false, min: 1, max: MOST_UNITS }),
    places.length > 1 ? choice("place", T.order.addFrom, [[EVERYWHERE, T.order.wherever], ...places]) : nothing,
  ];
  const { words } = changesIn(order, draftOf(key).values);
  const typedIn = (fields) => Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name, value]));
  return folded(
    title,
    html`<div @input=${page.draw}>${form(
      key,
      { text, send: (fields, stepId) => send(order, typedIn(fields), stepId, fields) },
      repeat(lines, unitsOf, lineOf),
      other,
      note(key, "reason", T.order.reason),
      html`<p role="status">${words ? T.order.willChange(words) : T.order.nothingYet}</p>`,
    )}</div>`,
  );
}
