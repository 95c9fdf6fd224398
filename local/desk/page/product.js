// One product, or its stock at one location: its numbers, what can be done with it, and its history.
import { inWords, number } from "./format.js";
import { card, change, facts, form, note, notesOf, units } from "./parts.js";
import { ask, send } from "./server.js";
import { T } from "./texts.js";

const queryOf = (productId, locationId = "") => new URLSearchParams({ id: productId, location: locationId });
// A product, or its stock at one location, as commands name it.
const named = ({ productId, locationId }) => (locationId ? { productId, locationId } : { productId });

export function read(ids) {
  return ask(`/data/product?${queryOf(...ids)}`);
}

async function carryOut(command) {
  const { result } = await send(command);
  return result === "APPLIED" ? T.applied : T.outcomes[result];
}

function receipt(product) {
  const book = (fields, id) => {
    const delta = fields.delta.valueAsNumber;
    const command = { action: "adjust", adjustmentId: id, ...named(product), delta, reason: "RECEIPT", ...notesOf(fields, ["reference"]) };
    return change("receive", T.product.receive(number(delta), inWords(product)), () => carryOut(command));
  };
  return card(
    T.product.receiveTitle,
    form("receive", { text: T.product.receiveButton, send: book }, units("receive", "delta", T.product.unitsIn, { min: 1, max: 1_000_000 }), note("receive", "reference", T.product.reference)),
  );
}

export function draw(product) {
  const { onHand, committed, available, name, productId } = product;
  return {
    title: name ?? productId,
    content: [card(T.product.stock, facts([[T.product.onHand, number(onHand)], [T.product.committed, number(committed)], [T.product.available, number(available)]])), receipt(product)],
  };
}

export const follows = ({ event }, [productId]) => event?.detail.data.productId === productId;
