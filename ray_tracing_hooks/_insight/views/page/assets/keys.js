// Keyboard shortcuts: which key means which action.

/** Keys and their descriptions, for the help dialog. */
export const KEYS = [
  ["1 – 9", "Open a tab"], ["W  S  +  −", "Zoom in and out"], ["A  D", "Move left and right"], ["F", "Zoom to the selected span"], ["0", "Show the whole run"],
  ["← →", "Previous and next span in the lane"], ["↑ ↓", "Parent, first child"], ["Enter", "Go to the details"], ["/", "Search and filter"], ["C", "Critical path"],
  ["Esc", "Close, deselect, clear the filter"], ["?", "This list"],
];

/** @typedef {{ key: string, view: string, isTyping: boolean, isSlider: boolean, hasModifier: boolean, isHelpOpen: boolean }} Pressed */
/** An action: its name, for `tab` the number from 0, and for `arrow` the key.
 * @typedef {{ act: "tab", tab: number } | { act: "arrow", key: string } | { act: "escape" | "leave" | "search" | "help" | "larger" | "smaller" | "in" | "out" | "left" | "right" | "whole" | "path" | "close-up" | "details" }} Action */

/** @type {Record<string, Action["act"]>} */
const ACTIONS = { "/": "search", "?": "help", w: "in", "+": "in", "=": "in", s: "out", "-": "out", a: "left", d: "right", 0: "whole", c: "path", f: "close-up", Enter: "details" };

/** The action of a key, or null. `Escape` leaves a field before it closes anything.
 * @param {Pressed} pressed @param {number} tabs @returns {Action | null} */
export function actionOf({ key: given, view, isTyping, isSlider, hasModifier, isHelpOpen }, tabs) {
  if (given === "Escape") return { act: isTyping && !isHelpOpen ? "leave" : "escape" };
  if (isTyping || hasModifier || (isHelpOpen && given !== "?")) return null;
  const key = given.length === 1 ? given.toLowerCase() : given;
  if (/^[1-9]$/.test(key)) return Number(key) <= tabs ? { act: "tab", tab: Number(key) - 1 } : null;
  if (key.startsWith("Arrow")) return view === "timeline" && !isSlider ? { act: "arrow", key } : null;
  const act = Object.hasOwn(ACTIONS, key) ? ACTIONS[key] : null;
  // The call graph has its own zoom.
  if (view === "logical" && (act === "in" || act === "out") && !/[ws]/.test(key)) return { act: act === "in" ? "larger" : "smaller" };
  return act && /** @type {Action} */ ({ act });
}

/** The index among `count` items that a key leads to, or -1. Arrow keys wrap around.
 * @param {string} key @param {number} here @param {number} count */
export function tabAfter(key, here, count) {
  if (key === "ArrowLeft") return (here - 1 + count) % count;
  if (key === "ArrowRight") return (here + 1) % count;
  return key === "Home" ? 0 : key === "End" ? count - 1 : -1;
}
