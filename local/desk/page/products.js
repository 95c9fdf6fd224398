// All products: what there is of each, and how much of it is promised.
import { may } from "./caller.js";
import { atLocation, locationName, price } from "./format.js";
import { page } from "./messages.js";
import { button, card, choice, hrefOf, html, labelled, link, nothing, problem, sortChoice, sorted, table } from "./parts.js";
import { api } from "./server.js";
import { STOCK_COLUMNS, listing, totalOf, usedPlaces } from "./stock.js";
import { T } from "./texts.js";

const LEVELS = { PROMISED: T.allProducts.promised, ...T.level };

// A row is a product, or the stock of one at a location.
export const keyOf = ({ placeOf = "", locationId = "", productId }) => `${placeOf && "#"}${productId ?? ""}#${locationId}`;
const nameIn = ({ name, productId }) => name ?? productId;
const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

// A level of any location counts.
function isAsked(product, { text, level }) {
  const isAt = (one) => level === "" || (level === "PROMISED" ? one.available < 0 : one.status === level);
  const isFound = `${product.productId} ${product.name ?? ""}`.toLowerCase().includes(text.trim().toLowerCase());
  return isFound && [product, ...usedPlaces(product)].some(isAt);
}

// Those that are shown stay, and may not be what was asked for any more.
export function rowsOf({ products }, state, shown = []) {
  const kept = new Set(shown.map(keyOf));
  return sorted(products.filter((one) => kept.has(keyOf(one)) || isAsked(one, state)), COLUMNS, state.sort);
}

export function start(state, [level = ""]) {
  Object.assign(state, { pages: 1, text: "", level: Object.hasOwn(LEVELS, level) ? level : "", open: new Set(), ...state });
}

// The most urgent ones first.
const STATUSES = ["OUT_OF_STOCK", "LOW_STOCK", "ACTIVE", "DISCONTINUED"];
const ROWS_OF_A_PAGE = 100;
const rank = ({ status }) => STATUSES.indexOf(status);

// The first pages of the levels with a status, which are sorted by id, and the id up to which they are known.
async function levelsWith(status, pages) {
  const found = { products: [], unreadable: [] };
  for (let [at, cursor] = [0]; at < pages; at += 1) {
    const page = await api("GET", "/stock", { query: { status, limit: ROWS_OF_A_PAGE, cursor } });
    for (const name of Object.keys(found)) found[name].push(...page[name]);
    cursor = page.next;
    if (cursor === undefined) return found;
  }
  return { ...found, last: found.products.at(-1)?.productId ?? "" };
}

// Names and prices are in the products' own rows, which may not be among those that were read.
async function named(products) {
  const ids = products.filter(({ name, locationId }) => name === undefined && locationId).map(({ productId }) => productId);
  if (!may("products.read") || ids.length === 0) return products;
  const found = await api("GET", "/products", { query: { ids: [...new Set(ids)].slice(0, ROWS_OF_A_PAGE).join(",") } });
  const details = new Map(found.products.map(({ productId, name, price: amount }) => [productId, { name, price: amount }]));
  return products.map((one) => ({ ...details.get(one.productId), ...one }));
}

// A product is shown with all its locations if all are known: lists with many rows are read page by page. Otherwise, each level is a row.
export async function read(_, state) {
  const lists = await Promise.all(STATUSES.map((status) => levelsWith(status, state.pages)));
  const ends = lists.flatMap(({ last }) => (last === undefined ? [] : [last]));
  const isWhole = (productId) => ends.every((end) => productId < end);
  const groups = Map.groupBy(lists.flatMap(({ products }) => products), ({ productId }) => productId);
  const rows = [...groups].flatMap(([productId, places]) => {
    if (places.length === 1 || !isWhole(productId)) return places;
    places.sort((one, other) => (one.locationId ?? "").localeCompare(other.locationId ?? ""));
    return [totalOf({ productId, places })];
  });
  rows.sort((one, other) => rank(one) - rank(other) || (keyOf(one) < keyOf(other) ? -1 : 1));
  return { products: await named(rows), unreadable: lists.flatMap(({ unreadable }) => unreadable), isAll: ends.length === 0 };
}

export const follows = ({ products, isAll }) => !isAll || products.length > 0;

function placesOf({ productId, places, open }) {
  if (places === undefined) return nothing;
  const toggle = () => {
    if (!open.delete(productId)) open.add(productId);
    page.draw();
  };
  const label = T.allProducts.placesOf(places.length, productId);
  return html`<button type="button" class="fold" aria-expanded=${open.has(productId)} aria-label=${label} @click=${toggle}>${T.allProducts.places(places.length)}</button>`;
}

function productOf(row) {
  if (row.total !== undefined) return html`<strong>${T.allProducts.total(row.total)}</strong>`;
  if (row.placeOf) return link(locationName(row), "product", row.placeOf, ...(row.locationId ? [row.locationId] : []));
  if (row.isGone) return T.allProducts.gone(nameIn(row) + atLocation(row));
  const path = [row.productId, row.locationId].filter(Boolean);
  return html`${link(nameIn(row) + atLocation(row), "product", ...path)} ${row.name ? html`<small>${row.productId}</small>` : nothing}${placesOf(row)}`;
}

const COLUMNS = [
  { text: T.allProducts.product, kind: "wide two", cell: productOf, sort: nameIn },
  { text: T.product.price, kind: "amount", cell: (row) => (row.placeOf ? "" : price(row.price)), sort: (row) => row.price ?? -1 },
  ...STOCK_COLUMNS,
];

// A product, and its locations if they are open.
function withPlaces(row, open) {
  const places = open.has(row.productId) && !row.isGone ? (row.places ?? []) : [];
  return [{ ...row, open }, ...places.map((place) => ({ ...place, placeOf: row.productId }))];
}

// The last row is about all that are found, listed or not.
function listOf({ rows, sort, open }, onSort) {
  const there = rows.filter(({ isGone }) => !isGone);
  const sums = ["onHand", "committed", "available", "leftToSell", "leftByDefault"].map((name) => [name, sum(there, name)]);
  const total = { total: there.length, ...Object.fromEntries(sums) };
  return table({
    label: T.nav.products,
    columns: COLUMNS,
    rows: [...rows.flatMap((row) => withPlaces(row, open)), total],
    keyOf,
    classOf: (row) => (row.isGone ? "is-gone" : row.placeOf ? "place" : row === total ? "total" : ""),
    sort,
    onSort,
  });
}

export function draw({ products, unreadable, isAll }, state) {
  const { text, level, sort, rows } = state;
  const choose = (chosen) => {
    Object.assign(state, chosen);
    page.arrange();
    page.draw();
  };
  const clear = () => {
    choose({ text: "", level: "" });
    document.getElementById("filter").focus();
  };
  const onSort = (by) => choose({ sort: by });
  const filter = html`<input id="filter" type="search" autocomplete="off" .value=${text} @input=${({ target }) => choose({ text: target.value })} @scan=${({ detail }) => choose({ text: detail })}>`;
  const all = Object.entries({ "": T.allProducts.all, ...LEVELS });
  const levels = choice("level", T.allProducts.show, all, { value: level, onChange: ({ target }) => choose({ level: target.value }) });
  const found = [T.allProducts.found(rows.length, products.length), isAll ? "" : T.allProducts.notAll].filter(Boolean).join(". ");
  const showMore = () => {
    state.pages += 1;
    page.read();
  };
  const none = html`<p>${T.allProducts.none(text.trim(), LEVELS[level])}</p>${text || level ? button(T.allProducts.clear, clear) : nothing}`;
  return {
    controls: may("stock.adjust") ? html`<a class="button" href=${hrefOf("receive")}>${T.receive.title}</a>` : nothing,
    content: [
      unreadable.map((name) => problem(T.allProducts.leftOut(name))),
      html`<div class="filters">${labelled(T.allProducts.filter, filter)}${levels}${sortChoice(COLUMNS, sort, onSort)}<p class="hint" role="status">${found}</p></div>`,
      html`<section class="card">${rows.length ? listOf(state, onSort) : none}${isAll ? nothing : button(T.allProducts.more, showMore)}</section>`,
      may("products.write") ? listing() : nothing,
    ],
  };
}
