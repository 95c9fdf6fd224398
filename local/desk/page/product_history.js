// Every change of a product's stock, as a chart and as a table. Reads all orders.
import { lineChart } from "./chart.js";
import { locationName, moment, number, person, signed } from "./format.js";
import { redraw } from "./messages.js";
import { button, card, hint, html, link, nothing, problem, table } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

const READ_AT_ONCE = 20_000; // orders that a history may read without a click
const ROWS = 25;
const CHART_HEIGHT = 220;

async function read(product, state) {
  const { productId, locationId = "", onHand, available } = product;
  const history = { ...state.history, isReading: true };
  state.history = history;
  redraw();
  const seen = { onHand, available };
  try {
    const { entries, unexplained } = await ask(`/data/history?${new URLSearchParams({ id: productId, location: locationId })}`);
    // Entries without a time stand for versions that changed no stock.
    Object.assign(history, { changes: entries.filter((entry) => entry.at !== ""), unexplained, seen, error: "" });
  } catch (error) {
    history.error = error.message;
  }
  history.isReading = false;
  redraw();
}

// Reads it with the page, and again after a change by this page. What others change must not move the rows.
export function follow(product, state) {
  const isAsked = state.isChanged || state.history === undefined;
  state.isChanged = false;
  if (isAsked && product.ordersToRead <= READ_AT_ONCE) read(product, state);
}

// ---------------------------------------------------------------- drawing

function chartOf(changes, threshold) {
  // Times come from several clocks; the order of the changes does not.
  const times = [];
  for (const { at } of changes) times.push(Math.max(Date.parse(at) / 1000, times.at(-1) ?? 0));
  times.push(Math.max(Date.now() / 1000, times.at(-1)));
  const line = (text, color, name) => {
    const values = [...changes, changes.at(-1)].map((entry) => entry[name]);
    return { text, color, values, value: values.at(-1), isStepped: true };
  };
  const lines = [line(T.product.onHand, "--accent", "onHand"), line(T.product.available, "--good", "available")];
  return lineChart({ title: T.history.chart, times, lines, limits: [{ value: threshold, text: T.product.lowAt, color: "--bad" }], height: CHART_HEIGHT });
}

function wordsOf({ row: { kind, orderId, locationId, reference, reason } }) {
  const words = orderId === undefined ? T.history.adjusted(kind, locationId === undefined ? "" : locationName({ locationId })) : T.history.ordered[kind](link(orderId, "order", orderId));
  return [words, ...[reference, reason].filter(Boolean).map((note) => `, ${note}`)];
}

function amountOf(delta, amount) {
  return html`${delta ? html`<span class="delta">${signed(delta)}</span>` : nothing} ${number(amount)}`;
}

const COLUMNS = [
  { text: T.history.when, cell: ({ row }) => moment(row.at) },
  { text: T.history.what, cell: wordsOf },
  { text: T.history.who, cell: ({ row }) => (row.userId ? link(row.userId, "orders", row.userId) : person(row.actor)) },
  { text: T.product.onHand, kind: "amount", cell: ({ row }) => amountOf(row.onHandDelta, row.onHand) },
  { text: T.product.available, kind: "amount", cell: ({ row }) => amountOf(row.delta, row.available) },
];

function changesOf(product, { changes, unexplained, seen, shown = ROWS }) {
  const { state, onHand, available } = product;
  const rows = changes.slice(-shown).reverse().map((row) => ({ row }));
  const isBehind = seen.onHand !== onHand || seen.available !== available;
  const showMore = () => {
    state.history.shown = shown * 4;
    redraw();
  };
  return [
    unexplained.map((what) => problem(T.history.unexplained(what))),
    changes.length ? chartOf(changes, product.lowStockThreshold) : nothing,
    html`<div class="actions newer">${isBehind ? html`<span>${T.history.behind}</span>${button(T.history.readAgain, () => read(product, state))}` : hint(T.history.shown(rows.length, changes.length))}</div>`,
    table({ label: T.history.title, columns: COLUMNS, rows, keyOf: ({ row }) => `${row.at} ${row.orderId ?? row.adjustmentId} ${row.kind} ${row.version}`, classOf: () => "" }),
    changes.length > shown ? button(T.history.more, showMore) : nothing,
  ];
}

export function historyOf(product) {
  const { state, ordersToRead } = product;
  const { isReading, error, changes } = state.history ?? {};
  const isOpen = changes !== undefined;
  return card(
    T.history.title,
    error ? problem(error) : nothing,
    isReading && !isOpen ? hint(T.history.reading) : nothing,
    isOpen ? changesOf(product, state.history) : isReading ? nothing : button(T.history.read(T.orders(ordersToRead)), () => read(product, state)),
  );
}
