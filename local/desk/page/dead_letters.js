// Messages that the service could not process, those of one cause together: sent again, corrected or deleted.
import { age, clock, inWords, moment, number } from "./format.js";
import { draftOf, drop, isTyped } from "./drafts.js";
import { bodyOf, factsOf, fieldsOf, messageIn, partsOf } from "./letter_form.js";
import { fateOf } from "./letter_fate.js";
import { idOfMessage, isWrong, page, refuse, say, withCode } from "./messages.js";
import { button, change, facts, form, hint, html, labelled, link, messageOf, nothing, repeat } from "./parts.js";
import { ask, send } from "./server.js";
import { T } from "./texts.js";

export const keyOf = ({ queue, messageId }) => `${queue}/${messageId}`;

// The rest of a longer body is folded, and deeper levels are not indented further.
const [MOST_CHARACTERS, MOST_LEVELS] = [50_000, 50];

// After a message was sent again, the page looks for its outcome: this often, and for so many messages at a time. One that seems done may still
// fail, because the order may be an earlier one with the same id.
const [LOOK_MILLISECONDS, MOST_LOOKS] = [2000, 4];
const longestLook = ({ isBack, isDone } = {}) => (isBack ? 0 : isDone ? 30_000 : 300_000);

// Where a cause without a field in its words lies, by its code.
const FIELD_OF = {
  ORDER_ID_REUSED: "orderId", UNKNOWN_ORDER: "orderId", ADJUSTMENT_ID_REUSED: "adjustmentId",
  STEP_ID_REUSED: "stepId", EVENT_ID_REUSED: "eventId", UNKNOWN_PRODUCT: "productId", BELOW_FLOOR: "delta",
};

export function start(state, [messageId]) {
  // `edited` is how messages are edited: as a form or as JSON. `settled` is what has been done with messages: their queue may not show it yet, or
  // another reader may have it.
  Object.assign(state, { edited: new Map(), lines: new Map(), settled: new Map(), ...state, messageId });
}

export const stop = ({ timer }) => clearTimeout(timer);

export async function read(_, state) {
  const found = await ask("/local/dead-letters");
  stop(state);
  const open = [...state.settled].filter(([, { sent, fate, at }]) => sent && Date.now() - at < longestLook(fate));
  await Promise.all(
    open.slice(0, MOST_LOOKS).map(async ([key, one]) => {
      const fate = await fateOf(one, found.deadLetters);
      state.settled.delete(key); // the others come first the next time
      state.settled.set(key, { ...one, fate });
    }),
  );
  if (open.length) state.timer = setTimeout(() => page.read(), LOOK_MILLISECONDS);
  return found;
}
export const rowsOf = ({ deadLetters }, { settled }) =>
  deadLetters.map((row) => (settled.has(keyOf(row)) ? { ...row, isGone: true } : row)).sort((one, other) => one.sentAt.localeCompare(other.sentAt));
export const attends = true;
export const follows = ({ changed }) => changed === true;

function parsed(body) {
  try {
    return body.length > MOST_CHARACTERS ? undefined : JSON.parse(body);
  } catch {
    return undefined;
  }
}

// JSON in lines, if that is not too long, each token as it was sent: JSON.stringify would round long numbers and drop a name that is there twice.
function laidOut(body) {
  if (parsed(body) === undefined) return body;
  let depth = 0;
  const lineAfter = (text) => `${text}\n${"  ".repeat(Math.min(depth, MOST_LEVELS))}`;
  const lines = body.replace(/("(?:\\.|[^"\\])*")|([[{])\s*([\]}])|\s+|[[\]{},:]/g, (token, text, open, close) => {
    if (text || open) return text ?? open + close;
    if ("[{".includes(token)) depth += 1;
    if ("]}".includes(token)) depth -= 1;
    return { ":": ": ", "]": lineAfter("") + token, "}": lineAfter("") + token }[token] ?? (token.trim() && lineAfter(token));
  });
  return lines.length > MOST_CHARACTERS ? body : lines;
}

function linksOf({ body, orderIds }) {
  const said = parsed(body) ?? {};
  const items = Array.isArray(said.items) ? said.items : [];
  const products = [said, ...items].filter((one) => typeof one?.productId === "string");
  const linkOf = (one) => link(inWords(one), ...["product", one.productId, one.locationId].filter(Boolean));
  return [...orderIds.map((orderId) => link(T.letters.order(orderId), "order", orderId)), ...new Map(products.map((one) => [inWords(one), linkOf(one)])).values()];
}

async function settle(state, letter, action, more = {}) {
  const { queue, messageId, source } = letter;
  const { messageId: sent } = await send({ queue, messageId, action, ...more }, "/local/dead-letter", T.letters.lost[action]);
  const at = Date.now();
  state.settled.set(keyOf(letter), { words: T.letters.settled[action](clock(at / 1000)), at, sent, source, message: messageIn(more.body ?? letter.body) });
  return T.letters.outcomes[action](source);
}

function sendAll(state, key, letters) {
  return change(key, T.letters.sendAll(letters.length), async (tell) => {
    let sent = 0;
    for (const [at, letter] of letters.entries()) {
      tell(T.letters.progress(at + 1, letters.length));
      try {
        say(keyOf(letter), T.done(T.letters.send, await settle(state, letter, "redrive")));
        sent += 1;
      } catch (error) {
        if (state.settled.has(keyOf(letter))) sent += 1; // by another press
        else refuse(keyOf(letter), T.failed(T.letters.send, error.message));
      }
    }
    if (sent === letters.length) return T.letters.allSent;
    await page.read();
    throw new Error(T.letters.partlySent(sent, letters.length));
  });
}

// A message is edited in a form or, if that would lose something, as JSON: each has a draft of its own.
const [FORM, JSON_TEXT] = ["form", "json"];
const jsonKey = (key) => `json ${key}`;
const editedAs = (state, key) => (isTyped(jsonKey(key)) ? JSON_TEXT : (state.edited.get(key) ?? (isTyped(key) ? FORM : undefined)));

function edit(state, letter, how) {
  const key = keyOf(letter);
  if (how) state.edited.set(key, how);
  else {
    for (const kept of [state.edited, state.lines]) kept.delete(key);
    [key, jsonKey(key)].forEach((each) => drop(draftOf(each)));
  }
  page.draw();
  document.querySelector(how ? `[data-key="${CSS.escape(key)}"] form :is(input, select, textarea)` : `[data-key="${CSS.escape(key)}"] .edit`)?.focus();
}

function faultIn({ code, message }) {
  const [, path, words] = message.match(/^([A-Za-z][\w.:-]*(?:\[\d+\][\w.:-]*)*): (.*)$/s) ?? [];
  return path ? { path, words } : { path: FIELD_OF[code], words: message };
}

// A form for a message, whose `bodyIn(fields)` returns the body to send, or undefined for the one that the letter has.
function editor(state, letter, key, bodyIn, more, ...content) {
  const sendEdited = (fields) =>
    change(key, T.letters.sendEdited, async () => {
      const body = bodyIn(fields);
      const said = await settle(state, letter, "redrive", body === undefined ? {} : { body });
      state.edited.delete(keyOf(letter));
      return said;
    });
  const actions = [more, button(T.letters.discard, () => edit(state, letter))];
  return form(key, { text: T.letters.sendEdited, kind: "primary", send: sendEdited, more: actions }, ...content);
}

function jsonEditor(state, letter) {
  const key = jsonKey(keyOf(letter));
  const isBad = isWrong(key, "body");
  const text = laidOut(letter.body).replace(/\r\n?/g, "\n"); // as the field has it
  const area = html`<textarea name="body" rows=${Math.min(20, text.split("\n").length + 1)} spellcheck="false" .defaultValue=${text}
    aria-invalid=${isBad ? "true" : nothing} aria-describedby=${isBad ? idOfMessage(key) : nothing}></textarea>`;
  return editor(state, letter, key, ({ body }) => (body.value === body.defaultValue ? undefined : body.value), nothing, labelled(T.letters.body, area));
}

function formEditor(state, letter, message, schema) {
  const key = keyOf(letter);
  const lines = state.lines.get(key) ?? 0;
  const parts = partsOf(schema, message, key, lines);
  const addLine = () => {
    state.lines.set(key, parts.added + 1);
    page.draw();
  };
  const asJson = button(T.letters.editJson, () => edit(state, letter, JSON_TEXT));
  return editor(state, letter, key, (fields) => bodyOf(parts, fields), asJson, fieldsOf(parts, key, faultIn(letter), addLine));
}

function actionsOf(state, letter, mayHelp, kind) {
  const key = keyOf(letter);
  const named = (text, work, how) => button(text, work, { label: T.letters.named(text, letter.messageId), ...how });
  const redrive = () => change(key, T.letters.send, () => settle(state, letter, "redrive"));
  const asks = { warning: T.letters.cannotBeUndone(letter.message), yes: T.letters.remove, kind: "danger" };
  const remove = () => change(key, T.letters.remove, () => settle(state, letter, "delete"), asks);
  return [
    mayHelp ? named(T.letters.send, redrive) : nothing,
    named(T.letters.edit, () => edit(state, letter, kind), { kind: "edit" }),
    named(T.letters.remove, remove, { kind: "danger" }),
  ];
}

function bodyText({ body }) {
  const text = laidOut(body);
  const rest = text.slice(MOST_CHARACTERS);
  const more = rest && html`<details><summary>${T.letters.rest(rest.length)}</summary><pre>${rest}</pre></details>`;
  return html`<pre tabindex="0" role="group" aria-label=${T.letters.body}>${text.slice(0, MOST_CHARACTERS)}</pre>${more}`;
}

function letterOf(state, row, mayHelp, schemas) {
  const key = keyOf(row);
  const edited = editedAs(state, key);
  const settled = state.settled.get(key);
  const message = parsed(row.body) && row.code !== "INVALID_JSON" ? messageIn(row.body) : undefined;
  // Amends come through the queues for orders, too.
  const schema = schemas[message?.action === "amend" ? "OrderCommandQueue" : row.source];
  const links = linksOf(row);
  const about = [
    [T.letters.since, html`${age(row.sentAt)} <small>${moment(row.sentAt)}</small>`],
    [T.letters.about, links.length ? links.map((one, at) => [at ? ", " : "", one]) : ""],
    [T.letters.queue, row.source],
    [T.letters.group, row.group ?? ""],
    [T.letters.message, row.messageId],
  ];
  const gone = settled ? html`<p>${settled.words} ${settled.fate?.words ?? ""}</p>` : T.letters.gone;
  const actions = row.isGone ? gone : edited ? nothing : actionsOf(state, row, mayHelp, message ? FORM : JSON_TEXT);
  const shown = message ? [facts(factsOf(partsOf(schema, message, key))), html`<details><summary>${T.letters.json}</summary>${bodyText(row)}</details>`] : bodyText(row);
  const content = edited === FORM && message ? formEditor(state, row, message, schema) : edited ? jsonEditor(state, row) : html`<div>${shown}</div>`;
  return html`<li class="letter ${row.isGone ? "is-gone" : ""}" tabindex="-1" data-key=${key} ?data-first=${row.messageId === state.messageId}>
    <div><h3>${row.message}</h3>${facts(about)}<div class="actions">${actions}${edited ? nothing : [key, jsonKey(key)].map(messageOf)}</div></div>${settled ? nothing : content}
  </li>`;
}

function groupOf(state, [code, rows], { causes, schemas }) {
  // A newer version of the service may have causes that this one does not know.
  const { meaning = "", repair = "", mayHelp = true } = causes[code] ?? {};
  const here = rows.filter(({ isGone }) => !isGone);
  const free = here.filter((letter) => !editedAs(state, keyOf(letter)));
  const all = button(T.letters.sendAll(free.length), () => sendAll(state, code, free));
  return html`<section class="card letters"><h2>${withCode(meaning || code)}</h2>
    <p class="hint"><code>${code}</code> · ${here.length ? T.letters.count(here.length, age(here[0].sentAt)) : T.letters.allGone}</p>
    <p>${T.letters.repair}${withCode(mayHelp ? T.letters.thenSend(repair) : T.letters.thenCorrect(repair))}</p>
    <div class="actions">${mayHelp && free.length > 1 ? all : nothing}${messageOf(code)}</div>
    <ol>${repeat(rows, keyOf, (each) => letterOf(state, each, mayHelp, schemas), (why) => html`<li class="letter">${why}</li>`)}</ol>
  </section>`;
}

export function draw(found, state) {
  const groups = Map.groupBy(state.rows, ({ code }) => code);
  const none = state.rows.every(({ isGone }) => isGone) ? html`<p class="card">${T.letters.none}</p>` : nothing;
  const missing = found.more.map(({ queue, listed, why }) => hint(T.letters.more[why](queue, number(listed))));
  const content = [none, missing, repeat(groups, ([code]) => code, (group) => groupOf(state, group, found))];
  return { content };
}
