"""Labels of products and orders, and the camera that reads them, in a browser."""

from tests.support.desk import TEA, said, show
from tests.support.pages import module

# A barcode, and what the camera reads on its label.
CODES = {
    "4006381333931": "4006381333931",  # EAN-13
    "012345678905": "012345678905",  # UPC-A
    "96385074": "96385074",  # EAN-8
    "14006381333938": "14006381333938",  # ITF-14
    "=12345678": "12345678",  # an in-house number
    "case-7": "case-7",
}

# A camera that sees a label, as wide as a hand holds it.
CAMERA = """
  const now = performance.now.bind(performance);
  window.later = 0;
  performance.now = () => now() + later;
  const canvas = Object.assign(document.createElement("canvas"), { width: 1280, height: 720 });
  const picture = canvas.getContext("2d");
  window.see = ({ d, width, height } = {}) => {
    window.seen = d;
    clearInterval(window.again);
    window.again = setInterval(() => {
      picture.resetTransform();
      picture.fillStyle = "#ddd";
      picture.fillRect(0, 0, canvas.width, canvas.height);
      if (!d) return;
      const zoom = 900 / width;
      picture.setTransform(zoom, 0.05 * zoom, -0.05 * zoom, zoom, 190, 100);
      picture.fillStyle = "#fff";
      picture.fillRect(-10, -10, width + 20, height + 20);
      picture.fillStyle = "#222";
      picture.fill(new Path2D(d));
    }, 30);
  };
  see();
  if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = async () => {
    if (window.refusal) throw new DOMException("no", window.refusal);
    return canvas.captureStream(30);
  };
"""
# A browser that reads codes itself.
DETECTOR = """
  const formats = ["ean_13", "ean_8", "upc_a", "upc_e", "itf", "code_128", "data_matrix", "qr_code"];
  window.codes = [];
  window.BarcodeDetector = class {
    static getSupportedFormats = async () => formats;
    detect = async () => codes.map((rawValue) => ({ rawValue }));
  };
"""
LABEL = """() => {
  const svg = document.querySelector(".labels svg");
  const { width, height } = svg.viewBox.baseVal;
  return { d: svg.querySelector("path").getAttribute("d"), width, height };
}"""

# How a GS1-128 is printed, with FNC1 (\u00cf) at the beginning and after the lot.
GS1 = """(text) => {
  const { data } = new tested.default(text, {}).encode();
  const bars = [...data.matchAll(/1+/g)].map(({ index, 0: { length } }) => `M${11 + index} 0h${length}v48h-${length}z`);
  return { d: bars.join(""), width: data.length + 22, height: 48 };
}"""
ENCODER = "../../../node_modules/jsbarcode/src/barcodes/CODE128/CODE128_AUTO.js"


def test_the_camera_reads_each_label_once(page, desk):
    page.add_init_script(CAMERA)
    barcodes = [{"code": code, "units": 1 + at} for at, code in enumerate(CODES)]
    desk.command("ManageProducts", action="change", productId=TEA, barcodes=barcodes)
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_role("link", name="Print labels").click()
    page.get_by_role("heading", level=1, name="Labels: Earl Grey").wait_for()
    labels, sizes = {}, {}
    for option in page.locator("[name=code]").locator("option").all_inner_texts():
        page.locator("[name=code]").select_option(label=option)
        text = page.locator(".labels span").inner_text()
        assert text in option
        labels[text] = page.evaluate(LABEL)
        sizes[text] = page.locator(".labels svg").bounding_box()["width"] * 25.4 / 96
    assert labels.keys() == {*CODES.values(), TEA}
    # With quiet zones, in millimetres, as GS1 wants them.
    assert (round(sizes["4006381333931"]), round(sizes["14006381333938"])) == (39, 78)
    page.locator("[name=code]").select_option(index=0)
    page.get_by_label("Copies").fill("12")
    page.keyboard.press("Tab")
    assert page.locator(".labels li").count() == 12
    # Only labels are on the paper.
    page.emulate_media(media="print")
    assert page.locator("body").inner_text().split("\n")[0] == "Earl Grey"
    page.emulate_media(media="screen")

    page.reload()
    show(page, desk, "receive", "Receive a delivery")
    page.get_by_role("button", name="Camera").click()
    total = 0
    for text, units in [*zip(CODES.values(), range(1, 7), strict=True), (TEA, 1)]:
        page.evaluate("label => see(label)", labels[text])
        total += units
        said(page, f"Earl Grey: {total} unit")
    # Separators are in what the API is asked.
    drawn = page.evaluate(
        f"{module(ENCODER)}; ({GS1})('\u00cf011400638133393810L-7\u00cf17270131')"
    )
    page.evaluate("label => see(label)", drawn)
    said(page, f"Earl Grey: {total + 4} units")
    assert any("scan=%5DC1011400638133393810L-7%1D17270131" in call for call in desk.api.calls)
    page.get_by_role("button", name="Close the camera").click()
    assert page.locator("video").count() == 0


def test_a_browsers_own_detector_counts_a_code_again_when_it_comes_back(page, desk):
    page.add_init_script(CAMERA + DETECTOR)
    page.reload()
    show(page, desk, "receive", "Receive a delivery")
    page.evaluate("window.refusal = 'NotAllowedError'")
    page.get_by_role("button", name="Camera").click()
    said(page, "Allow it in the browser's settings for this site", "alert")
    page.evaluate("window.refusal = undefined")
    page.get_by_role("button", name="Camera").click()
    page.evaluate(f"codes = ['{TEA}', '{TEA}']")
    said(page, "Earl Grey: 1 unit.")
    # It is still in the picture.
    page.evaluate(f"codes = ['{TEA}', 'tea-hojicha']")
    said(page, "Hojicha: 1 unit.")
    page.evaluate("codes = []; later += 2000")
    page.evaluate(f"codes = ['{TEA}']")
    said(page, "Earl Grey: 2 units.")
    # Another page closes the camera.
    show(page, desk, "scan", "Scan")
    page.get_by_role("button", name="Camera").wait_for()
    assert not any(
        "decoder" in url
        for url in page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    )
