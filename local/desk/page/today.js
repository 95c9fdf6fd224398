// What needs attention, and what to do first.
import { chart } from "./chart.js";
import { age, clock, nameOf, number } from "./format.js";
import { withCode } from "./messages.js";
import { card, hint, html, link, nothing, problem } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

export const read = () => ask("/data/today");

// Whatever happens to an order or a product may change a number here.
export const follows = ({ event, changed }) => event !== undefined || changed === true;

const bounded = ({ count, isAll }) => T.today.bounded(number(count), isAll);

// What needs somebody, the most urgent first: how bad it is, what it is, and the first step.
function needsOf({ alarms, deadLetters, toShip, products: { promised, levels } }) {
  const { OUT_OF_STOCK: out = 0, LOW_STOCK: low = 0 } = levels;
  const needs = [
    ["bad", deadLetters.count, T.today.deadLetters, "dead-letters"],
    ["bad", toShip.blocked, T.today.blocked, "orders"],
    ["bad", promised, T.today.promised, "products", "PROMISED"],
    ["warn", out, T.today.out, "products", "OUT_OF_STOCK"],
    ["warn", low, T.today.low, "products", "LOW_STOCK"],
  ].filter(([, count]) => count > 0);
  // Alarms with the same first step are one thing to do.
  const alarmed = [...Map.groupBy(alarms?.on ?? [], ({ step }) => step)];
  return [
    ...alarmed.map(([step, some]) => ["bad", T.today.alarm(some.map(({ name }) => name).join(", "), some.length), step]),
    ...needs.map(([kind, count, wordsOf, ...path]) => [kind, link(wordsOf(count)[0], ...path), wordsOf(count)[1]]),
  ];
}

function summaryOf(needs, toShip) {
  const work = toShip.count > 0 ? link(T.today.ship(bounded(toShip), toShip.count), "orders") : T.today.nothingToShip;
  const items = needs.map(([kind, what, step]) => html`<li class=${kind}><strong>${what}</strong> <span>${step}</span></li>`);
  return html`<section class="card summary ${needs[0]?.[0] ?? "good"}"><h2>${needs.length ? T.today.needs(needs.length) : T.today.well}</h2><ol>${items}</ol><p>${work}</p></section>`;
}

const listOf = (items) => html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
// A number with what it counts, which links to its list. `kind` is how bad it is, unless it is 0.
const figure = (amount, what, kind = "") => html`<p class="figure ${amount === "0" ? "none" : kind}"><b>${amount}</b> <span>${what}</span></p>`;

function shipCard({ toShip }) {
  const { count, oldest, blocked, missing, names } = toShip;
  const waiting = Object.entries(missing).map(([productId, orders]) => html`${link(nameOf(names, productId), "product", productId)} ${T.today.waitFor(orders)}`);
  return card(
    T.today.toShip,
    figure(bounded(toShip), link(T.today.paidOrders(count), "orders")),
    oldest ? hint(T.today.oldest(age(oldest))) : nothing,
    blocked ? [hint(T.today.cannotShip(blocked)), listOf(waiting)] : nothing,
  );
}

function heldCard({ held }) {
  const next = held.nextEnd ? hint(T.today.nextEnd(age(held.nextEnd), clock(Date.parse(held.nextEnd) / 1000))) : nothing;
  return card(T.today.held, figure(bounded(held), link(T.today.heldOrders(held.count), "orders", "held")), next);
}

function productsCard({ products: { count, levels, promised } }) {
  const figures = [["OUT_OF_STOCK", levels.OUT_OF_STOCK, "warn"], ["LOW_STOCK", levels.LOW_STOCK, "warn"], ["PROMISED", promised, "bad"]];
  return card(T.today.products, figures.map(([level, amount = 0, kind]) => figure(number(amount), link(T.today.levels[level], "products", level), kind)), hint(T.today.ofProducts(count)));
}

function lettersCard({ deadLetters: { count, causes } }) {
  const each = causes.map((cause) => html`${number(cause.count)} <code>${cause.code}</code><small>${withCode(cause.meaning)}</small>`);
  return card(T.today.letters, figure(number(count), link(T.today.messages(count), "dead-letters"), "bad"), listOf(each));
}

function alarmsCard({ alarms: { on, count, problem: why } }) {
  if (why) return card(T.today.alarms, problem(T.today.unknown(why)));
  // Only the embedded AWS has a dashboard here.
  const words = T.today.alarmsOn(on.length);
  const isHere = document.querySelector('nav [href="/dashboard"]') !== null;
  return card(T.today.alarms, figure(number(on.length), isHere ? html`<a href="/dashboard">${words}</a>` : words, "bad"), hint(T.today.ofAlarms(count)));
}

function hourCard({ lastHour: { start, seconds, placed, rejected, problem: why } }) {
  if (why || !placed) return card(T.today.lastHour, why ? problem(T.today.unknown(why)) : hint(withCode(T.today.notMeasured)));
  const words = T.today.inLastHour(...[placed, rejected].map((values) => values.reduce((sum, value) => sum + value, 0)));
  const lines = [{ text: T.today.placed, color: "--accent", values: placed }, { text: T.today.rejected, color: "--bad", values: rejected }];
  return html`<section class="card wide"><h2>${T.today.lastHour}</h2>${hint(words)}${chart(words, placed.map((_, at) => start + at * seconds), lines)}</section>`;
}

export function draw(data) {
  const cards = [shipCard, heldCard, productsCard, lettersCard, ...(data.alarms ? [alarmsCard, hourCard] : [])];
  return { title: T.today.title, about: T.today.about, content: [summaryOf(needsOf(data), data.toShip), html`<div class="cards today">${cards.map((cardOf) => cardOf(data))}</div>`] };
}
