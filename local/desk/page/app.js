// The frame of all pages: which stack this is, the links, the search, and the view that the address names.
import { html, nothing, render } from "lit-html";
import { arrive } from "./drafts.js";
import { useCurrency } from "./format.js";
import { ELSEWHERE, dismiss, forgetMessages, messageOf, page, say, withCode } from "./messages.js";
import { button, hrefOf, link, problem, steady } from "./parts.js";
import { listenToScans, sendForm, swallow } from "./scanner.js";
import { ask, follow, pause } from "./server.js";
import { T } from "./texts.js";

const RETRY_MILLISECONDS = 2000;
const LOAD_MILLISECONDS = 30_000; // of a view
// Between two readings after something happened. On an account they cost money.
const LEAST_MILLISECONDS = { embedded: 1000, account: 10_000 };

// A view has `draw(data, state, ids)`, which returns title, about, controls and content. `state` is what the reader has chosen; it stays
// with the address. `read(ids, state, isAfresh)` returns the data, and `follows(news, ids)` whether it has to be read again.
// `rowsOf(data, state, shown)` and `keyOf(row)` turn the data into `state.rows`, which stay where they are. A view with `feed(ids, state)`, a path,
// has a stream of its own, whose lines go to `hear(line, state)`; the other views hear all news. `scan(text, state)` gets what is scanned.

// The links, and the views that belong to each of them. A view is a module of its name.
const PARTS = [
  { name: "today" },
  { name: "orders", views: ["order", "pick"] },
  { name: "scan" },
  { name: "products", views: ["product", "drop"] },
  { name: "dead-letters" },
  { name: "lanes" },
  { name: "dashboard", path: "/dashboard", isEmbedded: true },
  { name: "try", path: "/try", isEmbedded: true },
  { name: "contract", path: "/contract" },
];
const VIEWS = ["search", ...PARTS.flatMap(({ name, views = [] }) => [name, ...views])];

const states = new Map();
const NEWS = { starting: { text: T.live.starting, kind: "" }, on: { text: T.live.on, kind: "on" } };
const PAGE = "page"; // the key of messages about the page itself
// What is on the screen. `news` says whether it follows what happens, and `notice` why it cannot be read.
const shown = { about: null, view: null, ids: [], state: {}, isRead: false, isBusy: true, isAfresh: false, error: "", news: NEWS.starting, notice: "" };
let isStale = false;
let opening = 0;
let asked = Promise.resolve(); // the latest question
let reads = {}; // of the view: `now`, and the `next` one

// ---------------------------------------------------------------- drawing

function stageOf(about) {
  const kind = about === null ? "" : about.embedded ? "embedded" : about.production ? "production" : "account";
  return html`<p id="stage" data-kind=${kind}>${about === null ? "\u00a0" : T.stage[kind](about.place)}</p>`;
}

function navOf(about, name) {
  const parts = PARTS.filter((part) => !part.isEmbedded || about?.embedded);
  const isHere = (part) => part.name === name || part.views?.includes(name);
  return html`<nav aria-label=${T.parts}>${parts.map((part) => html`<a href=${part.path ?? hrefOf(part.name)} aria-current=${isHere(part) ? "page" : nothing}>${T.nav[part.name]}</a>`)}</nav>`;
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

function drawn({ name, view, data, state, ids, error, isRead }) {
  if (error) return { title: T.notReadable, content: problem(withCode(error)) };
  if (!isRead) return { title: T.reading, content: nothing };
  try {
    return { title: T.nav[name], about: T.about[name], ...view.draw(data, state, ids) };
  } catch (broken) {
    return { title: T.notReadable, content: problem(broken.message) };
  }
}

function draw() {
  const { view, state } = shown;
  const { title, about = "", controls = nothing, content } = drawn(shown);
  const { text, kind } = view?.feed ? state.news : shown.news;
  document.title = T.titleOf(title);
  const again = view ? view.read && (() => read(true)) : shown.name && open;
  const refresh = again ? button(T.refresh, again, { id: "refresh" }) : nothing;
  const live = view?.feed || view?.follows ? html`<span id="live" class=${kind} role="status">${withCode(text)}</span>` : nothing;
  render(
    html`${stageOf(shown.about)}${navOf(shown.about, shown.name)}
      <header><div><h1 id="title">${title}</h1><p id="about">${about}</p></div>${searchBox()}<div id="controls">${live}${controls}${refresh}</div></header>
      <main id="view" tabindex="-1" aria-busy=${shown.isBusy}>${content}</main>
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
  const { production, place } = shown.about;
  if ((!production && !warning) || isAgreed) return true;
  const all = [T.question(words), warning, production ? T.thisIs(place) : ""].filter(Boolean).join(" ");
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
    const data = await view.read?.(ids, state, isAfresh);
    if (mine !== reads) return;
    shown.data = data;
    arrange(isAfresh);
    Object.assign(shown, { isRead: true, error: "" });
  } catch (error) {
    if (mine !== reads) return;
    why = error.message;
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
  if (pathname !== "/") return [pathname.slice(1)];
  const [, name = "", ...ids] = hash.split("/").map(decoded);
  return VIEWS.includes(name) ? [name, ...ids] : ["today"];
}

async function open() {
  const [name, ...ids] = placeOf(location);
  const at = location.pathname + location.hash;
  shown.view?.stop?.(shown.state);
  if (!states.has(at)) states.set(at, {});
  const mine = (opening += 1);
  const found = await Promise.race([import(`./${name.replace("-", "_")}.js`), pause(LOAD_MILLISECONDS)]).catch(() => undefined);
  if (mine !== opening) return;
  arrive(at);
  forgetMessages();
  Object.assign(shown, { name, view: found ?? null, ids, state: states.get(at), isRead: false, isAfresh: true, error: found ? "" : T.gone, notice: "" });
  found?.start?.(shown.state, ids);
  feed();
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

// Follows a stream. `owner.news` says whether it does.
function listenTo(path, owner, hear, isKept) {
  const show = (news) => {
    owner.news = news;
    draw();
  };
  const take = (line) => {
    hear(line);
    if (owner.news !== NEWS.on) show(NEWS.on);
  };
  owner.news = NEWS.starting;
  return follow(path, take, (error) => show(error ? { text: T.live.off(error.message), kind: "off" } : NEWS.starting), isKept);
}

// Listens to the view's own stream; again, once the reader has chosen another one.
function feed() {
  const { view, ids, state } = shown;
  shown.end?.();
  shown.end = view?.feed && listenTo(view.feed(ids, state), state, (line) => view.hear(line, state), view.isKept);
}

function hear(news) {
  if (news.problem !== undefined) throw new Error(news.problem);
  isStale ||= shown.news.kind === "off";
  if (!shown.view?.feed) shown.view?.hear?.(news, shown.state);
  isStale ||= shown.view?.follows?.(news, shown.ids) ?? false;
}

// Reads the view again after news, at most once in a while, and not in a hidden tab.
async function keepFresh() {
  const least = LEAST_MILLISECONDS[shown.about.embedded ? "embedded" : "account"];
  for (;;) {
    await pause(least);
    if (!isStale || document.hidden) continue;
    isStale = false;
    await (shown.view ? read() : open());
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

async function readAbout() {
  for (;;) {
    try {
      return await ask("/data/about");
    } catch (error) {
      shown.error = error.message;
      draw();
      await pause(RETRY_MILLISECONDS);
    }
  }
}

document.querySelector("noscript").remove();
document.documentElement.lang = T.language;
Object.assign(page, { draw, read, arrange, feed, isMeant });
draw();
listenToKeys();
listenToScans(hearScan);
// A double click is one click. Its second one may be on what has come into the place of the first.
addEventListener("click", (event) => event.detail > 1 && event.target.closest("button:not(.sort, .close, .fold)") && swallow(event), true);
useCurrency((shown.about = await readAbout()).currency);
addEventListener("hashchange", open);
await open();
listenTo("/data/events", shown, hear);
// A hidden tab has missed the news.
document.addEventListener("visibilitychange", () => (isStale = true));
keepFresh();
