// Where the units of busy products are, for operators.
import { moment, number } from "./format.js";
import { card, problem, table } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

export const read = () => ask("/local/lanes");
export const rowsOf = ({ lanes }) => lanes;
export const keyOf = ({ lane }) => lane;

const COLUMNS = [
  { text: T.lanes.lane, cell: ({ lane }) => T.lanes.name(lane) },
  { text: T.lanes.worker, cell: ({ worker }) => worker ?? "" },
  { text: T.lanes.timeLeft, cell: ({ worker, leaseSeconds }) => (worker ? T.seconds(leaseSeconds) : "") },
  { text: T.nav.products, kind: "amount", cell: ({ products }) => number(products) },
  { text: T.pick.units, kind: "amount", cell: ({ units }) => number(units) },
  { text: T.lanes.written, cell: ({ writtenAt }) => moment(writtenAt) },
];

export function draw({ unreadable }, { rows }) {
  const list = rows.length ? table({ label: T.nav.lanes, columns: COLUMNS, rows, keyOf }) : T.lanes.none;
  return { content: [Object.values(unreadable).map(problem), card(T.nav.lanes, list)] };
}
