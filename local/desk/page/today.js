// What needs attention, and what to do first.
import { chart } from "./chart.js";
import { age, moment, nameOf, number } from "./format.js";
import { withCode } from "./messages.js";
import { card, hint, html, link, problem } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const DASHBOARD = "/dashboard";

export const read = () => ask("/data/today");

// Whatever happens to an order or a product may change a number here.
export const follows = ({ event, changed }) => event !== undefined || changed === true;

const bounded = ({ count, isAll = true }) => T.today.bounded(number(count), isAll);

// What needs somebody, the most urgent first.
function needsOf({ alarms, deadLetters, toShip, products: { promised, levels } }) {
  const { OUT_OF_STOCK: out = 0, LOW_STOCK: low = 0 } = levels;
  return [
    ...(alarms?.on ?? []).map(({ name, step }) => ["bad", T.today.alarmIsOn(name), step]),
    [deadLetters.count && "bad", link(T.today.deadLetters(deadLetters.count), "dead-letters"), T.today.deadLettersStep],
    [toShip.blocked && "bad", link(T.today.blocked(toShip.blocked), "orders"), T.today.blockedStep],
    [promised && "bad", link(T.today.promised(promised), "products", "PROMISED"), T.today.promisedStep],
    [out && "warn", link(T.today.out(out), "products", "OUT_OF_STOCK"), T.today.stockStep],
    [low && "warn", link(T.today.low(low), "products", "LOW_STOCK"), T.today.stockStep],
  ].filter(([kind]) => kind);
}

function summaryOf(needs, toShip) {
  const work = toShip.count ? link(T.today.shipNext(bounded(toShip), toShip.count), "orders") : "";
  if (needs.length === 0) return html`<section class="card summary good"><h2>${T.today.well}</h2><p>${work || T.today.nothingToDo}</p></section>`;
  const items = needs.map(([kind, what, step]) => html`<li class=${kind}><strong>${what}</strong> <span>${step}</span></li>`);
  return html`<section class="card summary ${needs[0][0]}"><h2>${T.today.needs(needs.length)}</h2><ol>${items}</ol>${work}</section>`;
}

// A number with what it counts, which is the link to its list.
function figure(amount, text, path, ...ids) {
  return html`<p class="figure"><b>${amount}</b> ${link(text, path, ...ids)}</p>`;
}

function shipCard({ toShip }) {
  const missing = Object.entries(toShip.missing).map(([productId, count]) => html`<li>${link(nameOf(toShip.names, productId), "product", productId)} ${T.today.waitFor(count)}</li>`);
  const blocked = toShip.blocked ? [hint(T.today.cannotShip(toShip.blocked)), html`<ul>${missing}</ul>`] : "";
  return card(T.today.toShip, figure(bounded(toShip), T.today.paidOrders(toShip.count), "orders"), toShip.oldest ? hint(T.today.oldest(age(toShip.oldest))) : "", blocked);
}

function heldCard({ held }) {
  return card(T.today.held, figure(bounded(held), T.today.heldOrders(held.count), "orders", "held"), held.nextEnd ? hint(T.today.nextEnd(age(held.nextEnd), moment(held.nextEnd))) : "");
}

function productsCard({ products: { count, levels, promised } }) {
  const { OUT_OF_STOCK: out = 0, LOW_STOCK: low = 0 } = levels;
  return card(
    T.today.products,
    figure(number(out), T.level.OUT_OF_STOCK, "products", "OUT_OF_STOCK"),
    figure(number(low), T.level.LOW_STOCK, "products", "LOW_STOCK"),
    figure(number(promised), T.today.isPromised, "products", "PROMISED"),
    hint(T.today.ofProducts(count)),
  );
}

function lettersCard({ deadLetters: { count, causes } }) {
  const each = causes.map((cause) => html`<li>${number(cause.count)} <code>${cause.code}</code><small>${withCode(cause.meaning)}</small></li>`);
  return card(T.today.letters, figure(number(count), T.today.deadLettersAlone(count), "dead-letters"), html`<ul>${each}</ul>`);
}

function alarmsCard({ alarms }) {
  if (alarms === undefined) return "";
  if (alarms.problem) return card(T.today.alarms, problem(T.today.unread(alarms.problem)));
  const on = alarms.on.map(({ name, step }) => html`<li><strong>${name}</strong><small>${step}</small></li>`);
  const isHere = document.querySelector(`nav a[href="${DASHBOARD}"]`) !== null;
  const text = T.today.alarmsOn(alarms.on.length);
  return card(T.today.alarms, html`<p class="figure"><b>${number(alarms.on.length)}</b> ${isHere ? html`<a href=${DASHBOARD}>${text}</a>` : text}</p>`, html`<ul>${on}</ul>`, hint(alarms.count ? T.today.ofAlarms(alarms.count) : T.today.noAlarms));
}

function hourCard({ lastHour }) {
  if (lastHour === undefined) return "";
  if (lastHour.problem) return card(T.today.lastHour, problem(T.today.unread(lastHour.problem)));
  const { start, seconds, placed, rejected } = lastHour;
  if (placed === null) return card(T.today.lastHour, hint(T.today.notMeasured));
  const [all, refused] = [placed, rejected].map((values) => values.reduce((sum, value) => sum + value, 0));
  const times = placed.map((_, at) => start + at * seconds);
  const lines = [{ text: T.today.placed, color: "--accent", values: placed }, { text: T.today.rejected, color: "--bad", values: rejected }];
  const words = T.today.inLastHour(all, refused);
  return html`<section class="card wide"><h2>${T.today.lastHour}</h2>${hint(words)}${chart(words, times, lines)}</section>`;
}

export function draw(data) {
  const needs = needsOf(data);
  const cards = [shipCard, heldCard, productsCard, lettersCard, alarmsCard, hourCard].map((cardOf) => cardOf(data));
  return { title: T.today.title, about: T.today.about, content: [summaryOf(needs, data.toShip), html`<div class="cards today">${cards}</div>`] };
}
