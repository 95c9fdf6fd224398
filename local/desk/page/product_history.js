// The changes of a product's stock, newest first and page by page.
import { locationName, moment, person, signed } from "./format.js";
import { page } from "./messages.js";
import { button, card, hint, html, link, nothing, problem, table } from "./parts.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

const CHANGES_OF_A_PAGE = 25;

// Reads the newest changes, or those that follow on the changes that are shown.
async function read({ productId, locationId = "", onHand, available }, state, cursor) {
  const history = { ...state.history, isReading: true };
  state.history = history;
  page.draw();
  try {
    const query = { locationId, limit: CHANGES_OF_A_PAGE, cursor };
    const { entries, completeUntil, next } = await api("GET", pathOf("products", productId, "history"), { query });
    const changes = cursor ? [...history.changes, ...entries] : entries;
    Object.assign(history, { changes, next, error: "" }, cursor ? {} : { completeUntil, seen: { onHand, available } });
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
  if (isAsked) read(product, state);
}

function wordsOf({ action, isLost, orderId, transferWith, sentTo = transferWith, reference, reason, comment }) {
  const place = sentTo === undefined ? "" : locationName({ locationId: sentTo });
  if (orderId === undefined) return [T.history.adjusted(reason, place), ...[reference, comment].filter(Boolean).map((note) => `, ${note}`)];
  const words = T.history.ordered[isLost ? "lose" : action](link(orderId, "order", orderId));
  return [words, ...[reference, reason].filter(Boolean).map((note) => `, ${note}`)];
}

const amountOf = (delta) => (delta ? html`<span>${signed(delta)}</span>` : nothing);

const COLUMNS = [
  { text: T.history.when, cell: ({ at }) => moment(at) },
  { text: T.history.what, cell: wordsOf },
  { text: T.history.who, cell: ({ actor }) => person(actor) },
  { text: T.product.onHand, kind: "amount", cell: ({ onHandDelta }) => amountOf(onHandDelta) },
  { text: T.product.available, kind: "amount", cell: ({ delta }) => amountOf(delta) },
];

const ordersOf = ({ productId, locationId }) => link(T.history.orders, "orders", "product", productId, ...(locationId ? [locationId] : []));

function changesOf({ state, onHand, available, ...product }, { changes, completeUntil, next, seen, isReading }) {
  const isBehind = seen.onHand !== onHand || seen.available !== available;
  const again = (cursor) => () => read({ ...product, onHand, available }, state, cursor);
  const newer = html`${T.history.behind} ${button(T.history.readAgain, again())}`;
  const about = completeUntil ? T.history.complete(moment(completeUntil)) : T.history.unknown;
  return [
    html`<div class="actions newer">${isBehind ? newer : nothing} ${hint(about)} ${completeUntil ? ordersOf(product) : nothing}</div>`,
    table({ label: T.history.title, columns: COLUMNS, rows: changes, keyOf: (row) => `${row.at} ${row.orderId ?? row.adjustmentId} ${row.action} ${row.stepId}` }),
    next && !isReading ? button(T.history.more, again(next)) : nothing,
  ];
}

export function historyOf(product) {
  const { error, changes } = product.state.history ?? {};
  return card(T.history.title, error ? problem(error) : nothing, changes ? changesOf(product, product.state.history) : hint(T.history.reading));
}
