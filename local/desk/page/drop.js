// One product while it sells. The server counts the events, and sends a line a second.
import { lineChart } from "./chart.js";
import { clock, locationName, measured, number } from "./format.js";
import { redraw } from "./messages.js";
import { card, html, link, problem } from "./parts.js";
import { ask, listen, pause } from "./server.js";
import { T } from "./texts.js";

const RETRY_MILLISECONDS = 2000;
const LATE_SECONDS = 2;
// Orders are rejected while units are left elsewhere, or too few for them.
const REJECTING_SECONDS = 2;
const CHART_HEIGHT = 260;
const queryOf = (productId) => new URLSearchParams({ id: productId });

export const read = ([productId]) => ask(`/data/product?${queryOf(productId)}`);

// Nothing to read again: the server tells all of it.
export const follows = () => false;

function hear(news, state) {
  if (news.problem !== undefined) throw new Error(news.problem);
  Object.assign(state, { sale: news, problem: "" });
  redraw();
}

// Until the reader leaves.
async function keepListening(state, productId, signal) {
  while (!signal.aborted) {
    await listen(`/data/drop?${queryOf(productId)}`, (news) => hear(news, state), signal).catch((error) => {
      if (signal.aborted) return;
      state.problem = error.message;
      redraw();
    });
    if (!signal.aborted) await pause(RETRY_MILLISECONDS);
  }
}

export function start(state, [productId]) {
  state.listening = new AbortController();
  keepListening(state, productId, state.listening.signal);
}

export const stop = (state) => state.listening.abort();

// When it is sold out at this rate, or was.
function endOf({ left, sold, unitsPerSecond, first, last, lastRejected }) {
  if (left === 0 && sold > 0) return [T.drop.soldOut(clock(last), T.seconds(Math.round(last - first))), "out"];
  if (lastRejected - last > REJECTING_SECONDS && sold > 0) return [T.drop.rejecting(clock(last), T.seconds(Math.round(last - first))), "out"];
  if (left === 0) return [T.drop.nothingLeft, "out"];
  if (unitsPerSecond === 0) return [sold > 0 ? T.drop.stopped(clock(last)) : T.drop.noOrders, ""];
  const seconds = left / unitsPerSecond;
  return [T.drop.soldOutIn(T.drop.length(seconds), clock(Date.now() / 1000 + seconds)), "sells"];
}

function big(amount, text, kind = "") {
  return html`<div class="big ${kind}"><dd>${amount}</dd><dt>${text}</dt></div>`;
}

// Orders that name no location are served from one of them.
function placesOf(places) {
  const each = Object.entries(places).map(([locationId, units]) => T.pair(locationName({ locationId }), number(units)));
  return each.length > 1 ? T.drop.places(each.join(", ")) : "";
}

function chartOf({ times, placedPerSecond, rejectedPerSecond }) {
  const lines = [
    { text: T.drop.placed, color: "--accent", values: placedPerSecond },
    { text: T.drop.rejected, color: "--bad", values: rejectedPerSecond },
  ];
  return lineChart({ title: T.drop.chart, times, lines, height: CHART_HEIGHT });
}

function saleOf(sale) {
  const { sold, left, ordersPerSecond, rejected, waiting, orders, late, since, places } = sale;
  const [end, kind] = endOf(sale);
  const share = sold / Math.max(1, sold + left);
  return [
    html`<p class="card end ${kind}" role="status">${end}</p>`,
    html`<section class="card"><dl class="bigs">
      ${big(number(sold), T.drop.sold(number(orders), orders), "sold")}${big(number(left), T.drop.left)}
      ${big(measured(ordersPerSecond), T.drop.rate)}${big(number(rejected), T.drop.rejectedOrders)}${big(number(waiting), T.drop.waiting)}
    </dl><svg class="amounts" aria-hidden="true"><rect class="committed" width="${100 * share}%" height="100%"></rect></svg>
    <p class="hint">${placesOf(places)} ${T.drop.since(clock(since))} ${late >= LATE_SECONDS ? html`<strong class="late">${T.drop.late(T.seconds(Math.round(late)))}</strong>` : ""}</p></section>`,
    html`<section class="card">${chartOf(sale)}</section>`,
  ];
}

export function draw({ productId, name }, { sale, problem: why }) {
  return {
    title: T.drop.title(name ?? productId),
    about: link(T.drop.toProduct, "product", productId),
    content: [why ? problem(T.live.off(why)) : "", sale ? saleOf(sale) : card(T.drop.starting)],
  };
}
