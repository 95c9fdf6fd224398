// Books goods under a note, such as a delivery: its number and the places once, then scans or lines. Each product is booked once for each note,
// place and part. A `kind` of note has a `name` in the texts, the `fields` of the note, and which of them comes `first`; `begin(ids)` returns an
// empty note, `read(ids, state)` what is known of it, `idOf(note, line)` what makes two bookings the same one, `adjustmentOf(note, line)` the
// booking, `faultOf(note)` what is wrong with the note, and `more(state)` the cards below the lines.
import { barcode } from "./barcode.js";
import { cameraOf } from "./camera.js";
import { about, may, worksAt } from "./caller.js";
import { addUnits, announcedOf, differenceOf, emptyDelivery, isBegun, isFixed, linesIn, makeSecondPart, rename, rowsOf, toBook } from "./delivery.js";
import { changed, draftOf, drop } from "./drafts.js";
import { locationName, moment, nameOf, number, person, signed, wholeIn } from "./format.js";
import { goodsOf } from "./meaning.js";
import { dismiss, page, refuse, say } from "./messages.js";
import { namesOf } from "./order_facts.js";
import { button, card, change, choice, folded, form, hint, html, labelled, link, locationsList, messageOf, nothing, problem, suggest, table } from "./parts.js";
import { live } from "lit-html/directives/live.js";
import { passOn, sendForm } from "./scanner.js";
import { command, pagesOf, pathOf } from "./server.js";
import { digest } from "./session.js";
import { sound } from "./sound.js";
import { T } from "./texts.js";

const [DELIVERY, SCAN, LINES, BOOK] = ["delivery", "goods scan", "goods lines", "goods book"];
const MOST_UNITS = 1_000_000;
const [MOST_OF_NOTE, MOST_OF_PLACE] = [128, 32]; // characters
const MOST_PAGES = 20; // of a product's adjustments
const [PRODUCT_ID, DIGITS] = [/^[!"$-+.-~-]{1,64}$/, /^\d+$/];
const MOST_CHARACTERS = 128; // of an element string

const keyOf = ({ productId, part }) => `${productId} ${part}`;
const called = ({ names }, { productId }) => nameOf(names, productId);
const focus = (name) => document.querySelector(`[name=${name}]`)?.focus();

function start(kind, state, ids) {
  Object.assign(state, { kind, words: { ...T.receive, ...T[kind.name] } });
  state.work ??= Promise.resolve();
  // It may have been booked since the reader left the page.
  if (state.delivery) keep(state);
  state.delivery ??= draftOf(DELIVERY).values.delivery ?? emptyDelivery(kind.begin(ids));
}

export function keep(state) {
  if (page.isShown(state)) changed(DELIVERY, { delivery: state.delivery });
  page.draw();
}

const readNames = async ({ delivery }) => {
  delivery.names = await namesOf([{ items: rowsOf(delivery) }], delivery.names);
};

async function read(ids, state) {
  if (!may("stock.adjust")) throw new Error(T.notPermitted("stock.adjust"));
  await state.kind.read?.(ids, state);
  await readNames(state);
  return {};
}

// ---------------------------------------------------------------- what was scanned or pasted

function addFound({ delivery }, { productId, units, elements }, { kind, units: times }) {
  if (kind === "announced") delivery.announced[productId] = (announcedOf(delivery, productId) ?? 0) + times * units;
  else return addUnits(delivery, productId, times * units, elements && elements.length <= MOST_CHARACTERS ? [elements] : []);
}

// Adds what a text means to the delivery, or to the texts that mean nothing.
async function add(state, text, entry, found) {
  const { productId, ...meaning } = found ?? (await goodsOf(text));
  const line = productId ? addFound(state, { productId, ...meaning }, entry) : undefined;
  if (!productId) state.delivery.unknown.unshift({ text, ...entry, ...meaning });
  return { line, why: meaning.why };
}

// One scan after the other.
function queue(state, key, work) {
  state.work = state.work.then(work).catch((error) => refuse(key, error.message));
  return state.work;
}

const scan = (text, state) =>
  queue(state, SCAN, async () => {
    const { line, why } = await add(state, text.trim(), { kind: "came", units: 1 });
    await readNames(state).catch(() => {}); // then the page says the id
    sound(line ? "good" : "bad");
    if (line) say(SCAN, T.receive.scanned(called(state.delivery, line), T.units(line.units)));
    else refuse(SCAN, T.pair(`${text.trim()}:`, why));
    keep(state);
  });

// Products that are named by their ids take one call; codes take one each.
async function addLines(state, lines, kind) {
  const { delivery } = state;
  const ids = lines.filter(({ text }) => PRODUCT_ID.test(text) && !DIGITS.test(text)).map(({ text }) => ({ productId: text }));
  const names = await namesOf([{ items: ids }]);
  Object.assign(delivery.names, names);
  if (kind === "announced") delivery.announced = {};
  let unknown = 0;
  for (const [at, { text, units }] of lines.entries()) {
    say(LINES, T.receive.lookingUp(number(at), number(lines.length)));
    const { why } = await add(state, text, { kind, units }, Object.hasOwn(names, text) ? { productId: text, units: 1 } : undefined);
    if (why) unknown += 1;
  }
  await readNames(state);
  say(LINES, T.receive.added(lines.length - unknown, unknown));
  drop(draftOf(LINES));
  keep(state);
}

async function takeLines(state, fields) {
  const { lines, faults } = linesIn(fields.text.value);
  if (faults.length) return refuse(LINES, faults.join(" "), ["text"]);
  const kind = fields.kind?.value ?? "came";
  const wanted = kind === "came" ? lines.filter(({ units }) => units > 0) : lines;
  await queue(state, LINES, () => addLines(state, wanted, kind));
  return true;
}

// ---------------------------------------------------------------- booking

// The beginning of a booking's id, which its part follows. A line that two people book has one id, and is booked once.
const idOf = async ({ kind, delivery }, line) => `${kind.name}-${await digest(JSON.stringify(kind.idOf(delivery, line)))}-`;

// What was booked before of a product of this note, part by part.
async function bookedBefore(state, line) {
  const [id, found, { delivery }] = [await idOf(state, line), [], state];
  if (!may("stock.read")) return found;
  let pages = 0;
  for await (const { adjustments } of pagesOf(pathOf("products", line.productId, "adjustments"), { locationId: delivery.place })) {
    const ours = adjustments.filter(({ adjustmentId }) => adjustmentId.startsWith(id));
    found.push(...ours.map(({ adjustmentId, delta, actor, appliedAt }) => ({ part: Number(adjustmentId.slice(id.length)), units: Math.abs(delta), actor, at: appliedAt })));
    pages += 1;
    // They are sorted by id.
    if (pages === MOST_PAGES || adjustments.at(-1)?.adjustmentId > `${id}~`) break;
  }
  return found;
}

async function bookLine(state, line) {
  const { delivery } = state;
  const { productId, part, elements, state: before } = line;
  Object.assign(line, { state: "sent", why: undefined });
  keep(state);
  const scanned = elements.length ? { scanned: { [productId]: elements } } : {};
  const adjustment = { action: "adjust", productId, locationId: delivery.place, reference: delivery.note.trim(), ...state.kind.adjustmentOf(delivery, line), ...scanned };
  try {
    const { result } = await command({ ...adjustment, adjustmentId: (await idOf(state, line)) + part });
    // If the answer to the same line was lost, this is the answer.
    line.state = result === "APPLIED" || before === "sent" ? "booked" : "earlier";
  } catch ({ code, message, problem: said }) {
    const isRefused = said?.status < 500;
    Object.assign(line, code === "ADJUSTMENT_ID_REUSED" ? { state: "earlier" } : { state: isRefused ? "open" : "sent", why: state.words.failures[code] ?? message });
  }
  if (line.state === "earlier") line.earlier = await bookedBefore(state, line).catch(() => []);
  keep(state);
}

function book(state) {
  const { delivery, kind, words } = state;
  const lines = toBook(delivery).toReversed();
  const wrong = lines.find(({ units }) => units === null || units > MOST_UNITS);
  if (!delivery.note.trim()) return refuse(BOOK, T.receive.noNote);
  if (wrong) return refuse(BOOK, T.receive.wrongUnits(called(delivery, wrong), number(MOST_UNITS)));
  if (lines.length === 0) return refuse(BOOK, T.receive.nothing);
  if (!worksAt({ locationId: delivery.place })) return refuse(BOOK, T.receive.otherPlace(locationName({ locationId: delivery.place })));
  const fault = kind.faultOf?.(delivery);
  if (fault) return refuse(BOOK, fault);
  const countOf = (wanted) => lines.filter((line) => line.state === wanted && !line.why).length;
  const work = async (tell) => {
    state.isBooking = true;
    try {
      for (const [at, line] of lines.entries()) {
        tell(T.receive.progress(number(at), number(lines.length)));
        // It may have been removed, or booked by a press before this one.
        if (toBook(delivery).includes(line)) await bookLine(state, line);
      }
    } finally {
      state.isBooking = false;
    }
    const outcome = T.receive.booked(countOf("booked"), countOf("earlier"));
    const failed = lines.filter(({ why }) => why).length;
    if (failed) throw new Error(T.receive.notAll(outcome, failed));
    return outcome;
  };
  return change(BOOK, words.book(lines.length, delivery.note.trim()), work, kind.questionOf?.(delivery, lines));
}

// ---------------------------------------------------------------- drawing

function noteOf(state) {
  const { delivery, kind, words } = state;
  const isKnown = isBegun(delivery) || state.isBooking;
  const first = kind.first(delivery);
  // Keyboards of phones end a word with a blank.
  const typed = ({ name, value }) => (name === "note" ? value : value.trim());
  const type = ({ target: { form } }) => {
    if (!isKnown) rename(delivery, Object.fromEntries(kind.fields.map((name) => [name, typed(form.elements[name])])));
    keep(state);
  };
  const go = (event) => {
    event.preventDefault();
    type({ target: { form: event.currentTarget } });
    focus("scanned");
  };
  // A note has a code, and a place has none: a product must not become the place where the goods go.
  const hear = passOn(({ target, detail }) => {
    type({ target });
    focus("scanned");
    scan(detail, state);
  });
  const fieldOf = (name) =>
    html`<input type="text" name=${name} .value=${live(delivery[name])} maxlength=${name === "note" ? MOST_OF_NOTE : MOST_OF_PLACE} ?readonly=${isKnown} ?data-first=${name === first} autocomplete="off"
      list=${name === "note" ? nothing : "places"} @focus=${name === "note" ? undefined : suggest} @input=${type} @scan=${name === "note" ? sendForm : hear}>`;
  return html`<form @submit=${go}>${kind.fields.map((name) => labelled(words[name], fieldOf(name)))}${locationsList()}<button hidden></button></form>`;
}

function scanOf(state) {
  const take = (event) => {
    event.preventDefault();
    const { scanned } = event.currentTarget.elements;
    if (scanned.value.trim()) scan(scanned.value, state);
    scanned.value = "";
  };
  const input = html`<input name="scanned" ?data-first=${state.kind.first(state.delivery) === undefined} autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="go" @scan=${sendForm}>`;
  return html`<div class="scan"><form @submit=${take}>${labelled(T.receive.scan, input)}<button>${T.scan.enter}</button>${cameraOf(SCAN, (text) => scan(text, state))}${messageOf(SCAN)}</form></div>`;
}

function pasteOf(state) {
  const open = async ({ target }) => {
    const [file] = target.files;
    if (file) changed(LINES, { text: await file.text() });
    page.draw();
  };
  const text = html`<textarea name="text" rows="5" required spellcheck="false" placeholder=${T.receive.example}></textarea>`;
  const file = html`<input type="file" accept=".csv,.tsv,.txt" @change=${open}>`;
  const kinds = state.kind.takesAnnounced ? choice("kind", T.receive.kind, Object.entries(T.receive.kinds)) : nothing;
  return folded(T.receive.paste, hint(state.words.columns), labelled(T.receive.file, file), form(LINES, { text: T.receive.addLines, send: (fields) => takeLines(state, fields) }, labelled(T.receive.lines, text), kinds));
}

function unknownOf(state) {
  const { delivery } = state;
  const remove = (entry) => (delivery.unknown = delivery.unknown.filter((one) => one !== entry));
  const itemOf = (entry) => {
    const { text, kind, units, why, products = [], itemNumber } = entry;
    const again = (found) => () =>
      queue(state, SCAN, async () => {
        remove(entry);
        await add(state, text, { kind, units }, found);
        await readNames(state);
        keep(state);
      });
    const leave = () => {
      remove(entry);
      keep(state);
    };
    const choices = products.map((found) => button(T.receive.itIs(found.productId, T.units(found.units)), again(found)));
    const search = itemNumber ? link(T.receive.search(itemNumber), "search", itemNumber) : nothing;
    return html`<li><p><strong>${text}</strong> (${state.words.kinds[kind]}: ${number(units)}): ${why} ${search}</p>
      <div class="actions">${choices}${button(T.receive.again, again(), { label: T.pair(T.receive.again, text) })}${button(T.receive.remove, leave, { label: T.pair(T.receive.remove, text) })}</div></li>`;
  };
  return delivery.unknown.length ? card(T.receive.unknown, html`<ul>${delivery.unknown.map(itemOf)}</ul>`) : nothing;
}

function whatCameOf(state, line) {
  const { delivery } = state;
  const { units } = line;
  const type = ({ target }) => {
    const typed = wholeIn(target.value);
    line.units = typed >= 0 && typed <= MOST_UNITS ? typed : null;
    if (!delivery.lines.includes(line)) delivery.lines.push(line);
    changed(DELIVERY, { delivery });
  };
  return html`<input type="text" inputmode="numeric" .value=${live(String(units ?? ""))} ?readonly=${isFixed(line)}
    aria-label=${state.words.unitsOf(called(delivery, line))} @input=${type} @change=${page.draw}>`;
}

const before = ({ units, actor, at }) => T.receive.before(number(units), actor === about.caller.name ? T.you : person(actor), moment(at));

function stateOf(state, line) {
  const { state: at, why, earlier = [], part } = line;
  const wasBooked = earlier.length > 0 || at === "earlier" || at === "left";
  const words = [wasBooked ? T.receive.bookedBefore : "", earlier.map(before).join(", "), part > 1 ? T.receive.part(part) : "", T.receive.states[at] ?? ""].filter(Boolean).join(". ");
  const second = () => {
    makeSecondPart(state.delivery, line);
    keep(state);
  };
  const remove = () => {
    state.delivery.lines = state.delivery.lines.filter((one) => one !== line);
    keep(state);
  };
  const name = called(state.delivery, line);
  const press = at === "earlier" ? button(T.receive.secondPart, second, { label: T.receive.secondPartOf(name) }) : nothing;
  const away = isFixed(line) || !state.delivery.lines.includes(line) ? nothing : button(T.receive.remove, remove, { label: T.pair(T.receive.remove, name) });
  return html`<div class="actions">${words ? html`<span>${words}</span>` : nothing}${why ? problem(why) : nothing}${press}${away}</div>`;
}

function columnsOf(state) {
  const { delivery, words } = state;
  const isAnnounced = Object.keys(delivery.announced).length > 0;
  const isFirst = (line) => (delivery.lines.findLast(({ productId }) => productId === line.productId) ?? line) === line;
  const product = (line) => html`<div>${link(called(delivery, line), "product", line.productId)}<small>${line.productId}</small></div>`;
  const ofProduct = (valueOf) => (line) => (isFirst(line) ? valueOf(line.productId) : "");
  return [
    { text: T.order.product, kind: "wide", cell: product },
    { text: words.came, kind: "amount", cell: (line) => whatCameOf(state, line) },
    isAnnounced && { text: words.announced, kind: "amount", cell: ofProduct((id) => number(announcedOf(delivery, id) ?? 0)) },
    isAnnounced && { text: T.receive.difference, kind: "amount", cell: ofProduct((id) => signed(differenceOf(delivery, id))) },
    { text: "", kind: "wide", cell: (line) => stateOf(state, line) },
  ].filter(Boolean);
}

// Lines that were booked before: nothing more, or a second part.
function questionOf(state) {
  const { delivery } = state;
  const earlier = delivery.lines.filter(({ state: at }) => at === "earlier");
  const leave = () => {
    for (const line of earlier) line.state = "left";
    keep(state);
  };
  const add = () => {
    for (const line of earlier) makeSecondPart(delivery, line);
    keep(state);
  };
  if (earlier.length === 0) return nothing;
  return html`<div role="alert"><p class="problem">${state.words.asked(delivery.note.trim(), earlier.length)}</p><div class="actions">${button(T.receive.nothingMore, leave)}${button(T.receive.allSecond, add)}</div></div>`;
}

function differencesOf({ delivery, words }) {
  const ids = new Set(rowsOf(delivery).map(({ productId }) => productId));
  const differing = [...ids].filter((id) => differenceOf(delivery, id) !== 0).length;
  return delivery.lines.length && Object.keys(delivery.announced).length ? html`<p role="status">${words.differ(differing)}</p>` : nothing;
}

function linesOf(state) {
  const { delivery, kind, words } = state;
  const [rows, open] = [rowsOf(delivery), toBook(delivery).length];
  const next = async () => {
    const isMeant = open === 0 || (await page.isMeant(words.next, { warning: T.receive.loses(open), kind: "danger" }));
    if (!isMeant) return;
    drop(draftOf(DELIVERY));
    state.delivery = emptyDelivery(kind.next(delivery));
    [SCAN, LINES, BOOK].forEach(dismiss);
    await page.read();
    focus(kind.first(state.delivery) ?? "scanned");
  };
  const isEmpty = delivery.lines.length === 0 && delivery.unknown.length === 0;
  const work = [button(T.receive.bookButton(open), () => book(state), { id: "book", kind: "primary", isDisabled: open === 0 }), isEmpty ? nothing : button(words.next, next, { isDisabled: state.isBooking }), kind.press?.(state) ?? nothing];
  const list = rows.length ? table({ label: words.came, columns: columnsOf(state), rows, keyOf, classOf: ({ state: at }) => (at === "booked" || at === "left" ? "is-gone" : "") }) : hint(T.receive.none);
  return card(words.came, html`<div class="actions">${work}${messageOf(BOOK)}</div>`, questionOf(state), differencesOf(state), list);
}

function draw(_, state) {
  const { delivery, kind, words } = state;
  const { note, place } = delivery;
  const code = note.trim() && kind.isPrinted ? html`<div class="print">${barcode(note.trim())}</div>` : nothing;
  return {
    title: words.title,
    about: note.trim() ? words.about(note.trim(), locationName({ locationId: place }), moment(new Date().toISOString()), delivery) : words.how,
    controls: button(T.pick.print, () => print()),
    content: html`<div class="receive">${code}<section class="card">${noteOf(state)}${scanOf(state)}</section>${unknownOf(state)}${linesOf(state)}${kind.more?.(state) ?? nothing}${pasteOf(state)}</div>`,
  };
}

export const pageOf = (kind) => ({ start: (state, ids) => start(kind, state, ids), read, scan, draw });

// Two people write the same number in different ways: "LS-4711" and "ls-4711 ".
export const written = (note) => note.normalize("NFKC").trim().replace(/\s+/g, " ").toLowerCase();
