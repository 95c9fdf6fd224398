// Where the units of busy products are, for operators.
import { moment, number } from "./format.js";
import { card, problem, steady, table } from "./parts.js";
import { ask } from "./server.js";
import { T } from "./texts.js";

export async function read(_, state) {
  const found = await ask("/data/lanes");
  state.rows = steady(state.rows, found.lanes, ({ lane }) => lane);
  return found;
}

const COLUMNS = [
  { text: T.lanes.lane, cell: ({ row }) => T.lanes.name(row.lane) },
  { text: T.lanes.worker, cell: ({ row }) => row.worker ?? "" },
  { text: T.lanes.timeLeft, cell: ({ row }) => (row.worker ? T.seconds(row.leaseSeconds) : "") },
  { text: T.lanes.products, kind: "amount", cell: ({ row }) => number(row.products) },
  { text: T.lanes.units, kind: "amount", cell: ({ row }) => number(row.units) },
  { text: T.lanes.written, cell: ({ row }) => moment(row.writtenAt) },
];

export function draw({ unreadable }, { rows }) {
  const list = rows.length ? table({ label: T.lanes.title, columns: COLUMNS, rows, keyOf: ({ row }) => row.lane }) : T.lanes.none;
  return { title: T.lanes.title, about: T.lanes.about, content: [Object.values(unreadable).map(problem), card(T.lanes.title, list)] };
}
