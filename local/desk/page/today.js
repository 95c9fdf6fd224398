// What needs attention, and what to do first.
import { lineChart } from "./chart.js";
import { may, ownLocations } from "./caller.js";
import { age, clock, nameOf, number } from "./format.js";
import { withCode } from "./messages.js";
import { card, hint, html, link, nothing, problem } from "./parts.js";
import { api, ask, config, isLocal } from "./server.js";
import { T } from "./texts.js";

// Orders are counted once a minute, by the sweep.
export const seconds = 30;
export const attends = true;
export const follows = ({ products, isAll, changed }) => !isAll || products.length > 0 || changed === true;
export const keyOf = ({ key }) => key;

const MOST_LEVELS = 50; // read of each status
const MOST_MISSING = 10; // names of these are read
const URGENT = ["OUT_OF_STOCK", "LOW_STOCK"];
const SOLD = ["IN_STOCK", "LOW"];

const levelsWith = (status) => api("GET", "/stock", { query: { status, limit: MOST_LEVELS } });
const isEmptyDefault = ({ locationId, onHand, committed }) => !locationId && !onHand && !committed;

// Products by id: their names, and whether their other locations sell them.
async function readDetails(ids) {
  if (!may("products.read") || ids.length === 0) return {};
  const { products } = await api("GET", "/products", { query: { ids: [...new Set(ids)].slice(0, MOST_LEVELS).join(",") } });
  return Object.fromEntries(products.map((product) => [product.productId, product]));
}

// Counts the products that are out of stock or low at any location, each at each of its `levels`, but only once among the `worst` ones, and
// lists those with more units promised than on hand. A shop may leave the default location of a product unused.
function counted(rows, details, isAll) {
  const isSoldElsewhere = ({ productId }) => (Object.hasOwn(details, productId) ? details[productId].elsewhere !== undefined || SOLD.includes(details[productId].availability) : false);
  const promised = new Set(rows.filter(({ available }) => available < 0).map(({ productId }) => productId));
  const used = rows.filter((row) => !isEmptyDefault(row) || !isSoldElsewhere(row));
  const groups = Map.groupBy(used, ({ productId }) => productId);
  const statuses = [...groups.values()].map((some) => new Set(some.map(({ status }) => status)));
  const worst = [...groups].filter(([productId]) => !promised.has(productId)).map(([, some]) => URGENT.find((status) => some.some((row) => row.status === status)));
  const amounts = (of) => Object.fromEntries(URGENT.map((status) => [status, of(status)]));
  return {
    levels: amounts((status) => statuses.filter((some) => some.has(status)).length),
    worst: amounts((status) => worst.filter((each) => each === status).length),
    promised: [...promised].sort(),
    isAll,
  };
}

// The counts of orders are of all locations.
const seesOrders = () => may("orders.read") && ownLocations() === null;

export async function read() {
  if (!isLocal() && !seesOrders() && !may("stock.read")) throw new Error(T.notPermitted("stock.read"));
  const [orders, lists, transfers, local] = await Promise.all([
    seesOrders() ? api("GET", "/today") : undefined,
    may("stock.read") ? Promise.all(URGENT.map(levelsWith)) : undefined,
    may("stock.read") ? api("GET", "/transfers") : undefined,
    isLocal() ? ask("/local/today") : {},
  ]);
  const rows = (lists ?? []).flatMap(({ products }) => products);
  const missing = Object.keys(orders?.missing ?? {}).slice(0, MOST_MISSING);
  const details = await readDetails([...missing, ...rows.filter(isEmptyDefault).map(({ productId }) => productId)]);
  const names = Object.fromEntries(Object.entries(details).map(([productId, { name = productId }]) => [productId, name]));
  return { orders: orders && { ...orders, names }, products: lists && { ...counted(rows, details, lists.every(({ next }) => next === undefined)), ...transfers }, ...local };
}

// Only the embedded AWS has a dashboard here.
const toDashboard = (words) => (config.embedded ? html`<a href="dashboard">${words}</a>` : words);
const isOfLetters = ({ runbook }) => ["DeadLetters", "MessagesDeadLettered"].includes(runbook);

// Alarms with the same first step are one thing to do, with a link to where one sees more.
function alarmOf([key, some]) {
  const words = T.today.alarm(some.map(({ name }) => name).join(", "), some.length);
  if (isOfLetters(some[0])) return { key, kind: "bad", what: link(words, "dead-letters"), step: T.today.steps.alarm };
  const headings = [...new Set(some.map(({ runbook }) => runbook))].filter(Boolean).join(", ");
  return { key, kind: "bad", what: toDashboard(words), step: config.embedded || !headings ? key : T.pair(key, T.today.runbook(headings)) };
}

const NONE = { count: 0, isAll: true };
const NO_PRODUCTS = { promised: [], levels: {}, worst: {}, isAll: true };
const OLD_SECONDS = 900; // three of the longest intervals between sweeps

// The counts of orders are those of the last sweep.
function notSwept({ asOf }) {
  if (!asOf) return [{ key: "notSwept", kind: "warn", what: T.today.notSwept, step: T.today.steps.notSwept }];
  if (Date.now() - Date.parse(asOf) < 1000 * OLD_SECONDS) return [];
  return [{ key: "notSwept", kind: "bad", what: T.today.oldSweep(age(asOf)), step: T.today.steps.notSwept }];
}

// What to do: ship, then the problems, the most urgent first. Each row has what it is, how bad it is, and the first step. One problem is one
// row: dead letters with their alarm, orders to ship with the products that they wait for, a product by the worst that is said of it.
export function rowsOf({ alarms, deadLetters = NONE, orders, products = NO_PRODUCTS }) {
  const { promised, levels, worst, isAll } = products;
  const { toShip = NONE, paidLate = NONE, blocked = 0, missing = {} } = orders ?? {};
  const rowOf = (key, kind, count, ...path) => (count ? [{ key, kind, what: link(T.today[key](count, key === "paidLate" ? paidLate : toShip, isAll), ...path), step: T.today.steps[key] }] : []);
  const others = (alarms?.on ?? []).filter((alarm) => !deadLetters.count || !isOfLetters(alarm));
  const isMissing = (productId) => Object.hasOwn(missing, productId);
  return [
    ...rowOf("ship", "good", toShip.count - blocked, "orders"),
    ...rowOf("shipNewer", "good", !toShip.isAll && toShip.count === blocked, "orders"),
    ...(orders ? notSwept(orders) : []),
    ...(alarms?.problem ? [{ key: "unknown", kind: "warn", what: T.today.noAlarms, step: alarms.problem }] : []),
    ...[...Map.groupBy(others, ({ step }) => step)].map(alarmOf),
    ...rowOf("deadLetters", "bad", deadLetters.count, "dead-letters"),
    ...rowOf("blocked", "bad", blocked, "orders"),
    ...rowOf("paidLate", "bad", paidLate.count, "orders", "refund"),
    ...rowOf("promised", "bad", promised.every(isMissing) ? 0 : promised.length, "products", "PROMISED"),
    ...rowOf("out", "warn", worst.OUT_OF_STOCK && levels.OUT_OF_STOCK, "products", "OUT_OF_STOCK"),
    ...rowOf("low", "warn", worst.LOW_STOCK && levels.LOW_STOCK, "products", "LOW_STOCK"),
    ...rowOf("notRead", "warn", !isAll && !worst.OUT_OF_STOCK && !worst.LOW_STOCK, "products"),
  ];
}

const bounded = ({ count, isAll }) => T.today.bounded(number(count), isAll);

function summaryOf(rows, { toShip } = {}) {
  const needs = rows.filter(({ isGone }) => !isGone);
  const kind = ["bad", "warn"].find((each) => needs.some((need) => need.kind === each)) ?? "good";
  const itemOf = ({ what, step, isGone }) => html`<li class=${isGone ? "is-gone" : ""}><strong>${what}</strong> ${isGone ? T.today.isGone : step}</li>`;
  return html`<section class="card summary ${kind}"><h2>${needs.length ? T.today.needs(needs.length) : T.today.well}</h2><ol>${rows.map(itemOf)}</ol>
    ${!toShip || toShip.count ? nothing : html`<p>${T.today.nothingToShip}</p>`}</section>`;
}

const listOf = (items) => html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
// A number with what it counts, which links to its list. `kind` is how bad it is, unless it is 0.
const figure = (amount, what, kind = "") => html`<p class="figure"><b class=${amount === "0" ? "none" : kind}>${amount}</b> <span>${what}</span></p>`;

function ordersCard({ orders: { asOf, toShip, unpaid, paidLate, blocked, missing, names } }) {
  if (!asOf) return card(T.nav.orders, problem(T.today.notSwept));
  const waiting = Object.entries(missing).slice(0, MOST_MISSING);
  const items = waiting.map(([productId, count]) => html`${link(nameOf(names, productId), "product", productId)} ${T.today.waitFor(count)}`);
  return card(
    T.nav.orders,
    figure(bounded(toShip), link(T.today.toShip, "orders")),
    toShip.oldest ? hint(T.today.oldest(age(toShip.oldest))) : nothing,
    blocked ? [hint(T.today.cannotShip(blocked, toShip)), listOf(items)] : nothing,
    figure(bounded(unpaid), link(T.today.unpaid, "orders", "held")),
    unpaid.oldest ? hint(T.today.oldestUnpaid(age(unpaid.oldest))) : nothing,
    figure(bounded(paidLate), link(T.today.late, "orders", "refund"), "bad"),
    hint(T.today.asOf(clock(Date.parse(asOf) / 1000), age(asOf))),
  );
}

function productsCard({ products: { levels, promised, isAll, transfers, completeSince } }) {
  const onTheWay = new Set(transfers.map(({ reference }) => reference)).size;
  const figures = [["OUT_OF_STOCK", levels.OUT_OF_STOCK, "warn"], ["LOW_STOCK", levels.LOW_STOCK, "warn"], ["PROMISED", promised.length, "bad"]];
  return card(
    T.nav.products,
    figures.map(([level, amount = 0, kind]) => figure(T.today.bounded(number(amount), isAll), link(T.today.levels[level], "products", level), kind)),
    figure(T.today.bounded(number(onTheWay), completeSince === null), link(T.today.onTheWay(onTheWay), "transfers")),
    onTheWay ? hint(T.today.oldestTransfer(age(transfers[0].since))) : nothing,
  );
}

function lettersCard({ deadLetters: { count, causes } }) {
  const each = causes.map((cause) => html`${number(cause.count)} <code>${cause.code}</code><small>${withCode(cause.meaning)}</small>`);
  return card(T.nav["dead-letters"], figure(number(count), link(T.today.messages(count), "dead-letters"), "bad"), listOf(each));
}

function alarmsCard({ alarms: { on, count, problem: why } }) {
  if (why) return card(T.dashboard.alarms, problem(T.today.unknown(why)));
  return card(T.dashboard.alarms, figure(number(on.length), toDashboard(T.today.alarmsOn(on.length)), "bad"), hint(T.today.ofAlarms(count)));
}

function hourCard({ lastHour: { start, seconds, placed, rejected, problem: why } }) {
  if (why || !placed) return card(T.today.lastHour, why ? problem(T.today.unknown(why)) : hint(withCode(T.today.notMeasured)));
  const words = T.today.inLastHour(...[placed, rejected].map((values) => values.reduce((sum, value) => sum + value, 0)));
  const times = placed.map((_, at) => start + at * seconds);
  const lines = [{ text: T.placed, color: "--accent", values: placed }, { text: T.rejected, color: "--bad", values: rejected }];
  return html`<section class="card wide"><h2>${T.today.lastHour}</h2>${hint(words)}${lineChart({ words, times, lines, height: 200 })}</section>`;
}

export function draw(data, { rows }) {
  const parts = { orders: ordersCard, products: productsCard, deadLetters: lettersCard, alarms: alarmsCard, lastHour: hourCard };
  const cards = Object.keys(parts).filter((name) => data[name]).map((name) => parts[name]);
  return { content: html`<div class="today">${summaryOf(rows, data.orders)}<div class="cards">${cards.map((cardOf) => cardOf(data))}</div></div>` };
}
