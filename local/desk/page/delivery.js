// A delivery: the lines that came under a delivery note, what was announced, and what a spreadsheet says of both.
import { T } from "./texts.js";

const WHOLE = /^(\d+)(?:[.,]0+)?$/;
const ROUNDED = /^\d(?:[.,]\d+)?E\+\d+$/i; // how a spreadsheet shows a long code
const TYPED = /^(\S.*?)\s+(\d+)$/;
const MOST_ELEMENTS = 10; // of a line, as the API takes them

export const emptyDelivery = (named) => ({ note: "", place: "", to: "", lines: [], announced: {}, unknown: [], names: {}, ...named });

const cellOf = (text) => text.trim().replace(/^"(.*)"$/s, "$1").replaceAll('""', '"').trim();

// A line that was typed may have a blank between its product and its number.
const withoutSeparator = (cells) => (cells.length === 1 ? (cells[0].match(TYPED)?.slice(1) ?? cells) : cells);

// Reads lines of a spreadsheet: a product or code, and a number. A code alone is one unit, as in a scanner's memory. The first row may be a
// heading. `faults` say what cannot be read.
export function linesIn(text) {
  const separator = ["\t", ";"].find((each) => text.includes(each)) ?? ",";
  const rows = text.replace(/^\ufeff/, "").split(/\r\n|\r|\n/).map((row) => withoutSeparator(row.split(separator).map(cellOf)));
  const filled = rows.map(([code, amount], at) => ({ code, amount, row: at + 1 })).filter(({ code, amount }) => code || amount);
  if (filled[0]?.amount && !/\d/.test(filled[0].amount)) filled.shift();
  const faults = [];
  const lines = filled.map(({ code, amount = "1", row }) => {
    const [, units] = amount.match(WHOLE) ?? [];
    if (!code) faults.push(T.receive.noCode(row));
    else if (units === undefined) faults.push(T.receive.noNumber(row, amount));
    else if (ROUNDED.test(code)) faults.push(T.receive.rounded(row, code));
    return { text: code, units: Number(units) };
  });
  return { lines, faults };
}

// Whether a line is booked, or may be.
export const isFixed = ({ state }) => state === "sent" || state === "booked";
const isOpen = ({ state }) => state === "open" || state === "earlier";

// Adds units to the line of their product. Once that is booked, or may be, they are another part of the delivery. Returns the line.
export function addUnits({ lines }, productId, units, elements = []) {
  const latest = lines.find((line) => line.productId === productId);
  const line = latest && isOpen(latest) ? latest : { productId, units: 0, part: (latest?.part ?? 0) + 1, state: "open", elements: [] };
  if (line !== latest) lines.unshift(line);
  line.units += units;
  line.elements = [...new Set([...line.elements, ...elements])].slice(0, MOST_ELEMENTS);
  return line;
}

export const announcedOf = ({ announced }, productId) => (Object.hasOwn(announced, productId) ? announced[productId] : undefined);

// How many more units of a product came than were announced.
export function differenceOf(delivery, productId) {
  const came = delivery.lines.filter((line) => line.productId === productId).reduce((sum, { units }) => sum + units, 0);
  return came - (announcedOf(delivery, productId) ?? 0);
}

// The lines, the latest first, and then the products that were announced and have not come.
export function rowsOf({ lines, announced }) {
  const missing = Object.keys(announced).filter((productId) => !lines.some((line) => line.productId === productId));
  return [...lines, ...missing.map((productId) => ({ productId, units: 0, part: 1, state: "open", elements: [] }))];
}

// Lines that a press of the button books.
export const toBook = ({ lines }) => lines.filter(({ state, units }) => state === "sent" || (state === "open" && units !== 0));

// The goods came on top of those that were booked before.
export function makeSecondPart({ lines }, line) {
  const parts = [...lines.filter(({ productId }) => productId === line.productId), ...line.earlier].map(({ part }) => part);
  Object.assign(line, { state: "open", part: Math.max(...parts) + 1 });
}

// Another note or place is another delivery: what was booked under the first one says nothing about it.
export function rename(delivery, named) {
  const { lines } = delivery;
  Object.assign(delivery, named, { lines: [] });
  for (const { productId, units, elements } of lines.toReversed()) addUnits(delivery, productId, units, elements);
}

// Whether the note and the place are in the books, or may be.
export const isBegun = ({ lines }) => lines.some(isFixed);
