// Draws codes that scanners read.
import Code128 from "jsbarcode/src/barcodes/CODE128/CODE128_AUTO.js";
import { nothing, svg } from "./parts.js";
import { T } from "./texts.js";

const MOST = 48; // characters: a longer code is wider than paper
const [QUIET, HEIGHT] = [10, 48]; // modules: the narrowest bars

// The Code 128 of a text in ASCII; nothing if it is too long.
export function barcode(text) {
  if (text.length > MOST) return nothing;
  const { data } = new Code128(text, {}).encode();
  const bars = [...data.matchAll(/1+/g)].map(({ index, 0: { length } }) => `M${QUIET + index} 0h${length}v${HEIGHT}h-${length}z`);
  const width = data.length + 2 * QUIET;
  return svg`<svg class="barcode" role="img" aria-label=${T.barcode(text)} viewBox="0 0 ${width} ${HEIGHT}" width=${width} height=${HEIGHT} shape-rendering="crispEdges"><path d=${bars.join("")}></path></svg>`;
}
