// All texts of the pages, in English. A second language is a second file with the same names.
import { number } from "./format.js";

const rules = new Intl.PluralRules("en");
const noun = (amount, one, other = `${one}s`) => (rules.select(amount) === "one" ? one : other);
const counted = (amount, one, other) => `${number(amount)} ${noun(amount, one, other)}`;

export const T = {
  language: "en",

  // ---------------------------------------------------------------- the frame
  titleOf: (title) => `${title} - Desk`,
  parts: "Pages",
  nav: {
    today: "Today",
    orders: "Orders",
    scan: "Scan",
    products: "Products",
    "dead-letters": "Dead letters",
    lanes: "Lanes",
    dashboard: "Dashboard",
    try: "Try it",
    contract: "API",
  },
  stage: {
    embedded: (place) => `Embedded AWS on this machine: ${place}`,
    account: (place) => `AWS: ${place}`,
    production: (place) => `PRODUCTION: ${place}`,
  },
  search: { label: "Find an order, customer, product or location (press /)", placeholder: "Order, customer, product, location", find: "Find" },
  live: { starting: "connecting", on: "live", off: (why) => `not live: ${why}` },
  refresh: "Refresh",
  reading: "Loading …",
  notReadable: "Cannot show this page",

  // ---------------------------------------------------------------- messages
  dismiss: "Dismiss this message",
  dismissNotice: "Dismiss this notice",
  doing: (words) => `${words} …`,
  done: (words, outcome) => `${words}: ${outcome}`,
  failed: (words, why) => `${words} failed: ${why}`,
  refused: (message, code) => `${message} (${code})`,
  wrongField: (label, why) => `${label}: ${why}`,
  lostAnswer: (why) => `${why}. It may have been done: check before you repeat it`,
  gone: "the server of this page has ended: start it again with `make desk` or `make dashboard`",
  ended: "the connection to the server has ended",
  applied: "done",
  outcomes: { REPLAYED: "done before, nothing changed", STALE: "nothing changed, because the product has been listed again since: refresh this page" },
  // The field that a refusal is about, or several: one of each form that can get it.
  fieldOf: {},
  inProduction: "In production",
  areYouSure: "Are you sure?",
  question: (words) => `${words}?`,
  thisIs: (place) => `This is ${place}.`,
  goBack: "Go back",
  yes: "Yes, do it",

  // ---------------------------------------------------------------- things that several pages name
  pair: (name, value) => `${name} ${value}`,
  seconds: (amount) => `${number(amount)} s`,
  defaultLocation: "the default location",
  at: (locationId) => ` at ${locationId}`,
  atTheDesk: (name) => `${name} at the desk`,
  orders: (amount) => counted(amount, "order"),
  products: (amount) => counted(amount, "product"),
  units: (amount) => counted(amount, "unit"),

  // ---------------------------------------------------------------- charts
  chart: {
    words: (title, unit, values) => `${title}${unit ? ` (${unit})` : ""}: ${values.join(", ")}`,
    above: "(above this chart)",
    empty: "No data in this time range.",
  },

  // ---------------------------------------------------------------- today
  today: {
    title: "Today",
    about: "Is anything wrong, and what comes first?",
    bounded: (count, isAll) => (isAll ? count : `${count}+`),
    well: "All is well",
    needs: (count) => `${counted(count, "thing needs", "things need")} you`,
    nothingToShip: "No order is waiting to be shipped.",
    ship: (shown, count) => `Ship ${shown} ${noun(count, "paid order")}`,
    // What it is, and the first step.
    alarm: (names, count) => `${noun(count, "Alarm")}: ${names}.`,
    deadLetters: (count) => [`${counted(count, "dead letter")}.`, "Messages that could not be processed: fix their causes, then send them again."],
    blocked: (count) => [`${counted(count, "paid order")} cannot ship.`, "Units are missing: receive them, or cancel."],
    promised: (count) => [`${counted(count, "product")} promised beyond what is there.`, "Receive goods before these orders are due."],
    out: (count) => [`${counted(count, "product")} out of stock.`, "Reorder."],
    low: (count) => [`${counted(count, "product")} low on stock.`, "Reorder."],
    toShip: "Orders to ship",
    paidOrders: (count) => noun(count, "paid order"),
    oldest: (ago) => `The oldest was paid ${ago}.`,
    cannotShip: (count) => `${number(count)} cannot ship, waiting for:`,
    waitFor: (count) => `(${counted(count, "order")})`,
    held: "Waiting for payment",
    heldOrders: (count) => `${noun(count, "order")} on hold`,
    nextEnd: (when, moment) => `The next hold ends ${when}, at ${moment}.`,
    products: "Products",
    levels: { OUT_OF_STOCK: "out of stock", LOW_STOCK: "low on stock", PROMISED: "promised beyond what is there" },
    ofProducts: (count) => `Out of ${counted(count, "product")}.`,
    letters: "Dead letters",
    messages: (count) => noun(count, "message"),
    alarms: "Alarms",
    alarmsOn: (count) => `${noun(count, "alarm is", "alarms are")} on`,
    ofAlarms: (count) => (count ? `Out of ${counted(count, "alarm")}.` : "This stack has no alarms."),
    lastHour: "Orders in the last hour",
    inLastHour: (placed, rejected) => `${number(placed)} placed and ${number(rejected)} rejected; the chart counts them per minute.`,
    placed: "placed",
    rejected: "rejected",
    notMeasured: "This stack does not count them: its setting `monitoring` is `basic`.",
    unknown: (why) => `Unknown: ${why}`,
  },

  // ---------------------------------------------------------------- search
  find: {
    title: (text) => `Found for “${text}”`,
    kinds: { orders: "Orders", customers: "Customers", products: "Products", locations: "Locations" },
    product: (productId, available) => `${productId}, ${available} available`,
    location: "Orders to ship from there",
    notAll: "There are more: type more of the name.",
    none: (text) => `Nothing found for “${text}”`,
    canBeFound: "Type the whole id of an order or a customer, or any part of a product's name or id, or of a location.",
  },

  // ---------------------------------------------------------------- the drop
  drop: {
    title: (name) => `Drop: ${name}`,
    toProduct: "Product page",
    starting: "Connecting … Orders count from that moment.",
    soldOut: (at, length) => `Sold out at ${at} after ${length}`,
    rejecting: (at, length) => `Nothing sold since ${at}, after ${length}: orders were rejected`,
    soldOutIn: (length, at) => `Sold out in about ${length}, at ${at}`,
    nothingLeft: "Nothing left to sell",
    noOrders: "No orders yet",
    stopped: (at) => `No orders since ${at}`,
    // Roughly: nobody needs hours to the second.
    length: (seconds) => (seconds < 120 ? `${number(Math.round(seconds))} s` : seconds < 7200 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds / 3600), "hour")),
    sold: (shown, orders) => `sold in ${shown} ${noun(orders, "order")}`,
    left: "left",
    rate: "orders a second",
    waiting: "waiting in the queue",
    chart: "Orders per second",
    placed: "placed",
    rejected: "rejected",
    places: (each) => `Left: ${each}.`,
    since: (at) => `Counted since ${at}; rates over the last 10 seconds.`,
    late: (length) => `Events arrive ${length} late.`,
  },

  // ---------------------------------------------------------------- products
  level: { OUT_OF_STOCK: "out of stock", LOW_STOCK: "low", ACTIVE: "in stock", DISCONTINUED: "discontinued" },
  allProducts: {},

  // ---------------------------------------------------------------- one product
  product: {
    stock: "Stock",
    onHand: "On hand",
    committed: "Committed",
    available: "Available",
    receiveTitle: "Receive goods",
    receive: (amount, product) => `Receive ${amount} ${product}`,
    receiveButton: "Receive",
    unitsIn: "Units that came in",
    reference: "Reference, such as a delivery note",
  },

  // ---------------------------------------------------------------- orders
  allOrders: {},
  order: {
    // By what an action is called in commands.
    actions: { confirm: "Confirm payment", fulfil: "Hand over", cancel: "Cancel", return: "Take back" },
    statuses: {
      SENT: "not answered yet",
      PENDING: "waiting for payment",
      CONFIRMED: "paid, to ship",
      FULFILLED: "shipped",
      CANCELLED: "cancelled",
      EXPIRED: "not paid in time: its stock is back",
    },
    partlyShipped: (shipped, ordered, hasSeveralLines) => `paid, ${shipped} of ${ordered} ${hasSeveralLines ? "units " : ""}shipped`,
    partlyCancelled: (amount) => `${amount} cancelled`,
    partlyReturned: (amount) => `${amount} returned`,
    rejected: (why) => `rejected: ${why}`,
    short: (product, wanted, available) => `not enough ${product} (${wanted} wanted, ${available} available)`,
    rejections: {
      INSUFFICIENT_STOCK: (product) => `not enough ${product}`,
      UNKNOWN_PRODUCT: (product) => `${product} does not exist`,
      DISCONTINUED_PRODUCT: (product) => `${product} is discontinued`,
      other: (_, reason) => reason,
    },
    oneOfItsProducts: "one of its products",
  },

  // ---------------------------------------------------------------- pick list and scan mode
  pick: {},
  scan: {},

  // ---------------------------------------------------------------- dead letters
  letters: {},

  // ---------------------------------------------------------------- lanes
  lanes: {
    title: "Lanes",
    about: "Units of busy products, each lane sold by one worker at a time. All of them are available.",
    none: "No lane has been used yet.",
    lane: "Lane",
    worker: "In use by",
    timeLeft: "For another",
    products: "Products",
    units: "Units",
    written: "Written",
  },

  // ---------------------------------------------------------------- the dashboard
  dashboard: {},

  // ---------------------------------------------------------------- the page to try the service
  try: {},

  // ---------------------------------------------------------------- the page of the API
  contract: {},
};
