// What the list of products and the page of one product share.
import { age, inWords, locationName, money, number, priceFault, typedPrice, unitsOf } from "./format.js";
import { change, field, folded, form, html, notesOf, svg, units } from "./parts.js";
import { carryOut } from "./server.js";
import { T } from "./texts.js";

// A product has the first of these statuses that it has at any location.
const BEST_FIRST = ["ACTIVE", "LOW_STOCK", "OUT_OF_STOCK", "DISCONTINUED"];
const SUMS = ["onHand", "committed", "available", "leftToSell", "leftByDefault"];

// A product at all its `places`, as the API adds it up, with its status; or added up here, if its places were read one by one.
export function totalOf({ productId, places, ...sums }) {
  const added = Object.fromEntries(SUMS.map((name) => [name, places.reduce((sum, place) => sum + place[name], 0)]));
  const { name, price } = places.find(({ locationId }) => !locationId) ?? {};
  return { ...added, name, price, ...sums, productId, places, status: BEST_FIRST.find((each) => places.some(({ status }) => status === each)) };
}

// How long ago a product was counted; empty if it never was. It counts as counted when it was listed.
export const ageOfCount = ({ countedAt, createdAt }) => (countedAt === createdAt ? "" : age(countedAt));

// Whether a count is so far from what the books expect that it may be a slip: by more than 20 units, and less than half or more than twice as many.
export const isFarOff = (expected, units) => Math.abs(units - expected) > 20 && (units < expected / 2 || units > expected * 2);

// A product, or its stock at one location, as commands name it.
export const named = ({ productId, locationId }) => (locationId ? { productId, locationId } : { productId });

export const levelOf = ({ status }) => html`<span class="level" data-status=${status}>${T.level[status]}</span>`;

// The locations of a product whose level counts: a shop may leave the default location unused.
export const usedPlaces = ({ places = [] }) => places.filter(({ locationId, onHand, committed }) => locationId || onHand || committed);

// A product has the best level of its locations, so the others are named.
function levelsOf(row) {
  const worse = Map.groupBy(usedPlaces(row).filter(({ status }) => status !== row.status), ({ status }) => status);
  const placesIn = (rows) => rows.map(locationName).join(", ");
  return html`${levelOf(row)}${[...worse].map(([status, rows]) => html`<small>${T.allProducts.levelAt(T.level[status], placesIn(rows))}</small>`)}`;
}

// Units that open orders hold and that are not there are short: on backorder, or lost.
export function stockBar({ onHand, committed, available }) {
  const all = { committed: Math.min(committed, onHand), short: -available, available };
  const parts = Object.entries(all).map(([kind, units]) => [kind, Math.max(0, units)]).filter(([kind, units]) => kind !== "short" || units);
  const whole = Math.max(1, parts.reduce((sum, [, units]) => sum + units, 0));
  let left = 0;
  const drawn = parts.map(([kind, units]) => {
    left += units;
    return svg`<rect class=${kind} x="${(100 * (left - units)) / whole}%" width="${(100 * units) / whole}%" height="100%"></rect>`;
  });
  return html`<svg class="amounts" role="img" aria-label=${parts.map(([kind, units]) => T.pair(T.product[kind], number(units))).join(", ")}>${drawn}</svg>`;
}

export function numbersOf(product) {
  return html`<dl class="stock">${["onHand", "committed", "available"].map((name) => html`<dt>${T.product[name]}</dt><dd>${number(product[name])}</dd>`)}</dl>`;
}

// A location that owes units lowers the sum of the available units, but not the units that the others can sell.
function availableOf({ available, leftToSell, leftByDefault }) {
  const left = leftToSell === Math.max(0, available) ? "" : T.product.left(number(leftToSell));
  const notes = [left, leftToSell && !leftByDefault ? T.product.noneByDefault : ""].filter(Boolean);
  return html`${number(available)}${notes.map((note) => html`<small>${note}</small>`)}`;
}

const amount = (name, cell = (row) => number(row[name])) => ({ text: T.product[name], kind: "amount", cell, sort: (row) => row[name] });

export const STOCK_COLUMNS = [
  { text: T.product.stock, kind: "wide stock-bar", cell: stockBar },
  ...[amount("onHand"), amount("committed"), amount("available", availableOf)],
  // Each location has a threshold of its own.
  { text: T.product.lowStockThreshold, kind: "amount", cell: ({ lowStockThreshold: low }) => (low === undefined ? "" : number(low)) },
  { text: T.product.level, kind: "two", cell: (row) => (row.status ? levelsOf(row) : ""), sort: ({ status }) => Object.keys(T.level).indexOf(status) },
];

export const priceField = (key, units, text = T.product.price) =>
  field(key, "price", T.product.inCurrency(text, money.code), { inputMode: "decimal", faultOf: priceFault, required: units !== undefined, value: typedPrice(units) });

export const priceIn = ({ price }) => (price.value.trim() ? { price: unitsOf(price.value) } : {});

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
