// What needs attention, and what to do first.
import { lineChart } from "./chart.js";
import { age, clock, nameOf, number } from "./format.js";
import { withCode } from "./messages.js";
import { card, hint, html, link, nothing, problem } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

// Whatever happens to an order or a product may change a number here.
export const follows = ({ event, changed }) => event !== undefined || changed === true;

export const read = () => ask("/data/today");
export const keyOf = ({ key }) => key;

// Only the embedded AWS has a dashboard here.
const hasDashboard = () => document.querySelector('nav [href="/dashboard"]') !== null;
const toDashboard = (words) => (hasDashboard() ? html`<a href="/dashboard">${words}</a>` : words);
const isOfLetters = ({ runbook }) => ["DeadLetters", "MessagesDeadLettered"].includes(runbook);

// Alarms with the same first step are one thing to do, with a link to where one sees more.
function alarmOf([key, some]) {
  const words = T.today.alarm(some.map(({ name }) => name).join(", "), some.length);
  if (isOfLetters(some[0])) return { key, kind: "bad", what: link(words, "dead-letters"), step: T.today.steps.alarm };
  const headings = [...new Set(some.map(({ runbook }) => runbook))].filter(Boolean).join(", ");
  return { key, kind: "bad", what: toDashboard(words), step: hasDashboard() || !headings ? key : T.pair(key, T.today.runbook(headings)) };
}

const NONE = { count: 0, isAll: true };
const MOST_MISSING = 10; // names of these are read
const OLD_SECONDS = 900; // three of the longest intervals between sweeps

// The counts of orders are those of the last sweep.
function notSwept({ asOf }) {
  if (asOf === undefined) return [{ key: "notSwept", kind: "warn", what: T.today.notSwept, step: T.today.steps.notSwept }];
  if (Date.now() - Date.parse(asOf) < 1000 * OLD_SECONDS) return [];
  return [{ key: "notSwept", kind: "bad", what: T.today.oldSweep(age(asOf)), step: T.today.steps.notSwept }];
}

// What to do: ship, then the problems, the most urgent first. Each row has what it is, how bad it is, and the first step. One problem is one
// row: dead letters with their alarm, orders to ship with the products that they wait for, a product by the worst that is said of it.
export function rowsOf({ alarms, deadLetters, orders, products: { promised, levels, worst, isAll } }) {
  const { toShip = NONE, paidLate = NONE, blocked = 0, missing = {} } = orders;
  const rowOf = (key, kind, count, ...path) => (count ? [{ key, kind, what: link(T.today[key](count, key === "paidLate" ? paidLate : toShip, isAll), ...path), step: T.today.steps[key] }] : []);
  const others = (alarms?.on ?? []).filter((alarm) => !deadLetters.count || !isOfLetters(alarm));
  const isMissing = (productId) => Object.hasOwn(missing, productId);
  return [
    ...rowOf("ship", "good", toShip.count - blocked, "orders"),
    ...rowOf("shipNewer", "good", !toShip.isAll && toShip.count === blocked, "orders"),
    ...notSwept(orders),
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

function summaryOf(rows, { toShip }) {
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
  if (asOf === undefined) return card(T.nav.orders, problem(T.today.notSwept));
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

function productsCard({ products: { levels, promised, isAll } }) {
  const figures = [["OUT_OF_STOCK", levels.OUT_OF_STOCK, "warn"], ["LOW_STOCK", levels.LOW_STOCK, "warn"], ["PROMISED", promised.length, "bad"]];
  return card(T.nav.products, figures.map(([level, amount = 0, kind]) => figure(T.today.bounded(number(amount), isAll), link(T.today.levels[level], "products", level), kind)));
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
  const cards = [ordersCard, productsCard, lettersCard, ...(data.alarms ? [alarmsCard, hourCard] : [])];
  return { content: html`<div class="today">${summaryOf(rows, data.orders)}<div class="cards">${cards.map((cardOf) => cardOf(data))}</div></div>` };
}
