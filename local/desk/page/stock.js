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

// Units that open orders hold and that are not there are short: on backorder, or lost.
export function stockBar({ onHand, committed, available }) {
  const [there, short, free] = [Math.min(committed, onHand), -available, available].map((units) => Math.max(0, units));
  const parts = [["committed", there, T.product.committed], ["short", short, T.product.short], ["available", free, T.product.available]];
  return bar(parts.filter(([kind, units]) => kind !== "short" || units), there + short + free);
}

export function numbersOf(product) {
  return html`<dl class="stock">${["onHand", "committed", "available"].map((name) => html`<dt>${T.product[name]}</dt><dd>${number(product[name])}</dd>`)}</dl>`;
}

const amount = (name) => ({ text: T.product[name], kind: "amount", cell: ({ row }) => number(row[name]), sort: ({ row }) => row[name] });

export const STOCK_COLUMNS = [
  { text: T.product.stock, kind: "wide stock-bar", cell: ({ row }) => stockBar(row) },
  ...["onHand", "committed", "available"].map(amount),
  // Each location has a threshold of its own.
  { text: T.product.lowStockThreshold, kind: "amount", cell: ({ row }) => (row.lowStockThreshold === undefined ? "" : number(row.lowStockThreshold)) },
  { text: T.product.level, kind: "two", cell: ({ row }) => (row.status ? levelOf(row) : ""), sort: ({ row }) => Object.keys(T.level).indexOf(row.status) },
];

export function priceField(key, cents, text = T.product.price) {
  const value = cents === undefined ? "" : (cents / 100).toFixed(2);
  return field(key, "price", text, { type: "number", min: 0, max: 10_000_000, step: "0.01", required: value !== "", value });
}

export const priceIn = ({ price }) => (price.value === "" ? {} : { price: Math.round(price.valueAsNumber * 100) });

// Lists a new product, or a product at another location.
export function listing(productId) {
  const { listNew, listThere, listButton, list, fields: texts } = T.allProducts;
  const key = `list ${productId ?? ""}`;
  const create = (fields) => {
    const product = productId ? { productId, ...notesOf(fields, ["locationId"]) } : { ...notesOf(fields, ["productId", "name"]), ...priceIn(fields) };
    const stock = { openingStock: fields.openingStock.valueAsNumber, lowStockThreshold: fields.lowStockThreshold.valueAsNumber };
    return change(key, list(inWords(product)), () => carryOut({ action: "create", ...product, ...stock }));
  };
  const details = [field(key, "productId", texts.id), field(key, "name", texts.name, { required: false, maxLength: 200 }), priceField(key, undefined, texts.price)];
  const where = field(key, "locationId", texts.locationId, { maxLength: 32 });
  const stock = [units(key, "openingStock", texts.openingStock, { value: 0 }), units(key, "lowStockThreshold", T.product.lowStockThreshold, { value: 0 })];
  return folded(productId ? listThere : listNew, form(key, { text: listButton, send: create }, productId ? where : details, stock));
}
