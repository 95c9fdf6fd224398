// Counts a place product by product: scan, number, next. Each count is true as of its scan, so nothing waits, and each is booked once, however
// many people count.
import { keyed } from "lit-html/directives/keyed.js";
import { live } from "lit-html/directives/live.js";
import { cameraOf } from "./camera.js";
import { about, may, ownLocations, worksAt } from "./caller.js";
import { changed, draftOf, drop } from "./drafts.js";
import { locationName, moment, nameOf, number, person, signed, wholeIn } from "./format.js";
import { written } from "./goods.js";
import { goodsOf } from "./meaning.js";
import { dismiss, page, refuse, say } from "./messages.js";
import { namesOf } from "./order_facts.js";
import { button, card, checkbox, choice, hint, hrefOf, html, labelled, link, locationsList, messageOf, nothing, problem, suggest, table } from "./parts.js";
import { passOn, sendForm } from "./scanner.js";
import { api, command, randomId } from "./server.js";
import { digest } from "./session.js";
import { ageOfCount, isFarOff } from "./stock.js";
import { sound } from "./sound.js";
import { T } from "./texts.js";

const [STOCKTAKE, COUNT] = ["stocktake", "count scan"];
const MOST_UNITS = 1_000_000;
const [ROWS_OF_A_PAGE, ROWS] = [100, 20]; // of what to count: read, and shown at first
const WRONG = ["OUT_OF_STOCK", "LOW_STOCK"]; // the statuses of products with fewer than no units available

const called = ({ names }, { productId, text }) => (productId ? nameOf(names, productId) : text);
const focus = (name) => document.querySelector(`[name=${name}]`)?.focus();
const today = () => new Date().toLocaleDateString("sv"); // 2026-11-29
const emptyStocktake = (place = "") => ({ name: T.stocktake.nameOf(today()), place, isBlind: false, lines: [], names: {} });

// `open` is what is being counted: its field is there at once, so that no number gets into another one. Its product may still be unknown, and its
// `snapshot` is there once the API has begun. If it was counted before, `earlier` says so. `lines` have been counted here, the latest first.
const isCounting = ({ open }) => open !== undefined && open.earlier === undefined;
const isBegun = ({ open, lines }) => open !== undefined || lines.length > 0;
const isUnits = (units) => units >= 0 && units <= MOST_UNITS;
const unitsOf = ({ typed = "" }) => wholeIn(typed);
// Two people who count the same product make the same id.
const idOf = async ({ name, place }, { productId, round }) => `count-${await digest(JSON.stringify([written(name), place, productId]))}-${round}`;

// What had not begun before a reload has to be counted again.
function kept() {
  const { stocktake } = draftOf(STOCKTAKE).values;
  if (stocktake === undefined) return undefined;
  const { open } = stocktake;
  const lines = stocktake.lines.map((line) => (line.snapshot ? line : { ...line, state: "again", why: T.stocktake.notBegun }));
  return { ...stocktake, open: open?.snapshot || open?.earlier ? open : undefined, lines };
}

export function start(state) {
  Object.assign(state, { work: Promise.resolve(), kind: "due", rows: ROWS, ...state });
  state.stocktake ??= kept() ?? emptyStocktake(ownLocations()?.[0]);
  // Some answers may have been lost.
  queue(state, () => resend(state));
}

function keep(state) {
  if (page.isShown(state)) changed(STOCKTAKE, { stocktake: state.stocktake });
  page.draw();
}

function accept(text) {
  sound("good");
  say(COUNT, text);
}

function reject(text) {
  sound("bad");
  refuse(COUNT, text);
}

// One thing after the other.
function queue(state, work) {
  state.work = state.work.then(work).catch(({ message }) => reject(message));
  return state.work;
}

// ---------------------------------------------------------------- what to count

async function dueAt(place) {
  const { counts, next } = await api("GET", "/counts", { query: { locationId: place, limit: ROWS_OF_A_PAGE } });
  return { due: counts, isAll: next === undefined };
}

async function wrongAt(place) {
  const lists = await Promise.all(WRONG.map((status) => api("GET", "/stock", { query: { status, locationId: place, limit: ROWS_OF_A_PAGE } })));
  const due = lists.flatMap(({ products }) => products).filter(({ locationId = "", onHand, available }) => locationId === place && (onHand < 0 || available < 0));
  return { due, isAll: lists.every(({ next }) => next === undefined) };
}

export async function read(_, state) {
  const { stocktake, kind } = state;
  const found = await (kind === "wrong" ? wrongAt : dueAt)(stocktake.place);
  stocktake.names = await namesOf([{ items: [...found.due, ...stocktake.lines] }], stocktake.names);
  return { ...found, kind };
}

export const follows = ({ products, isAll }) => !isAll || products.length > 0;

// ---------------------------------------------------------------- counting

const whoAndWhen = ({ actor, appliedAt }) => (actor ? T.by(actor === about.caller.name ? T.you : person(actor), moment(appliedAt)) : moment(appliedAt));
const before = (stocktake, { productId, earlier }) => T.stocktake.before(called(stocktake, { productId }), T.units(earlier.counted), whoAndWhen(earlier));

// Begins a count, unless this round of it has been counted.
async function begin(state, entry) {
  const { stocktake } = state;
  const { productId, round } = entry;
  const asked = { productId, locationId: stocktake.place, adjustmentId: await idOf(stocktake, entry), blind: stocktake.isBlind };
  const [answer, names] = await Promise.all([command({ action: "begin", ...asked }), namesOf([{ items: [{ productId }] }], stocktake.names)]);
  const { result, snapshot, countedAt, onHand } = answer;
  stocktake.names = names;
  Object.assign(entry, result === "BEGUN" ? { snapshot, countedAt, onHand } : { earlier: answer, state: "again" });
}

// A number that is far off may be a slip. A blind count does not know what is expected.
async function isMeant({ stocktake }, line) {
  const { units, onHand } = line;
  if (line.isSure || !isFarOff(onHand, units)) return true;
  sound("bad");
  return page.isMeant(T.stocktake.book(called(stocktake, line), number(units)), { warning: T.stocktake.farOff(number(onHand)), yes: T.stocktake.yesBook });
}

async function book(state, line) {
  const { stocktake } = state;
  const { productId, snapshot, units, countedAt } = line;
  line.isSure = await isMeant(state, line);
  if (!line.isSure) {
    Object.assign(line, { state: "again", why: T.stocktake.notMeant });
    keep(state);
    return reject(problemOf(stocktake, line));
  }
  const adjustmentId = await idOf(stocktake, line);
  const asked = { productId, locationId: stocktake.place, adjustmentId };
  try {
    const answer = await command({ action: "count", ...asked, snapshot, counted: units, reference: stocktake.name.trim() });
    // Someone else may have found the same number under the same id, but not at the same moment.
    const isOurs = answer.countedAt === countedAt;
    Object.assign(line, { why: undefined }, isOurs ? { state: "booked", delta: answer.delta } : { state: "again", earlier: answer });
  } catch ({ code, message, problem: said }) {
    Object.assign(line, { state: said?.status < 500 ? "again" : "sent", why: T.stocktake.failures[code] ?? message });
    // Without an answer, the next count is as likely to fail, and says so.
    if (code === "ADJUSTMENT_ID_REUSED") line.earlier = await command({ action: "begin", ...asked }).catch(() => undefined);
  }
  keep(state);
  if (line.state === "booked") say(COUNT, T.stocktake.booked(called(stocktake, line), number(units), stocktake.isBlind ? "" : differenceOf(line)));
  else reject(problemOf(stocktake, line));
}

const problemOf = (stocktake, line) => (line.earlier?.appliedAt ? before(stocktake, line) : T.pair(`${called(stocktake, line)}:`, line.why));

// Books what has not been answered. Returns whether all of it was booked.
async function resend(state) {
  const lines = state.stocktake.lines.filter(({ state: at, snapshot }) => at === "sent" && snapshot);
  for (const line of lines) await book(state, line);
  return lines.every(({ state: at }) => at === "booked");
}

// Ends the open count with its number, and returns it.
function shelve({ stocktake }) {
  const line = Object.assign(stocktake.open, { state: "sent", units: unitsOf(stocktake.open) });
  stocktake.lines.unshift(line);
  delete stocktake.open;
  return line;
}

// Opens a count again: what was scanned is its product, perhaps a case of it.
function reopen(state, line) {
  const { stocktake } = state;
  stocktake.lines = stocktake.lines.filter((one) => one !== line);
  stocktake.open = Object.assign(line, { state: undefined });
  keep(state);
  focus("counted");
  return accept(T.stocktake.begun(called(stocktake, line)));
}

function finish(state) {
  const { stocktake } = state;
  const { open } = stocktake;
  if (!isUnits(unitsOf(open))) return reject(T.stocktake.noUnits(called(stocktake, open), number(MOST_UNITS)));
  shelve(state);
  keep(state);
  focus("scanned");
  return queue(state, () => resend(state));
}

async function look(state, entry, shelved) {
  const { stocktake } = state;
  const found = entry.productId ? entry : await goodsOf(entry.text);
  if (shelved?.state === "sent" && shelved.productId === found.productId && stocktake.open === entry) return reopen(state, shelved);
  const isWell = await resend(state);
  // In production the first one asks.
  state.isAgreed ||= await page.isMeant(T.stocktake.begin(stocktake.name.trim(), locationName({ locationId: stocktake.place })));
  try {
    const { productId, why } = entry.productId || state.isAgreed ? found : { why: T.stocktake.notAgreed };
    if (productId === undefined) throw new Error(why);
    entry.productId = productId;
    await begin(state, entry);
  } catch ({ message }) {
    if (stocktake.open === entry) delete stocktake.open;
    // A number that was typed stays in sight, until it is counted again.
    Object.assign(entry, { state: "again", why: message });
    keep(state);
    if (!stocktake.open) focus("scanned");
    return reject(T.pair(`${called(stocktake, entry)}:`, message));
  }
  // What was refused of the same product is settled.
  if (!entry.earlier) stocktake.lines = stocktake.lines.filter((line) => line === entry || line.productId !== entry.productId || line.state !== "again");
  keep(state);
  if (entry.earlier) return reject(before(stocktake, entry));
  // What went wrong before stays on the screen.
  if (isWell) accept(T.stocktake.begun(called(stocktake, entry)));
  else if (entry === stocktake.open) focus("counted");
}

// Counts what was scanned, or a product. A number that was typed before belongs to what is open.
function count(state, entry) {
  const { stocktake } = state;
  if (!stocktake.name.trim()) {
    focus("name");
    return reject(T.stocktake.noName);
  }
  const shelved = isCounting(stocktake) && isUnits(unitsOf(stocktake.open)) ? shelve(state) : undefined;
  const made = (stocktake.open = { key: randomId("count"), round: 1, ...entry });
  keep(state);
  focus("counted");
  return queue(state, () => look(state, made, shelved));
}

// The same product again changes nothing, and another one needs the number of what is open.
async function compare(state, text) {
  const { stocktake } = state;
  const { productId, why } = await goodsOf(text);
  if (productId === undefined) return reject(T.pair(`${text}:`, why));
  if (productId !== stocktake.open?.productId) return reject(T.stocktake.noUnits(called(stocktake, stocktake.open), number(MOST_UNITS)));
  return accept(T.stocktake.begun(called(stocktake, stocktake.open)));
}

export function scan(text, state) {
  const { stocktake } = state;
  if (isCounting(stocktake) && !isUnits(unitsOf(stocktake.open))) return queue(state, () => compare(state, text.trim()));
  return count(state, { text: text.trim() });
}

// ---------------------------------------------------------------- drawing

const differenceOf = ({ delta }) => (delta === 0 ? T.stocktake.asExpected : T.stocktake.differs(signed(delta)));

function headOf(state) {
  const { stocktake } = state;
  const take = ({ elements }) => {
    // These fields go away with the first scan, and say so.
    if (isBegun(stocktake)) return;
    const place = elements.place.value.trim();
    const isMoved = place !== stocktake.place;
    Object.assign(stocktake, { name: elements.name.value, place, isBlind: elements.blind.checked });
    if (stocktake.isBlind) state.kind = "due";
    keep(state);
    if (isMoved) page.read();
  };
  const go = (event) => {
    event.preventDefault();
    focus("scanned");
  };
  const hear = passOn(({ target, detail }) => {
    take(target.form);
    focus("scanned");
    scan(detail, state);
  });
  const fieldOf = (name, most) => html`<input type="text" name=${name} .value=${stocktake[name]} maxlength=${most} required autocomplete="off" list=${name === "place" ? "places" : nothing} @focus=${name === "place" && !stocktake.isBlind ? suggest : undefined} @scan=${hear}>`;
  return html`<form @submit=${go} @change=${({ currentTarget }) => take(currentTarget)}>${labelled(T.stocktake.name, fieldOf("name", 128))}${labelled(T.receive.place, fieldOf("place", 32))}
    ${locationsList()}${checkbox("blind", T.stocktake.blind, { checked: stocktake.isBlind })}<button hidden></button></form>`;
}

function openOf(state) {
  const { stocktake } = state;
  const { open } = stocktake;
  const leave = () => {
    delete stocktake.open;
    dismiss(COUNT);
    keep(state);
    focus("scanned");
  };
  const away = button(T.stocktake.leave, leave);
  const { productId, round, earlier } = open;
  const name = html`<h2>${called(stocktake, open)} <small>${productId}</small></h2>`;
  if (earlier) {
    const again = button(T.stocktake.again, () => count(state, { productId, round: round + 1 }), { kind: "primary" });
    return html`${name}${problem(before(stocktake, open))}<div class="actions">${again}${away}</div>`;
  }
  const type = ({ target }) => {
    // A scan goes through the field, and takes its digits back.
    open.typed = target.value;
    changed(STOCKTAKE, { stocktake });
  };
  const take = (event) => {
    event.preventDefault();
    finish(state);
  };
  const input = html`<input type="text" name="counted" data-first inputmode="numeric" .value=${live(open.typed ?? "")} autocomplete="off" @input=${type}>`;
  const expected = open.onHand === undefined ? nothing : hint(T.stocktake.expected(number(open.onHand)));
  // Each count has a field of its own.
  return keyed(open, html`${name}<form novalidate @submit=${take}>${labelled(T.stocktake.units, input)}<button class="primary">${T.stocktake.take}</button>${away}</form>${expected}`);
}

function scanOf(state) {
  const { stocktake } = state;
  const take = (event) => {
    event.preventDefault();
    const { scanned } = event.currentTarget.elements;
    const text = scanned.value;
    scanned.value = "";
    if (text.trim()) scan(text, state);
  };
  const input = html`<input name="scanned" ?data-first=${!isCounting(stocktake)} autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="go" @scan=${sendForm}>`;
  const form = html`<form @submit=${take}>${labelled(T.receive.scan, input)}<button>${T.scan.enter}</button>${cameraOf(COUNT, (text) => scan(text, state))}${messageOf(COUNT)}</form>`;
  return html`<section class="card">${isBegun(stocktake) ? nothing : headOf(state)}<div class="scan">${form}${stocktake.open ? openOf(state) : nothing}</div></section>`;
}

function stateOf(state, line) {
  const { stocktake } = state;
  const { state: at, why, delta, earlier, productId, text, round } = line;
  const next = at === "again" && !earlier ? round : round + 1;
  const again = () => {
    if (at === "again") stocktake.lines = stocktake.lines.filter((one) => one !== line);
    count(state, { productId, text, round: next });
  };
  const words = at === "booked" ? (stocktake.isBlind ? T.stocktake.isBooked : differenceOf(line)) : at === "sent" ? T.receive.states.sent : "";
  const press = at === "sent" ? button(T.stocktake.send, () => queue(state, () => resend(state))) : button(T.stocktake.again, again, { label: T.stocktake.againOf(called(stocktake, line)) });
  const failed = at === "booked" || !(why || earlier) ? nothing : problem(problemOf(stocktake, line));
  return html`<div class="actions"><span class=${delta && !stocktake.isBlind ? "warn" : ""}>${words}</span>${failed}${press}</div>`;
}

const product = (stocktake, line, more = nothing) => {
  const { productId } = line;
  return html`<div>${productId ? link(called(stocktake, line), "product", productId) : called(stocktake, line)}<small>${productId}${more}</small></div>`;
};

function countedOf(state) {
  const { stocktake } = state;
  const columns = [
    { text: T.order.product, kind: "wide two", cell: (line) => product(stocktake, line) },
    { text: T.stocktake.counted, kind: "amount", cell: ({ units }) => number(units) },
    { text: "", kind: "wide", cell: (line) => stateOf(state, line) },
  ];
  const rows = stocktake.lines;
  const refused = rows.filter(({ state: at }) => at === "again").length;
  return rows.length ? card(T.stocktake.countedHere(rows.length - refused), table({ label: T.stocktake.counted, columns, rows, keyOf: ({ key }) => key })) : nothing;
}

function dueOf({ due, isAll, kind }, state) {
  const { stocktake, rows: most } = state;
  const isCounted = new Set(stocktake.lines.filter(({ state: at }) => at === "booked").map(({ productId }) => productId));
  const left = due.filter(({ productId }) => !isCounted.has(productId));
  const columns = [
    { text: T.order.product, kind: "wide two", cell: (row) => product(stocktake, row, kind === "due" ? T.stocktake.last(ageOfCount(row)) : nothing) },
    kind === "wrong" && { text: T.product.onHand, kind: "amount", cell: ({ onHand }) => number(onHand) },
    kind === "wrong" && { text: T.product.available, kind: "amount", cell: ({ available }) => number(available) },
    { text: "", kind: "amount", cell: ({ productId }) => button(T.count.title, () => count(state, { productId }), { label: T.count.begin(called(stocktake, { productId })) }) },
  ].filter(Boolean);
  const choose = ({ target }) => {
    Object.assign(state, { kind: target.value, rows: ROWS });
    page.read();
  };
  const more = () => {
    state.rows += ROWS;
    page.draw();
  };
  const kinds = may("stock.read") && !stocktake.isBlind ? choice("kind", T.allProducts.show, Object.entries(T.stocktake.kinds), { value: state.kind, onChange: choose }) : nothing;
  const list = left.length ? table({ label: T.stocktake.due, columns, rows: left.slice(0, most), keyOf: ({ productId }) => productId }) : hint(T.stocktake.none[kind]);
  const rest = left.length > most ? button(T.allProducts.more, more) : isAll ? nothing : hint(T.stocktake.notAll);
  return card(T.stocktake.due, kinds, list, rest);
}

function controlsOf(state) {
  const { stocktake } = state;
  const next = async () => {
    const open = stocktake.lines.filter(({ state: at }) => at === "sent").length;
    const isMeant = open === 0 || (await page.isMeant(T.stocktake.next, { warning: T.stocktake.loses(open), kind: "danger" }));
    if (!isMeant) return;
    drop(draftOf(STOCKTAKE));
    state.stocktake = emptyStocktake(stocktake.place);
    dismiss(COUNT);
    page.draw();
    focus("name");
  };
  const report = stocktake.name.trim() ? html`<a class="button" href=${hrefOf("stocktake", stocktake.name.trim())}>${T.stocktake.report}</a>` : nothing;
  return html`${report}${isBegun(stocktake) ? button(T.stocktake.next, next) : nothing}`;
}

export function draw(found, state) {
  const { stocktake } = state;
  const { name, place, isBlind } = stocktake;
  if (!worksAt({ locationId: place })) return { title: T.stocktake.title, content: [scanOf(state), problem(T.stocktake.otherPlace(locationName({ locationId: place })))] };
  return {
    title: T.stocktake.title,
    about: isBegun(stocktake) ? [name.trim(), locationName({ locationId: place }), isBlind && T.stocktake.blind].filter(Boolean).join(", ") : T.stocktake.how,
    controls: controlsOf(state),
    content: html`<div class="count">${scanOf(state)}${countedOf(state)}${dueOf(found, state)}</div>`,
  };
}
