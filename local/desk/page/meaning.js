// What a code means that was scanned: the API knows.
import { may } from "./caller.js";
import { api, pathOf } from "./server.js";
import { T } from "./texts.js";

const KEPT_MILLISECONDS = 600_000; // a code may be listed for another product later
const known = new Map(); // answers about products by code

// Without the permission to read products, only ids mean something.
async function idOnly(text, items) {
  if (items.some(({ productId }) => productId === text)) return { productId: text, units: 1 };
  const { orderId } = await api("GET", pathOf("orders", text));
  return { orderIds: [orderId] };
}

// A code that is both an EAN-8 and a UPC-E means the product that is in the order.
function ofTheOrder(error, items) {
  const found = (error.problem?.products ?? []).filter(({ productId }) => items.some((item) => item.productId === productId));
  if (found.length === 1) return found[0];
  throw error;
}

// What a text means where goods are handled: a product, its units and the code's elements, or why it means none, perhaps with `itemNumber` or the
// `products` to choose from. Without the permission to read products, it is a product's id.
export async function goodsOf(text) {
  try {
    const { productId, units, elements, why = T.receive.isOrder, itemNumber } = await meaningOf(text, may("products.read") ? [] : [{ productId: text }]);
    return productId ? { productId, units, elements } : { why, itemNumber };
  } catch ({ message, problem }) {
    return { why: message, products: problem?.products };
  }
}

// Returns a product with `units`, or `orderIds`, or what the code would be as a `reference`, and `why` it is nothing else (`refusal` is the API's
// code), perhaps with the `itemNumber` in it. `items` are those of the open order.
export async function meaningOf(text, items = []) {
  const kept = known.get(text);
  if (kept?.until > Date.now()) return kept.meaning;
  try {
    const meaning = await (may("products.read") ? api("GET", "/barcodes", { query: { scan: text } }) : idOnly(text, items));
    if (meaning.productId !== undefined) known.set(text, { meaning, until: Date.now() + KEPT_MILLISECONDS });
    return meaning;
  } catch (error) {
    if (error.problem?.status !== 404) return ofTheOrder(error, items);
    return { orderIds: [], reference: error.problem.reference ?? text, why: error.message, refusal: error.code, itemNumber: error.problem.itemNumber };
  }
}
