// The state of the page as the fragment of its address (after #), so that it can be shared.

/** The state in an address. The selection is a kind and a number of that kind; -1 means none.
 * @typedef {{ view: string, range: [number, number] | null, query: string, showPath: boolean, apart: boolean | null, part: string, dataset: number, moment: number | null, span: number,
 *   function: number, flame: number, place: number, name: number }} Address */

/** The groups of spans that an address can select. */
export const GROUPS = /** @type {const} */ (["function", "flame", "place", "name"]);

/** @param {string} hash @returns {Address} */
export function read(hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  /** @param {string} name */
  const index = (name) => {
    const found = asked.get(name) ?? "";
    return /^\d+$/.test(found) ? Number(found) : -1;
  };
  const range = /^(\d+)-(\d+)$/.exec(asked.get("t") || "");
  const moment = index("at");
  return {
    view: asked.get("view") || "", range: range && [Number(range[1]), Number(range[2])], query: asked.get("q") || "", showPath: asked.get("path") !== "0", apart: asked.has("actors") ? asked.get("actors") === "1" : null,
    part: asked.get("part") || "", dataset: index("dataset"), moment: moment >= 0 ? moment : null, span: index("span"), function: index("function"), flame: index("flame"),
    place: index("place"), name: index("name"),
  };
}

/** The address of a state; defaults are left out.
 * @param {Partial<Address> & { view: string }} look */
export function written({ view, range, query, showPath = true, apart = null, part, dataset = -1, moment, span = -1, ...groups }) {
  /** @type {Record<string, string>} */
  const parts = { view };
  if (range) parts.t = range.map(Math.round).join("-");
  if (query) parts.q = query;
  if (!showPath) parts.path = "0";
  if (apart !== null) parts.actors = apart ? "1" : "0";
  if (part) parts.part = part;
  if (dataset >= 0) parts.dataset = String(dataset);
  if (moment !== null && moment !== undefined) parts.at = String(Math.round(moment));
  if (span >= 0) parts.span = String(span);
  for (const group of GROUPS) if ((groups[group] ?? -1) >= 0) parts[group] = String(groups[group]);
  return "#" + new URLSearchParams(parts);
}
