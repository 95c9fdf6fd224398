// One product, or its stock at one location: its numbers, what can be done with it, and its history.
import { atLocation, inWords, locationName, moment, number, price, signed } from "./format.js";
import { refuse, say } from "./messages.js";
import { button, card, change, choice, facts, field, folded, form, hint, hrefOf, html, link, messageOf, note, notesOf, nothing, problem, steady, table, units } from "./parts.js";
import { countOf } from "./product_count.js";
import { follow, historyOf } from "./product_history.js";
import { ask } from "./server.js";
import { STOCK_COLUMNS, carryOut, levelOf, listing, named, numbersOf, priceField, priceIn, stockBar } from "./stock.js";
import { T } from "./texts.js";

const ON_THE_WAY = "#"; // no location has this name
const MOST_UNITS = 1_000_000;
const TAKEN_OFF = ["DAMAGE", "LOSS"];

const queryOf = ({ productId, locationId = "" }) => new URLSearchParams({ id: productId, location: locationId });
const hrefParts = ({ productId, locationId }) => ["product", productId, ...(locationId ? [locationId] : [])];
const nameIn = (product) => (product.total ?? product).name ?? product.productId;

export function start(state) {
  delete state.history;
  delete state.delisted;
}

export async function read([productId, locationId], state) {
  // Its messages are still to be read.
  if (state.delisted) return state.delisted;
  const product = await ask(`/data/product?${queryOf({ productId, locationId })}`);
  state.rows = steady(state.rows, product.onTheWay ?? [], (lot) => lot.reference);
  follow(product, state);
  return product;
}

export const follows = ({ event }, [productId]) => {
  const { productId: its, items = [] } = event?.detail.data ?? {};
  return [its, ...items.map((item) => item.productId)].includes(productId);
};

// Changes the product. Its history is read again then.
function act(product, key, words, command, question) {
  const { state } = product;
  const work = async () => {
    const said = await carryOut(command);
    state.isChanged = true;
    if (command.action === "delist" && said === T.applied) state.delisted = product;
    return said;
  };
  return change(key, words, work, question);
}

// ---------------------------------------------------------------- goods

function receiptOf(product) {
  const receive = (fields, id) => {
    const delta = fields.delta.valueAsNumber;
    const command = { action: "adjust", adjustmentId: id, ...named(product), delta, reason: "RECEIPT", ...notesOf(fields, ["reference"]) };
    return act(product, "receive", T.product.receive(number(delta), inWords(product)), command);
  };
  return card(
    T.product.receiveTitle,
    form("receive", { text: T.product.receiveButton, send: receive, kind: "primary" }, units("receive", "delta", T.product.unitsIn, { min: 1, max: MOST_UNITS }), note("receive", "reference", T.product.reference)),
  );
}

function correctionOf(product) {
  const correct = (fields, id) => {
    const { reason: { value: reason }, delta: { valueAsNumber: delta } } = fields;
    const name = T.product.reasons[reason];
    if (delta > 0 && TAKEN_OFF.includes(reason)) {
      refuse("correct", T.product.takesOff(name, number(-delta)), ["delta"]);
      return false;
    }
    const command = { action: "adjust", adjustmentId: id, ...named(product), delta, reason, ...notesOf(fields, ["reference"]) };
    return act(product, "correct", T.product.correct(name, signed(delta), inWords(product)), command);
  };
  return card(
    T.product.correctTitle,
    form(
      "correct",
      { text: T.product.correctButton, send: correct },
      units("correct", "delta", T.product.unitsOff, { min: -MOST_UNITS, max: MOST_UNITS }),
      choice("reason", T.product.reason, Object.entries(T.product.reasons)),
      note("correct", "reference", T.product.referenceAlone),
    ),
  );
}

// Goods on the way are units that went out under a reference and did not come in under it.
function transferOf(product, names) {
  const { productId, locationId: here = "" } = product;
  const transfer = (fields, id) => {
    const [from, to, quantity] = [fields.from.value, fields.to.value, fields.quantity.valueAsNumber];
    const isLater = to === ON_THE_WAY;
    const out = { action: "adjust", adjustmentId: id, productId, locationId: from, delta: -quantity, reason: "TRANSFER_OUT", reference: id };
    const command = isLater ? out : { action: "transfer", transferId: id, productId, from, to, quantity };
    const words = T.product.transfer(number(quantity), productId, names[from], isLater ? undefined : names[to]);
    return act(product, "transfer", words, { ...command, ...notesOf(fields, ["reference"]) });
  };
  const options = Object.entries(names);
  return card(
    T.product.transferTitle,
    form(
      "transfer",
      { text: T.product.transferButton, send: transfer },
      choice("from", T.product.from, options, { value: here }),
      choice("to", T.product.to, [...options, [ON_THE_WAY, T.product.arriveLater]], { value: Object.keys(names).find((name) => name !== here) }),
      units("transfer", "quantity", T.product.unitsToTransfer, { min: 1, max: MOST_UNITS }),
      note("transfer", "reference", T.product.referenceAlone),
    ),
  );
}

function arrivalOf(product, { reference, from, units: most }, names) {
  const { productId } = product;
  const key = `arrive ${reference}`;
  const arrive = ({ arrived: { valueAsNumber: delta }, to: { value: to } }, id) => {
    const command = { action: "adjust", adjustmentId: id, productId, locationId: to, delta, reason: "TRANSFER_IN", reference };
    return act(product, key, T.product.arrival(number(delta), productId, names[to]), command);
  };
  return form(
    key,
    { text: T.product.arriveButton, send: arrive },
    units(key, "arrived", T.product.unitsArrived(reference), { min: 1, max: most, value: most }),
    choice("to", T.product.arriveAt, Object.entries(names), { value: Object.keys(names).find((name) => !from.includes(name)) }),
  );
}

function onTheWayOf(product, names) {
  const { rows } = product.state;
  if (rows.length === 0) return nothing;
  const columns = [
    { text: T.product.referenceOf, cell: ({ row }) => row.reference },
    { text: T.product.from, cell: ({ row }) => row.from.map((from) => names[from] ?? from).join(", ") },
    { text: T.product.since, cell: ({ row }) => moment(row.since) },
    { text: T.product.units, kind: "amount", cell: ({ row }) => number(row.units) },
    { text: T.product.arrived, kind: "wide", cell: ({ row, isGone }) => (isGone ? html`${T.product.allArrived}${messageOf(`arrive ${row.reference}`)}` : arrivalOf(product, row, names)) },
  ];
  return card(T.product.onTheWay, table({ label: T.product.onTheWay, columns, rows, keyOf: ({ row }) => row.reference, classOf: ({ isGone }) => (isGone ? "is-gone" : "") }));
}

// ---------------------------------------------------------------- what it is

// Only what differs: somebody else may have changed the other one since this page was read.
function changeOf(product, key, text, valuesIn) {
  return (fields) => {
    const changed = Object.entries(valuesIn(fields)).filter(([name, value]) => value !== product[name]);
    if (changed.length) return act(product, key, text, { action: "change", ...named(product), ...Object.fromEntries(changed) });
    refuse(key, T.product.same(text));
    return false;
  };
}

function limitsOf(product) {
  const valuesIn = ({ lowStockThreshold, backorderLimit }) => ({ lowStockThreshold: lowStockThreshold.valueAsNumber, backorderLimit: backorderLimit.valueAsNumber });
  return card(
    T.product.limitsTitle,
    form(
      "limits",
      { text: T.product.saveLimits, send: changeOf(product, "limits", T.product.change(inWords(product)), valuesIn) },
      units("limits", "lowStockThreshold", T.product.lowAt, { value: product.lowStockThreshold }),
      units("limits", "backorderLimit", T.product.backorders, { value: product.backorderLimit }),
    ),
  );
}

// Its name and price are the same at all locations.
function detailsOf({ productId, total, state, ...own }) {
  const { name = "", price: cents } = total ?? own;
  const valuesIn = (fields) => ({ ...notesOf(fields, ["name"]), ...priceIn(fields) });
  return card(
    T.product.detailsTitle,
    form(
      "details",
      { text: T.product.saveDetails, send: changeOf({ productId, name, price: cents, state }, "details", T.product.change(productId), valuesIn) },
      field("details", "name", T.product.name, { value: name, maxLength: 200, required: name !== "" }),
      priceField("details", cents),
    ),
  );
}

async function promisedIn(product) {
  const { units: amount, isExact, orders, ordersAreAll } = await ask(`/data/promised?${queryOf(product)}`);
  return amount === 0 ? T.product.nothingPromised : T.product.promised(number(amount), isExact, T.orders(orders), ordersAreAll);
}

function saleOf(product) {
  const { status, createdAt } = product;
  // The command for the product itself discontinues it everywhere.
  const what = product.total === undefined || product.locationId ? inWords(product) : T.product.everywhere(product.productId);
  const isOff = status === "DISCONTINUED";
  const end = async (text, target, command, warning) => {
    say("sale", T.product.looking);
    try {
      const question = { warning: T.pair(await promisedIn(product), warning), yes: text, kind: "danger" };
      say("sale", "");
      return await act(product, "sale", T.pair(text, target), { ...command, ...named(product) }, question);
    } catch (error) {
      refuse("sale", error.message);
      return false;
    }
  };
  const first = isOff
    ? button(T.product.listAgain, () => act(product, "sale", T.pair(T.product.listAgain, what), { action: "listAgain", ...named(product) }))
    : button(T.product.discontinue, () => end(T.product.discontinue, what, { action: "discontinue" }, T.product.discontinueWarning), { kind: "danger" });
  const delist = () => end(T.product.delist, inWords(product), { action: "delist", createdAt }, T.product.delistWarning(product.locationId ? inWords(product) : T.product.theProduct));
  const last = product.total && !product.locationId ? hint(T.product.hasPlaces) : button(T.product.delist, delist, { kind: "danger" });
  return card(T.product.saleTitle, hint(isOff ? T.product.isOff : T.product.isOn), html`<div class="actions">${first}${last}${messageOf("sale")}</div>`);
}

// ---------------------------------------------------------------- the page

function stockOf(product) {
  const { onHand, available, productId, isExact } = product;
  return html`<section class="card"><h2>${product.total ? T.product.stockAt(locationName(product)) : T.product.stock}</h2>${stockBar(product)}${numbersOf(product)}
    ${available < 0 ? problem(T.product.isShort(number(-available), number(onHand))) : nothing}
    <p>${levelOf(product)}${isExact ? nothing : ` ${T.product.notExact}`}</p>
    ${hint(T.product.committedMeans)}<p>${link(T.product.watch, "drop", productId)}</p></section>`;
}

// The locations of a product: what there is at each, and at all.
function locationsOf({ total, locationId = "" }) {
  const place = ({ row }) => (row.places ? html`<strong>${T.product.allLocations}</strong>` : html`<a href=${hrefOf(...hrefParts(row))} aria-current=${(row.locationId ?? "") === locationId ? "page" : nothing}>${locationName(row)}</a>`);
  const rows = [...total.places, total].map((row) => ({ row }));
  const columns = [{ text: T.product.location, kind: "wide", cell: place }, ...STOCK_COLUMNS];
  return card(T.product.atAll, table({ label: T.product.atAll, columns, rows, keyOf: ({ row }) => (row.places ? "#" : (row.locationId ?? "")), classOf: ({ row }) => (row.places ? "total" : "") }));
}

// Where its available units are, for operators.
function lanesOf({ stockCount, inLanes, version, createdAt }) {
  const lanes = Object.entries(inLanes).map(([lane, amount]) => [T.product.lane(Number(lane)), number(amount)]);
  return folded(T.product.forOperators, hint(T.product.lanesMean), facts([[T.product.inRow, number(stockCount)], ...lanes, [T.product.version, number(version)], [T.product.listed, moment(createdAt)]]), html`<p>${link(T.lanes.title, "lanes")}</p>`);
}

function goneOf(product) {
  const back = product.locationId ? link(nameIn(product), "product", product.productId) : link(T.allProducts.title, "products");
  return { title: nameIn(product) + atLocation(product), about: T.product.isGone, content: [card(T.product.saleTitle, messageOf("sale"), html`<p>${back}</p>`)] };
}

export function draw(found, state) {
  const product = { ...found, state };
  if (state.delisted) return goneOf(product);
  const { productId, total, createdAt } = product;
  const names = total && Object.fromEntries(total.places.map((one) => [one.locationId ?? "", locationName(one)]));
  const cents = (total ?? product).price;
  return {
    title: nameIn(product) + atLocation(product),
    about: [productId, ...(cents === undefined ? [] : [price(cents)]), T.product.listedAt(moment(createdAt))].join(" · "),
    content: [
      total ? locationsOf(product) : nothing,
      html`<div class="cards">${stockOf(product)}${receiptOf(product)}${countOf(product)}${correctionOf(product)}</div>`,
      total ? [transferOf(product, names), onTheWayOf(product, names)] : nothing,
      historyOf(product),
      html`<div class="cards">${limitsOf(product)}${detailsOf(product)}${saleOf(product)}</div>`,
      listing(productId),
      lanesOf(product),
    ],
  };
}
