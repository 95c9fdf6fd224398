// One product while it sells. The server counts the events, and sends a line a second.
import { lineChart } from "./chart.js";
import { clock, locationName, measured, number } from "./format.js";
import { page } from "./messages.js";
import { card, html, link, problem } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const LATE_SECONDS = 2;
// Orders are rejected while units are left elsewhere, or too few for them.
const REJECTING_SECONDS = 2;
const CHART_HEIGHT = 260;
const queryOf = (productId) => new URLSearchParams({ id: productId });

export const read = ([productId]) => ask(`/data/product?${queryOf(productId)}`);

export const feed = ([productId]) => `/data/drop?${queryOf(productId)}`;
// Also in a hidden tab: it counts as long as a page listens.
export const isKept = true;

export function hear(sale, state) {
  if (sale.problem !== undefined) throw new Error(sale.problem);
  state.sale = sale;
  page.draw();
}

// When it is sold out at this rate, or was; and whether it sells or is out.
function endOf({ left, unitsPerSecond, times: { placed: [first, last] = [], rejected: [, lastRejected = 0] = [] } }) {
  const isOver = left === 0 || lastRejected - last > REJECTING_SECONDS;
  if (first === undefined) return [left === 0 ? T.drop.nothingLeft : T.drop.noOrders, ""];
  if (isOver) return [(left === 0 ? T.drop.soldOut : T.drop.rejecting)(clock(last), T.seconds(Math.round(last - first))), "out"];
  if (unitsPerSecond === 0) return [T.drop.stopped(clock(last)), ""];
  const seconds = left / unitsPerSecond;
  return [T.drop.soldOutIn(T.drop.length(seconds), clock(Date.now() / 1000 + seconds)), "sells"];
}

// Units at the locations that the latest orders may be served from, and at the others.
function placesOf({ places, elsewhere }) {
  const each = Object.entries(places).map(([locationId, units]) => T.pair(locationName({ locationId }), number(units)));
  if (elsewhere) each.push(T.drop.elsewhere(number(elsewhere)));
  return each.length > 1 ? T.drop.places(each.join(", ")) : "";
}

const big = (amount, text) => html`<div><dd>${amount}</dd><dt>${text}</dt></div>`;

function saleOf(sale) {
  const { sold, left, ordersPerSecond, rejected, waiting, orders, late, since, drawn } = sale;
  const [end, kind] = endOf(sale);
  const lines = ["placed", "rejected"].map((name) => ({ text: T[name], color: name === "placed" ? "--accent" : "--bad", values: drawn[name] }));
  return html`<p class="card end ${kind}" role="status">${end}</p>
    <section class="card"><dl class="big">
      ${big(number(sold), T.drop.sold(number(orders), orders))}${big(number(left), T.drop.left)}${big(measured(ordersPerSecond), T.drop.rate)}
      ${big(number(rejected), T.rejected)}${big(number(waiting), T.drop.waiting)}
    </dl><svg class="amounts" aria-hidden="true"><rect class="committed" width="${(100 * sold) / Math.max(1, sold + left)}%" height="100%"></rect></svg>
    <p class="hint">${placesOf(sale)} ${T.drop.since(clock(since))}</p>${late >= LATE_SECONDS ? problem(T.drop.late(T.seconds(Math.round(late)))) : ""}</section>
    <section class="card">${lineChart({ title: T.drop.chart, times: drawn.at, lines, height: CHART_HEIGHT })}</section>`;
}

export function draw({ productId, name }, { sale }) {
  return {
    title: T.drop.title(name ?? productId),
    about: link(T.drop.toProduct, "product", productId),
    content: sale ? saleOf(sale) : card(T.drop.starting),
  };
}
