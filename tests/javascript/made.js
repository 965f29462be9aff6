// Spans for tests, and a store of them.
import { CONSUMER, PRODUCER } from "../../ray_tracing_hooks/_insight/views/page/assets/figures.js";
import { Store } from "../../ray_tracing_hooks/_insight/views/page/assets/store.js";

export const SUBMISSION = PRODUCER, EXECUTION = CONSUMER;

const META = {
  source: "made", start_ms: 0, extent: 100, spans: 0, executions: 0, chunk: 2, resources: [{}], traces: ["t"], lanes: [0],
  places: [{ label: "driver", detail: "", node: 0, group: "", kind: "driver", facts: {} }], nodes: [{ label: "node", detail: "", accelerators: [] }],
  flame: { name: [0], parent: [-1], first: [0], errors: [0], wait: [0], path: [0] },
  graph: { functions: [], calls: [], data: [] }, colour_order: [], strip: [], peak: 0, facts: [], apart: null, documentation: "", trace_url: "", queues: null, requests: null, datasets: { executions: [], iterations: [], left_out: 0 }, findings: [], nothing_found: "", ran: "",
  path: { steps: [], by: [], total: 0, about: "", places: {} }, quality: [], deadlocks: [], notes: [], details_note: "", names: ["f"], top_about: "", top: [],
};

/** What the page is told of a run; what is not given is of one driver with nothing in it. */
export const made = (meta) => ({ ...META, ...meta });

/** Columns of spans; each is given by what it has besides a start and a duration. */
export function columns(spans) {
  const column = (key, otherwise = 0) => spans.map((span) => span[key] ?? otherwise);
  return {
    start: Float64Array.from(column("start")), took: Float64Array.from(column("took")), flags: column("flags"), name: column("name"), lane: column("lane"),
    depth: column("depth"), node: column("function"), flame: column("flame"), resource: column("resource"), trace: column("trace"), detail: column("detail"),
    parent: Int32Array.from(column("parent", -1)), submission: Int32Array.from(column("submission", -1)), edgeFrom: [], edgeTo: [], edgeKind: [], phaseSpan: [], phaseKind: [], phaseFrom: [], phaseTo: [],
  };
}

/** A store that is ready to be looked at. */
export function store(spans, meta = {}, details = undefined) {
  const found = new Store(made({ spans: spans.length, strip: [0], ...meta }), columns(spans), details);
  found.layOut();
  return found;
}

/** What changes in a store while `act` runs. */
export function changes(of, act) {
  const found = [];
  of.listen((what) => found.push(what));
  act();
  return found;
}
