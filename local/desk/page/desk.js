// The desk: products, orders, dead letters and lanes of a stack. A view reads when it is shown; each change is a command.
"use strict";

const MOST_ROWS = 300; // the search finds the others
const READ_AT_ONCE = 20_000; // orders that a history may read without a click
const COUNT_SECONDS = 600; // how long a count keeps orders waiting, unless it is booked before
const EVERYWHERE = "#"; // no location has this name
const ON_THE_WAY = "#"; // nor this one

const LEVELS = { OUT_OF_STOCK: "out of stock", LOW_STOCK: "low", ACTIVE: "in stock", DISCONTINUED: "discontinued" };
const REASONS = { CORRECTION: "Correction", DAMAGE: "Damage", LOSS: "Loss", RETURN: "Return" };
const PARTS_OF_ORDERS = {
  fulfil: { title: "Ship a part", label: (product) => `Units of ${product} that leave` },
  cancel: { title: "Cancel a part", label: (product) => `Units of ${product} to cancel`, lost: "Lost or broken: do not sell again" },
  return: { title: "Take back", label: (product) => `Units of ${product} that came back`, lost: "Broken: do not sell again" },
};
const OUTCOMES = { REPLAYED: "done before, nothing changed", STALE: "nothing changed, because it was listed anew: read this page again" };
const ENDS_OF_COUNTS = {
  LEASE_LOST: "nothing was booked, because it took too long and the product has changed since: count again",
  UNKNOWN_PRODUCT: "nothing was booked, because the product was delisted",
  ADJUSTMENT_ID_REUSED: "this count was booked before, with another number: see the history",
};

// What is searched for stays while the list is read again, and how much of it is shown.
const chosen = { text: "", level: "", open: new Set() };
let pages = 1;
// Locations of orders that were listed.
const locationsSeen = new Set();
// Counts that have begun, by product and location in words: this tab has them until they end, also when it reads the page again.
const counts = new Map(JSON.parse(sessionStorage.getItem("counts") ?? "[]"));

const count = (number) => number.toLocaleString("en");
const signed = (number) => (number > 0 ? `+${count(number)}` : count(number));
const moment = (iso) => (iso ? new Date(iso).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : "");
const counted = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
const day = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
// A product may be called as what every object has: constructor.
const nameOf = (names, productId) => (Object.hasOwn(names, productId) ? names[productId] : undefined);
const itemsOf = (order, names = {}) => order.items.map((item) => `${count(item.quantity)} ${nameOf(names, item.productId) ?? item.productId}${atLocation(item)}`).join(", ");
const locationName = ({ locationId = "" }) => locationId || "the default location";
// A product, or its stock at one location, as commands and requests name it.
const named = ({ productId, locationId }) => (locationId ? { productId, locationId } : { productId });
const locationOf = (one) => link("product", one.productId, locationName(one), one.locationId);
const queryOf = ({ productId, locationId = "" }) => `id=${encodeURIComponent(productId)}&location=${encodeURIComponent(locationId)}`;
const inWords = (product) => product.productId + atLocation(product);

// ---------------------------------------------------------------- building blocks

function link(path, id, text = id, locationId = "") {
  const place = locationId ? `/${encodeURIComponent(locationId)}` : "";
  return element("a", { href: `#/${path}/${encodeURIComponent(id)}${place}`, textContent: text });
}

function paragraph(text, className = "") {
  return element("p", { className, textContent: text });
}

function card(title, ...content) {
  return element("section", { className: "card" }, element("h2", { textContent: title }), ...content);
}

// A heading that ends with # is of a column of numbers.
function table(headings, rows) {
  const kinds = headings.map((heading) => (heading.endsWith("#") ? "amount" : ""));
  const head = headings.map((heading, at) => element("th", { scope: "col", className: kinds[at] }, heading.replace("#", "")));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, at) => element("td", { className: kinds[at] }, cell))));
  return element("table", { className: "list" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== "");
  return element("dl", {}, ...known.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", {}, value)]));
}

function input(name, properties = {}) {
  return element("input", { name, required: true, autocomplete: "off", ...properties });
}

function units(name, properties = {}) {
  return input(name, { type: "number", step: 1, min: 0, max: 1_000_000_000, ...properties });
}

function choice(name, options, value = "") {
  const made = element("select", { name }, ...Object.entries(options).map(([key, text]) => element("option", { value: key, textContent: text })));
  made.value = Object.hasOwn(options, value) ? value : made.options[0].value;
  return made;
}

// What the books keep of a change beside its numbers.
function note(name, text) {
  return labelled(text, input(name, { required: false, maxLength: 128 }));
}

function notesOf(fields, names) {
  return Object.fromEntries(names.map((name) => [name, fields[name].value.trim()]).filter(([, value]) => value !== ""));
}

function labelled(text, field) {
  return element("label", {}, element("span", { textContent: text }), field);
}

function button(text, work, properties = {}) {
  const made = element("button", { type: "button", textContent: text, ...properties });
  made.addEventListener("click", work);
  return made;
}

// A form whose button, or Enter, calls `send` with its fields.
function form(send, text, ...content) {
  const made = element("form", {}, ...content, element("button", { textContent: text }));
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    send(made.elements);
  });
  return made;
}

// An id that stays while the form does: sent again after a lost answer, the command takes effect once.
function idOf(made) {
  let id = randomId("desk");
  made.addEventListener("input", () => {
    id = randomId("desk");
  });
  return () => id;
}

// ---------------------------------------------------------------- changes

// Asks the operator. Escape is a no.
function isMeant(title, words) {
  const dialog = byId("question");
  setText(byId("question-title"), title);
  setText(byId("question-text"), words);
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
    byId("no").focus();
  });
}

let working = false;

// Changes something, after a yes where that is needed, says what came of it, and reads the view again.
async function change(words, work, warning = "") {
  // Enter twice is one change.
  if (working) return;
  working = true;
  try {
    const { production, place } = await ABOUT;
    const title = production ? "In production" : "Are you sure?";
    const question = [`${words}?`, warning, production ? `This is ${place}.` : ""].filter(Boolean).join(" ");
    if ((production || warning) && !(await isMeant(title, question))) return;
    report(`${words} …`);
    report(`${words}: ${await work()}`);
    await show();
  } catch (error) {
    refuse(`${words}: ${error.message}`);
  } finally {
    working = false;
  }
}

async function post(path, document) {
  try {
    return await ask(path, { method: "POST", body: JSON.stringify(document) });
  } catch (error) {
    if (error instanceof LostAnswerError) throw new Error(`${error.message}. It may have been done: look before you repeat it`);
    throw error;
  }
}

// Returns the answer of the function that takes the command.
async function send(command) {
  const answer = await post("/data/command", command);
  if (!answer.done) throw Object.assign(new Error(`${answer.code}: ${answer.message}`), { code: answer.code });
  return answer;
}

function warningOf({ action, restock = true }) {
  if (action !== "cancel") return "";
  return `${restock ? "Its units go back into stock." : "The units are written off, and are not sold again."} It cannot be undone.`;
}

function carryOut(words, command, warning = warningOf(command)) {
  const work = async () => {
    const { result, status } = await send(command);
    // Its page is gone.
    if (command.action === "delist" && result === "APPLIED") history.replaceState(null, "", command.locationId ? link("product", command.productId).hash : "#/products");
    return result === "APPLIED" ? "done" : `${OUTCOMES[result]}${command.orderId ? `; the order is ${status}` : ""}`;
  };
  return change(words, work, warning);
}

// ---------------------------------------------------------------- products

function levelOf(status) {
  const made = element("span", { className: "level", textContent: LEVELS[status] });
  made.dataset.status = status;
  return made;
}

function inLanes(product) {
  return Object.values(product.inLanes).reduce((sum, each) => sum + each, 0);
}

const HEADINGS = ["On hand#", "Committed#", "Available#", "In lanes#", "Low at#", "Level"];

// Each location has a threshold of its own.
function cellsOf(one) {
  const threshold = one.places ? "" : count(one.lowStockThreshold);
  return [...[one.onHand, one.committed, one.available, inLanes(one)].map(count), threshold, levelOf(one.status)];
}

// Opens a product to its locations.
function toggleOf({ productId, places }, fill) {
  if (places === undefined) return [];
  const toggle = () => {
    if (!chosen.open.delete(productId)) chosen.open.add(productId);
    fill();
    byId(`locations ${productId}`).focus();
  };
  return [button(`${places.length} locations`, toggle, { id: `locations ${productId}`, ariaExpanded: chosen.open.has(productId), ariaLabel: `${places.length} locations of ${productId}` })];
}

function numbersOf({ onHand, committed, available }) {
  const shown = facts([["On hand", count(onHand)], ["Committed", count(committed)], ["Available", count(available)]]);
  return Object.assign(shown, { className: "stock" });
}

// Lists a new product, or a product at another location.
function newStock(productId) {
  const isNew = productId === undefined;
  const there = isNew ? "" : " there";
  const made = form(
    (fields) => {
      const product = isNew ? { productId: fields.productId.value, ...notesOf(fields, ["name"]) } : { productId, locationId: fields.location.value };
      carryOut(`List ${inWords(product)}`, { action: "create", ...product, openingStock: fields.openingStock.valueAsNumber, lowStockThreshold: fields.threshold.valueAsNumber });
    },
    "List it",
    ...(isNew ? [labelled("Product id", input("productId")), labelled("Name", input("name", { required: false }))] : [labelled("Location id", input("location", { maxLength: 32 }))]),
    labelled(`Units on hand${there}`, units("openingStock", { value: 0 })),
    labelled(`Low${there} at`, units("threshold", { value: 0 })),
  );
  return element("details", { className: "card" }, element("summary", { textContent: isNew ? "List a new product" : "List it at another location" }), made);
}

async function products() {
  const { products: all, unreadable } = await ask("/data/products");
  const search = input("search", { id: "search", type: "search", required: false, value: chosen.text });
  const level = choice("level", { "": "All products", ...LEVELS, lanes: "with units in lanes" }, chosen.level);
  const list = element("div", { className: "card" });
  const rowOf = (one) => [element("div", {}, link("product", one.productId), ...toggleOf(one, fill)), one.name ?? "", ...cellsOf(one)];
  const rowsOf = (one) => [rowOf(one), ...(chosen.open.has(one.productId) ? one.places.map((each) => [element("span", { className: "location" }, locationOf(each)), "", ...cellsOf(each)]) : [])];
  function fill() {
    Object.assign(chosen, { text: search.value, level: level.value });
    const text = search.value.trim().toLowerCase();
    const isAsked = (one) => level.value === "" || one.status === level.value || (level.value === "lanes" && inLanes(one) > 0);
    // A shop may never have used the default location.
    const isUsed = ({ locationId, onHand, committed }) => locationId || onHand || committed;
    const found = all.filter(
      (one) => [one, ...(one.places ?? []).filter(isUsed)].some(isAsked) && `${one.productId} ${one.name ?? ""}`.toLowerCase().includes(text),
    );
    const more = found.length > MOST_ROWS ? ` The first ${MOST_ROWS} are shown: search for the others.` : "";
    list.replaceChildren(
      table(["Product", "Name", ...HEADINGS], found.slice(0, MOST_ROWS).flatMap(rowsOf)),
      paragraph(`${count(found.length)} of ${counted(all.length, "product")}.${more}`, "hint"),
    );
  }
  search.addEventListener("input", fill);
  level.addEventListener("change", fill);
  fill();
  const problems = Object.values(unreadable).map((problem) => paragraph(`Left out: ${problem}`, "problem"));
  return {
    title: "Products",
    about: "Out of stock and low first. Open one to receive, count or correct its stock, or to see its history.",
    content: [element("div", { className: "bar" }, labelled("Search (/)", search), labelled("Show", level)), ...problems, list, newStock()],
  };
}

function receiptOf(product) {
  const made = form(
    (fields) =>
      carryOut(`Receive ${count(fields.received.valueAsNumber)} ${inWords(product)}`, {
        action: "adjust",
        adjustmentId: id(),
        ...named(product),
        delta: fields.received.valueAsNumber,
        reason: "RECEIPT",
        ...notesOf(fields, ["reference"]),
      }),
    "Receive",
    labelled("Units that came in", units("received", { min: 1, max: 1_000_000 })),
    note("reference", "Reference, such as a delivery note"),
  );
  const id = idOf(made);
  return card("Receive goods", made);
}

function correctionOf(product) {
  const made = form(
    (fields) =>
      carryOut(`${REASONS[fields.reason.value]}: ${signed(fields.delta.valueAsNumber)} ${inWords(product)}`, {
        action: "adjust",
        adjustmentId: id(),
        ...named(product),
        delta: fields.delta.valueAsNumber,
        reason: fields.reason.value,
        ...notesOf(fields, ["reference"]),
      }),
    "Adjust",
    labelled("Units, such as -2 or 5", units("delta", { min: -1_000_000, max: 1_000_000 })),
    labelled("Reason", choice("reason", REASONS)),
    note("reference", "Reference"),
  );
  const id = idOf(made);
  return card("Correct the stock", made);
}

function limitsOf(product) {
  const made = form(
    (fields) => {
      // Somebody else may have changed the other one since this page was read.
      const limits = { lowStockThreshold: fields.threshold.valueAsNumber, backorderLimit: fields.backorders.valueAsNumber };
      const changed = Object.entries(limits).filter(([name, units]) => units !== product[name]);
      const command = { action: "change", ...named(product), ...Object.fromEntries(changed) };
      if (changed.length === 0) refuse("Limits: these are the old ones");
      else carryOut(`Change ${inWords(product)}`, command);
    },
    "Save",
    labelled("Low at", units("threshold", { value: product.lowStockThreshold })),
    labelled("Backorders: sell this many beyond the stock", units("backorders", { value: product.backorderLimit })),
  );
  return card("Limits", made);
}

function keepCount(product, begun) {
  if (begun === undefined) counts.delete(inWords(product));
  else counts.set(inWords(product), begun);
  sessionStorage.setItem("counts", JSON.stringify([...counts]));
}

function beginningOf(product) {
  const begin = async () => {
    const begun = await send({ action: "acquire", ...named(product), seconds: COUNT_SECONDS, outliveInvocation: true });
    // One id for all clicks: they book one count.
    keepCount(product, { ...begun, adjustmentId: randomId("count") });
    return "begun";
  };
  return card(
    "Count",
    paragraph(`Orders for this product wait while you count, ${COUNT_SECONDS / 60} minutes at most.`, "hint"),
    button("Begin to count", () => change(`Count ${inWords(product)}`, begin), { id: "count" }),
  );
}

function countOf(product) {
  const begun = counts.get(inWords(product));
  if (begun === undefined) return beginningOf(product);
  const { lease, adjustmentId, committed, message } = begun;
  const book = async (shelf, notes) => {
    try {
      const { delta, handedOverSince } = await send({ action: "commit", lease, adjustmentId, counted: shelf, ...notes });
      keepCount(product);
      const left = handedOverSince === undefined ? "" : `. Units that left since the count began: ${count(handedOverSince)}`;
      return `corrected by ${signed(delta)}${left}`;
    } catch (error) {
      if (error.code === "BELOW_FLOOR") {
        const short = counted(committed - shelf - product.backorderLimit, "unit");
        throw new Error(`nothing was booked, because open orders hold ${short} more. Count again; if they are missing, cancel the count, cancel them as lost in their orders, and begin again`);
      }
      const end = ENDS_OF_COUNTS[error.code];
      if (end === undefined) throw error;
      keepCount(product);
      await show();
      throw new Error(end);
    }
  };
  const cancel = async () => {
    const { result } = await send({ action: "release", lease });
    keepCount(product);
    return result === "RELEASED" ? "nothing was booked" : "it was over already: see the history";
  };
  const at = (seconds) => clock(Number(lease.expiresAt) - seconds);
  const made = form(
    (fields) => {
      const shelf = fields.counted.valueAsNumber;
      change(`Book ${count(shelf)} ${inWords(product)} as counted`, () => book(shelf, notesOf(fields, ["reference"])));
    },
    "Book the count",
    labelled("Units on the shelf", units("counted", { id: "count" })),
    note("reference", "Reference"),
  );
  made.append(button("Cancel the count", () => change(`Cancel the count of ${inWords(product)}`, cancel)));
  return card(
    "Count",
    numbersOf(begun),
    ...(message === undefined ? [] : [paragraph(message, "problem")]),
    paragraph(`Count all units that lay on the shelf at ${at(COUNT_SECONDS)}: also those promised to open orders, and parcels that have left since. Orders wait until ${at(0)}.`, "hint"),
    made,
  );
}

function listingOf(product) {
  const { status, createdAt } = product;
  // The command for the product itself discontinues it everywhere.
  const what = product.total === undefined || product.locationId ? inWords(product) : `${product.productId} at all locations`;
  const promised = async () => {
    const { units, isExact, orders, ordersAreAll } = await ask(`/data/promised?${queryOf(product)}`);
    if (units === 0) return "No units are promised to open orders.";
    return `Units promised to open orders: ${isExact ? "" : "about "}${count(units)}, in ${ordersAreAll ? "" : "at least "}${counted(orders, "order")}.`;
  };
  const end = (text, command, warning) =>
    button(
      text,
      () =>
        attempt(async () => {
          report(`${text} ${what}: looking for open orders …`);
          const words = await promised();
          report("");
          await carryOut(`${text} ${what}`, { ...command, ...named(product) }, `${words} ${warning}`);
        }),
      { id: command.action },
    );
  const [hint, first] =
    status === "DISCONTINUED"
      ? ["No. Orders for it are rejected.", button("List again", () => carryOut(`List again ${what}`, { action: "listAgain", ...named(product) }), { id: "discontinue" })]
      : [
          "Yes. Once discontinued, new orders for it are rejected; orders that have its units can be shipped. You can list it again.",
          end("Discontinue", { action: "discontinue" }, "They can still be shipped. New orders will be rejected."),
        ];
  const delist = end("Delist", { action: "delist", createdAt }, `${product.locationId ? inWords(product) : "The product"} and all its units leave the books. Open orders can still be shipped, but what they cancel or return does not go back into stock. It cannot be undone.`);
  return card("On sale?", paragraph(hint, "hint"), element("div", { className: "actions" }, first, delist));
}

function chartOf(entries, threshold) {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plot = element("div", { className: "chart", role: "img", ariaLabel: `Available units over time, now ${count(entries.at(-1).available)}` });
  const axis = { stroke: style("--muted"), grid: { stroke: style("--grid"), width: 1 }, ticks: { show: false } };
  const times = [...entries.map((entry) => Date.parse(entry.at) / 1000), Date.now() / 1000];
  // Times come from several clocks; the order of the changes does not.
  times.forEach((at, index) => {
    times[index] = Math.max(at, times[index - 1] ?? at);
  });
  const isShort = times.at(-1) - times[0] < 2 * 86_400;
  const stocks = [...entries, entries.at(-1)].map((entry) => entry.available);
  let chart = null;
  // It has a width once it is on the page.
  new ResizeObserver(() => {
    const size = { width: plot.clientWidth, height: 240 };
    if (size.width === 0) return;
    if (chart !== null) {
      chart.setSize(size);
      return;
    }
    const options = {
      ...size,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, least, most) => [Math.min(0, least), Math.max(1, most) * 1.08] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(isShort ? clock : day) }, axis],
      series: [
        { label: "at", value: (_, at) => (at === null ? "" : `${day(at)} ${clock(at)}`) },
        { label: "available", stroke: "#1f77b4", width: 1.8, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        { label: "low at", stroke: style("--bad"), dash: [5, 4], points: { show: false } },
      ],
    };
    chart = new uPlot(options, [times, stocks, times.map(() => threshold)], plot);
  }).observe(plot);
  return plot;
}

function historyOf(product) {
  const place = element("div", { id: "history" });
  async function read() {
    place.replaceChildren(paragraph("Reading the orders …", "hint"));
    try {
      const { entries, unexplained } = await ask(`/data/history?${queryOf(product)}`);
      // Entries without a time stand for versions that changed no stock.
      const changes = entries.filter((entry) => entry.at !== "");
      const newest = changes.slice(-MOST_ROWS).reverse();
      const wrong = unexplained.map((what) => paragraph(`The books do not balance: it has ${what}. docs/runbook.md says what to do.`, "problem"));
      place.replaceChildren(
        ...wrong,
        ...(changes.length > 0 ? [chartOf(changes, product.lowStockThreshold)] : []),
        table(
          ["When", "Change#", "Available#", "Change#", "On hand#", "What"],
          newest.map((entry) => [
            moment(entry.at),
            signed(entry.delta),
            count(entry.available),
            signed(entry.onHandDelta),
            count(entry.onHand),
            entry.what,
          ]),
        ),
        paragraph(`${count(newest.length)} of ${counted(changes.length, "change")}, the newest first.`, "hint"),
      );
    } catch (error) {
      place.replaceChildren(paragraph(error.message, "problem"));
    }
  }
  if (product.ordersToRead <= READ_AT_ONCE) read();
  else place.append(button(`Read the history: all ${counted(product.ordersToRead, "order")}`, read, { id: "read-history" }));
  return card("History", place);
}

// The locations of a product: what is where, what is moved, and what is on the way.
function locationsOf({ productId, locationId = "", total, onTheWay }) {
  const names = Object.fromEntries(total.places.map((one) => [one.locationId ?? "", locationName(one)]));
  const rowOf = (one) => [Object.assign(locationOf(one), { ariaCurrent: (one.locationId ?? "") === locationId ? "page" : null }), ...cellsOf(one)];
  const lots = onTheWay.map((lot) => [lot.reference, lot.from.map((from) => names[from] ?? from).join(", "), moment(lot.since), count(lot.units), arrivalOf(productId, lot, names)]);
  return [
    card("At all locations", numbersOf(total), table(["Location", ...HEADINGS], total.places.map(rowOf))),
    card("Transfer", transferOf(productId, locationId, names)),
    ...(lots.length ? [card("On the way", table(["Reference", "From", "Since", "Units#", ""], lots))] : []),
    element("h2", { textContent: `At ${locationName({ locationId })}` }),
  ];
}

// Goods on the way are units that went out under a reference and did not come in under it.
function transferOf(productId, here, names) {
  const made = form(
    (fields) => {
      const [from, to, quantity] = [fields.from.value, fields.to.value, fields.quantity.valueAsNumber];
      const out = { action: "adjust", adjustmentId: id(), productId, locationId: from, delta: -quantity, reason: "TRANSFER_OUT", reference: id() };
      const command = to === ON_THE_WAY ? out : { action: "transfer", transferId: id(), productId, from, to, quantity };
      const words = `Transfer ${count(quantity)} ${productId} from ${names[from]}${to === ON_THE_WAY ? "" : ` to ${names[to]}`}`;
      carryOut(words, { ...command, ...notesOf(fields, ["reference"]) });
    },
    "Transfer",
    labelled("From", choice("from", names, here)),
    labelled("To", choice("to", { ...names, [ON_THE_WAY]: "a location where they arrive later" }, Object.keys(names).find((name) => name !== here))),
    labelled("Units to transfer", units("quantity", { min: 1, max: 1_000_000 })),
    note("reference", "Reference"),
  );
  const id = idOf(made);
  return made;
}

function arrivalOf(productId, { reference, from, units: most }, names) {
  const made = form(
    ({ arrived: { valueAsNumber: delta }, to }) =>
      carryOut(`Arrival of ${count(delta)} ${productId} at ${names[to.value]}`, { action: "adjust", adjustmentId: id(), productId, locationId: to.value, delta, reason: "TRANSFER_IN", reference }),
    "They arrived",
    labelled(`Units of ${reference} that arrived`, units("arrived", { min: 1, max: most, value: most })),
    labelled("At", choice("to", names, Object.keys(names).find((name) => !from.includes(name)))),
  );
  const id = idOf(made);
  return made;
}

async function product(id, locationId) {
  const found = await ask(`/data/product?${queryOf({ productId: id, locationId })}`);
  const lanes = inLanes(found);
  const where = lanes ? `, available: ${count(found.stockCount)} in its row, ${count(lanes)} in lanes` : "";
  const level = card(
    "Stock",
    numbersOf(found),
    paragraph("Committed units are promised to open orders. They are on hand until they are shipped.", "hint"),
    element("p", {}, levelOf(found.status), where, found.isExact ? "" : ", about: it changes too fast"),
  );
  return {
    title: ((found.total ?? found).name ?? id) + atLocation(found),
    about: `Product ${inWords(found)}, listed ${moment(found.createdAt)}`,
    content: [
      ...(found.total ? locationsOf(found) : []),
      element("div", { className: "cards" }, level, receiptOf(found), countOf(found), correctionOf(found), limitsOf(found), listingOf(found)),
      historyOf(found),
      newStock(id),
    ],
  };
}

// ---------------------------------------------------------------- orders

function commandsOf(order, isAlone) {
  const { orderId } = order;
  const made = possible(order).flatMap((action) => {
    const text = ACTIONS[action];
    if (action === "return") return isAlone ? [] : [link("order", orderId, `${text} …`)];
    return [button(text, () => carryOut(`${text} order ${orderId}`, { action, orderId }), { id: `${action} ${orderId}`, ariaLabel: `${text} ${orderId}` })];
  });
  return element("div", { className: "actions" }, ...made);
}

function findOrders() {
  const field = input("search", { id: "search", type: "search" });
  const go = async (path) => {
    field.value = field.value.trim();
    if (!field.reportValidity()) return;
    const id = encodeURIComponent(field.value);
    // Enter finds the order, or the orders of the user who has this id.
    const { orders: theirs } = await ask(`/data/orders?user=${id}`).catch(() => ({ orders: [] }));
    location.hash = `#/${theirs.length > 0 ? "orders" : path}/${id}`;
  };
  const made = form(() => go("order"), "Find the order", labelled("Order id or user id (/)", field));
  made.className = "bar";
  made.append(button("Find the user's orders", () => go("orders")));
  return made;
}

// The goods that a shipment of the order would lack.
function missingOf({ shippable, missing = [] }, names) {
  if (shippable === undefined) return [paragraph("Not known whether its goods are there: a product cannot be read", "problem")];
  const words = missing.map((one) => `${nameOf(names, one.productId) ?? one.productId}${atLocation(one)} (${count(one.wanted)} wanted, ${count(one.onHand)} on hand)`);
  return words.length ? [paragraph(`Not there: ${words.join(", ")}`, "problem")] : [];
}

// One warehouse's list, once any order comes from a location that has a name.
function whereToShip(orders, where) {
  for (const { locationId } of [{ locationId: where }, ...orders.flatMap((order) => order.items)]) if (locationId) locationsSeen.add(locationId);
  if (locationsSeen.size === 0) return [];
  const names = [["", "the default location"], ...[...locationsSeen].sort().map((one) => [one, one])];
  const field = choice("location", { [EVERYWHERE]: "all locations", ...Object.fromEntries(names) }, where ?? EVERYWHERE);
  field.id = "location";
  field.addEventListener("change", () => {
    location.hash = field.value === EVERYWHERE ? "#/orders" : `#/orders//${encodeURIComponent(field.value)}`;
  });
  return [element("div", { className: "bar" }, labelled("Ships from", field))];
}

// What one location does for an order that also waits for another one.
function partToShip({ orderId }, lines, where) {
  const items = lines.map(({ productId, quantity }) => ({ productId, quantity }));
  const [stepId, name] = [randomId("desk"), `${orderId} from ${locationName({ locationId: where })}`];
  const words = `Fulfil ${itemsOf({ items })} of order ${name}`;
  return button("Fulfil this part", () => carryOut(words, { action: "fulfil", orderId, stepId, items }), { id: `fulfil ${orderId}`, ariaLabel: `Fulfil the part of ${name}` });
}

async function orders(id, where) {
  const user = id || undefined;
  const whose = (user === undefined ? "" : `&user=${encodeURIComponent(user)}`) + (where === undefined ? "" : `&location=${encodeURIComponent(where)}`);
  const { orders: found, isAll, unreadable, names } = await ask(`/data/orders?pages=${pages}${whose}`);
  const isHere = ({ locationId = "" }) => where === undefined || locationId === where;
  const toShip = (order) => {
    const lines = movable(order, "fulfil");
    const here = lines.filter(isHere);
    return [
      element("div", {}, itemsOf({ items: here }, names), ...missingOf(order, names)),
      here.length < lines.length ? partToShip(order, here, where) : commandsOf(order, false),
    ];
  };
  const rowOf = (order) => [
    link("order", order.orderId),
    order.status + (order.items.some((item) => item.fulfilled) && order.status === "CONFIRMED" ? ", shipped in part" : ""),
    moment(user === undefined ? order.confirmedAt : order.createdAt),
    link("orders", order.userId),
    ...(user === undefined ? toShip(order) : [itemsOf(order, names), commandsOf(order, false)]),
  ];
  const since = user === undefined ? "Paid" : "Placed";
  const shown = isAll ? `${counted(found.length, "order")}.` : `The first ${counted(found.length, "order")}.`;
  const readMore = () => {
    pages += 1;
    show();
  };
  const more = isAll ? [] : [button("Show more", readMore, { id: "more" })];
  const broken = unreadable.map((id) => paragraph(`Order ${id} breaks the table's contract: repair the item.`, "problem"));
  const none = user === undefined ? "Nothing is to be shipped." : `There are no orders of ${user}.`;
  const list = found.length
    ? [paragraph(shown, "hint"), table(["Order", "Status", since, "User", "Items", ""], found.map(rowOf)), ...more]
    : [paragraph(none)];
  return {
    title: user === undefined ? "Orders to ship" : `Orders of ${user}`,
    about: user === undefined ? "Paid and not shipped, the oldest first. Press Fulfil when an order has left." : "The newest first.",
    content: [findOrders(), ...(user === undefined ? whereToShip(found, where) : []), ...broken, element("div", { className: "card" }, ...list)],
  };
}

function partOf(order, action) {
  const items = movable(order, action);
  const { title, label, lost } = PARTS_OF_ORDERS[action];
  const made = form(
    (fields) => {
      const part = items.map(({ productId }, at) => ({ productId, quantity: fields[`units-${at}`].valueAsNumber })).filter((item) => item.quantity > 0);
      const words = `${ACTIONS[action]} ${itemsOf({ items: part })} of order ${order.orderId}`;
      const command = { action, orderId: order.orderId, stepId: id(), items: part, ...notesOf(fields, ["reference", "reason"]) };
      if (part.length === 0) refuse(`${title}: enter units of one line at least`);
      else carryOut(words, lost ? { ...command, restock: !fields.lost.checked } : command);
    },
    title,
    ...items.map((item, at) => labelled(label(inWords(item)), units(`units-${at}`, { max: item.quantity, value: 0 }))),
    note("reference", action === "fulfil" ? "Reference, such as a tracking number" : "Reference"),
    note("reason", "Reason"),
    ...(lost ? [labelled(lost, input("lost", { type: "checkbox", required: false }))] : []),
  );
  const id = idOf(made);
  return card(title, made);
}

function stepsOf(order) {
  const rowOf = (step) => [
    moment(step.at),
    step.action + (step.restock === false ? ", not to be sold again" : ""),
    step.items ? itemsOf(step) : "",
    step.actor ?? "",
    step.reference ?? "",
    step.reason ?? "",
  ];
  const { steps = [] } = order;
  return steps.length ? [card("Steps", table(["When", "What", "Items", "By", "Reference", "Reason"], steps.map(rowOf)))] : [];
}

async function order(id) {
  const found = await ask(`/data/order?id=${encodeURIComponent(id)}`);
  const from = found.items.some((item) => item.locationId) ? ["From"] : [];
  const rowOf = ({ productId, locationId, quantity, fulfilled = 0, cancelled = 0, returned = 0 }) => [
    link("product", productId, productId, locationId),
    nameOf(found.names, productId) ?? "",
    ...from.map(() => locationName({ locationId })),
    ...[quantity, fulfilled, cancelled, returned].map(count),
  ];
  const parts = possible(found).filter((action) => action in PARTS_OF_ORDERS);
  const late = found.confirmationRejected ? [paragraph("Late payment: it came when the order held no stock. Refund it.", "problem")] : [];
  const about = facts([
    ["Status", statusOf(found)],
    ["User", link("orders", found.userId)],
    ["Placed", moment(found.createdAt)],
    ["Hold ends", moment(found.expiresAt)],
    ["May come from", (found.locations ?? []).map((locationId) => locationName({ locationId })).join(", ") + (found.split ? ", line by line" : "")],
    ...Object.entries(found.attributes ?? {}),
  ]);
  return {
    title: `Order ${id}`,
    about: statusOf(found),
    content: [
      findOrders(),
      ...late,
      card("Order", about, commandsOf(found, true)),
      card("Items", table(["Product", "Name", ...from, "Ordered#", "Fulfilled#", "Cancelled#", "Came back#"], found.items.map(rowOf))),
      element("div", { className: "cards" }, ...parts.map((action) => partOf(found, action))),
      ...stepsOf(found),
    ],
  };
}

// ---------------------------------------------------------------- dead letters

// The ids in a body, as links; none if it is no JSON.
function idsOf(body) {
  try {
    const said = JSON.parse(body);
    const products = [said, ...(said.items ?? [])].filter((one) => typeof one.productId === "string");
    const order = typeof said.orderId === "string" ? [link("order", said.orderId, `order ${said.orderId}`)] : [];
    return [...order, ...new Map(products.map((one) => [inWords(one), link("product", one.productId, `product ${inWords(one)}`, one.locationId)])).values()];
  } catch {
    return [];
  }
}

function deadLetterOf(letter) {
  const { queue, messageId, source } = letter;
  const settle = (words, action, said, warning) => change(`${words} ${messageId}`, () => post("/data/dead-letter", { queue, messageId, action }).then(() => said), warning);
  const again = `sent to ${source}. If it fails again, it comes back to this list`;
  const about = [source, `message ${messageId}`, ...(letter.group === null ? [] : [`group ${letter.group}`]), ...idsOf(letter.body)];
  return element(
    "li",
    {},
    element("p", { textContent: letter.message }),
    element("p", { className: "hint" }, ...about.flatMap((fact, at) => (at ? [" · ", fact] : [fact]))),
    element("pre", { tabIndex: 0, textContent: letter.body }),
    element(
      "div",
      { className: "actions" },
      button("Redrive", () => settle("Redrive", "redrive", again), { ariaLabel: `Redrive ${messageId}` }),
      button("Delete", () => settle("Delete", "delete", "deleted", `It cannot be undone: ${letter.message}.`), { ariaLabel: `Delete ${messageId}` }),
    ),
  );
}

async function deadLetters() {
  const { deadLetters: letters, causes, isAll } = await ask("/data/dead-letters");
  const codes = [...new Set(letters.map((letter) => letter.code))].sort();
  const groups = codes.map((code) => {
    const theirs = letters.filter((letter) => letter.code === code);
    const cause = causes[code];
    const words = cause ? [element("p", {}, ...withCode(`What it means: ${cause.meaning}.`)), element("p", {}, ...withCode(`What to do: ${cause.act}.`))] : [];
    return card(`${code}: ${count(theirs.length)}`, ...words, element("ol", {}, ...theirs.map(deadLetterOf)));
  });
  const more = isAll ? [] : [paragraph("There are more than are shown.", "hint")];
  return {
    title: "Dead letters",
    about: "Messages that the service could not process. Repair the cause, then redrive: the message goes back to its queue, and takes effect once. Delete what can never succeed, and send it anew, corrected.",
    content: letters.length ? [...groups, ...more] : [card("All is well", paragraph("There are no dead letters."))],
  };
}

// ---------------------------------------------------------------- lanes

async function lanes() {
  const { lanes: found, unreadable } = await ask("/data/lanes");
  const rowOf = (lane) => [
    lane.name,
    lane.secondsLeft > 0 ? lane.worker : "",
    lane.secondsLeft > 0 ? `${Math.round(lane.secondsLeft)} s` : "",
    count(lane.products),
    count(lane.units),
    moment(lane.writtenAt),
  ];
  const problems = Object.values(unreadable).map((problem) => paragraph(problem, "problem"));
  return {
    title: "Lanes",
    about: "Units of busy products, from which one worker each sells. Every unit is available.",
    content: [
      ...problems,
      card("Lanes", found.length ? table(["Lane", "In use by", "For another", "Products#", "Units#", "Written"], found.map(rowOf)) : paragraph("No lane has ever been used.")),
    ],
  };
}

// ---------------------------------------------------------------- the page

const VIEWS = { products, product, orders, order, "dead-letters": deadLetters, lanes };
let reading = 0;

async function show() {
  const mine = (reading += 1);
  const [, name, ...ids] = location.hash.split("/");
  const place = byId("view");
  place.ariaBusy = "true";
  let view;
  try {
    await ABOUT;
    view = await (VIEWS[name] ?? products)(...ids.map(decodeURIComponent));
  } catch (error) {
    const retry = [paragraph(error.message, "problem")];
    view = { title: "Not found, or not readable", about: "", content: name?.startsWith("order") ? [findOrders(), ...retry] : retry };
  }
  // The operator has moved on.
  if (mine !== reading) return;
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  document.title = `${view.title} - Desk`;
  setText(byId("title"), view.title);
  setText(byId("about"), view.about);
  place.replaceChildren(...view.content);
  place.ariaBusy = "false";
  if (focused !== null) (byId(focused.id || "view") ?? place).focus();
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key !== "/" || isTyping || document.querySelector("dialog[open]") !== null) return;
    event.preventDefault();
    byId("search")?.focus();
  });
  for (const answer of ["yes", "no"]) byId(answer).addEventListener("click", () => byId("question").close(answer));
}

listenToKeys();
byId("refresh").addEventListener("click", show);
addEventListener("hashchange", () => {
  pages = 1;
  report("");
  show();
});
show();
