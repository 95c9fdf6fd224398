// The frame of all pages: which stage this is, who uses it, the links, the search, and the view that the address names.
import { html, nothing, render } from "lit-html";
import { about, may, ownLocations, readAbout } from "./caller.js";
import { arrive } from "./drafts.js";
import { locationName, minute, person, useCurrency } from "./format.js";
import { ELSEWHERE, dismiss, forgetMessages, messageOf, page, say, withCode } from "./messages.js";
import { button, hrefOf, link, problem, steady } from "./parts.js";
import { listenToScans, sendForm, swallow } from "./scanner.js";
import { api, ask, config, isLocal, pause } from "./server.js";
import { beginSession, listenToSession, signIn, signOut, until } from "./session.js";
import { T } from "./texts.js";

const RETRY_MILLISECONDS = 2000;
const FORBIDDEN = 403;
const LOAD_MILLISECONDS = 30_000; // of a view
const TICK_MILLISECONDS = 500;
// Between two questions about what has changed; the longest after errors.
const [POLL_MILLISECONDS, LONGEST_MILLISECONDS] = [2500, 60_000];
const POLL_SECONDS = 10; // that an answer may take
const REST_MILLISECONDS = 5000; // between the beginnings of two readings because of changes: one may cost more than a hundred read units
const FOLLOW_SECONDS = 600; // after which a page that follows changes is read in any case: one may not have been noted
// Between two questions about dead letters and alarms. On an account they cost money.
const LOOK_MILLISECONDS = { embedded: 1000, account: 30_000 };

// A view has `draw(data, state, ids)`, which returns title, about, controls and content. `state` is what the reader has chosen; it stays
// with the address. `read(ids, state, isAfresh)` returns the data. It is read again if `follows(news, ids, state)`, and every so many `seconds`.
// `news` are changes: the ids of `orders`, the `products`, and `isAll`, which is false if there are more than are named. With `attends`, a view
// also hears that dead letters or alarms have `changed`. `rowsOf(data, state, shown)` and `keyOf(row)` turn the data into `state.rows`, which stay
// where they are. `scan(text, state)` gets what is scanned.

// The links, the views that belong to each of them, and the permissions of which a reader needs one. A view is a module of its name.
const PARTS = [
  { name: "today", needs: ["orders.read", "stock.read"] },
  { name: "orders", views: ["order", "pick"], needs: ["orders.read"] },
  { name: "scan", needs: ["orders.fulfil"] },
  { name: "products", views: ["product", "drop", "receive", "labels"], needs: ["stock.read"] },
  { name: "count", views: ["stocktake"], needs: ["stock.count"] },
  { name: "transfers", views: ["send", "arrive"], needs: ["stock.read"] },
  { name: "dead-letters", at: ["local"] },
  { name: "lanes", at: ["local"] },
  { name: "dashboard", path: "dashboard", at: ["embedded"] },
  { name: "try", path: "try", at: ["embedded"] },
  { name: "contract", path: "contract", at: ["local"] },
];

const UNKNOWN = "unknown"; // no view has this name
const states = new Map();
const NEWS = { starting: { text: T.live.starting, kind: "" }, on: { text: T.live.on, kind: "on" } };
const notLive = (why) => ({ text: T.live.off(why), kind: "off" });
const PAGE = "page"; // the key of messages about the page itself
// What is on the screen. `news` says whether it follows what happens, and `notice` why it cannot be read.
const shown = { isKnown: false, readAt: 0, signedOut: "", view: null, ids: [], state: {}, isRead: false, isBusy: true, isAfresh: false, error: "", news: NEWS.starting, notice: "" };
let opening = 0;
let asked = Promise.resolve(); // the latest question
let reads = {}; // of the view: `now`, and the `next` one; because of changes, one that is `due`, and the `rest` after the latest

// ---------------------------------------------------------------- drawing

const isHere = ({ at = ["local", "hosted"] }) => at.includes(config.desk) || (config.embedded && at.includes("embedded"));
// Today's counts of orders are of all locations.
const isAllowed = ({ name, needs = [] }) => needs.length === 0 || needs.some((permission) => may(permission) && (name !== "today" || permission !== "orders.read" || ownLocations() === null));

function stageOf() {
  const { stage, production } = shown.isKnown ? about : {};
  const kind = !shown.isKnown ? "" : config.embedded ? "embedded" : production ? "production" : "account";
  return html`<p id="stage" data-kind=${kind}>${shown.isKnown ? T.stage[kind](stage) : "\u00a0"}${shown.isKnown ? html`<span id="who">${whoOf(about.caller)}</span>` : nothing}${sessionOf()}</p>`;
}

function sessionOf() {
  if (until() === undefined || shown.signedOut) return nothing;
  return html`<span id="session">${T.session.until(minute(until() / 1000))}</span>${button(T.session.signOut, signOut)}`;
}

// What was typed is still there after signing in.
const endOf = () => (shown.signedOut ? html`<p class="problem" role="alert">${shown.signedOut} ${button(T.session.signIn, signIn, { kind: "primary" })}</p>` : nothing);

function whoOf({ name, permissions, locations }) {
  const granted = [permissions].flat();
  return T.who(person(name), granted.includes("*") ? [] : granted.map((one) => T.permissions[one] ?? one), locations?.map((locationId) => locationName({ locationId })).join(", "));
}

function navOf(name) {
  const parts = name ? PARTS.filter((part) => isHere(part) && isAllowed(part)) : [];
  const isCurrent = (part) => part.name === name || part.views?.includes(name);
  return html`<nav aria-label=${T.parts}>${parts.map((part) => html`<a href=${part.path ?? hrefOf(part.name)} aria-current=${isCurrent(part) ? "page" : nothing}>${T.nav[part.name]}</a>`)}</nav>`;
}

function find(event) {
  event.preventDefault();
  const { search } = event.currentTarget.elements;
  const text = search.value.trim();
  if (text) location.href = hrefOf("search", text);
  search.value = "";
  search.blur();
}

function searchBox() {
  return html`<form role="search" @submit=${find}>
    <input id="search" name="search" type="search" autocomplete="off" aria-label=${T.search.label} placeholder=${T.search.placeholder} @scan=${sendForm}><button>${T.search.find}</button>
  </form>`;
}

function dialogOf({ title, words, yes = T.yes, kind = "primary" } = {}) {
  return html`<dialog id="question" aria-labelledby="question-title" aria-describedby="question-text">
    <h2 id="question-title">${title}</h2><p id="question-text">${words}</p>
    <form class="actions" method="dialog"><button id="no" autofocus>${T.goBack}</button><button id="yes" value="yes" class=${kind}>${yes}</button></form>
  </dialog>`;
}

function drawn({ name, view, data, state, ids, error, isRead, signedOut }) {
  if (signedOut && !isRead) return { title: T.session.title, content: nothing };
  if (error) return { title: T.notReadable, content: problem(withCode(error)) };
  if (!isRead) return { title: T.reading, content: nothing };
  try {
    return { title: T.nav[name], about: T.about[name], ...view.draw(data, state, ids) };
  } catch (broken) {
    return { title: T.notReadable, content: problem(broken.message) };
  }
}

function draw() {
  const { view } = shown;
  const { title, about: words = "", controls = nothing, content } = drawn(shown);
  const { text, kind } = shown.news;
  document.title = T.titleOf(title);
  const again = view ? view.read && (() => read(true)) : (shown.name || shown.error) && open;
  const refresh = again ? button(T.refresh, again, { id: "refresh" }) : nothing;
  const live = view?.follows ? html`<span id="live" class=${kind} role="status">${withCode(text)}</span>` : nothing;
  render(
    html`${stageOf()}${navOf(shown.name)}
      <header><div><h1 id="title">${title}</h1><p id="about">${words}</p></div>${searchBox()}<div id="controls">${live}${controls}${refresh}</div></header>
      ${endOf()}<main id="view" tabindex="-1" aria-busy=${shown.isBusy}>${content}</main>
      ${dialogOf(shown.question)}<div id="said">${messageOf(ELSEWHERE)}${messageOf(PAGE)}</div>`,
    document.body,
  );
}

// One that the reader has dismissed comes back only with other words.
function notice(text) {
  if (text !== shown.notice) say(PAGE, text);
  shown.notice = text;
}

// Asks the operator, in production or if the change warns, one question after the other. Escape is a no. `question` has `warning`, `yes` and
// `kind`, or says that the reader `isAgreed` to changes of this kind.
async function isMeant(words, { warning = "", isAgreed = false, ...answer } = {}) {
  const { production, stage } = about;
  if ((!production && !warning) || isAgreed) return true;
  const all = [T.question(words), warning, production ? T.thisIs(stage) : ""].filter(Boolean).join(" ");
  const answered = (resolve) => {
    shown.question = { title: production ? T.inProduction : T.areYouSure, words: all, ...answer };
    draw();
    const dialog = document.getElementById("question");
    Object.assign(dialog, { returnValue: "", onclose: () => resolve(dialog.returnValue === "yes") });
    dialog.showModal();
  };
  asked = asked.then(() => new Promise(answered));
  return asked;
}

// ---------------------------------------------------------------- reading

// The rows that are shown stay where they are; afresh, all come in their own order.
function arrange(isAfresh = true) {
  const { view, data, state } = shown;
  const rows = isAfresh ? undefined : state.rows;
  if (view.rowsOf) state.rows = steady(rows, view.rowsOf(data, state, rows), view.keyOf);
}

async function readOnce(mine) {
  [mine.now, mine.next] = [mine.next];
  const { view, ids, state, isAfresh } = shown;
  // The reader has moved on, or the view could not be loaded.
  if (mine !== reads || !view) return;
  shown.isAfresh = false;
  let why = "";
  try {
    const attention = isLocal() && view.attends ? lookAround() : undefined;
    const [data, around] = await Promise.all([view.read?.(ids, state, isAfresh), attention]);
    if (mine !== reads) return;
    Object.assign(shown, { data, around });
    arrange(isAfresh);
    Object.assign(shown, { isRead: true, readAt: Date.now(), error: "" });
  } catch (error) {
    if (mine !== reads) return;
    shown.readAt = Date.now();
    why = error.isSignedOut ? "" : error.message;
  }
  shown.isBusy = mine.next !== undefined;
  // What is on the screen stays: someone may be typing there.
  notice(shown.isRead && why ? T.notRefreshed(why) : "");
  if (!shown.isRead) shown.error = why;
  draw();
}

// All who ask while it is being read get the next reading. Afresh, they do not wait for one that may be stuck.
function read(isAfresh = false) {
  const mine = (reads = isAfresh ? {} : reads);
  Object.assign(shown, { isBusy: shown.view !== null, isAfresh: isAfresh || shown.isAfresh });
  draw();
  mine.next ??= Promise.resolve(mine.now).then(() => readOnce(mine));
  return mine.next;
}

// Lenient, unlike decodeURIComponent: an address that was typed may have a % of its own.
const decoded = (part) => new URLSearchParams(`part=${part.replace(/[+&]/g, encodeURIComponent)}`).get("part");

function placeOf({ pathname, hash }) {
  const part = PARTS.find(({ path }) => path === pathname.split("/").at(-1));
  if (part) return [part.name];
  const [, name = "", ...ids] = hash.split("/").map(decoded);
  const owner = PARTS.find((each) => each.name === name || each.views?.includes(name));
  return name === "" ? beginning() : name === "search" || (owner && isHere(owner)) ? [name, ...ids] : [UNKNOWN];
}

// Callers who work at one location begin with its orders to ship.
function beginning() {
  const own = ownLocations();
  if (own?.length === 1 && may("orders.read")) return ["orders", "at", own[0]];
  const first = about.caller && PARTS.find((part) => isHere(part) && isAllowed(part));
  return [(first ?? PARTS[0]).name];
}

// A role may include nothing that a page shows.
const hasNoPage = () => shown.isKnown && !PARTS.some((part) => isHere(part) && isAllowed(part));

// Such a page needs no API, and may show what is wrong with it.
const isOfServer = () => isLocal() && PARTS.some(({ name, at }) => at && name === placeOf(location)[0]);

async function open() {
  if (!shown.isKnown && !isOfServer()) return location.reload();
  const [name, ...ids] = placeOf(location);
  const at = location.pathname + location.hash;
  shown.view?.stop?.(shown.state);
  if (!states.has(at)) states.set(at, {});
  const mine = (opening += 1);
  const found = name === UNKNOWN ? undefined : await Promise.race([import(`./${name.replace("-", "_")}.js`), pause(LOAD_MILLISECONDS)]).catch(() => undefined);
  if (mine !== opening) return;
  arrive(at);
  forgetMessages();
  const error = hasNoPage() ? T.noPage : name === UNKNOWN ? T.unknownPage(decoded(location.hash)) : found ? "" : T.gone(isLocal());
  const view = error ? null : found;
  Object.assign(shown, { name, view, ids, state: states.get(at), isRead: false, isAfresh: true, error, notice: "" });
  view?.start?.(shown.state, ids);
  // What the view before it still reads is not shown any more.
  reads = {};
  await read();
  // A phone shows only some of the links at a time.
  const current = document.querySelector("nav [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft + 2 * current.offsetWidth - innerWidth;
  for (const kept of document.querySelectorAll("#view details:has(.kept)")) kept.open = true;
  if (!document.activeElement?.closest("#view")) document.querySelector("[data-first]")?.focus();
}

// ---------------------------------------------------------------- news

let wake = () => {};
const nap = (milliseconds) => Promise.race([pause(milliseconds), new Promise((resolve) => (wake = resolve))]);

function showNews(news) {
  if (shown.news.text === news.text) return;
  shown.news = news;
  draw();
}

function hear(news) {
  if (!shown.view?.follows?.(news, shown.ids, shown.state)) return;
  const mine = reads;
  mine.due ??= Promise.resolve(mine.rest).then(() => {
    Object.assign(mine, { due: undefined, rest: pause(REST_MILLISECONDS) });
    if (mine === reads) read();
  });
}

// One question for all of a page; none in a hidden tab, or for a page that follows nothing. The next answer makes up for the pause.
async function followChanges(since) {
  let wait = POLL_MILLISECONDS;
  for (;;) {
    await nap(wait);
    if (document.hidden || !shown.isKnown || !shown.view?.follows) continue;
    try {
      const { next, ...news } = await api("GET", "/changes", { query: { since }, seconds: POLL_SECONDS });
      showNews(NEWS.on);
      hear(since === undefined ? { orders: [], products: [], isAll: false } : news);
      [since, wait] = [next, POLL_MILLISECONDS];
    } catch (error) {
      wait = Math.min(2 * wait, LONGEST_MILLISECONDS);
      showNews(notLive(error.message));
    }
  }
}

// Only an operator's machine may look at dead letters and alarms.
const lookAround = () => ask("/local/attention").then(JSON.stringify, () => undefined);

async function followLocal() {
  for (;;) {
    await pause(LOOK_MILLISECONDS[config.embedded ? "embedded" : "account"]);
    if (document.hidden || !shown.view?.attends) continue;
    const found = await lookAround();
    if (found !== undefined && found !== shown.around) hear({ orders: [], products: [], isAll: true, changed: true });
  }
}

async function tick() {
  for (;;) {
    await pause(TICK_MILLISECONDS);
    const { view, isRead, isBusy, readAt } = shown;
    const seconds = view?.seconds ?? (view?.follows && FOLLOW_SECONDS);
    if (!document.hidden && seconds && isRead && !isBusy && Date.now() - readAt >= 1000 * seconds) read();
  }
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const hasDialog = document.querySelector("dialog[open]") !== null;
    const isField = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && !hasDialog) [PAGE, ELSEWHERE].forEach(dismiss);
    // Then the keys below work again.
    if (event.key === "Escape" && isField) event.target.blur();
    if (event.key !== "/" || hasDialog || isField) return;
    event.preventDefault();
    document.getElementById("search").focus();
  });
}

function hearScan(text) {
  if (shown.view?.scan) shown.view.scan(text, shown.state);
  else say(PAGE, html`${T.scan.elsewhere(text)} ${link(T.scan.find, "search", text)}, ${link(T.scan.open, "scan")}`);
}

// The changes from here on are followed.
const firstChange = () => api("GET", "/changes", { seconds: POLL_SECONDS }).then(({ next }) => next, () => undefined);

async function begin() {
  for (;;) {
    try {
      await beginSession(config.signIn);
      const [since] = await Promise.all([firstChange(), readAbout()]);
      shown.isKnown = true;
      return since;
    } catch (error) {
      if (error.isSignedOut) await new Promise(() => {}); // signing in leaves the page
      if (isOfServer()) return undefined;
      shown.error = error.message;
      draw();
      // Refresh and signing in load the page again.
      await (error.problem?.status === FORBIDDEN ? new Promise(() => {}) : pause(RETRY_MILLISECONDS));
    }
  }
}

// The session has ended, or could not begin: `why`, in words.
function endSession(why) {
  Object.assign(shown, { signedOut: T.sentence(why), isBusy: false });
  draw();
}

// A new token may have other roles.
async function renewAbout() {
  const before = JSON.stringify(about.caller);
  try {
    await readAbout();
    if (JSON.stringify(about.caller) !== before) await open();
  } catch (error) {
    if (!error.code) return;
    about.caller = undefined;
    Object.assign(shown, { error: error.message, isRead: false, isKnown: false });
  }
  draw();
}

document.querySelector("noscript").remove();
document.documentElement.lang = T.language;
Object.assign(page, { draw, read, arrange, isMeant, isShown: (state) => state === shown.state });
draw();
listenToSession(endSession, renewAbout);
listenToKeys();
listenToScans(hearScan);
// A double click is one click. Its second one may be on what has come into the place of the first.
addEventListener("click", (event) => event.detail > 1 && event.target.closest("button:not(.sort, .close, .fold)") && swallow(event), true);
const since = await begin();
if (shown.isKnown) useCurrency(about.currency);
if (!about.changes) shown.news = notLive(T.live.notNoted);
else if (since !== undefined) shown.news = NEWS.on;
addEventListener("hashchange", open);
await open();
for (const [where, name] of [[window, "online"], [window, "offline"], [document, "visibilitychange"]]) where.addEventListener(name, () => wake());
if (about.changes) followChanges(since);
if (isLocal()) followLocal();
tick();
