// The report of a stocktake: what was counted, by whom, and how it differs from the books, and what was not counted. Address: #/stocktake/<name>.
import { saveRows } from "./csv.js";
import { locationName, moment, nameOf, number, person, signed } from "./format.js";
import { page } from "./messages.js";
import { namesOf } from "./order_facts.js";
import { button, card, facts, hint, hrefOf, html, link, problem, sortChoice, sorted, table } from "./parts.js";
import { pagesOf } from "./server.js";
import { ageOfCount } from "./stock.js";
import { T } from "./texts.js";

const [MOST_PAGES, MOST_PAGES_DUE] = [50, 5]; // of counts, and of products at a place that were not counted
const MOST_FOLLOWED = 200; // counts

async function countsOf(reference) {
  const counts = [];
  let isAll = true;
  let pages = 0;
  for await (const { counts: some, next } of pagesOf("/counts", { reference })) {
    counts.push(...some);
    pages += 1;
    isAll = next === undefined;
    if (pages === MOST_PAGES) break;
  }
  return { counts, isAll };
}

// Products at a place that were last counted before the stocktake began. The list begins with those.
async function notCountedAt(locationId, since) {
  const found = [];
  let pages = 0;
  for await (const { counts, next } of pagesOf("/counts", { locationId })) {
    const left = counts.filter(({ countedAt }) => countedAt < since);
    found.push(...left);
    pages += 1;
    if (left.length < counts.length || next === undefined) return { found, isAll: true };
    if (pages === MOST_PAGES_DUE) break;
  }
  return { found, isAll: false };
}

const madeAt = ({ countedAt, appliedAt }) => countedAt ?? appliedAt;
const expectedOf = ({ counted, delta }) => counted - delta;

export async function read([name = ""], state) {
  if (!name.trim()) throw new Error(T.stocktake.noReport);
  const { counts, isAll } = await countsOf(name);
  state.isLong = counts.length > MOST_FOLLOWED;
  const since = counts.map(madeAt).sort()[0];
  const places = [...new Set(counts.map(({ locationId = "" }) => locationId))].sort();
  const left = await Promise.all(places.map((place) => notCountedAt(place, since)));
  const missing = left.flatMap(({ found }) => found);
  state.names = await namesOf([{ items: [...counts, ...missing] }], state.names);
  return { counts, isAll, missing, areAllMissing: left.every((each) => each.isAll) };
}

// A long list is not read again and again.
export const follows = ({ products, isAll }, _, { isLong }) => !isLong && (!isAll || products.length > 0);

function columnsOf(names) {
  const product = ({ productId, locationId }) => html`<div>${link(nameOf(names, productId), "product", productId, ...(locationId ? [locationId] : []))}<small>${productId}</small></div>`;
  const amount = (text, valueOf, shown = number) => ({ text, kind: "amount", cell: (row) => shown(valueOf(row)), sort: valueOf });
  return [
    { text: T.order.product, kind: "wide", cell: product, sort: ({ productId }) => nameOf(names, productId) },
    amount(T.stocktake.expectedUnits, expectedOf),
    amount(T.stocktake.counted, ({ counted }) => counted),
    amount(T.receive.difference, ({ delta }) => delta, (delta) => html`<span class=${delta ? "warn" : ""}>${signed(delta)}</span>`),
    { text: T.order.location, kind: "two", cell: (row) => locationName(row), sort: ({ locationId = "" }) => locationId },
    { text: T.order.by, kind: "two", cell: ({ actor }) => person(actor), sort: ({ actor = "" }) => person(actor) },
    { text: T.order.when, kind: "two", cell: (row) => moment(madeAt(row)), sort: madeAt },
  ];
}

const CSV = ["productId", "name", "locationId", "expected", "counted", "difference", "actor", "countedAt", "bookedAt", "adjustmentId"];
const cellsOf = (names) => (row) => [row.productId, nameOf(names, row.productId), row.locationId ?? "", expectedOf(row), row.counted, row.delta, row.actor, row.countedAt, row.appliedAt, row.adjustmentId];

function sumsOf(counts) {
  const differing = counts.filter(({ delta }) => delta !== 0);
  const [more, fewer] = [Math.max, Math.min].map((pick) => differing.reduce((sum, { delta }) => sum + pick(0, delta), 0));
  return facts([
    [T.stocktake.counts, number(counts.length)],
    [T.stocktake.differing, number(differing.length)],
    [T.stocktake.surplus, signed(more)],
    [T.stocktake.shortfall, signed(fewer)],
  ]);
}

function missingOf({ missing, areAllMissing }, names) {
  const columns = [
    { text: T.order.product, kind: "wide", cell: ({ productId }) => html`<div>${nameOf(names, productId)}<small>${productId}</small></div>` },
    { text: T.order.location, kind: "two", cell: (row) => locationName(row) },
    { text: T.stocktake.lastCounted, kind: "amount", cell: (row) => ageOfCount(row) || T.stocktake.never },
  ];
  const keyOf = ({ productId, locationId = "" }) => `${productId}#${locationId}`;
  const list = missing.length ? table({ label: T.stocktake.missing, columns, rows: missing, keyOf }) : hint(T.stocktake.noneMissing);
  return card(T.stocktake.missing, list, areAllMissing ? "" : hint(T.stocktake.notAll));
}

export function draw(found, state, [name = ""]) {
  const { counts, isAll, missing } = found;
  const { names, sort } = state;
  const columns = columnsOf(names);
  const onSort = (by) => {
    state.sort = by;
    page.draw();
  };
  const rows = sorted(counts, columns, sort);
  const unknown = missing.map(({ productId, locationId = "", ...row }) => [productId, nameOf(names, productId), locationId, "", "", "", "", ageOfCount(row) && row.countedAt, "", ""]);
  const save = () => saveRows([CSV, ...counts.map(cellsOf(names)), ...unknown], name);
  const keyOf = ({ productId, locationId = "", adjustmentId }) => `${productId}#${locationId} ${adjustmentId}`;
  const list = rows.length ? html`${sortChoice(columns, sort, onSort)}${table({ label: T.stocktake.counted, columns, rows, keyOf, sort, onSort })}` : hint(T.stocktake.noCounts);
  return {
    title: T.stocktake.reportOf(name),
    about: moment(new Date().toISOString()),
    controls: html`<a class="button" href=${hrefOf("count")}>${T.stocktake.goOn}</a>${button(T.allOrders.file, save)}${button(T.pick.print, () => print())}`,
    content: [isAll ? "" : problem(T.stocktake.tooMany), card(T.stocktake.counted, sumsOf(counts), list), counts.length ? missingOf(found, names) : ""],
  };
}
