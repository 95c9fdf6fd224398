// All texts of the pages, in English. A second language is a second file with the same names.
import { number } from "./format.js";

const rules = new Intl.PluralRules("en");
const counted = (amount, one, other = `${one}s`) => `${number(amount)} ${rules.select(amount) === "one" ? one : other}`;

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
  fieldOf: {
    INVALID_JSON: ["body"],
  },
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
    nothingToDo: "Nothing is wrong, and no order is waiting to be shipped.",
    needs: (count) => `${counted(count, "thing needs", "things need")} you`,
    shipNext: (shown, count) => `Ship ${shown} paid ${rules.select(count) === "one" ? "order" : "orders"}`,
    alarmIsOn: (name) => `Alarm: ${name}.`,
    deadLetters: (count) => `${counted(count, "dead letter")}.`,
    deadLettersStep: "Messages that could not be processed. Read their causes, fix them and send them again.",
    blocked: (count) => `${counted(count, "paid order")} cannot ship.`,
    blockedStep: "Units are missing. Receive them, or cancel.",
    promised: (count) => `${counted(count, "product")} promised beyond what is there.`,
    promisedStep: "Receive goods before these orders are due.",
    out: (count) => `${counted(count, "product")} out of stock.`,
    low: (count) => `${counted(count, "product")} low.`,
    stockStep: "Order more.",
    toShip: "Orders to ship",
    paidOrders: (count) => (rules.select(count) === "one" ? "paid order" : "paid orders"),
    oldest: (ago) => `The oldest was paid ${ago}.`,
    cannotShip: (count) => `${number(count)} cannot ship. They wait for:`,
    waitFor: (count) => `(${counted(count, "order")})`,
    held: "Waiting for payment",
    heldOrders: (count) => (rules.select(count) === "one" ? "order under a hold" : "orders under a hold"),
    nextEnd: (when, moment) => `The next hold ends ${when}, at ${moment}.`,
    products: "Products",
    isPromised: "promised beyond what is there",
    ofProducts: (count) => `Of ${counted(count, "product")}.`,
    letters: "Dead letters",
    deadLettersAlone: (count) => (rules.select(count) === "one" ? "dead letter" : "dead letters"),
    alarms: "Alarms",
    alarmsOn: (count) => (rules.select(count) === "one" ? "alarm is on" : "alarms are on"),
    ofAlarms: (count) => `Of ${counted(count, "alarm")}.`,
    noAlarms: "This stack has no alarms.",
    lastHour: "Orders of the last hour",
    inLastHour: (placed, rejected) => `${number(placed)} placed and ${number(rejected)} rejected, per minute:`,
    placed: "placed",
    rejected: "rejected",
    notMeasured: "This stage does not measure orders: its setting `monitoring` is `basic`.",
    unread: (why) => `Unknown: ${why}`,
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
    toProduct: "The product",
    starting: "Connecting. Orders count from the moment the desk is connected.",
    soldOut: (at, length) => `Sold out at ${at} after ${length}`,
    soldOutIn: (length, at) => `Sold out in about ${length}, at ${at}`,
    nothingLeft: "Nothing is left to sell",
    rejecting: (at, length) => `Nothing sold since ${at}, after ${length}: orders were rejected`,
    noOrders: "No orders yet",
    stopped: (at) => `No orders since ${at}`,
    places: (each) => `Left: ${each}.`,
    // A length of time that nobody needs to the second.
    length: (seconds) => (seconds < 120 ? `${number(Math.round(seconds))} s` : seconds < 7200 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds / 3600), "hour")),
    sold: (shown, orders) => `sold in ${shown} ${rules.select(orders) === "one" ? "order" : "orders"}`,
    left: "left",
    rate: "orders a second",
    rejectedOrders: "rejected",
    waiting: "waiting in the queue",
    chart: "Orders per second",
    placed: "placed",
    rejected: "rejected",
    since: (at) => `Counted since ${at}. Rates are of the last 10 seconds.`,
    late: (length) => `Events are ${length} late.`,
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
  letters: {
    title: "Dead letters",
    intro: "Messages that the service could not process. Send one again once its cause is repaired. Correct or delete the others.",
    none: "There are no dead letters.",
    more: {
      LIMIT: (queue, listed) => `${queue} has more than the ${listed} that are listed. The others appear when these are gone.`,
      GROUP: (queue, listed) => `${queue} may have more than the ${listed} that are listed: SQS shows ten of a FIFO group at a time.`,
      READER: (queue, listed) => `${queue} has more than the ${listed} that are listed: another reader has them for up to two minutes.`,
    },
    count: (amount, since) => `${counted(amount, "message")}, the first ${since}`,
    allGone: "none left",
    repair: "What to do: ",
    thenCorrect: (repair) => `${repair}, or you do here.`,
    thenSend: (repair) => (repair ? `${repair}, then send it again.` : "once the cause is repaired, send it again."),
    since: "Since",
    about: "About",
    order: (orderId) => `order ${orderId}`,
    queue: "Queue",
    group: "Group",
    message: "Message id",
    body: "Body of the message",
    gone: "No longer in the dead-letter queue, or another reader has it.",
    send: "Send again unchanged",
    edit: "Edit and send again",
    sendEdited: "Send edited message",
    discard: "Discard changes",
    remove: "Delete",
    named: (text, messageId) => `${text}: message ${messageId}`,
    sendAll: (amount) => `Send all ${number(amount)} again unchanged`,
    progress: (at, all) => `Sending ${number(at)} of ${number(all)} …`,
    allSent: "all of them are in their queue. A message that fails again comes back to this list",
    partlySent: (sent, all) => `${number(sent)} of ${number(all)} sent; the others say why not`,
    outcomes: { redrive: (queue) => `it is in ${queue}. If it fails again, it comes back to this list`, delete: () => "deleted" },
    lost: {
      redrive: (why) => `${why}. It may be in its queue and here, too: you can send it again, because it is applied only once`,
      delete: (why) => `${why}. It may have been deleted: refresh this page`,
    },
    cannotBeUndone: (message) => `This cannot be undone. The message: ${message}.`,
  },

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
