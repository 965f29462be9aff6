// What is wrong in JavaScript but runs: by rule, why it is asked for. Types are checked by the compiler of TypeScript.
import js from "@eslint/js";

const GLOBALS = [
  "atob", "Blob", "CSS", "DecompressionStream", "document", "localStorage", "navigator", "DataView", "Element", "fetch", "history", "HTMLDialogElement", "HTMLElement",
  "HTMLInputElement", "location", "Node", "performance", "queueMicrotask", "requestAnimationFrame", "ResizeObserver", "Response", "TextDecoder",
  "URLSearchParams", "window", "getComputedStyle", "setTimeout", "clearTimeout",
];

const rules = {
  "array-callback-return": "error", // a forgotten return makes undefined of every item
  "consistent-return": "off", // the compiler knows it better
  curly: ["error", "multi-line"], // a body on a line of its own without braces invites a second one
  eqeqeq: "error", // == converts
  "max-lines": ["error", { max: 450, skipBlankLines: true, skipComments: true }], // a file has one reason to exist
  "no-alert": "error", // the page speaks in its own elements
  "no-console": "error", // nobody reads it
  "no-eval": "error", // the page's policy forbids it
  "no-implied-eval": "error", // as no-eval
  "no-new-func": "error", // as no-eval
  "no-param-reassign": ["error", { props: false }], // a parameter means one thing
  "no-restricted-properties": ["error",
    // Text of others must never become markup.
    { property: "innerHTML", message: "Use el() and textContent." }, { property: "outerHTML", message: "Use el()." },
    { property: "insertAdjacentHTML", message: "Use el()." }, { object: "document", property: "write", message: "Use el()." }],
  "no-self-compare": "error",
  "no-shadow": ["error", { allow: ["name"] }], // two things of one name; `name` is a global of every window
  "no-throw-literal": "error", // an error has a message
  "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
  "no-use-before-define": ["error", { functions: false, classes: false, variables: false }], // the parts of the page are put together in one order
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
  "prefer-template": "off", // a long text in pieces reads better
  "require-atomic-updates": "off", // takes every wait for a race
};

export default [
  js.configs.recommended,
  { languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: Object.fromEntries(GLOBALS.map((name) => [name, "readonly"])) }, rules },
  { files: ["**/*.test.js", "**/tests/javascript/*.js"], languageOptions: { globals: { Buffer: "readonly", URL: "readonly" } } },
];
