// Messages that the service could not process, those of one cause together: sent again, corrected or deleted.
import { age, clock, inWords, moment, number } from "./format.js";
import { draftOf, drop, isTyped } from "./drafts.js";
import { idOfMessage, isWrong, page, refuse, say, withCode } from "./messages.js";
import { button, change, facts, form, hint, html, labelled, link, messageOf, nothing, repeat } from "./parts.js";
import { ask, send } from "./server.js";
import { T } from "./texts.js";

export const keyOf = ({ queue, messageId }) => `${queue}/${messageId}`;

// The rest of a longer body is folded, and deeper levels are not indented further.
const [MOST_CHARACTERS, MOST_LEVELS] = [50_000, 50];

export function start(state, [messageId]) {
  // `settled` is what has been done with messages: their queue may not show it yet, or another reader may have it.
  Object.assign(state, { edited: new Set(), settled: new Map(), ...state, messageId });
}

export const read = () => ask("/local/dead-letters");
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
  await send({ queue, messageId, action, ...more }, "/local/dead-letter", T.letters.lost[action]);
  state.settled.set(keyOf(letter), T.letters.settled[action](clock(Date.now() / 1000)));
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

const isOpen = (state, key) => state.edited.has(key) || isTyped(key);

function edit(state, key, isWanted) {
  state.edited[isWanted ? "add" : "delete"](key);
  if (!isWanted) drop(draftOf(key));
  page.draw();
  document.getElementById(isWanted ? `body-${key}` : `edit-${key}`)?.focus();
}

function editor(state, letter) {
  const key = keyOf(letter);
  const sendEdited = ({ body }) => {
    const more = body.value === body.defaultValue ? {} : { body: body.value };
    return change(key, T.letters.sendEdited, async () => {
      const said = await settle(state, letter, "redrive", more);
      state.edited.delete(key);
      return said;
    });
  };
  const isBad = isWrong(key, "body");
  const text = laidOut(letter.body).replace(/\r\n?/g, "\n"); // as the field has it
  const area = html`<textarea name="body" id=${`body-${key}`} rows=${Math.min(20, text.split("\n").length + 1)} spellcheck="false" .defaultValue=${text}
    aria-invalid=${isBad ? "true" : nothing} aria-describedby=${isBad ? idOfMessage(key) : nothing}></textarea>`;
  return form(key, { text: T.letters.sendEdited, kind: "primary", send: sendEdited, more: button(T.letters.discard, () => edit(state, key, false)) }, labelled(T.letters.body, area));
}

function actionsOf(state, letter, mayHelp) {
  const key = keyOf(letter);
  const named = (text, work, how) => button(text, work, { label: T.letters.named(text, letter.messageId), ...how });
  const redrive = () => change(key, T.letters.send, () => settle(state, letter, "redrive"));
  const asks = { warning: T.letters.cannotBeUndone(letter.message), yes: T.letters.remove, kind: "danger" };
  const remove = () => change(key, T.letters.remove, () => settle(state, letter, "delete"), asks);
  return [
    mayHelp ? named(T.letters.send, redrive) : nothing,
    named(T.letters.edit, () => edit(state, key, true), { id: `edit-${key}` }),
    named(T.letters.remove, remove, { kind: "danger" }),
  ];
}

function letterOf(state, row, mayHelp) {
  const isEdited = isOpen(state, keyOf(row));
  const said = state.settled.get(keyOf(row));
  const links = linksOf(row);
  const about = [
    [T.letters.since, html`${age(row.sentAt)} <small>${moment(row.sentAt)}</small>`],
    [T.letters.about, links.length ? links.map((one, at) => [at ? ", " : "", one]) : ""],
    [T.letters.queue, row.source],
    [T.letters.group, row.group ?? ""],
    [T.letters.message, row.messageId],
  ];
  const actions = row.isGone ? (said ?? T.letters.gone) : isEdited ? nothing : actionsOf(state, row, mayHelp);
  const text = laidOut(row.body);
  const rest = text.slice(MOST_CHARACTERS);
  const more = rest && html`<details><summary>${T.letters.rest(rest.length)}</summary><pre>${rest}</pre></details>`;
  const body = html`<pre tabindex="0" role="group" aria-label=${T.letters.body}>${text.slice(0, MOST_CHARACTERS)}</pre>${more}`;
  const shown = said ? nothing : isEdited ? editor(state, row) : body;
  return html`<li class="letter ${row.isGone ? "is-gone" : ""}" tabindex="-1" ?data-first=${row.messageId === state.messageId}>
    <div><h3>${row.message}</h3>${facts(about)}<div class="actions">${actions}${isEdited ? nothing : messageOf(keyOf(row))}</div></div>${shown}
  </li>`;
}

function groupOf(state, [code, rows], causes) {
  // A newer version of the service may have causes that this one does not know.
  const { meaning = "", repair = "", mayHelp = true } = causes[code] ?? {};
  const here = rows.filter(({ isGone }) => !isGone);
  const free = here.filter((letter) => !isOpen(state, keyOf(letter)));
  const all = button(T.letters.sendAll(free.length), () => sendAll(state, code, free));
  return html`<section class="card letters"><h2>${withCode(meaning || code)}</h2>
    <p class="hint"><code>${code}</code> · ${here.length ? T.letters.count(here.length, age(here[0].sentAt)) : T.letters.allGone}</p>
    <p>${T.letters.repair}${withCode(mayHelp ? T.letters.thenSend(repair) : T.letters.thenCorrect(repair))}</p>
    <div class="actions">${mayHelp && free.length > 1 ? all : nothing}${messageOf(code)}</div>
    <ol>${repeat(rows, keyOf, (each) => letterOf(state, each, mayHelp), (why) => html`<li class="letter">${why}</li>`)}</ol>
  </section>`;
}

export function draw({ causes, more }, state) {
  const groups = Map.groupBy(state.rows, ({ code }) => code);
  const none = state.rows.every(({ isGone }) => isGone) ? html`<p class="card">${T.letters.none}</p>` : nothing;
  const missing = more.map(({ queue, listed, why }) => hint(T.letters.more[why](queue, number(listed))));
  const content = [none, missing, repeat(groups, ([code]) => code, (group) => groupOf(state, group, causes))];
  return { content };
}
