// All texts of the pages, in English. A second language is a second file with the same names.
import { number, price } from "./format.js";

const rules = new Intl.PluralRules("en");
const noun = (amount, one, other = `${one}s`) => (rules.select(amount) === "one" ? one : other);
const counted = (amount, one, other) => `${number(amount)} ${noun(amount, one, other)}`;

export const T = {
  language: "en",

  // ---------------------------------------------------------------- the frame
  titleOf: (title) => `${title} - Desk`,
  parts: "Pages",
  nav: {
    today: "Today", orders: "Orders", scan: "Scan", products: "Products", "dead-letters": "Dead letters",
    lanes: "Lanes", dashboard: "Dashboard", try: "Try it", contract: "API",
  },
  about: {
    today: "Is anything wrong, and what needs attention first?",
    scan: "Scan an order, then its products. Then press Enter in the empty field to hand the order over.",
    products: "Products that are out of stock or low come first. Open a product to receive, count, correct or transfer its stock.",
    "dead-letters": "Messages that the service could not process. Send one again once its cause is repaired, or correct it. Delete messages only once they are no longer needed.",
    lanes: "The units of busy products are split into lanes, and one worker at a time sells from each lane. All these units are available to orders.",
    try: "Orders go through the HTTP API of the embedded AWS, with an operator's token.",
    contract: "The API's contract is docs/openapi.yaml. To begin, read docs/api.md.",
  },
  stage: {
    embedded: (stage) => `Embedded AWS on this machine: stage ${stage}`,
    account: (stage) => `Stage ${stage}`,
    production: (stage) => `PRODUCTION: stage ${stage}`,
  },
  who: (name, permissions, locations) => [`You are ${name}`, permissions && `may ${permissions}`, locations !== undefined && (locations ? `work at ${locations}` : "work at no location")].filter(Boolean).join(", "),
  search: { label: "Find an order, customer, product or location (press /)", placeholder: "Order, customer, product, location", find: "Find" },
  live: { starting: "connecting", on: "live", off: (why) => `not live: ${why}` },
  refresh: "Refresh",
  reading: "Loading …",
  notReadable: "Cannot show this page",
  notDrawn: (key, why) => `Cannot show ${key}: ${why}`,
  notRefreshed: (why) => `Cannot refresh this page: ${why}`,

  // ---------------------------------------------------------------- the session
  session: {
    title: "Sign in",
    signIn: "Sign in", signOut: "Sign out",
    ended: "your session has ended: sign in again. What you typed is kept",
    refused: (why) => `you could not be signed in: ${why}`,
    foreign: "you could not be signed in: the answer does not belong to this page's request. Sign in again",
    until: (time) => `Changes to your roles take effect by ${time}`,
  },

  // ---------------------------------------------------------------- messages
  dismiss: "Dismiss this message",
  doing: (words) => `${words} …`,
  stillDoing: (words) => `${words} … still in progress. Pressing again does not repeat it`,
  between: "; ",
  done: (words, outcome) => `${words}: ${outcome}`,
  failed: (words, why) => `${words} failed: ${why}`,
  refused: (message, code) => `${message} (${code})`,
  lostAnswer: (why) => `${why}. The change may have been made: check before you repeat it, or press again without changing anything, which makes it only once`,
  gone: (isLocal) => `no answer: ${isLocal ? "the desk's command has ended, or " : ""}the network is gone`,
  late: (length) => `no answer within ${length}`,
  answered: (status, message) => `the API answered ${status}: ${message}`,
  // What API Gateway itself says.
  statuses: {
    401: "you are not signed in any more", 403: "the API does not know you: sign in again", 404: "the API has no such address",
    413: "this is too large", 429: "there are too many requests at the moment: try again in a few seconds",
  },
  notPermitted: (permission) => `your role does not include the permission ${permission}`,
  typedBefore: "You typed this earlier.", discardTyped: "Discard it",
  applied: "done",
  warned: (warnings) => `done, but ${warnings.join("; ")}`,
  outcomes: { REPLAYED: "done before, nothing changed", STALE: "nothing was changed, because the product has been listed again since: refresh this page" },
  // The field that a refusal is about, or several: one of each form that can get it.
  fieldOf: {
    INVALID_JSON: ["body"],
    BELOW_FLOOR: ["delta", "quantity", "counted", "backorderLimit"],
    PRODUCT_EXISTS: ["productId", "locationId"],
    TOO_MANY_PLACES: "locationId",
    NEWER_EVENT_APPLIED: "price",
  },
  inProduction: "In production",
  areYouSure: "Are you sure?",
  question: (words) => `${words}?`,
  thisIs: (stage) => `This is the stage ${stage}.`,
  goBack: "Go back",
  yes: "Yes, do it",

  // ---------------------------------------------------------------- things that several pages name
  pair: (name, value) => `${name} ${value}`,
  seconds: (amount) => `${number(amount)} s`,
  defaultLocation: "the default location",
  at: (locationId) => ` at ${locationId}`,
  orders: (amount) => counted(amount, "order"),
  units: (amount) => counted(amount, "unit"),
  sortBy: "Sort by",
  unsorted: "default order",
  placed: "placed",
  rejected: "rejected",

  // ---------------------------------------------------------------- charts
  chart: {
    words: (title, unit, values) => `${title}${unit ? ` (${unit})` : ""}: ${values.join(", ")}`,
    above: "(above this chart)", empty: "No data in this time range.",
  },

  // ---------------------------------------------------------------- today
  today: {
    bounded: (count, isAll) => (isAll ? count : `${count}+`),
    well: "All is well",
    needs: (count) => `${counted(count, "thing needs", "things need")} your attention`,
    nothingToShip: "No order is waiting to be shipped.",
    ship: (count, { isAll }) => `Ship ${T.today.bounded(number(count), isAll)} ${noun(count, "paid order")}.`,
    isGone: "No longer there.", noAlarms: "The state of the alarms is unknown.",
    alarm: (names, count) => `${noun(count, "Alarm")}: ${names}.`,
    runbook: (headings) => `More in docs/runbook.md under ${headings}.`,
    deadLetters: (count) => `${counted(count, "dead letter")}.`,
    shipNewer: () => "Ship newer paid orders.",
    blocked: (count, all) => (all.isAll ? `${counted(count, "paid order")} cannot ship.` : `${T.today.ofOldest(count, all)} paid orders cannot ship.`),
    ofOldest: (count, all) => `${number(count)} of the oldest ${number(all.count)}`,
    promised: (count) => `${counted(count, "product")} ${noun(count, "has", "have")} more units promised than on hand.`,
    paidLate: (count, late) => `${T.today.bounded(number(count), late.isAll)} ${noun(count, "payment")} came too late.`,
    out: (count, _, isAll) => `${T.today.bounded(number(count), isAll)} ${noun(count, "product")} out of stock.`,
    notRead: () => "Some products were not checked.",
    low: (count, _, isAll) => `${T.today.bounded(number(count), isAll)} ${noun(count, "product")} low on stock.`,
    // What to do first.
    steps: {
      ship: "Oldest first.", shipNewer: "Only the oldest were checked for missing units.", alarm: "The dead letters say why.",
      deadLetters: "Messages that could not be processed: fix their causes, then send them again.",
      notRead: "They may be out of stock or low: many rows of the default location are unused.",
      blocked: "Units are missing: receive them when they arrive, or cancel the orders.", paidLate: "Refund the customers.",
      notSwept: "The sweep counts them every minute: check its alarms.", promised: "Receive goods before these orders are due.",
      out: "Reorder.", low: "Reorder.",
    },
    toShip: "paid, to ship",
    oldest: (ago) => `The oldest was paid ${ago}.`,
    cannotShip: (count, all) => `${all.isAll ? number(count) : T.today.ofOldest(count, all)} cannot ship until these arrive:`,
    waitFor: (count) => `(${counted(count, "order")})`,
    unpaid: "waiting for payment",
    oldestUnpaid: (ago) => `The oldest was placed ${ago}.`,
    late: "paid too late in the last 7 days",
    asOf: (moment, ago) => `Counted at ${moment}, ${ago}.`,
    notSwept: "Orders have not been counted yet.",
    oldSweep: (ago) => `Orders were last counted ${ago}.`,
    levels: { OUT_OF_STOCK: "out of stock", LOW_STOCK: "low on stock", PROMISED: "more units promised than on hand" },
    messages: (count) => noun(count, "message"),
    alarmsOn: (count) => `${noun(count, "alarm is", "alarms are")} on`,
    ofAlarms: (count) => (count ? `Total: ${counted(count, "alarm")}.` : "This stack has no alarms."),
    lastHour: "Orders in the last hour",
    inLastHour: (placed, rejected) => `${number(placed)} placed and ${number(rejected)} rejected; the chart shows them per minute.`,
    notMeasured: "This stack does not count orders, because its setting `monitoring` is `basic`.",
    unknown: (why) => `Unknown: ${why}`,
  },

  // ---------------------------------------------------------------- search
  find: {
    title: (text) => `Search: ${text}`,
    kinds: { orders: "Orders", customers: "Customers", products: "Products", locations: "Locations", deadLetters: "Dead letters" },
    product: (productId, availability) => `${productId}, ${availability}`,
    letter: (queue, code) => `could not be processed: ${code}, in ${queue}`,
    location: "Orders to ship from this location", none: "Nothing found", noneYet: "Nothing found in what was searched",
    notAll: "There may be more results: type more of the id or name.",
    unsearched: {
      parts: () => "These have exactly this id; names and references were not searched.",
      words: () => "Products were not searched: type a word of at least two letters or digits.",
      otherProducts: () => "Not all products were searched: type more of the name or id.",
      references: () => "Tracking numbers and other references were not searched, because this stage does not record them (setting movements).",
      laterReferences: (until) => (until ? `Tracking numbers and other references of shipments, cancellations and returns were searched up to ${until}.` : "Not all tracking numbers and other references were searched, because not all are recorded yet."),
      rows: (count) => `${counted(count, "row")} could not be read: tell an operator.`,
      deadLetters: (why) => `Dead letters were not searched: ${why}.`,
      otherLetters: (queue, count) => `Only ${count} dead letters of ${queue} were searched.`,
    },
    canBeFound: (isLocal) => `Type the whole id of an order or customer, a whole tracking number or other reference, the beginnings of words of a product's name or id, ${isLocal ? "the beginning of a location, or part of an order's id in a dead letter" : "or the beginning of a location"}.`,
  },

  // ---------------------------------------------------------------- the drop
  drop: {
    title: (name) => `Drop: ${name}`,
    toProduct: "Product page",
    soldOut: (at, length) => `Sold out at ${at} after ${length}`,
    soldOutIn: (length, at) => `Sold out in about ${length}, at ${at}`,
    nothingLeft: "Nothing left to sell", noSales: "Nothing sold yet",
    stopped: (at) => `Nothing sold since ${at}`,
    // Rounded: hours need no seconds.
    length: (seconds) => {
      if (seconds < 120) return `${number(Math.max(1, Math.round(seconds)))} s`;
      if (seconds < 7200) return counted(Math.round(seconds / 60), "minute");
      return counted(Math.round(seconds / 3600), "hour");
    },
    sold: "units sold", left: "left", rate: "units a second", chart: "Units sold per second",
    places: (each) => `Left: ${each}.`,
    since: (at) => `Units sold since ${at}; the rate is an average over 10 seconds.`,
    notExact: "These numbers are approximate, because the stock changes too fast to be read exactly.",
  },

  // ---------------------------------------------------------------- products
  level: { OUT_OF_STOCK: "out of stock", LOW_STOCK: "low", ACTIVE: "in stock", DISCONTINUED: "discontinued" },
  allProducts: {
    product: "Product", filter: "Filter by name or id", show: "Show", all: "all products", promised: "more units promised than on hand", clear: "Show all products",
    found: (shown, all) => (shown === all ? counted(all, "product") : `${number(shown)} of ${counted(all, "product")}`),
    more: "Show more", notAll: "There are more: the search finds them",
    none: (text, level) => `No product ${text ? `has “${text}” in its name or id` : "is listed"}${level ? `${text ? " and" : " that"} is ${level}` : ""}.`,
    total: (amount) => `Total of ${counted(amount, "product")}`,
    places: (amount) => counted(amount, "location"),
    placesOf: (amount, productId) => `${counted(amount, "location")} of ${productId}`,
    levelAt: (level, places) => `${level} at ${places}`,
    gone: (name) => `${name}: delisted`,
    leftOut: (name) => `Left out, because its row cannot be read: ${name}`,
    listNew: "List a new product", listThere: "List it at another location", listButton: "List it",
    list: (product) => `List ${product}`,
    fields: { id: "Product id", locationId: "Location id", name: "Name (optional)", price: "Price (optional)", openingStock: "Opening stock" },
  },

  // ---------------------------------------------------------------- one product
  product: {
    stock: "Stock", onHand: "On hand", committed: "Committed", available: "Available", short: "Promised but not on hand",
    lowStockThreshold: "Low at", level: "Level", price: "Price", name: "Name", location: "Location", atAll: "At all locations", allLocations: "All locations",
    left: (amount) => `${amount} left to sell`, noneByDefault: "none for orders that name no location",
    stockAt: (place) => `Stock at ${place}`,
    isShort: (amount) => `Open orders hold ${amount} more units than are on hand.`,
    leftOut: "Orders that name no location cannot buy these units, because the setting `locations` leaves this location out.",
    committedMeans: "Committed units are promised to open orders, and on hand until they are shipped.",
    notExact: "These numbers are approximate, because the stock changes too fast to be read exactly.",
    listedAt: (moment) => `listed ${moment}`,
    watch: "Watch it sell", isGone: "Delisted",
    forms: {
      receive: { title: "Receive goods", text: "Receive" },
      correct: { title: "Correct the stock", text: "Correct" },
      transfer: { title: "Transfer", text: "Transfer" },
      limits: { title: "Limits", text: "Save limits" },
      details: { title: "Name and price", text: "Save name and price" },
    },
    receive: (amount, product) => `Receive ${amount} ${product}`,
    unitsIn: "Units that came in", deliveryNote: "Reference, such as a delivery note (optional)", reference: "Reference (optional)",
    correct: (reason, amount, product) => `${reason}: ${amount} ${product}`,
    unitsOff: "Units, such as -2 or 5", reason: "Reason", reasons: { CORRECTION: "Correction", DAMAGE: "Damage", LOSS: "Loss", RETURN: "Return" },
    takesOff: (reason, amount) => `${reason} reduces the stock, so enter ${amount}`,
    transfer: (amount, product, from, to) => `Transfer ${amount} ${product} from ${from}${to === undefined ? "" : ` to ${to}`}`,
    from: "From", to: "To", arriveLater: "another location, to be chosen on arrival", unitsToTransfer: "Units to transfer", onTheWay: "On the way",
    lot: (units, reference, from, since) => `${units} under ${reference}, sent from ${from}, in transit since ${since}`,
    arrival: (amount, product, where) => `Arrival of ${amount} ${product} at ${where}`,
    arriveButton: "They arrived", arriveAt: "At",
    unitsArrived: (reference) => `Units of ${reference} that arrived`,
    noneLeft: (reference) => `No units under ${reference} are on the way any more.`,
    loss: (amount, product, reference) => `Loss of ${amount} ${product} under ${reference}`,
    lostButton: "They are lost", lostWarning: "If they arrive later, receive them.",
    change: (product) => `Change ${product}`,
    changed: {
      lowStockThreshold: (units) => `warns at ${number(units)} available units`,
      backorderLimit: (units) => (units ? `sells up to ${counted(units, "unit")} beyond the stock` : "sells nothing beyond the stock"),
      name: (name) => `it is called ${name}`, price: (units) => `it costs ${price(units)}`,
    },
    same: (words) => `${words}: nothing has changed`, inCurrency: (text, code) => `${text} in ${code || "minor units"}`,
    noPrice: (text, example, most) => `"${text}" cannot be read as a price; write it like ${example}, up to ${most}`,
    backorderLimit: "Backorders: units to sell beyond the stock", saleTitle: "On sale?",
    isOn: "Yes. If you discontinue it, new orders are rejected; open orders can still be shipped. You can list it again.",
    isOff: "No. Orders for it are rejected.", none: (name) => `there is no product ${name}`, nothingPromised: "No units are promised to open orders.",
    everywhere: (product) => `${product} at all locations`,
    promised: (units, isExact) => `Units promised to open orders: ${isExact ? "" : "about "}${units}.`,
    discontinue: "Discontinue", listAgain: "List again", delist: "Delist",
    discontinueWarning: "Open orders can still be shipped. New orders will be rejected.",
    hasPlaces: "Delist it at its other locations first.",
    delistWarning: (what) =>
      `${what} and all its units are removed from the books. Open orders can still be shipped, but units that they cancel or return do not go back into stock. This cannot be undone.`,
    forOperators: "For operators: where its units are",
    lanesMean: "All units in lanes are available. Workers sell them from there when many orders arrive.",
    lane: (lane) => `Available in ${lane ? `lane ${lane}` : "the depot"}`,
    inRow: "Available in its row", version: "Version of its row", listed: "Listed",
  },

  count: {
    title: "Count", beginButton: "Begin to count", bookButton: "Book the count", cancelButton: "Cancel the count", counted: "Units on the shelf",
    about: (minutes) => `Orders for this product wait while you count, for at most ${counted(minutes, "minute")}.`,
    begin: (product) => `Count ${product}`,
    how: (start, end) =>
      `Count all units that were on the shelf at ${start}, including units promised to open orders and units that have left since. Orders wait until ${end}.`,
    book: (amount, product) => `Book ${amount} ${product} as counted`,
    booked: (change, left) => `corrected by ${change}${left ? `. Units that left since the count began: ${left}` : ""}`,
    cancel: (product) => `Cancel the count of ${product}`,
    open: (who, since, end) => `A count is open: ${who} began or extended it at ${since}. Orders for this product wait until ${end}, or until the count is booked or cancelled.`,
    endWarning: "The person who is counting cannot book the count afterwards.",
    begun: "begun", cancelled: "nothing was booked", wasOver: "the count had already ended: see the history",
    short: (units) =>
      `nothing was booked, because open orders hold ${units} more than you counted. Count again; if the units are missing, cancel the count, cancel those units in their orders as lost, and start a new count`,
    ends: {
      LEASE_LOST: "nothing was booked, because the count took too long and the product has changed since: count again",
      UNKNOWN_PRODUCT: "nothing was booked, because the product was delisted",
      ADJUSTMENT_ID_REUSED: "this count has already been booked, with a different number: see the history",
    },
  },

  history: {
    title: "History", when: "When", what: "What", who: "Who", more: "Show more",
    reading: "Reading …", behind: "The stock has changed since.", readAgain: "Show newer changes",
    complete: (time) => `Newest first. Orders are listed up to ${time}.`,
    orders: "Orders for this product",
    unknown: "Newest first. Orders are not listed yet, or not recorded on this stage (setting movements).",
    ordered: {
      place: (order) => ["Placed by order ", order],
      fulfil: (order) => ["Shipped for order ", order],
      cancel: (order) => ["Cancelled in order ", order],
      lose: (order) => ["Lost, and cancelled in order ", order],
      expire: (order) => ["Not paid in time: order ", order],
      return: (order) => ["Returned from order ", order],
    },
    adjusted: (reason, place) =>
      ({
        OPENING: "Opening stock", CLOSING: "Delisted", RECEIPT: "Received", CORRECTION: "Corrected", COUNT: "Counted",
        DAMAGE: "Damaged", LOSS: "Lost", RETURN: "Returned", DECREMENT: "Taken",
        TRANSFER_OUT: place ? `Transferred to ${place}` : "Sent to another location",
        TRANSFER_IN: place ? `Transferred from ${place}` : "Arrived from another location",
        TRANSFER_LOST: "Lost on the way",
      })[reason] ?? reason.toLowerCase().replaceAll("_", " "),
  },

  // ---------------------------------------------------------------- orders
  allOrders: {
    noList: (name) => `there is no list of orders called ${name}`,
    lists: "Lists of orders",
    tabs: {
      toShip: "To ship", held: "Waiting for payment", shipped: "Shipped", refund: "To refund", rejected: "Rejected", cancelled: "Cancelled",
      expired: "Not paid in time",
    },
    titles: {
      toShip: () => "Orders to ship", at: (location) => `Orders to ship from ${location}`, held: () => "Orders waiting for payment",
      shipped: () => "Shipped orders", refund: () => "Orders to refund", rejected: () => "Rejected orders", cancelled: () => "Cancelled orders",
      expired: () => "Orders not paid in time", of: (userId) => `Orders of ${userId}`, product: (product) => `Orders for ${product}`,
    },
    about: {
      toShip: "Paid orders, oldest first.",
      held: "Oldest first.",
      shipped: "Orders whose last parcel left, newest first.",
      refund: "Payments that arrived when the order no longer held its stock, newest first. Refunded orders stay in the list.",
      rejected: "Newest first.", cancelled: "Newest first.", expired: "Newest first.", of: "Newest first.",
    },
    times: {
      toShip: "Paid", at: "Paid", held: "Placed", shipped: "Shipped", refund: "Late payment", rejected: "Rejected", cancelled: "Cancelled", expired: "Expired",
    },
    none: {
      toShip: "Nothing to ship.", held: "No orders are waiting for payment.", shipped: "Nothing was shipped.", refund: "No late payments.",
      rejected: "No orders were rejected.", cancelled: "No orders were cancelled.", expired: "All orders were paid in time.", of: "This customer has no orders.",
      product: "No orders for this product were recorded.",
    },
    complete: (time) => (time ? `Newest first, complete up to ${time}.` : "Newest first. Not all orders are recorded yet."),
    when: "Shipped", days: { today: "Today", yesterday: "Yesterday", week: "In the last 7 days", all: "Ever" },
    file: "Save as CSV", saving: (orders) => `Reading: ${orders} so far …`, saved: (orders) => `Saved ${orders}.`,
    shipsFrom: "Ships from",
    shown: (orders, isAll) => (isAll ? `${orders}.` : `The first ${orders}.`),
    more: "Show more",
    unreadable: (orderId) => `The row of order ${orderId} is invalid: tell an operator.`,
    order: "Order", status: "Status",
    select: (orderId) => `Select ${orderId}`,
    selectAll: (amount) => `Select all that can ship (${amount})`,
    tracking: "Tracking number",
    trackingOf: (orderId) => `Tracking number of ${orderId}`,
    workAt: (items, orderId, location) => `Hand over ${items} of ${orderId} from ${location}`,
    handOver: (amount) => `Hand over ${amount ? counted(amount, "order") : "the selected orders"}`,
    progress: (done, all) => `${done} of ${all} handed over`,
    notAll: (progress, failed) => `${progress}. ${failed} failed: see ${failed === 1 ? "its row" : "their rows"}.`,
  },
  order: {
    title: (orderId) => `Order ${orderId}`,
    // By what an action is called in commands.
    actions: { confirm: "Confirm payment", fulfil: "Hand over", cancel: "Cancel", return: "Take back" },
    work: { confirm: (orderId) => `Confirm payment of ${orderId}`, fulfil: (orderId) => `Hand over ${orderId}` },
    unchanged: (outcome, status) => `${outcome}; the order is ${status}`,
    statuses: {
      SENT: "not answered yet", PENDING: "waiting for payment", CONFIRMED: "paid, to ship", FULFILLED: "shipped",
      CANCELLED: "cancelled", EXPIRED: "not paid in time; its stock was released",
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
    },
    oneOfItsProducts: "one of its products",
    cannotShip: (products) => `Cannot ship: ${products}`,
    missing: (product, wanted, onHand) => `${product} (${wanted} wanted, ${onHand} on hand)`,
    unknown: "It is unknown whether its products are in stock, because one of them cannot be read.",
    late: "A late payment arrived when the order no longer held its stock. Refund it.",
    customer: "Customer", placed: "Placed", holdEnds: "Hold ends", paid: "Paid", shipped: "Shipped",
    lateAt: "Late payment", mayComeFrom: "May ship from", lookedAt: "Locations asked", backordered: "Not in stock when ordered",
    split: (locations) => `${locations}, line by line`,
    everywhere: "all locations", items: "Items", product: "Product", location: "Location", ordered: "Ordered",
    cancelled: "Cancelled", returned: "Returned", handOverRest: "Hand over the rest",
    tracking: "Tracking number, if there is one", reference: "Reference", reason: "Reason",
    nothingEntered: "Enter the units of at least one line.",
    parts: {
      fulfil: { title: "Hand over part of it", button: "Hand over these units", units: (product) => `Units of ${product} to hand over` },
      return: {
        title: "Take back", button: "Take back",
        units: (product) => `Units of ${product} that came back`,
        lost: "Broken: do not sell again",
      },
      cancel: {
        title: "Cancel", button: "Cancel these units",
        units: (product) => `Units of ${product} to cancel`,
        lost: "Lost or broken: do not sell again",
      },
    },
    workPart: (action, items, orderId) => `${action} ${items} of ${orderId}`,
    workCancel: (orderId) => `Cancel ${orderId}`,
    cancelAll: "Cancel the whole order", cancelRest: "Cancel everything not shipped yet", yesCancel: "Yes, cancel",
    warning: (restock) => `${restock ? "The units go back into stock." : "The units are written off and not sold again."} This cannot be undone.`,
    stepsTitle: "What happened", when: "When", what: "What", by: "By",
    steps: { confirm: "Payment confirmed", fulfil: "Handed over", cancel: "Cancelled", return: "Taken back", extend: "Hold extended", expire: "Hold ended" },
    step: (step, isSoldAgain) => (isSoldAgain ? step : `${step}, not to be sold again`),
  },

  // ---------------------------------------------------------------- pick list and scan mode
  pick: {
    title: "Pick list",
    about: (orders, at) => `${orders}, ${at}`,
    print: "Print", tick: "Done", units: "Units",
    order: (orderId, userId) => `Order ${orderId} for ${userId}`,
    nothing: (status) => `Nothing to pick: ${status}.`,
    nothingAtAll: "Nothing to pick.",
    notListed: (orderId) => `Order ${orderId} is not among the oldest orders to ship: open it to see why.`,
  },
  scan: {
    orderId: "Order id", productId: "Product id, or just Enter to hand over", enter: "Enter",
    scanOrder: "Scan an order first.",
    elsewhere: (text) => `Scanned ${text}: nothing was done with it on this page.`, find: "Search for it", open: "Open Scan",
    lines: (amount) => counted(amount, "line"),
    isOpen: (orderId, lines) => `Order ${orderId}: ${lines} to tick.`,
    notToShip: (orderId, status) => `Order ${orderId} cannot be handed over: ${status}.`,
    times: (units) => `${units} x`,
    ticked: (units, product, left) => {
      const next = left ? `${left} to go.` : "That is all: press Enter to hand over.";
      return `${units} x ${product}. ${next}`;
    },
    twice: (product) => `${product} is ticked already.`,
    notOpen: (product) => `This order has no more units of ${product} to ship.`,
    notInOrder: (id, orderId) => `${id} is not in order ${orderId}.`,
    missing: (items) => `Not ticked yet: ${items}.`,
    handOverTicked: "Hand over the ticked lines", putAside: "Set this order aside",
    aside: (orderId) => `Order ${orderId} was set aside.`,
    last: "Handed over last",
    lastAt: (items, at) => `${items}, at ${at}`,
  },

  // ---------------------------------------------------------------- dead letters
  letters: {
    none: "There are no dead letters.",
    more: {
      LIMIT: (queue, listed) => `${queue} holds more messages than the ${listed} shown here. The others appear when these are gone.`,
      GROUP: (queue, listed) => `${queue} may hold more messages than the ${listed} shown here: SQS shows ten messages of a FIFO group at a time.`,
      READER: (queue, listed) => `${queue} holds more messages than the ${listed} shown here: another reader has the rest for up to two minutes.`,
    },
    count: (amount, since) => `${counted(amount, "message")}, the first ${since}`,
    rest: (left) => `Show ${counted(left, "more character")}`,
    allGone: "none left", repair: "What to do: ",
    thenCorrect: (repair) => `${repair}, or you can correct it here.`,
    thenSend: (repair) => (repair ? `${repair}, then send it again.` : "once the cause is repaired, send it again."),
    since: "Since", about: "About",
    order: (orderId) => `order ${orderId}`,
    queue: "Queue", group: "Group", message: "Message id", body: "Body of the message",
    gone: "This message is no longer in the dead-letter queue, or another reader has it.",
    send: "Send again unchanged", edit: "Edit and send again", sendEdited: "Send edited message",
    discard: "Discard changes", remove: "Delete", json: "Show as JSON", editJson: "Edit as JSON", addLine: "Add a line",
    // The form.
    emptied: "Empty fields are left out, and so are empty lines. (default) is the location without a name.",
    default: "(default)", notGiven: "not given", flags: { true: "yes", false: "no" }, notWhole: "write a whole number",
    line: (number) => `Line ${number}`,
    unknown: (name) => `${name} (unknown field)`,
    fields: {
      orderId: "Order id", userId: "Customer", items: "Items", productId: "Product", quantity: "Quantity", locationId: "Location",
      holdSeconds: "Hold in seconds", locations: "Locations, the preferred ones first", split: "From several locations?", attributes: "Attributes",
      action: "Action", stepId: "Step id", restock: "Back on sale?", until: "Hold until", actor: "Sent by", reference: "Reference", reason: "Reason",
      adjustmentId: "Adjustment id", delta: "Units", eventId: "Event id", eventTime: "Time of the event", details: "Details", name: "Name", price: "Price in minor units",
    },
    // What became of a message that was sent again.
    fate: {
      notYet: "No outcome yet.",
      notCarriedOut: "Not carried out so far. A command that its order does not allow ends without a trace.",
      back: (code) => `It failed again: ${code}`,
      booked: "Booked:", changed: "These details apply:",
    },
    named: (text, messageId) => `${text}: message ${messageId}`,
    sendAll: (amount) => `Send all ${number(amount)} again unchanged`,
    progress: (at, all) => `Sending ${number(at)} of ${number(all)} …`,
    allSent: "all of them are back in their queue. A message that fails again comes back to this list",
    partlySent: (sent, all) => `${number(sent)} of ${number(all)} sent; the others show why they were not`,
    settled: { redrive: (at) => `Sent again at ${at}.`, delete: (at) => `Deleted at ${at}.` },
    outcomes: { redrive: (queue) => `it is back in ${queue}. If it fails again, it comes back to this list`, delete: () => "deleted" },
    lost: {
      redrive: (why) => `${why}. It may now be both here and in its queue. You can safely send it again: it is applied only once`,
      delete: (why) => `${why}. It may have been deleted: refresh this page`,
    },
    cannotBeUndone: (message) => `This cannot be undone. The message: ${message}.`,
  },

  // ---------------------------------------------------------------- lanes
  lanes: {
    none: "No lane has been used yet.", lane: "Lane",
    name: (lane) => (lane ? `lane ${lane}` : "the depot"),
    worker: "In use by", timeLeft: "For another", written: "Written",
  },

  // ---------------------------------------------------------------- the dashboard
  dashboard: {
    about: (start, end, resolution, earlier) =>
      `${start} to ${end}, one point per ${resolution}. Legends show values for the whole range. To see the values at a moment, point at it, or press ← or →.${earlier ? " There was earlier traffic: choose a longer range to see it." : ""}`,
    resolution: { 1: "second (CloudWatch: minute)", 5: "5 seconds (CloudWatch: minute)", 30: "30 seconds (CloudWatch: minute)", 60: "minute, as on CloudWatch" },
    range: "Show",
    ranges: { latest: "the latest traffic", "5m": "5 minutes", "15m": "15 minutes", "1h": "1 hour", "3h": "3 hours" },
    unreadable: (why) => `The embedded AWS cannot be read: ${why}`,
    noTraffic: "No traffic yet: run `make demo` in another terminal, and watch it here.",
    stacked: "stacked", alarms: "Alarms", alarm: "Alarm", state: "State", reason: "Why", meaning: "What it means",
    states: { ALARM: "▲ on", OK: "● off", UNKNOWN: "○ not known" },
    on: (amount) => (amount === 0 ? "No alarm is on" : counted(amount, "alarm is on", "alarms are on")),
    others: ({ off, unknown, unmeasured }) =>
      [`${number(off)} off`, unknown && `${number(unknown)} without data yet`, unmeasured && `${number(unmeasured)} cannot be measured here`].filter(Boolean).join(", "),
    isOn: (name, reason) => `▲ ${name} is on. ${reason}`,
    isCrossed: (name, reason) => `Beyond the threshold at times, but ${name} is off. ${reason}`,
    isOff: (name, reason) => `● ${name} is off. ${reason}`,
    isUnknown: (name, reason) => `○ The state of ${name} is unknown. ${reason}`,
    allOff: (amount) => `● All ${number(amount)} alarms are off.`,
    unmeasured: (charts, alarms) =>
      `Not measured on this machine: ${counted(charts, "chart")} and ${counted(alarms, "alarm")}, because the embedded AWS has no such metrics. CloudWatch shows them.`,
    because: (reason) => `Because ${reason}`,
    part: (chart, lines) => `${chart} (${lines.join(", ")})`,
    ofAlarms: (names) => `Alarms: ${names.join(", ")}`,
    ofCharts: (names) => `Charts: ${names.join(", ")}`,
  },

  // ---------------------------------------------------------------- the page to try the service
  try: {
    title: "Try the service", placeTitle: "Place an order", place: "Place order", product: "Product",
    noProducts: "No product is listed yet.", notListed: "no longer listed",
    availability: { IN_STOCK: "in stock", LOW: "few left", BACKORDER: "on backorder", OUT: "sold out", DISCONTINUED: "discontinued" },
    quantity: "Quantity", hold: "Hold in seconds, 60 or more", asSet: "as configured", wait: "Wait for the answer",
    answer: (status, phrase, milliseconds) => `${status} ${phrase} after ${milliseconds} ms`,
    refusal: (detail, answer) => `${detail}; ${answer}`,
    placed: "placed", accepted: "accepted; its outcome will appear below",
    result: (outcome, answer) => `${outcome}, ${answer}`,
    named: (text, orderId) => `${text}: order ${orderId}`,
    orders: "Orders of this tab", noOrders: "No orders yet. Choose a product and place an order.",
    held: (until) => `held until ${until}`,
  },

  // ---------------------------------------------------------------- the page of the API
  contract: {
    title: "The HTTP API", server: "Server (determines whose token is sent)", copy: "Copy to the clipboard", close: "Close",
    body: "Body of the request", code: "Code",
  },
};
