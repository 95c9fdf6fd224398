// Shows the contract of the HTTP API by Swagger UI.
"use strict";

// Swagger UI is dark by a class only.
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

// The embedded AWS has tokens for a page; on an account requests need your own, or a signature.
ABOUT.then(({ embedded }) =>
  SwaggerUIBundle({
    url: "/openapi.yaml",
    dom_id: "#contract",
    deepLinking: true,
    validatorUrl: null,
    defaultModelRendering: embedded ? "example" : "model", // a request begins as the example; to read, patterns say more
    supportedSubmitMethods: embedded ? ["get", "post", "patch", "delete"] : [],
    requestInterceptor: (request) => ({ ...request, headers: { ...request.headers, "X-Desk-Token": TOKEN } }),
  }),
);
