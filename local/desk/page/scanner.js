// Tells a scan from a person's keys, on every page: it is faster, and ends with Enter, Tab, two of them (CR LF), or nothing.
const TOGETHER_MILLISECONDS = 150; // between two keys of one scan, at most
const FAST_MILLISECONDS = 40; // from key to key on average, at most
const QUIET_MILLISECONDS = 300; // what comes sooner after a scan belongs to it
const [LEAST, LEAST_WITHOUT_END] = [3, 6]; // characters of a scan

const SEPARATOR = "\x1d"; // between the elements of a GS1 code (FNC1): scanners send it as Ctrl and ]

const hasText = ({ type, inputMode }) => !inputMode && ["text", "search", "textarea"].includes(type);

export function swallow(event) {
  event.preventDefault();
  event.stopImmediatePropagation();
}

// For a field that takes scans as if Enter had been pressed: `@scan=${sendForm}`.
export function sendForm(event) {
  event.preventDefault();
  // The focus may have come here in the middle of the scan.
  event.target.value = event.detail;
  event.target.form.requestSubmit();
}

// For a field into which nothing is scanned: what was typed before stays, and `work` gets the scan.
export const passOn = (work) => (event) => {
  event.preventDefault();
  event.target.value = event.before;
  work(event);
};

// A scan never reaches a control. The element with the focus gets an event `scan`, and takes it by preventing its default. Otherwise, a
// field for text keeps what was typed, and from anywhere else it goes to `hear`: fields for numbers and choices get back what they had.
export function listenToScans(hear) {
  let [keys, ended, timer] = [{ text: "" }, -Infinity];

  function end(target, at, least) {
    const { text, began, last, field, value } = keys;
    if (text.length < least || last - began > FAST_MILLISECONDS * text.length || at - last > TOGETHER_MILLISECONDS) return false;
    keys = { text: "" };
    ended = performance.now();
    const scan = Object.assign(new CustomEvent("scan", { cancelable: true, detail: text }), { before: target === field ? value : target.value });
    if (!target.dispatchEvent(scan) || hasText(target)) return true;
    if (target === field && (target.value !== value || target.validity?.badInput)) {
      target.value = value;
      for (const type of ["input", "change"]) target.dispatchEvent(new Event(type, { bubbles: true }));
    }
    hear(text);
    return true;
  }

  const onKey = (event) => {
    const { target, timeStamp: now, ctrlKey, altKey, metaKey } = event;
    const isSeparator = ctrlKey && !altKey && event.key === "]";
    const key = isSeparator ? SEPARATOR : event.key;
    const isEnd = key === "Enter" || (key === "Tab" && !event.shiftKey);
    if (metaKey || (ctrlKey !== altKey && !isSeparator) || (key.length > 1 && !isEnd)) return; // both are AltGr
    clearTimeout(timer);
    const isRest = now - ended <= QUIET_MILLISECONDS;
    if (isEnd) {
      if (keys.text === "" ? isRest : end(target, now, keys.isRest ? 1 : LEAST)) swallow(event);
      keys = { text: "" };
      return;
    }
    const gap = now - (keys.last ?? -Infinity);
    if (gap > TOGETHER_MILLISECONDS || event.repeat) keys = { text: "", began: now, field: target, value: target.value, isRest };
    // A blank would press a button, and a slash go to the search.
    else if (gap <= FAST_MILLISECONDS && !target.matches("textarea, select, input:not([type=checkbox])")) swallow(event);
    Object.assign(keys, { text: keys.text + key, last: now });
    timer = setTimeout(() => end(document.activeElement, keys.last, LEAST_WITHOUT_END), QUIET_MILLISECONDS);
  };
  addEventListener("keydown", onKey, true);
}
