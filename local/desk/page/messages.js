// What came of what the reader did. A message appears next to what was pressed, and stays until it is dismissed or replaced.
import { html, nothing } from "/lit-html/lit-html.js";
import { randomId } from "./server.js";
import { T } from "./texts.js";

// By the key of the form or the button. `fields` names the input that is wrong, as each form that may get the message calls it.
const messages = new Map();
// Sent again after a lost answer, a command takes effect once: its id stays until it succeeds or its form changes.
const ids = new Map();
// What the frame does for the views. It puts that in when it begins: `draw`, `read`, `arrange`, `feed` and `isMeant`.
export const page = {};
let working = false;

export const forgetMessages = () => messages.clear();

export function idOf(key) {
  if (!ids.has(key)) ids.set(key, randomId("desk"));
  return ids.get(key);
}

export const changed = (key) => ids.delete(key);
export const isWrong = (key, field) => messages.get(key)?.fields?.includes(field) ?? false;
export const idOfMessage = (key) => `said-${encodeURIComponent(key)}`;

export function say(key, text) {
  messages.set(key, { text });
  page.draw();
}

export function dismiss(key) {
  messages.delete(key);
  page.draw();
}

export function refuse(key, text, fields) {
  messages.set(key, { text, fields, isBad: true });
  page.draw();
}

// Text between backticks is a command or a name of the code. A message with links is a template already.
export const withCode = (text) => text.split?.("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part)) ?? text;

// The place of a message. Both regions are always there, or screen readers would not announce what comes into them.
export function messageOf(key) {
  const { text = "", isBad = false } = messages.get(key) ?? {};
  return html`<div class="message ${isBad ? "bad" : ""}" id=${idOfMessage(key)} tabindex="-1">
    <span role="status">${isBad ? nothing : withCode(text)}</span><span role="alert">${isBad ? withCode(text) : nothing}</span>
    ${text ? html`<button type="button" class="close" aria-label=${T.dismiss} @click=${() => dismiss(key)}>×</button>` : nothing}
  </div>`;
}

// Changes something, after a yes where that is needed, and reads the page again before it says what came of it: then the
// page is new, and the reader may press again. `work` returns what came of it in words. `question` warns, and names the button that means it. Returns
// whether it succeeded.
export async function change(key, words, work, question) {
  // Enter twice is one change.
  if (working) return false;
  working = true;
  try {
    if (!(await page.isMeant(words, question))) return false;
    say(key, T.doing(words));
    const outcome = await work();
    ids.delete(key);
    await page.read();
    say(key, T.done(words, outcome));
    return true;
  } catch (error) {
    // Then the page shows the count that this waits for.
    if (error.code === "LEASED") await page.read();
    refuse(key, T.failed(words, error.message), error.fields);
    return false;
  } finally {
    working = false;
    // Who works by keyboard goes on from here, if what was pressed is gone.
    if (document.activeElement === document.body) document.getElementById(idOfMessage(key))?.focus();
  }
}
