// Draws codes that scanners read.
import Code128 from "jsbarcode/src/barcodes/CODE128/CODE128_AUTO.js";
import EAN13 from "jsbarcode/src/barcodes/EAN_UPC/EAN13.js";
import EAN8 from "jsbarcode/src/barcodes/EAN_UPC/EAN8.js";
import UPC from "jsbarcode/src/barcodes/EAN_UPC/UPC.js";
import ITF14 from "jsbarcode/src/barcodes/ITF/ITF14.js";
import { nothing, svg } from "./parts.js";
import { T } from "./texts.js";

const MOST = 48; // characters: a longer code is wider than paper
const [QUIET, HEIGHT] = [11, 48]; // modules: the narrowest bars
const BEARER = 4; // modules of the bars that keep a scan from leaving an ITF-14 unnoticed
const CODE_128 = { encoder: Code128, module: 0.33, height: 15 };
// Codes as a product lists them, GTINs with 14 digits, and how to print them: millimetres of a module and of the bars, as in the GS1 General
// Specifications.
const SYMBOLS = [
  { digits: /^0{6}(\d{8})$/, encoder: EAN8, module: 0.33, height: 18.23 },
  { digits: /^00(\d{12})$/, encoder: UPC, module: 0.33, height: 22.85 },
  { digits: /^0(\d{13})$/, encoder: EAN13, module: 0.33, height: 22.85 },
  { digits: /^(\d{14})$/, encoder: ITF14, module: 0.5, height: 31.75, bearer: BEARER },
  { digits: /^=?(.*)$/, ...CODE_128 },
];

// `module` is how wide a module is, with its unit.
function drawn(text, { encoder: Encoder, bearer = 0 }, height, module, unit = "") {
  const { data } = new Encoder(text, { flat: true }).encode();
  const [width, whole] = [data.length + 2 * QUIET, height + 2 * bearer];
  const bars = [...data.matchAll(/1+/g)].map(({ index, 0: { length } }) => `M${QUIET + index} ${bearer}h${length}v${height}h-${length}z`);
  const frame = bearer ? [0, bearer + height].map((top) => `M0 ${top}h${width}v${bearer}h-${width}z`) : [];
  return svg`<svg class="barcode" role="img" aria-label=${T.barcode(text)} viewBox="0 0 ${width} ${whole}" width=${`${width * module}${unit}`} height=${`${whole * module}${unit}`} shape-rendering="crispEdges"><path d=${[...bars, ...frame].join("")}></path></svg>`;
}

// The Code 128 of a text in ASCII; nothing if it is too long.
export const barcode = (text) => (text.length > MOST ? nothing : drawn(text, CODE_128, HEIGHT, 1));

// The text and the symbol of a code of a product, or of an id, in the size that is printed.
export function label(code, symbols = SYMBOLS) {
  const { digits, height, module, ...symbol } = symbols.find((one) => one.digits.test(code));
  const [, text] = code.match(digits);
  return { text, symbol: text.length > MOST ? nothing : drawn(text, symbol, height / module, module, "mm") };
}
// An id is not a GTIN, even if it looks like one.
export const labelOfId = (id) => label(id, [{ digits: /^(.*)$/, ...CODE_128 }]);
