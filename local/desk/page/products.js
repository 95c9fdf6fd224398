// All products: what there is of each, and how much of it is promised.
import { locationName, number, price } from "./format.js";
import { redraw } from "./messages.js";
import { button, card, choice, html, labelled, link, nothing, problem, sortChoice, sorted, steady, table } from "./parts.js";
import { ask } from "./server.js";
import { STOCK_COLUMNS, listing } from "./stock.js";
import { T } from "./texts.js";

const MOST_ROWS = 300; // the filter finds the others
const LEVELS = { PROMISED: T.allProducts.promised, ...T.level };

const keyOf = ({ productId }) => productId;
const nameIn = ({ name, productId }) => name ?? productId;
const sum = (rows, name) => rows.reduce((total, { row }) => total + row[name], 0);

// A level of any location counts, but for a default location that a shop does not use.
function isAsked(product, { text, level }) {
  const isUsed = ({ locationId, onHand, committed }) => locationId || onHand || committed;
  const isAt = (one) => level === "" || (level === "PROMISED" ? one.available < 0 : one.status === level);
  const isFound = `${product.productId} ${product.name ?? ""}`.toLowerCase().includes(text.trim().toLowerCase());
  return isFound && [product, ...(product.places ?? []).filter(isUsed)].some(isAt);
}

// Afresh, or with the rows that are shown where they are.
function arrange(state, isAfresh = true) {
  const kept = new Set(isAfresh ? [] : state.rows.map(({ row }) => row.productId));
  const found = state.products.filter((one) => kept.has(one.productId) || isAsked(one, state));
  state.rows = isAfresh ? sorted(steady(undefined, found, keyOf), COLUMNS, state.sort) : steady(state.rows, found, keyOf);
}

export function start(state, [level = ""]) {
  Object.assign(state, { text: "", level, open: new Set(), ...state });
}

export async function read(_, state) {
  const { products, unreadable } = await ask("/data/products");
  state.products = products;
  arrange(state, state.rows === undefined);
  return unreadable;
}

// Every event is about an order or a product.
export const follows = ({ event }) => event !== undefined;

// ---------------------------------------------------------------- drawing

function placesOf({ productId, places, open }) {
  if (places === undefined) return nothing;
  const toggle = () => {
    if (!open.delete(productId)) open.add(productId);
    redraw();
  };
  const label = T.allProducts.placesOf(places.length, productId);
  return html`<button type="button" class="fold" aria-expanded=${open.has(productId)} aria-label=${label} @click=${toggle}>${T.allProducts.places(places.length)}</button>`;
}

function productOf({ row, isGone }) {
  if (row.total !== undefined) return html`<strong>${T.allProducts.total(row.total)}</strong>`;
  if (row.placeOf) return link(locationName(row), "product", row.placeOf, ...(row.locationId ? [row.locationId] : []));
  if (isGone) return T.allProducts.gone(nameIn(row));
  return html`${link(nameIn(row), "product", row.productId)} ${row.name ? html`<small>${row.productId}</small>` : nothing}${placesOf(row)}`;
}

const COLUMNS = [
  { text: T.allProducts.product, kind: "wide two", cell: productOf, sort: ({ row }) => nameIn(row) },
  { text: T.product.price, kind: "amount", cell: ({ row }) => (row.placeOf ? "" : price(row.price)), sort: ({ row }) => row.price ?? -1 },
  ...STOCK_COLUMNS,
];

// A product, and its locations if they are open.
function rowsOf({ row, isGone }, open) {
  const places = open.has(row.productId) && !isGone ? (row.places ?? []) : [];
  return [{ row: { ...row, open }, isGone, kind: isGone ? "is-gone" : "" }, ...places.map((place) => ({ row: { ...place, placeOf: row.productId }, kind: "place" }))];
}

// The last row is about all that are found, listed or not.
function listOf({ rows, sort, open }, onSort) {
  const there = rows.filter(({ isGone }) => !isGone);
  const total = { total: there.length, onHand: sum(there, "onHand"), committed: sum(there, "committed"), available: sum(there, "available") };
  return table({
    label: T.allProducts.title,
    columns: COLUMNS,
    rows: [...rows.slice(0, MOST_ROWS).flatMap((row) => rowsOf(row, open)), { row: total, kind: "total" }],
    keyOf: ({ row }) => (row.placeOf ? `${row.placeOf}#${row.locationId ?? ""}` : row.productId),
    classOf: ({ kind }) => kind,
    sort,
    onSort,
  });
}

export function draw(unreadable, state) {
  const { text, level, sort, rows, products } = state;
  const choose = (chosen) => {
    Object.assign(state, chosen);
    arrange(state);
    redraw();
  };
  const clear = () => {
    choose({ text: "", level: "" });
    document.getElementById("filter").focus();
  };
  const onSort = (by) => choose({ sort: by });
  const filter = html`<input id="filter" type="search" autocomplete="off" .value=${text} @input=${({ target }) => choose({ text: target.value })}>`;
  const all = Object.entries({ "": T.allProducts.all, ...LEVELS });
  const levels = choice("level", T.allProducts.show, all, { value: level, onChange: ({ target }) => choose({ level: target.value }) });
  const found = [T.allProducts.found(rows.length, products.length), rows.length > MOST_ROWS ? T.allProducts.more(MOST_ROWS) : ""].filter(Boolean).join(". ");
  const none = html`<p>${T.allProducts.none(text.trim(), LEVELS[level])}</p>${text || level ? button(T.allProducts.clear, clear) : nothing}`;
  return {
    title: T.allProducts.title,
    about: T.allProducts.about,
    content: [
      Object.values(unreadable).map((why) => problem(T.allProducts.leftOut(why))),
      html`<div class="filters">${labelled(T.allProducts.filter, filter)}${levels}${sortChoice(COLUMNS, sort, onSort)}<p class="hint" role="status">${found}</p></div>`,
      html`<section class="card">${rows.length ? listOf(state, onSort) : none}</section>`,
      listing(),
    ],
  };
}
