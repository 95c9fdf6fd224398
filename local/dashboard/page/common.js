// What both pages use.
"use strict";

const byId = (id) => document.getElementById(id);

let dismissed = null; // text of the notice that was closed

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

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
  // Text between backticks is a command.
  byId("notice-text").replaceChildren(...text.split("`").map((part, index) => (index % 2 ? element("code", { textContent: part }) : part)));
}

function dismissNotice() {
  dismissed = byId("notice").dataset.text;
  byId("notice").hidden = true;
}

// Its button closes the notice, and so does Escape, unless that closes something else.
function listenToNotice(escapes) {
  byId("notice").querySelector("button").addEventListener("click", dismissNotice);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && escapes() && !byId("notice").hidden) dismissNotice();
  });
}
