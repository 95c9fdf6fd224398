// Labels of a product or an order, several on a sheet, to be printed.
import { label, labelOfId } from "./barcode.js";
import { page } from "./messages.js";
import { button, choice, hint, html, labelled, nothing } from "./parts.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

const MOST_COPIES = 200;

export const read = ([kind, id]) => (kind === "product" ? api("GET", pathOf("products", id)) : { name: T.order.title(id) });

const codeOf = ({ barcodes = [] }, state) => barcodes.find(({ code }) => code === state.code) ?? (state.code === "" ? undefined : barcodes[0]);

export function draw(found, state, [kind, id]) {
  const { name = id, barcodes = [] } = found;
  const { copies = 1 } = state;
  const chosen = codeOf(found, state);
  const { text, symbol } = chosen ? label(chosen.code) : labelOfId(id);
  const set = (changed) => {
    Object.assign(state, changed);
    page.draw();
  };
  const typeCopies = ({ target: { valueAsNumber } }) => set({ copies: Math.min(MOST_COPIES, Math.max(1, Math.trunc(valueAsNumber) || 1)) });
  const options = [...barcodes.map(({ code, units }) => [code, T.labels.code(label(code).text, T.units(units))]), ["", T.labels.id(id)]];
  const codes = kind === "product" ? choice("code", T.labels.which, options, { value: chosen?.code ?? "", onChange: ({ target }) => set({ code: target.value }) }) : nothing;
  const number = labelled(T.labels.copies, html`<input type="number" name="copies" min="1" max=${MOST_COPIES} value="1" @change=${typeCopies}>`);
  const lines = [kind === "product" ? id : "", chosen?.units > 1 ? T.units(chosen.units) : ""].filter(Boolean).join(" · ");
  const one = html`<li><strong>${name}</strong>${lines ? html`<small>${lines}</small>` : nothing}${symbol}<span>${text}</span></li>`;
  return {
    title: T.labels.title(name),
    about: T.labels.about,
    controls: button(T.pick.print, () => print(), { kind: "primary" }),
    content: html`<div class="filters">${codes}${number}</div>${symbol === nothing ? hint(T.labels.tooLong) : html`<ul class="labels">${Array.from({ length: copies }, () => one)}</ul>`}`,
  };
}
