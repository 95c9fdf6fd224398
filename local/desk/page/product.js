// One product, or its stock at one location: its numbers, what can be done with it, and its history.
import { may } from "./caller.js";
import { atLocation, bookedAt, inWords, locationName, moment, number, person, price, signed } from "./format.js";
import { refuse, withCode } from "./messages.js";
import { button, card, change, choice, facts, field, folded, form, hint, hrefOf, html, link, messageOf, note, notesOf, nothing, problem, table, units } from "./parts.js";
import { countOf } from "./product_count.js";
import { follow, historyOf } from "./product_history.js";
import { api, carryOut, isLocal, pathOf } from "./server.js";
import { STOCK_COLUMNS, levelOf, listing, named, numbersOf, priceField, priceIn, stockBar, totalOf } from "./stock.js";
import { T } from "./texts.js";

const MOST_UNITS = 1_000_000;
const TAKES_OFF = ["DAMAGE", "LOSS"];
const BARCODE = /^=?[!-)+-<>-~][!-)+-~]{0,63}(\*[1-9]\d{0,5})?$/; // and its units

const nameIn = (product) => (product.total ?? product).name ?? product.productId;

export const start = (state) => Object.assign(state, { history: undefined, delisted: undefined });

// For callers who do not see the product's own stock, that of their first location stands for it.
function levelIn(levels, productId, locationId = "") {
  const isIt = (level) => (level.locationId ?? "") === locationId;
  const found = levels.find(isIt) ?? (locationId ? undefined : levels[0]);
  if (found === undefined) throw new Error(T.product.none(inWords({ productId, locationId })));
  return found;
}

export async function read([productId, locationId], state) {
  // What came of it is still to be read.
  if (state.delisted) return state.delisted;
  const [stock, details] = await Promise.all([api("GET", pathOf("stock", productId)), may("products.read") ? api("GET", pathOf("products", productId)) : undefined]);
  const product = levelIn(stock.places ?? [stock], productId, locationId);
  // All locations share them.
  product.barcodes = details && (details.barcodes ?? []);
  if (stock.places) {
    const { transfers } = await api("GET", "/transfers");
    Object.assign(product, { total: totalOf(stock), onTheWay: transfers.filter((one) => one.productId === productId) });
  }
  follow(product, state);
  return product;
}

export const follows = ({ products, isAll }, [productId]) => !isAll || products.some((one) => one.productId === productId);

// Changes the product. Then its history is read again. `outcome` says what a change came to.
function act(product, key, words, command, question, outcome = T.applied) {
  const { state } = product;
  const work = async () => {
    const said = await carryOut(command);
    state.isChanged = true;
    if (command.action === "delist" && said === T.applied) state.delisted = product;
    return said === T.applied ? outcome : said;
  };
  return change(key, words, work, question);
}

function formCard(key, send, ...fields) {
  const { title, text } = T.product.forms[key];
  return card(title, form(key, { text, send }, ...fields));
}

// ---------------------------------------------------------------- goods

function adjustment({ productId, locationId = "" }, id, delta, reason, fields) {
  return { action: "adjust", adjustmentId: id, productId, locationId, delta, reason, ...notesOf(fields, ["reference"]) };
}

function receiptOf(product) {
  const receive = (fields, id) => {
    const delta = fields.delta.valueAsNumber;
    return act(product, "receive", T.product.receive(number(delta), bookedAt(product)), adjustment(product, id, delta, "RECEIPT", fields));
  };
  return formCard("receive", receive, units("receive", "delta", T.product.unitsIn, { min: 1, max: MOST_UNITS }), note("receive", "reference", T.product.deliveryNote));
}

function correctionOf(product) {
  const correct = (fields, id) => {
    const { reason: { value: reason }, delta: { valueAsNumber: delta } } = fields;
    const name = T.product.reasons[reason];
    const words = T.product.correct(name, signed(delta), bookedAt(product));
    if (delta < 0 || !TAKES_OFF.includes(reason)) return act(product, "correct", words, adjustment(product, id, delta, reason, fields));
    return refuse("correct", T.product.takesOff(name, number(-delta)), ["delta"]);
  };
  const delta = units("correct", "delta", T.product.unitsOff, { min: -MOST_UNITS, max: MOST_UNITS });
  const reason = choice("reason", T.product.reason, Object.entries(T.product.reasons));
  return formCard("correct", correct, delta, reason, note("correct", "reference", T.product.reference));
}

function transferOf(product, names) {
  const { productId, locationId: here = "" } = product;
  const transfer = (fields, id) => {
    const [from, to, quantity] = [fields.from.value, fields.to.value, fields.quantity.valueAsNumber];
    const command = { action: "transfer", transferId: id, productId, from, to, quantity, ...notesOf(fields, ["reference"]) };
    return act(product, "transfer", T.product.transfer(number(quantity), productId, names[from], names[to]), command);
  };
  const places = Object.entries(names);
  const fields = [
    choice("from", T.product.from, places, { value: here }),
    choice("to", T.product.to, places, { value: Object.keys(names).find((name) => name !== here) }),
    units("transfer", "quantity", T.product.unitsToTransfer, { min: 1, max: MOST_UNITS }),
    note("transfer", "reference", T.product.reference),
  ];
  const { title, text } = T.product.forms.transfer;
  return card(title, form("transfer", { text, send: transfer }, fields), html`<p>${link(T.product.arriveLater, "send")}</p>`);
}

function onTheWayOf({ onTheWay }, names) {
  const placesIn = (places) => places.map((name) => names[name] ?? name).join(", ");
  const itemOf = ({ reference, from, to, since, units: amount }) => html`<li>${link(reference, "arrive", reference)}: ${T.product.lot(T.units(amount), placesIn(from), placesIn(to), moment(since))}</li>`;
  return onTheWay.length ? card(T.product.onTheWay, html`<ul>${onTheWay.map(itemOf)}</ul>`) : nothing;
}

// ---------------------------------------------------------------- what it is

// Sends only what differs: another desk may have changed the rest since this page was read.
function changesOf(product, key, valuesIn) {
  return (fields) => {
    const words = T.product.change(inWords(product));
    const changed = Object.entries(valuesIn(fields)).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(product[name]));
    const seen = changed.some(([name]) => name === "barcodes") ? { ifBarcodes: product.barcodes } : {};
    const command = { action: "change", ...named(product), ...Object.fromEntries(changed), ...seen };
    const outcome = changed.map(([name, value]) => T.product.changed[name](value)).join(", ");
    if (changed.length) return act(product, key, words, command, undefined, outcome);
    return refuse(key, T.product.same(words));
  };
}

function limitsOf(product) {
  const names = ["lowStockThreshold", "backorderLimit", "safetyStock", "purchaseLimit"];
  const stored = { safetyStock: 0, purchaseLimit: 0, limitGroup: product.productId, ...product };
  const valuesIn = (fields) => ({ ...Object.fromEntries(names.map((name) => [name, fields[name].valueAsNumber])), ...notesOf(fields, ["limitGroup"]) });
  const most = { purchaseLimit: { max: MOST_UNITS } };
  const fields = names.map((name) => units("limits", name, T.product[name], { value: stored[name], ...most[name] }));
  const group = field("limits", "limitGroup", T.product.limitGroup, { value: stored.limitGroup, maxLength: 128 });
  return formCard("limits", changesOf(stored, "limits", valuesIn), fields, group);
}

// Barcodes as they are typed: a case of 12 units is code*12.
const barcodesInWords = (barcodes) => barcodes.map(({ code, units: each }) => (each === 1 ? code : `${code}*${each}`)).join(" ");
const barcodesIn = (text) =>
  text.split(/\s+/).filter(Boolean).map((word) => {
    const [code, each = "1"] = word.split("*");
    return { code, units: Number(each) };
  });
const barcodeFault = (text) => {
  const wrong = text.split(/\s+/).find((word) => word && !BARCODE.test(word));
  return wrong ? T.product.noBarcode(wrong) : "";
};

// Name, price and barcodes are the same at all locations.
function detailsOf({ productId, barcodes, total, state, ...own }) {
  const { name = "", price: amount } = total ?? own;
  const valuesIn = (fields) => ({ ...notesOf(fields, ["name"]), ...priceIn(fields), ...(barcodes && { barcodes: barcodesIn(fields.barcodes.value) }) });
  const nameField = field("details", "name", T.product.name, { value: name, maxLength: 200, required: name !== "" });
  const codes = barcodes && field("details", "barcodes", T.product.barcodesField, { value: barcodesInWords(barcodes), required: false, faultOf: barcodeFault });
  return formCard("details", changesOf({ productId, name, price: amount, barcodes, state }, "details", valuesIn), nameField, priceField("details", amount), codes ?? nothing);
}

// A product that is discontinued without a location is discontinued everywhere.
async function promisedIn({ productId, locationId }) {
  const { committed, isExact } = await api("GET", pathOf("stock", productId), { query: { locationId } });
  return committed === 0 ? T.product.nothingPromised : T.product.promised(number(committed), isExact);
}

function saleOf(product) {
  const { status, createdAt, locationId, total, productId } = product;
  const hasPlaces = total !== undefined && !locationId;
  // The command for the product itself, unlike the one to delist it, is about all of its locations.
  const what = hasPlaces ? T.product.everywhere(productId) : inWords(product);
  const end = (text, command, warning) => () => {
    const question = async () => ({ warning: T.pair(await promisedIn(product), warning), yes: text, kind: "danger" });
    return act(product, "sale", T.pair(text, what), { ...command, ...named(product) }, question);
  };
  const { discontinue, delist, listAgain } = T.product;
  const isOff = status === "DISCONTINUED";
  const first = isOff
    ? button(listAgain, () => act(product, "sale", T.pair(listAgain, what), { action: "listAgain", ...named(product) }))
    : button(discontinue, end(discontinue, { action: "discontinue" }, T.product.discontinueWarning), { kind: "danger" });
  const last = hasPlaces ? hint(T.product.hasPlaces) : button(delist, end(delist, { action: "delist", createdAt }, T.product.delistWarning(what)), { kind: "danger" });
  return card(T.product.saleTitle, hint(isOff ? T.product.isOff : T.product.isOn), html`<div class="actions">${first}${last}${messageOf("sale")}</div>`);
}

// ---------------------------------------------------------------- the page

function stockOf(product) {
  const { available, leftToSell, leftByDefault, productId, isExact, total, barcodes = [], safetyStock, purchaseLimit, limitGroup } = product;
  return card(
    total ? T.product.stockAt(locationName(product)) : T.product.stock,
    stockBar(product),
    numbersOf(product),
    available < 0 ? problem(T.product.isShort(number(-available))) : nothing,
    leftToSell && !leftByDefault ? hint(withCode(T.product.leftOut)) : nothing,
    safetyStock ? hint(T.product.leaves(number(safetyStock))) : nothing,
    purchaseLimit ? hint(T.product.isLimited(number(purchaseLimit), limitGroup !== productId && limitGroup)) : nothing,
    html`<p>${levelOf(product)}${isExact ? nothing : ` ${T.product.notExact}`}</p>${hint(T.product.committedMeans)}
      ${barcodes.length && !may("products.write") ? html`<p>${T.product.barcodes(barcodesInWords(barcodes))}</p>` : nothing}<p>${link(T.product.watch, "drop", productId)}${may("products.read") ? html` · ${link(T.labels.print, "labels", "product", productId)}` : nothing}</p>`,
  );
}

// What there is at each location, and at all.
function locationsOf({ total, productId, locationId: here = "" }) {
  const linkTo = ({ locationId = "", ...one }) =>
    html`<a href=${hrefOf("product", productId, ...(locationId ? [locationId] : []))} aria-current=${locationId === here ? "page" : nothing}>${locationName({ ...one, locationId })}</a>`;
  const place = (row) => (row.places ? html`<strong>${T.product.allLocations}</strong>` : linkTo(row));
  const columns = [{ text: T.product.location, kind: "wide", cell: place }, ...STOCK_COLUMNS];
  const how = { keyOf: ({ places, locationId }) => (places ? "#" : (locationId ?? "")), classOf: ({ places }) => (places ? "total" : "") };
  return card(T.product.atAll, table({ label: T.product.atAll, columns, rows: [...total.places, total], ...how }));
}

// Where its available units are, for operators.
function lanesOf({ stockCount, inLanes, version, createdAt, changedBy, changedAt }) {
  const lanes = Object.entries(inLanes).map(([lane, amount]) => [T.product.lane(Number(lane)), number(amount)]);
  const all = [[T.product.inRow, number(stockCount)], ...lanes, [T.product.version, number(version)], [T.product.listed, moment(createdAt)], [T.product.changedBy, changedBy && T.by(person(changedBy), moment(changedAt))]];
  return folded(T.product.forOperators, hint(T.product.lanesMean), facts(all), isLocal() ? html`<p>${link(T.nav.lanes, "lanes")}</p>` : nothing);
}

export function draw(found, state) {
  const product = { ...found, state };
  const { productId, locationId, total, createdAt } = product;
  const title = nameIn(product) + atLocation(product);
  if (state.delisted) {
    const back = locationId ? link(nameIn(product), "product", productId) : link(T.nav.products, "products");
    return { title, about: T.product.isGone, content: [card(T.product.saleTitle, messageOf("sale"), html`<p>${back}</p>`)] };
  }
  const [adjusts, writes] = ["stock.adjust", "products.write"].map(may);
  const names = total && Object.fromEntries(total.places.map((one) => [one.locationId ?? "", locationName(one)]));
  return {
    title,
    about: [productId, price((total ?? product).price), T.product.listedAt(moment(createdAt))].filter(Boolean).join(" · "),
    content: [
      total ? locationsOf(product) : nothing,
      html`<div class="cards">${stockOf(product)}${adjusts ? receiptOf(product) : nothing}${may("stock.count") ? countOf(product) : nothing}${adjusts ? correctionOf(product) : nothing}</div>`,
      total && adjusts ? [transferOf(product, names), onTheWayOf(product, names)] : nothing,
      writes ? [html`<div class="cards">${limitsOf(product)}${saleOf(product)}</div>`, detailsOf(product)] : nothing,
      historyOf(product),
      writes ? listing(productId) : nothing,
      lanesOf(product),
    ],
  };
}
