// Sends products from one location to another under a transfer note. Until they arrive, they are on the way.
import { ownLocations } from "./caller.js";
import { pageOf, written } from "./goods.js";
import { randomId } from "./server.js";
import { T } from "./texts.js";

const noteFor = (place) => ({ note: randomId("transfer"), place });

export const { start, read, scan, draw } = pageOf({
  name: "send",
  fields: ["note", "place", "to"],
  isPrinted: true,
  first: ({ to, lines }) => (to || lines.length ? undefined : "to"),
  begin: () => noteFor(ownLocations()?.[0] ?? ""),
  next: ({ place }) => noteFor(place),
  idOf: ({ note, place }, { productId }) => [written(note), place, productId],
  adjustmentOf: ({ to }, { units }) => ({ delta: -units, reason: "TRANSFER_OUT", sentTo: to }),
  faultOf: ({ place, to }) => (place === to ? T.send.samePlace : ""),
});
