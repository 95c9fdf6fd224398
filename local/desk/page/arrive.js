// Receives what is on the way under a transfer note. What has not arrived stays on the way, or is lost.
import { ownLocations, worksAt } from "./caller.js";
import { addUnits, differenceOf, isFixed, toBook } from "./delivery.js";
import { locationName } from "./format.js";
import { keep, pageOf } from "./goods.js";
import { page, refuse } from "./messages.js";
import { button, card, change, field, form, hint, messageOf, nothing } from "./parts.js";
import { api, command } from "./server.js";
import { T } from "./texts.js";

const LOST = "lost";
const namesIn = (transfers, side) => [...new Set(transfers.flatMap((one) => one[side]))].map((locationId) => locationName({ locationId })).join(", ");

// What the page says of a product stays as it was before its first unit was scanned: so two people who receive it at once book it once.
async function read([reference], state) {
  const { delivery } = state;
  const { transfers } = await api("GET", "/transfers");
  state.transfers = transfers.filter((one) => one.reference === reference);
  // A line may have been added while this was being read for the first time.
  const isKnown = (line) => isFixed(line) || Object.hasOwn(delivery.seen, line.productId);
  const begun = new Set(delivery.lines.filter(isKnown).map(({ productId }) => productId));
  const found = state.transfers.filter(({ productId }) => !begun.has(productId));
  const renewed = (before, name) => Object.fromEntries([...Object.entries(before).filter(([productId]) => begun.has(productId)), ...found.map((one) => [one.productId, one[name]])]);
  Object.assign(delivery, { announced: renewed(delivery.announced, "units"), seen: renewed(delivery.seen, "changedAt") });
  if (begun.size === 0) Object.assign(delivery, { from: namesIn(state.transfers, "from"), sentTo: [...new Set(state.transfers.flatMap(({ to }) => to))] });
  const places = [...state.transfers.flatMap(({ to }) => to), ...(ownLocations() ?? [])];
  delivery.place ??= places.find((locationId) => worksAt({ locationId })) ?? "";
}

function takeAll(state) {
  const { delivery, transfers } = state;
  const isNew = ({ productId }) => !delivery.lines.some((line) => line.productId === productId);
  for (const { productId, units } of transfers.filter(isNew)) addUnits(delivery, productId, units);
  keep(state);
}

// The units have left already, so any location of a product may say that they are lost.
function lose({ delivery, transfers }, { comment }, id) {
  if (toBook(delivery).length > 0) return refuse(LOST, T.arrive.bookFirst);
  const work = async () => {
    for (const { reference, productId, from } of transfers) {
      const locationId = from.find((one) => worksAt({ locationId: one })) ?? delivery.place;
      await command({ action: "adjust", adjustmentId: id, productId, locationId, delta: 0, reason: "TRANSFER_LOST", reference, comment: comment.value.trim() });
    }
    return T.applied;
  };
  return change(LOST, T.arrive.lose(restOf(transfers), delivery.note), work, { warning: T.product.lostWarning, yes: T.arrive.loseButton, kind: "danger" });
}

const restOf = (transfers) => T.units(transfers.reduce((sum, { units }) => sum + units, 0));

function restCard(state) {
  const { transfers, delivery } = state;
  if (transfers.length === 0) return [hint(T.arrive.nothing(delivery.note, ownLocations())), messageOf(LOST)];
  const comment = field(LOST, "comment", T.arrive.comment, { maxLength: 128 });
  return card(T.arrive.rest, hint(T.arrive.restIs(restOf(transfers), transfers.length)), form(LOST, { text: T.arrive.loseButton, kind: "danger", send: (fields, id) => lose(state, fields, id) }, comment));
}

// More than was sent may have come, or elsewhere, but rarely.
function questionOf(delivery, lines) {
  const { place, sentTo } = delivery;
  const more = lines.filter(({ productId }) => differenceOf(delivery, productId) > 0).length;
  const names = sentTo.map((locationId) => locationName({ locationId })).join(", ");
  const isElsewhere = sentTo.length > 0 && !sentTo.includes(place);
  const warning = [isElsewhere && T.arrive.notFor(names, locationName({ locationId: place })), more && T.arrive.tooMany(more)].filter(Boolean).join(" ");
  return warning ? { warning } : undefined;
}

export const { start, read: readPage, scan, draw } = pageOf({
  name: "arrive",
  fields: ["place"],
  first: () => undefined,
  begin: ([reference]) => ({ note: reference, place: undefined, seen: {}, sentTo: [] }),
  next: ({ note }) => ({ note, place: undefined, seen: {}, sentTo: [] }),
  read,
  idOf: ({ note, place, seen }, { productId }) => [note, place, productId, seen[productId] ?? ""],
  adjustmentOf: (_, { units }) => ({ delta: units, reason: "TRANSFER_IN" }),
  questionOf,
  press: (state) => (state.transfers.length ? button(T.arrive.all, () => takeAll(state)) : nothing),
  more: restCard,
});
export { readPage as read };
export const follows = ({ products, isAll }, _, { transfers = [] }) => !isAll || products.some(({ productId }) => transfers.some((one) => one.productId === productId));
