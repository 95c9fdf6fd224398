// Receives a delivery.
import { ownLocations } from "./caller.js";
import { pageOf, written } from "./goods.js";

export const { start, read, scan, draw } = pageOf({
  name: "receive",
  fields: ["note", "place"],
  takesAnnounced: true,
  first: ({ note }) => (note ? undefined : "note"),
  begin: () => ({ place: ownLocations()?.[0] ?? "" }),
  next: ({ place }) => ({ place }),
  idOf: ({ note, place }, { productId }) => [written(note), place, productId],
  adjustmentOf: (_, { units }) => ({ delta: units, reason: "RECEIPT" }),
});
