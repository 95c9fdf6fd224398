// Shows the contract of the HTTP API by Swagger UI.
"use strict";

// Swagger UI is dark by a class only.
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/openapi.yaml",
  dom_id: "#contract",
  deepLinking: true,
  validatorUrl: null,
  defaultModelRendering: "model", // examples made up from patterns say less
  supportedSubmitMethods: [], // requests must be signed
});
