// Counting what is on the shelf: orders for the product wait until the count is booked, cancelled or over.
import { bookedAt, clock, inWords, number, person, signed } from "./format.js";
import { draftOf, drop } from "./drafts.js";
import { page } from "./messages.js";
import { button, card, change, form, hint, messageOf, note, notesOf, nothing, problem, units } from "./parts.js";
import { RefusedError, command, randomId } from "./server.js";
import { isFarOff, numbersOf } from "./stock.js";
import { T } from "./texts.js";

const COUNT_SECONDS = 600; // how long orders wait at most
const KEY = "count";

// Counts that have begun, by product and location in words: this tab has them until they end, also after a reload.
const counts = new Map(JSON.parse(sessionStorage.getItem("counts") ?? "[]"));

function keep(product, begun) {
  if (begun === undefined) counts.delete(inWords(product));
  else counts.set(inWords(product), begun);
  // What was typed belongs to the other count.
  drop(draftOf(KEY));
  sessionStorage.setItem("counts", JSON.stringify([...counts]));
}

async function begin(product) {
  const { productId, locationId = "" } = product;
  const begun = await command({ action: "acquire", productId, locationId, seconds: COUNT_SECONDS, outliveInvocation: true });
  // One id for all clicks: they book one count.
  keep(product, { ...begun, adjustmentId: randomId("count") });
  return T.count.begun;
}

async function book(product, { lease, adjustmentId, committed }, counted, notes) {
  try {
    const { delta, handedOverSince } = await command({ action: "commit", lease, adjustmentId, counted, ...notes });
    keep(product);
    product.state.isChanged = true;
    return T.count.booked(signed(delta), handedOverSince && number(handedOverSince));
  } catch (error) {
    const { code } = error;
    if (code === "BELOW_FLOOR") throw new RefusedError({ code, message: T.count.short(T.units(committed - counted - product.backorderLimit)) });
    if (!(code in T.count.ends)) throw error;
    keep(product);
    await page.read();
    throw new RefusedError({ code, message: T.count.ends[code] });
  }
}

async function cancel(product, { lease }) {
  const { result } = await command({ action: "release", lease });
  keep(product);
  return result === "RELEASED" ? T.count.cancelled : T.count.wasOver;
}

// A count that was begun elsewhere: someone is counting, or left it open.
function openElsewhere(product, { holder, since, lease }) {
  const { open, endWarning, cancelButton } = T.count;
  const question = { warning: endWarning, yes: cancelButton, kind: "danger" };
  const end = () => change(KEY, T.count.cancel(bookedAt(product)), () => cancel(product, { lease }), question);
  const words = open(person(holder), clock(Date.parse(since) / 1000), clock(lease.expiresAt));
  return card(T.count.title, problem(words), button(cancelButton, end, { kind: "danger" }), messageOf(KEY));
}

export function countOf(product) {
  const begun = counts.get(inWords(product));
  if (begun === undefined && product.count) return openElsewhere(product, product.count);
  const press = (words, work) => () => change(KEY, words(bookedAt(product)), () => work(product, begun));
  if (begun === undefined) {
    const start = async () => (await press(T.count.begin, begin)()) && document.querySelector("[name=counted]")?.focus();
    return card(T.count.title, hint(T.count.about(COUNT_SECONDS / 60)), button(T.count.beginButton, start), messageOf(KEY));
  }
  const end = Number(begun.lease.expiresAt);
  const bookIt = (fields) => {
    const counted = fields.counted.valueAsNumber;
    const question = isFarOff(begun.onHand, counted) ? { warning: T.count.farOff(number(begun.onHand)), yes: T.count.yesBook } : undefined;
    return change(KEY, T.count.book(number(counted), bookedAt(product)), () => book(product, begun, counted, notesOf(fields, ["reference"])), question);
  };
  const more = button(T.count.cancelButton, press(T.count.cancel, cancel));
  return card(
    T.count.title,
    begun.message === undefined ? nothing : problem(begun.message),
    hint(T.count.how(clock(end - COUNT_SECONDS), clock(end))),
    numbersOf(begun),
    form(KEY, { text: T.count.bookButton, send: bookIt, kind: "primary", more }, units(KEY, "counted", T.count.counted), note(KEY, "reference", T.product.reference)),
  );
}
