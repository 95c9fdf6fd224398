// What is on the way between locations, by transfer note.
import { cameraOf } from "./camera.js";
import { may } from "./caller.js";
import { age, locationName, moment, number } from "./format.js";
import { refuse } from "./messages.js";
import { hint, hrefOf, html, link, messageOf, nothing, problem, table } from "./parts.js";
import { api } from "./server.js";
import { sound } from "./sound.js";
import { T } from "./texts.js";

const KEY = "transfers";

export const keyOf = ({ reference }) => reference;
export const follows = () => true;
export const read = () => api("GET", "/transfers");

const placesIn = (rows, side) => [...new Set(rows.flatMap((row) => row[side]))];

// The transfers by note, the oldest first.
export function rowsOf({ transfers }) {
  return [...Map.groupBy(transfers, keyOf)].map(([reference, rows]) => ({
    reference,
    from: placesIn(rows, "from"),
    to: placesIn(rows, "to"),
    since: rows[0].since,
    products: rows.length,
    units: rows.reduce((sum, { units }) => sum + units, 0),
  }));
}

const open = (reference) => (location.href = hrefOf("arrive", reference));

// The code on a transfer note opens it.
export function scan(text, { rows }) {
  const found = rows.find(({ reference }) => reference === text.trim());
  if (found) return open(found.reference);
  sound("bad");
  return refuse(KEY, T.transfers.unknown(text.trim()));
}

const names = (places) => places.map((locationId) => locationName({ locationId })).join(", ");

const COLUMNS = [
  { text: T.transfers.note, kind: "wide", cell: ({ reference }) => (may("stock.adjust") ? link(reference, "arrive", reference) : reference) },
  { text: T.product.from, kind: "two", cell: ({ from }) => names(from) },
  { text: T.product.to, kind: "two", cell: ({ to }) => names(to) },
  { text: T.transfers.since, kind: "two", cell: ({ since }) => html`${age(since)}<small>${moment(since)}</small>` },
  { text: T.nav.products, kind: "amount", cell: ({ products }) => number(products) },
  { text: T.pick.units, kind: "amount", cell: ({ units }) => number(units) },
];

export function draw({ completeSince }, { rows }) {
  return {
    controls: may("stock.adjust") ? html`<a class="button" href=${hrefOf("send")}>${T.send.title}</a>` : nothing,
    content: html`<div class="filters">${cameraOf(KEY, (text) => scan(text, { rows }))}</div>${messageOf(KEY)}${completeSince ? problem(T.transfers.notAll(moment(completeSince))) : nothing}
      ${rows.length ? table({ label: T.nav.transfers, columns: COLUMNS, rows, keyOf }) : hint(T.transfers.none)}`,
  };
}
