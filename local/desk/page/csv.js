// Lists as files for spreadsheets.
import { inWords } from "./format.js";
import { api, pagesOf, pause } from "./server.js";
import { T } from "./texts.js";

const RETRY_MILLISECONDS = [500, 2000, 8000]; // before each further attempt to read a page
const TOO_MANY_REQUESTS = 429;

const COLUMNS = {
  ...Object.fromEntries(["orderId", "userId", "status", "reason", "statusAt", "createdAt", "expiresAt"].map((name) => [name, (order) => order[name]])),
  latePaymentAt: ({ confirmationRejected }) => confirmationRejected?.at,
  shippable: ({ shippable }) => shippable,
  items: ({ items }) => items.map((item) => `${item.quantity} ${inWords(item)}`).join(", "),
};

// A spreadsheet takes what begins so for a formula: owasp.org/www-community/attacks/CSV_Injection.
const FORMULA = /^[=+\-@\t\r\n]/;

function cellOf(value = "") {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const lineOf = (cells) => `${cells.map(cellOf).join(",")}\r\n`;

// Whether the same request would fail again.
const isFinal = ({ isSignedOut, problem }) => isSignedOut || (problem?.status < 500 && problem.status !== TOO_MANY_REQUESTS);

async function getPatiently(...request) {
  for (const milliseconds of RETRY_MILLISECONDS) {
    try {
      return await api(...request);
    } catch (error) {
      if (isFinal(error)) throw error;
      await pause(milliseconds);
    }
  }
  return api(...request);
}

// Saves rows as a file for spreadsheets.
export function saveRows(rows, name) {
  // Excel takes a file without this mark for another encoding.
  const lines = ["\ufeff", ...rows.map(lineOf)];
  const file = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob(lines, { type: "text/csv" })), download: `${name}.csv` });
  file.click();
  URL.revokeObjectURL(file.href);
}

// Saves all orders of a list, unless `isWanted` ends it. Returns how many they are. `tell` hears how many have been read.
export async function saveOrders(query, name, tell, isWanted) {
  const rows = [Object.keys(COLUMNS)];
  let count = 0;
  try {
    for await (const { orders } of pagesOf("/orders", query, getPatiently)) {
      if (!isWanted()) return undefined;
      rows.push(...orders.map((order) => Object.values(COLUMNS).map((valueOf) => valueOf(order))));
      tell((count += orders.length));
    }
  } catch (error) {
    throw new Error(T.allOrders.notSaved(T.orders(count), error.message));
  }
  saveRows(rows, name);
  return count;
}
