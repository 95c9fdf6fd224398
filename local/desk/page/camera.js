// Scans with the camera of a phone or computer: with the browser's own detector, or else with ZXing, which is loaded when it is first needed.
import { ref } from "lit-html/directives/ref.js";
import { page, refuse } from "./messages.js";
import { button, html, nothing } from "./parts.js";
import { pause } from "./server.js";
import { T } from "./texts.js";

const SIZE = { width: { ideal: 1280 }, height: { ideal: 720 } }; // pixels
const REST_MILLISECONDS = 80; // between two pictures
const GONE_MILLISECONDS = 1000; // after which a code counts again
const FORMATS = ["ean_13", "ean_8", "upc_a", "upc_e", "itf", "code_128", "data_matrix", "qr_code"];

// A function that finds the texts of the codes in a video, with the separators of GS1 codes (FNC1).
async function detectorOf() {
  const supported = (await globalThis.BarcodeDetector?.getSupportedFormats()) ?? [];
  if (FORMATS.every((format) => supported.includes(format))) {
    const detector = new BarcodeDetector({ formats: FORMATS });
    return async (video) => (await detector.detect(video)).map(({ rawValue }) => rawValue);
  }
  const { zxing } = await import(new URL(document.getElementById("app").dataset.decoder, import.meta.url));
  return zxing();
}

// Passes each code on once, until it has not been seen for a second.
function onceEach() {
  const seen = new Map();
  return (texts) => {
    const now = performance.now();
    for (const text of new Set(texts)) {
      const isNew = now - (seen.get(text) ?? -Infinity) > GONE_MILLISECONDS;
      seen.set(text, now);
      if (isNew) hear(text);
    }
  };
}

let stream; // of pictures, while the camera is open
let [hear, key] = []; // what the page does with a text, and where it says what came of it

function close() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = undefined;
}

async function watch(video) {
  const mine = stream;
  // The page before this one has just closed it.
  if (!mine) return queueMicrotask(page.draw);
  video.srcObject = mine;
  try {
    await video.play();
    const [detect, tell] = [await detectorOf(), onceEach()];
    while (stream === mine) {
      tell(await detect(video));
      await pause(REST_MILLISECONDS);
    }
  } catch (error) {
    if (stream === mine) stop(error);
  }
}

function stop(error) {
  close();
  if (error) refuse(key, T.camera.failures[error.name] ?? T.camera.failed(error.message));
  else page.draw();
}

async function open() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", ...SIZE } });
    page.draw();
    if (!document.querySelector(".camera")) close(); // the reader has gone on
  } catch (error) {
    stop(error);
  }
}

// One function, or each drawing would close the camera.
const follow = (video) => (video ? watch(video) : close());

// A button that opens the camera, and what it sees. `take` gets each text, and messages have the key `where`. The camera closes when its
// picture leaves the page.
export function cameraOf(where, take) {
  [hear, key] = [take, where];
  if (!navigator.mediaDevices) return nothing;
  if (!stream) return button(T.camera.open, open);
  return html`${button(T.camera.close, () => stop())}<video class="camera" aria-label=${T.camera.picture} muted playsinline ${ref(follow)}></video>`;
}
