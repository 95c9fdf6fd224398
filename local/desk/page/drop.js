// One product while it sells: its stock once a second, and how fast it falls.
import { lineChart } from "./chart.js";
import { clock, locationName, measured, number } from "./format.js";
import { card, hint, html, link } from "./parts.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

export const seconds = 1;
const RATE_SECONDS = 10;
const MOST_SAMPLES = 300;
const CHART_HEIGHT = 260;

const now = () => Date.now() / 1000;

// Adds a sample: units `left`, and units `sold` since the page was opened. Units that receipts and cancellations add are not counted as negative sales.
export async function read([productId], state) {
  const product = await api("GET", pathOf("stock", productId));
  const { available, leftToSell: left } = product;
  const last = state.samples?.at(-1) ?? { available, sold: 0 };
  const sold = last.sold + Math.max(0, last.available - available);
  if (sold > last.sold) Object.assign(state, { soldAt: now(), firstAt: state.firstAt ?? now() });
  state.since ??= now();
  state.samples = [...(state.samples ?? []), { at: now(), available, left, sold }].slice(-MOST_SAMPLES);
  return product;
}

// The units a second between two samples.
const rateOf = (one, other) => (other.sold - one.sold) / Math.max(1, other.at - one.at);

// When it is sold out at this rate, or was; and whether it sells or is out.
function endOf({ left, at }, rate, { firstAt, soldAt }) {
  if (soldAt === undefined) return [left === 0 ? T.drop.nothingLeft : T.drop.noSales, ""];
  if (left === 0) return [T.drop.soldOut(clock(soldAt), T.drop.length(soldAt - firstAt)), "out"];
  if (rate === 0) return [T.drop.stopped(clock(soldAt)), ""];
  return [T.drop.soldOutIn(T.drop.length(left / rate), clock(at + left / rate)), "sells"];
}

const leftAt = ({ locationId, leftToSell }) => T.pair(locationName({ locationId }), number(leftToSell));

const big = (amount, text) => html`<div><dd>${amount}</dd><dt>${text}</dt></div>`;

function saleOf({ places, isExact }, state) {
  const { samples, since } = state;
  const last = samples.at(-1);
  const rate = rateOf(samples.find(({ at }) => last.at - at <= RATE_SECONDS), last);
  const [end, kind] = endOf(last, rate, state);
  const values = samples.slice(1).map((sample, at) => rateOf(samples[at], sample));
  const lines = [{ text: T.drop.sold, color: "--accent", values }];
  return html`<p class="card end ${kind}" role="status">${end}</p>
    <section class="card"><dl class="big">
      ${big(number(last.sold), T.drop.sold)}${big(number(last.left), T.drop.left)}${big(measured(rate), T.drop.rate)}
    </dl><svg class="amounts" aria-hidden="true"><rect class="committed" width="${(100 * last.sold) / Math.max(1, last.sold + last.left)}%" height="100%"></rect></svg>
    <p class="hint">${places ? T.drop.places(places.map(leftAt).join(", ")) : ""} ${T.drop.since(clock(since))}</p>${isExact ? "" : hint(T.drop.notExact)}</section>
    <section class="card">${lineChart({ title: T.drop.chart, times: samples.slice(1).map(({ at }) => at), lines, height: CHART_HEIGHT })}</section>`;
}

export function draw(product, state) {
  const { productId, name } = product;
  return { title: T.drop.title(name ?? productId), about: link(T.drop.toProduct, "product", productId), content: saleOf(product, state) };
}
