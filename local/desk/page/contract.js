// Shows the contract of the HTTP API by Swagger UI.
import { TOKEN, config } from "./server.js";
import { T } from "./texts.js";

// What Swagger UI leaves without a name. Code that scrolls needs a keyboard's focus, too.
const NAMES = {
  "#servers": () => T.contract.server,
  ".copy-to-clipboard button": () => T.contract.copy,
  ".body-param__text": () => T.contract.body,
  "[data-param-name] :is(input, select, textarea)": (field) => field.closest("[data-param-name]").dataset.paramName,
  ".close-modal": () => T.contract.close,
  "pre.microlight, .operation-link pre": (code) => Object.assign(code, { tabIndex: 0, role: "group" }) && T.contract.code,
};

const place = document.createElement("div");
place.id = "contract";
let shown = null;

function load(name, properties) {
  return new Promise((resolve, reject) => {
    document.head.append(Object.assign(document.createElement(name), properties, { onload: resolve, onerror: () => reject(new Error(T.gone(true))) }));
  });
}

function giveNames() {
  for (const [selector, nameOf] of Object.entries(NAMES)) for (const each of place.querySelectorAll(selector)) each.ariaLabel ??= nameOf(each);
}

async function show() {
  new MutationObserver(giveNames).observe(place, { childList: true, subtree: true });
  // Swagger UI is dark by a class only.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();
  const { embedded } = config;
  await Promise.all([load("link", { rel: "stylesheet", href: "swagger-ui.css" }), load("script", { src: "swagger-ui.js" })]);
  return SwaggerUIBundle({
    url: "openapi.yaml",
    domNode: place,
    deepLinking: true,
    // A link within a button is of no use to a keyboard. The button changes the address, too.
    plugins: [() => ({ components: { DeepLink: ({ text }) => text } })],
    validatorUrl: null,
    defaultModelRendering: embedded ? "example" : "model", // a request begins as the example; to read, patterns say more
    // The embedded AWS has tokens for a page; on an account requests need your own, or a signature.
    supportedSubmitMethods: embedded ? ["get", "post", "patch", "delete"] : [],
    requestInterceptor: (request) => ({ ...request, headers: { ...request.headers, "X-Desk-Token": TOKEN } }),
  });
}

export async function read() {
  shown ??= await show();
  shown.layoutActions.parseDeepLinkHash(location.hash);
}

export const draw = () => ({ title: T.contract.title, content: place });
