// Every change of a product's stock, as a chart and as a table. Reads all orders.
import { lineChart } from "./chart.js";
import { locationName, moment, number, person, signed } from "./format.js";
import { page } from "./messages.js";
import { button, card, hint, html, link, nothing, problem, table } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const READ_AT_ONCE = 20_000; // orders that a history may read without a click
const ROWS = 25;
const CHART_HEIGHT = 220;

async function read({ productId, locationId = "", onHand, available }, state) {
  const history = { ...state.history, isReading: true };
  state.history = history;
  page.draw();
  try {
    const { entries, unexplained } = await ask(`/data/history?${new URLSearchParams({ id: productId, location: locationId })}`, { seconds: 600 });
    // Entries without a time stand for versions that changed no stock.
    Object.assign(history, { changes: entries.filter((entry) => entry.at !== ""), unexplained, seen: { onHand, available }, error: "" });
  } catch (error) {
    history.error = error.message;
  }
  history.isReading = false;
  page.draw();
}

// Reads it with the page, and again after a change by this page. What others change does not move the rows.
export function follow(product, state) {
  const isAsked = state.isChanged || state.history === undefined;
  state.isChanged = false;
  if (isAsked && product.ordersToRead <= READ_AT_ONCE) read(product, state);
}

function chartOf(changes, threshold) {
  // Times come from several clocks; the order of the changes does not.
  const times = [];
  for (const at of [...changes.map((entry) => Date.parse(entry.at)), Date.now()]) times.push(Math.max(at / 1000, times.at(-1) ?? 0));
  const line = (text, color, name) => {
    const values = [...changes, changes.at(-1)].map((entry) => entry[name]);
    return { text, color, values, value: values.at(-1), isStepped: true };
  };
  const lines = [line(T.product.onHand, "--accent", "onHand"), line(T.product.available, "--good", "available")];
  return lineChart({ title: T.history.chart, times, lines, limits: [{ value: threshold, text: T.product.lowStockThreshold, color: "--bad" }], height: CHART_HEIGHT });
}

function wordsOf({ kind, orderId, locationId, reference, reason }) {
  const place = locationId === undefined ? "" : locationName({ locationId });
  const words = orderId === undefined ? T.history.adjusted(kind, place) : T.history.ordered[kind](link(orderId, "order", orderId));
  return [words, ...[reference, reason].filter(Boolean).map((note) => `, ${note}`)];
}

const amountOf = (delta, amount) => html`${delta ? html`<span class="hint">${signed(delta)}</span>` : nothing} ${number(amount)}`;

const COLUMNS = [
  { text: T.history.when, cell: ({ at }) => moment(at) },
  { text: T.history.what, cell: wordsOf },
  { text: T.history.who, cell: ({ userId, actor }) => (userId ? link(userId, "orders", "of", userId) : person(actor)) },
  { text: T.product.onHand, kind: "amount", cell: ({ onHandDelta, onHand }) => amountOf(onHandDelta, onHand) },
  { text: T.product.available, kind: "amount", cell: ({ delta, available }) => amountOf(delta, available) },
];

function changesOf({ state, onHand, available, lowStockThreshold, ...product }, { changes, unexplained, seen, shown = ROWS }) {
  const rows = changes.slice(-shown).reverse();
  const isBehind = seen.onHand !== onHand || seen.available !== available;
  const newer = html`${T.history.behind} ${button(T.history.readAgain, () => read({ ...product, onHand, available }, state))}`;
  const showMore = () => {
    state.history.shown = shown * 4;
    page.draw();
  };
  return [
    unexplained.map((what) => problem(T.history.unexplained(what))),
    changes.length ? chartOf(changes, lowStockThreshold) : nothing,
    html`<div class="actions newer">${isBehind ? newer : hint(T.history.shown(rows.length, changes.length))}</div>`,
    table({ label: T.history.title, columns: COLUMNS, rows, keyOf: (row) => `${row.at} ${row.orderId ?? row.adjustmentId} ${row.kind} ${row.version}` }),
    changes.length > shown ? button(T.history.more, showMore) : nothing,
  ];
}

export function historyOf(product) {
  const { state, ordersToRead } = product;
  const { isReading, error, changes } = state.history ?? {};
  const start = isReading ? hint(T.history.reading) : button(T.history.read(T.orders(ordersToRead)), () => read(product, state));
  return card(T.history.title, error ? problem(error) : nothing, changes ? changesOf(product, state.history) : start);
}
