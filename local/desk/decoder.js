// ZXing, for browsers that read no codes themselves. It is a file of its own, because most people scan without a camera.
import { prepareZXingModule, readBarcodes } from "zxing-wasm/reader";
import wasm from "zxing-wasm/reader/zxing_reader.wasm";

const FORMATS = ["EAN13", "EAN8", "UPCA", "UPCE", "ITF14", "Code128", "DataMatrix", "QRCode", "DataBar", "DataBarExp"];

// A function that finds the texts of the codes in a video. Those of GS1 codes begin with their symbology identifier.
export async function zxing() {
  await prepareZXingModule({ overrides: { locateFile: () => new URL(wasm, import.meta.url).href }, fireImmediately: true });
  const picture = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  return async (video) => {
    const [width, height] = [video.videoWidth, video.videoHeight];
    Object.assign(picture.canvas, { width, height });
    picture.drawImage(video, 0, 0);
    const found = await readBarcodes(picture.getImageData(0, 0, width, height), { formats: FORMATS, textMode: "Plain" });
    return found.map(({ text, contentType, symbologyIdentifier }) => (contentType === "GS1" ? symbologyIdentifier + text : text));
  };
}
