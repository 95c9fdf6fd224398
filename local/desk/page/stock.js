// What the list of products and the page of one product share.
import { inWords, number } from "./format.js";
import { bar, change, field, folded, form, html, notesOf, units } from "./parts.js";
import { send } from "./server.js";
import { T } from "./texts.js";

// A product, or its stock at one location, as commands name it.
export const named = ({ productId, locationId }) => (locationId ? { productId, locationId } : { productId });

export async function carryOut(command) {
  const { result } = await send(command);
  return result === "APPLIED" ? T.applied : T.outcomes[result];
}

export const levelOf = ({ status }) => html`<span class="level" data-status=${status}>${T.level[status]}</span>`;

// Units of open orders that are not there are short: on backorder, or lost.
export function stockBar({ onHand, committed, available }) {
  const short = Math.max(0, -available);
  const parts = [["committed", Math.max(0, Math.min(committed, onHand)), T.product.committed], ["available", Math.max(0, available), T.product.available]];
  if (short) parts.splice(1, 0, ["short", short, T.product.short]);
  return bar(parts, parts.reduce((sum, [, amount]) => sum + amount, 0));
}

export function numbersOf({ onHand, committed, available }) {
  const numbers = [[T.product.onHand, onHand], [T.product.committed, committed], [T.product.available, available]];
  return html`<dl class="stock">${numbers.map(([name, amount]) => html`<dt>${name}</dt><dd>${number(amount)}</dd>`)}</dl>`;
}

const amount = (text, name) => ({ text, kind: "amount", cell: ({ row }) => number(row[name]), sort: ({ row }) => row[name] });
const LEVELS = Object.keys(T.level);

export const STOCK_COLUMNS = [
  { text: T.product.stock, kind: "wide stock-bar", cell: ({ row }) => stockBar(row) },
  amount(T.product.onHand, "onHand"),
  amount(T.product.committed, "committed"),
  amount(T.product.available, "available"),
  // Each location has a threshold of its own.
  { text: T.product.lowAt, kind: "amount", cell: ({ row }) => (row.lowStockThreshold === undefined ? "" : number(row.lowStockThreshold)) },
  { text: T.product.level, kind: "two", cell: ({ row }) => (row.status ? levelOf(row) : ""), sort: ({ row }) => LEVELS.indexOf(row.status) },
];

export function priceField(key, cents, text = T.product.price) {
  return field(key, "price", text, { type: "number", min: 0, max: 10_000_000, step: "0.01", required: cents !== undefined, value: cents === undefined ? "" : (cents / 100).toFixed(2) });
}

export function priceIn({ price }) {
  return price.value === "" ? {} : { price: Math.round(price.valueAsNumber * 100) };
}

// Lists a new product, or a product at another location.
export function listing(productId) {
  const isNew = productId === undefined;
  const key = `list ${productId ?? ""}`;
  const list = (fields) => {
    const id = fields[isNew ? "productId" : "locationId"].value.trim();
    const stock = { openingStock: fields.openingStock.valueAsNumber, lowStockThreshold: fields.lowStockThreshold.valueAsNumber };
    const product = isNew ? { productId: id, ...notesOf(fields, ["name"]), ...priceIn(fields) } : { productId, locationId: id };
    return change(key, T.product.list(inWords(product)), () => carryOut({ action: "create", ...product, ...stock }));
  };
  const first = isNew
    ? [field(key, "productId", T.product.id), field(key, "name", T.product.nameOptional, { required: false, maxLength: 200 }), priceField(key, undefined, T.product.priceOptional)]
    : field(key, "locationId", T.product.locationId, { maxLength: 32 });
  return folded(
    isNew ? T.product.listNew : T.product.listThere,
    form(key, { text: T.product.listButton, send: list }, first, units(key, "openingStock", T.product.openingStock, { value: 0 }), units(key, "lowStockThreshold", T.product.lowAt, { value: 0 })),
  );
}
