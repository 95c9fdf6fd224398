// The building blocks of all pages: cards, facts, tables, forms and buttons.
import { html, nothing, svg } from "lit-html";
import { keyed } from "lit-html/directives/keyed.js";
import { ref } from "lit-html/directives/ref.js";
import { repeat as each } from "lit-html/directives/repeat.js";
import { knownLocations, may, readLocations } from "./caller.js";
import { number, wholeIn } from "./format.js";
import { changed, draftOf, drop, idOf, isKept, isTyped } from "./drafts.js";
import { change, idOfMessage, isWrong, messageOf, page, refuse } from "./messages.js";
import { T } from "./texts.js";

export { change, html, messageOf, nothing, svg };

// Only the local server has pages with a path of their own.
const START = /\/(page\.html)?$/.test(location.pathname) ? "" : "./";
export const hrefOf = (path, ...parts) => `${START}#/${[path, ...parts].map(encodeURIComponent).join("/")}`;
// Whether the caller may open a page.
export const mayOpen = (path) => path !== "product" || may("stock.read");
// The text alone, if the caller may not open the page.
export const link = (text, path, ...parts) => (mayOpen(path) ? html`<a href=${hrefOf(path, ...parts)}>${text}</a>` : text);
export const card = (title, ...content) => html`<section class="card"><h2>${title}</h2>${content}</section>`;

// A card that is closed at first.
export const folded = (title, ...content) => html`<details class="card"><summary>${title}</summary>${content}</details>`;

export const hint = (text) => html`<p class="hint">${text}</p>`;
export const problem = (text) => html`<p class="problem">${text}</p>`;

export function facts(pairs) {
  return html`<dl>${pairs.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

// Draws rows, told apart by `keyOf`. One that cannot be drawn says so in its place, in an element that `around` makes of it.
export const repeat = (rows, keyOf, draw, around = (why) => why) =>
  each(rows, keyOf, (row, at) => {
    try {
      return draw(row, at);
    } catch (error) {
      console.error(error);
      return around(problem(T.notDrawn(keyOf(row), error.message)));
    }
  });

// ---------------------------------------------------------------- tables

// Keeps rows where they are on the screen: rows that have gone stay, marked `isGone`, and new rows come last.
export function steady(shown, found, keyOf) {
  if (shown === undefined) return found;
  const left = new Map(found.map((row) => [keyOf(row), row]));
  const kept = shown.map((row) => left.get(keyOf(row)) ?? { ...row, isGone: true });
  for (const row of shown) left.delete(keyOf(row));
  return [...kept, ...left.values()];
}

// Sorts rows by a column, if the reader has chosen one: `sort` is { by, isDown }.
export function sorted(rows, columns, sort) {
  const valueOf = columns[sort?.by]?.sort;
  if (valueOf === undefined) return rows;
  const way = sort.isDown ? -1 : 1;
  const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);
  return [...rows].sort((one, other) => way * compare(valueOf(one), valueOf(other)));
}

function headOf(column, at, sort, onSort) {
  if (column.sort === undefined || onSort === undefined) return html`<th scope="col" role="columnheader" class=${column.kind ?? ""}>${column.text}</th>`;
  const isBy = sort?.by === at;
  const order = isBy ? (sort.isDown ? "descending" : "ascending") : "none";
  const press = () => onSort({ by: at, isDown: isBy ? !sort.isDown : column.kind === "amount" });
  return html`<th scope="col" role="columnheader" class=${column.kind ?? ""} aria-sort=${order}><button type="button" class="sort" @click=${press}>${column.text}</button></th>`;
}

// A phone shows no heads of columns: there, this sorts.
export function sortChoice(columns, sort, onSort) {
  const options = columns.flatMap((column, at) => (column.sort ? ["↑", "↓"].map((way, isDown) => [`${at} ${isDown}`, T.pair(column.text, way)]) : []));
  const choose = ({ target }) => {
    const [by, isDown] = target.value.split(" ").map(Number);
    onSort(target.value ? { by, isDown: isDown === 1 } : undefined);
  };
  return html`<div class="phone">${choice("sort", T.sortBy, [["", T.unsorted], ...options], { value: sort ? `${sort.by} ${Number(sort.isDown)}` : "", onChange: choose })}</div>`;
}

// A table, whose rows are cards on a phone. A column has `text`, `cell(row)`, `sort(row)`, if it can be sorted by, and a
// `kind`: "amount" for numbers, of which a card has three in a line, "two" for a cell next to one, "wide" for one without a
// heading. Roles are named, because CSS takes those away.
export function table({ label, columns, rows, keyOf, classOf = ({ isGone }) => (isGone ? "is-gone" : ""), sort, onSort }) {
  const broken = (why) => html`<tr role="row"><td role="cell" class="wide" colspan=${columns.length}>${why}</td></tr>`;
  const cellOf = (row) => (column) => html`<td role="cell" class=${column.kind ?? ""} data-label=${column.text}>${column.cell(row)}</td>`;
  return html`<table class="list" role="table" aria-label=${label}>
    <thead role="rowgroup"><tr role="row">${columns.map((column, at) => headOf(column, at, sort, onSort))}</tr></thead>
    <tbody role="rowgroup">${repeat(rows, keyOf, (row) => html`<tr role="row" class=${classOf(row)}>${columns.map(cellOf(row))}</tr>`, broken)}</tbody>
  </table>`;
}

// ---------------------------------------------------------------- forms

export const labelled = (text, field) => html`<label><span>${text}</span>${field}</label>`;

// An input of the form `key`. `properties` are those of its element, and `value` what it begins with. `faultOf(value)` says what is wrong with a value.
export function field(key, name, text, { value = "", required = true, maxLength, placeholder, inputMode, faultOf } = {}) {
  const wrong = isWrong(key, name);
  return labelled(
    text,
    html`<input name=${name} type="text" value=${value} ?required=${required}
      maxlength=${maxLength ?? nothing} placeholder=${placeholder ?? nothing} inputmode=${inputMode ?? nothing} .faultOf=${faultOf} autocomplete="off" aria-invalid=${wrong ? "true" : nothing} aria-describedby=${wrong ? idOfMessage(key) : nothing}>`,
  );
}

// What a field for a location suggests, with `list="places"` and `@focus=${suggest}`: the latter reads more of them.
export const locationsList = () => html`<datalist id="places">${knownLocations().map((place) => html`<option value=${place}></option>`)}</datalist>`;
export const suggest = () => readLocations().then(page.draw, () => undefined);

// A whole number. Phones have a minus only on a keyboard of letters.
export function units(key, name, text, { min = 0, max = 1_000_000_000, ...properties } = {}) {
  const isWhole = (value) => wholeIn(value) >= min && wholeIn(value) <= max;
  const faultOf = (value) => (value.trim() === "" || isWhole(value) ? "" : T.noWhole(value, number(min), number(max)));
  return field(key, name, text, { inputMode: min < 0 ? "text" : "numeric", faultOf, ...properties });
}

// What the books keep of a change beside its numbers.
export const note = (key, name, text) => field(key, name, text, { required: false, maxLength: 128 });

export function notesOf(fields, names) {
  return Object.fromEntries(names.map((name) => [name, fields[name].value.trim()]).filter(([, value]) => value !== ""));
}

export function checkbox(name, text, properties = {}) {
  return html`<label class="check"><input type="checkbox" name=${name} ?checked=${properties.checked} .checked=${properties.checked ?? false} @change=${properties.onChange}> ${text}</label>`;
}

// `options` are pairs of a value and its text. `value` is what is chosen at first.
export function choice(name, text, options, { value = options[0][0], onChange } = {}) {
  return labelled(text, html`<select name=${name} @change=${onChange}>${options.map(([key, words]) => html`<option value=${key} ?selected=${key === value} .selected=${key === value}>${words}</option>`)}</select>`);
}

// The first field that is not filled in as it should be, in words.
function wrongField(form) {
  for (const element of form.elements) element.setCustomValidity(element.faultOf?.(element.value) ?? "");
  const wrong = [...form.elements].find((element) => element.willValidate && !element.checkValidity());
  const label = wrong?.labels?.[0]?.textContent.trim() ?? wrong?.ariaLabel;
  return wrong && { wrong, words: T.done(label, wrong.validationMessage) };
}

// What was typed comes back after a reload, and stays whatever becomes of the page.
function fill({ elements }, typed) {
  for (const field of [...elements].filter(({ name }) => Object.hasOwn(typed, name))) {
    const value = typed[field.name];
    if (field.type === "radio") field.checked = field.value === value;
    else if (field.type === "checkbox") field.checked = value;
    else if (field.value !== value) field.value = value;
    if (field.selectedIndex === -1) field.selectedIndex = 0; // what was chosen is gone
  }
}

// The fields as they are now: a change may have to wait.
const valuesOf = ({ elements }) =>
  Object.fromEntries([...elements].filter(({ type, checked }) => type !== "radio" || checked).map(({ name, value, checked, defaultValue }) => [name, { value, valueAsNumber: wholeIn(value), checked, defaultValue }]));

// A form whose button, or Enter, calls `send(fields, id)`. `send` returns whether it was done, and calls `change(key, ...)`.
// `more` comes behind the button. A form or a button with another text is another element, so that a second Enter does not press it.
export function form(key, { text, send, kind = "", more = nothing }, ...content) {
  const submit = async (event) => {
    event.preventDefault();
    const made = event.currentTarget;
    const found = wrongField(made);
    if (found) {
      refuse(key, found.words, [found.wrong.name]);
      found.wrong.focus();
    } else if ((await send(valuesOf(made), idOf(key))) && !isTyped(key)) document.forms[key]?.reset();
  };
  // What is as it was at first is not typed.
  const type = ({ target: { name, type: kindOf, checked, value, defaultChecked, defaultValue, selectedOptions: [option] = [] } }) =>
    changed(key, { [name]: (option?.defaultSelected ?? (/radio|checkbox/.test(kindOf) ? checked === defaultChecked : value === defaultValue)) ? undefined : kindOf === "checkbox" ? checked : value });
  const discard = () => {
    drop(draftOf(key));
    page.draw();
  };
  const kept = isKept(key) ? html`<p class="hint kept">${T.typedBefore} <button type="reset">${T.discardTyped}</button></p>` : nothing;
  const filled = ref((made) => made && fill(made.closest("form"), draftOf(key).values));
  return keyed(text, html`<form name=${key} novalidate @submit=${submit} @input=${type} @reset=${discard}>${content}<button class=${kind} ${filled}>${text}</button>${more}${kept}${messageOf(key)}</form>`);
}

export function button(text, work, { kind = "", label, isDisabled = false, id } = {}) {
  return keyed(id ?? text, html`<button type="button" id=${id ?? nothing} class=${kind} aria-label=${label ?? nothing} ?disabled=${isDisabled} @click=${work}>${text}</button>`);
}
