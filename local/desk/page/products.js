// All products: what there is of each, and how much of it is promised.
import { locationName, number, price } from "./format.js";
import { redraw } from "./messages.js";
import { button, card, choice, html, labelled, link, nothing, problem, sortChoice, sorted, steady, table } from "./parts.js";
import { ask } from "./server.js";
import { STOCK_COLUMNS, listing } from "./stock.js";
import { T } from "./texts.js";

const MOST_ROWS = 300; // the filter finds the others
const PROMISED = "PROMISED";
const SUMS = ["onHand", "committed", "available"];

const keyOf = ({ productId }) => productId;
const nameIn = ({ name, productId }) => name ?? productId;

// ---------------------------------------------------------------- what is shown

// A level of any location counts, but for a default location that a shop does not use.
function isAsked(product, { text, level }) {
  const isUsed = ({ locationId, onHand, committed }) => locationId || onHand || committed;
  const isAt = (one) => (level === PROMISED ? one.available < 0 : level === "" || one.status === level);
  return [product, ...(product.places ?? []).filter(isUsed)].some(isAt) && `${product.productId} ${product.name ?? ""}`.toLowerCase().includes(text.trim().toLowerCase());
}

// Afresh, or keeping the rows that are shown in their places.
function arrange(state, isAfresh = true) {
  const kept = new Set(isAfresh ? [] : state.rows.map(({ row }) => row.productId));
  const found = state.products.filter((one) => kept.has(one.productId) || isAsked(one, state));
  state.rows = isAfresh ? sorted(steady(undefined, found, keyOf), COLUMNS, state.sort) : steady(state.rows, found, keyOf);
}

export function start(state, [level = ""]) {
  state.text ??= "";
  state.level ??= level;
  state.open ??= new Set();
}

export async function read(_, state) {
  const { products, unreadable } = await ask("/data/products");
  state.products = products;
  arrange(state, state.rows === undefined);
  return unreadable;
}

// Every event is about an order or a product.
export const follows = ({ event }) => event !== undefined;

function choose(state, chosen) {
  Object.assign(state, chosen);
  arrange(state);
  redraw();
}

// ---------------------------------------------------------------- drawing

function placesOf({ productId, places, open }) {
  if (places === undefined) return nothing;
  const toggle = () => {
    if (!open.delete(productId)) open.add(productId);
    redraw();
  };
  return html`<button type="button" class="fold" aria-expanded=${open.has(productId)} aria-label=${T.allProducts.placesOf(places.length, productId)} @click=${toggle}>${T.allProducts.places(places.length)}</button>`;
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

function rowsOf({ row, isGone }, open) {
  const places = open.has(row.productId) && !isGone ? (row.places ?? []) : [];
  return [{ row: { ...row, open }, isGone }, ...places.map((place) => ({ row: { ...place, placeOf: row.productId } }))];
}

// Of all that are found, shown or not.
function totalOf(rows) {
  const there = rows.filter(({ isGone }) => !isGone).map(({ row }) => row);
  return { row: { total: there.length, ...Object.fromEntries(SUMS.map((name) => [name, there.reduce((sum, one) => sum + one[name], 0)])) } };
}

function listOf({ rows, sort, open, ...state }, clear) {
  if (rows.length === 0) return html`<p>${T.allProducts.none(state.text.trim(), T.allProducts.levels[state.level] ?? "")}</p>${state.text || state.level ? button(T.allProducts.clear, clear) : nothing}`;
  return table({
    label: T.allProducts.title,
    columns: COLUMNS,
    rows: [...rows.slice(0, MOST_ROWS).flatMap((row) => rowsOf(row, open)), totalOf(rows)],
    keyOf: ({ row }) => (row.placeOf ? `${row.placeOf}#${row.locationId ?? ""}` : row.productId),
    classOf: ({ row, isGone }) => (isGone ? "is-gone" : row.placeOf ? "place" : row.total === undefined ? "" : "total"),
    sort,
    onSort: state.onSort,
  });
}

export function draw(unreadable, state) {
  const { text, level, sort, rows, products } = state;
  const onSort = (by) => choose(state, { sort: by });
  const clear = () => {
    choose(state, { text: "", level: "" });
    document.getElementById("filter").focus();
  };
  const filter = html`<input id="filter" type="search" autocomplete="off" .value=${text} @input=${({ target }) => choose(state, { text: target.value })}>`;
  const levels = choice("level", T.allProducts.show, [["", T.allProducts.all], ...Object.entries(T.allProducts.levels)], { value: level, onChange: ({ target }) => choose(state, { level: target.value }) });
  const more = rows.length > MOST_ROWS ? T.allProducts.more(MOST_ROWS) : "";
  return {
    title: T.allProducts.title,
    about: T.allProducts.about,
    content: [
      Object.values(unreadable).map((why) => problem(T.allProducts.leftOut(why))),
      html`<div class="filters">${labelled(T.allProducts.filter, filter)}${levels}${sortChoice(COLUMNS, sort, onSort)}
        <p class="hint" role="status">${T.allProducts.found(rows.length, products.length)} ${more}</p></div>`,
      html`<section class="card">${listOf({ ...state, onSort }, clear)}</section>`,
      listing(),
    ],
  };
}
