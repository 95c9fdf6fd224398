// What all parts use: the token, the bar that says which stack this is, the links between the parts, and notices.
"use strict";

const byId = (id) => document.getElementById(id);

const PARTS = [
  { name: "Products", path: "/#/products" },
  { name: "Orders", path: "/#/orders" },
  { name: "Dead letters", path: "/#/dead-letters" },
  { name: "Lanes", path: "/#/lanes" },
  { name: "Dashboard", path: "/dashboard", embedded: true },
  { name: "Try it", path: "/try", embedded: true },
  { name: "API", path: "/contract" },
];

// The address that the command prints ends with the token. It stays in this tab, and out of the address that others see.
const TOKEN = (() => {
  const [, given] = location.hash.match(/^#token=(.+)$/) ?? [];
  if (given !== undefined) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem("token") ?? "";
})();

let dismissed = null; // text of the notice that was closed

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

// Text between backticks is a command or a name of the code.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", { textContent: part }) : part));
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---------------------------------------------------------------- the server

// Whether the server did what it was asked is not known.
class LostAnswerError extends Error {}

class GoneError extends LostAnswerError {}

async function request(path, options = {}) {
  try {
    return await fetch(path, { ...options, headers: { ...options.headers, "X-Desk-Token": TOKEN } });
  } catch {
    throw new GoneError("the server of this page has ended: start it again by `make desk` or `make dashboard`");
  }
}

async function ask(path, options) {
  const answer = await request(path, options);
  if (!answer.ok) throw new (answer.status === 504 ? LostAnswerError : Error)((await answer.text()).trim());
  return answer.json();
}

// ---------------------------------------------------------------- what was done

function report(words) {
  setText(byId("said"), words);
  setText(byId("refused"), "");
}

function refuse(words) {
  setText(byId("said"), "");
  setText(byId("refused"), words);
}

// Carries out what the operator asked for. What goes wrong on the way is said like a refusal.
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    refuse(`Failed: ${error.message}`);
  }
}

// ---------------------------------------------------------------- the frame

function live(text, state) {
  const node = byId("live");
  setText(node, text);
  node.className = state;
}

function notice(text) {
  const node = byId("notice");
  if (text === "") dismissed = null;
  node.hidden = text === "" || text === dismissed;
  if (node.dataset.text === text) return;
  node.dataset.text = text;
  byId("notice-text").replaceChildren(...withCode(text));
}

function dismissNotice() {
  dismissed = byId("notice").dataset.text;
  byId("notice").hidden = true;
}

// The links work at once; what they say of the stack comes with the first answer.
const frame = (() => {
  const bar = element("p", { id: "stage" }, "\u00a0");
  const links = PARTS.map((part) => {
    const link = element("a", { href: part.path, textContent: part.name, hidden: part.embedded === true });
    return { part, link };
  });
  const nav = element("nav", { ariaLabel: "Parts" }, ...links.map(({ link }) => link));
  const close = element("button", { type: "button", className: "close", ariaLabel: "Close this notice", textContent: "×" });
  const box = element("div", { id: "notice", role: "status", hidden: true }, element("span", { id: "notice-text" }), close);
  document.body.prepend(bar, nav);
  document.body.append(box);
  close.addEventListener("click", dismissNotice);
  // Escape closes the notice, unless it closes something else.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.querySelector("dialog[open]") === null && !box.hidden) dismissNotice();
  });

  function showPlace() {
    const here = location.pathname + (location.pathname === "/" ? location.hash || "#/products" : "");
    // The page of one order belongs to the orders.
    for (const { part, link } of links) link.ariaCurrent = here.startsWith(part.path.replace(/s$/, "")) ? "page" : null;
  }
  addEventListener("hashchange", () => {
    // The address of a newer server was opened in this tab.
    if (location.hash.startsWith("#token=")) location.reload();
    showPlace();
  });
  showPlace();

  function showStack(about) {
    const kind = about.embedded ? "embedded" : about.production ? "production" : "account";
    const name = { embedded: "Embedded AWS on this machine", production: "PRODUCTION", account: "AWS" }[kind];
    setText(bar, `${name}: ${about.place}`);
    bar.dataset.kind = kind;
    for (const { part, link } of links) link.hidden = part.embedded === true && !about.embedded;
  }
  return { showStack };
})();

// What the server says of the stack, as soon as it can.
const ABOUT = (async () => {
  for (;;) {
    try {
      const about = await ask("/data/about");
      frame.showStack(about);
      notice("");
      return about;
    } catch (error) {
      notice(error.message);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
})();
