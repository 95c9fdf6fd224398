// What came of what the reader did. A message appears next to what was pressed, and stays until it is dismissed or replaced.
import { html, nothing } from "lit-html";
import { draftOf, drop, fail, here } from "./drafts.js";
import { pause } from "./server.js";
import { T } from "./texts.js";

export const ELSEWHERE = "elsewhere"; // the key of what came of actions whose page the reader has left
const READ_BACK_MILLISECONDS = 3000;
// The parts of each message, by the key of the form or the button. `fields` names the input that is wrong, as each form that may get the message calls it.
const messages = new Map();
// What the frame does for the views. It puts that in when it begins: `draw`, `read`, `arrange`, `isMeant` and `isShown`.
export const page = {};
export { changed, idOf } from "./drafts.js";
// The latest action of each place, until it ends, and of all.
const working = new Map();
let latest;

const partsOf = (key) => messages.get(key) ?? [];
export const isWrong = (key, field) => partsOf(key).some(({ fields }) => fields?.includes(field));
export const idOfMessage = (key) => `said-${encodeURIComponent(key)}`;

function put(key, ...parts) {
  messages.set(key, parts);
  page.draw();
}

export const say = (key, text) => put(key, { text });
export const refuse = (key, text, fields) => put(key, { text, fields, isBad: true });
export const dismiss = (key) => put(key);

// The reader has come to another page. What is still being done here is said again.
export function forgetMessages() {
  for (const key of messages.keys()) if (key !== ELSEWHERE) messages.delete(key);
  for (const { address, key, parts } of working.values()) if (address === here()) messages.set(key, parts);
}

// Text between backticks is a command or a name of the code. A message with links is a template already.
export const withCode = (text) => text.split?.("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part)) ?? text;

// The place of a message. Both regions are always there, or screen readers would not announce what comes into them.
export function messageOf(key) {
  const [good, bad] = [false, true].map((isWanted) => partsOf(key).filter(({ text, isBad = false }) => text && isBad === isWanted));
  const inWords = (parts) => parts.map(({ text }, at) => [at ? T.between : "", withCode(text)]);
  return html`<div class="message ${bad.length ? "bad" : ""}" id=${idOfMessage(key)} tabindex="-1">
    <span role="status">${inWords(good)}</span><span role="alert">${inWords(bad)}</span>
    ${good.length || bad.length ? html`<button type="button" class="close" aria-label=${T.dismiss} @click=${() => dismiss(key)}>×</button>` : nothing}
  </div>`;
}

// Otherwise, its outcome would be lost.
addEventListener("beforeunload", (event) => working.size && event.preventDefault());

// Changes something, after a yes where that is needed, and reads the page again before it says what came of it: then the page is new, unless that
// takes long. Keys work side by side, and the changes of one key one after the other. `work(tell)` returns what came of it in words. `question`, or
// what it returns, warns, and names the button that means it. Returns whether it succeeded.
export async function change(key, words, work, question) {
  const [address, draft] = [here(), draftOf(key)];
  const before = working.get(draft.place);
  // Enter twice is one change.
  if (before?.words === words && before.draft.id === draft.id) return before.tell(T.stillDoing(words));
  const isHere = () => here() === address;
  const part = { text: before ? T.doing(words) : "" };
  const parts = [...(before?.parts ?? []), part];
  const tell = (text, outcome) => {
    Object.assign(part, { text, ...outcome });
    if (isHere()) put(key, ...(working.get(draft.place)?.parts ?? parts));
    else if (outcome) put(ELSEWHERE, ...partsOf(ELSEWHERE), part);
  };
  const readBack = () => isHere() && Promise.race([page.read(), pause(READ_BACK_MILLISECONDS)]);
  const attempt = async () => {
    try {
      const isMeant = await page.isMeant(words, typeof question === "function" ? await question() : question);
      tell(isMeant ? T.doing(words) : "");
      if (!isMeant) return false;
      const outcome = await work(tell);
      await readBack();
      drop(draft);
      tell(T.done(words, outcome), { isBad: false });
      return true;
    } catch (error) {
      // Then the page shows the count that this waits for, or what someone else has changed.
      if (["LEASED", "VERSION_CHANGED", "BARCODES_CHANGED"].includes(error.code)) await readBack();
      (error.code?.endsWith("_REUSED") ? drop : fail)(draft);
      tell(T.failed(words, error.message), { isBad: true, fields: error.fields });
      return false;
    }
  };
  const mine = (latest = { address, key, words, draft, parts, tell, ended: Promise.resolve(before?.ended).then(attempt) });
  working.set(draft.place, mine);
  if (before) tell(part.text);
  const isDone = await mine.ended;
  if (working.get(draft.place) === mine) working.delete(draft.place);
  // Who works by keyboard goes on from here, if what was pressed is gone.
  if (latest === mine && isHere() && document.activeElement === document.body) document.getElementById(idOfMessage(key))?.focus();
  return isDone;
}
