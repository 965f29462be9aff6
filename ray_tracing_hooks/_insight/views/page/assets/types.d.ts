// Types of the data that Python writes into the page (content.py, report.py), and of shared parts.
// Only for the type checker: this file is not in the page or the wheel. Times are nanoseconds from the first span's start.

type Store = import("./store.js").Store;
type App = import("./main.js").App;
type Colours = import("./colours.js").Colours;

type Numbers = ArrayLike<number>;
/** Columns as pack.py packs them, by name. */
type Columns = Record<string, Uint8Array | Uint32Array | Float64Array>;

/** The changes that make a view redraw: see Store.changed. */
type Change = "range" | "filter" | "selection" | "moment" | "path" | "apart" | "notice";

interface Chosen {
  type: "span" | "rows" | "function" | "flame" | "place" | "edge"; row?: number; rows?: number[]; id?: number;
  name?: number; label?: string; from?: number; to?: number; kind?: EdgeKind; edge?: CallEdge | DataEdge;
}

type EdgeKind = "call" | "data";

interface RunTimes {
  count: number; errors: number; total: number; p50: number; p95: number; max: number;
}

interface GraphFunction extends RunTimes {
  label: string; kind: string; name: number; actor: string; method: string; actors: number; queue_p50: number | null;
  queue_max: number | null; path: number;
}

interface CallEdge extends RunTimes {
  from: number; to: number; path: number;
}

interface DataEdge {
  from: number; to: number; count: number; readers: number;
}

interface Graph {
  functions: GraphFunction[]; calls: CallEdge[]; data: DataEdge[];
}

interface FlameMeta {
  name: number[]; parent: number[]; first: number[]; errors: number[]; wait: number[]; path: number[];
}

interface Accelerator {
  label: string; held_by: string[]; held: number; busy: number; gap: number; used: number | null;
}

interface Place {
  label: string; detail: string; node: number; group: string; kind: "actor" | "driver" | "worker";
  facts: Record<string, unknown>;
}

interface PathStep {
  cause: string; start: number; end: number; row: number; from: number; why: string;
}

interface PathPart {
  label: string; kind: string; function: number; ns: number; share: number; by: PathGroup[];
}

/** The waits of one kind in one function. */
interface PathGroup {
  label: string; function: number; ns: number; most: number; calls: number; rows: number[];
}

interface Finding {
  kind: string; text: string; cost: string; share: string; title: string; advice: string; level: string; rows: number[];
}

interface DatasetTimeline {
  /** Since the execution began. */
  ns: number[];
  queued_blocks: number[]; queued_bytes: number[]; running: number[]; rows: number[];
}

interface Cause {
  kind: string; policy: string; resource: string; ns: number;
}

/** Null is not known. */
interface DatasetOperator {
  name: string; id: string; type: string; inputs: string[]; start: number; ns: number; is_running: boolean;
  tasks: number; tasks_recorded: number; actors: number; slots: number | null; needs: Record<string, number>;
  busy_ns: number; parallelism: number; input_rows: number | null; rows: number | null; bytes: number | null;
  blocks: number | null; rows_per_second: number | null; mean_queue: number; longest_queue: number;
  /** The longest first. */
  held_back: Cause[];
  held_back_at: (Cause & { start: number })[];
  timeline: DatasetTimeline; span: number;
}

/** Requests to Ray Serve, as views/requests.py describes them; times in nanoseconds, and rows -1 if the page does not hold
 * them. */
interface ServeRequests {
  count: number; failed: number; running: number; unrecorded: number; time_ns: number;
  /** How many rows of the tables the page does not hold: those that took least time. */
  left_out: number;
  routes: RequestRoute[]; time: TimePart[]; methods: RequestMethod[];
  generations: { models: GenerationsOf[]; first_chunks: FirstChunks[] } | null;
}

type Percentiles = { median_ns: number; p95_ns: number; p99_ns: number; max_ns: number } | null;

interface TimePart {
  about: string; ns: number; share: number;
  /** Null if there are too few requests to look at the slowest on their own. */
  slow_share: number | null;
}

interface FirstChunks {
  deployment: string; model: string; count: number; duration: Percentiles; slowest: number;
  time: (TimePart & { median_ns: number })[];
}

interface GenerationsOf {
  model: string; is_prefill: boolean; replica?: string; replicas?: GenerationsOf[];
  count: number; failed: number; aborted: number; input_tokens: number; output_tokens: number; cached_tokens: number;
  time_to_first_token: Percentiles; time_per_output_token: Percentiles; queue: Percentiles;
}

interface RequestRoute {
  label: string; is_handle: boolean; count: number; failed: number; slowest: number; duration: Percentiles;
}

interface RequestMethod {
  label: string; executions: number; failed: number; replicas: number; batches: number;
  /** The row of the call that waited longest. */
  longest: number | null;
  waited: Percentiles; duration: Percentiles; batch: Percentiles;
}

interface Dataset {
  name: string; run: number | null; consumer: string; outcome: string | null; is_running: boolean; start: number;
  ns: number; rows: number | null; bytes: number | null; spilled_bytes: number; limits: Record<string, number>;
  limited_by: { kind: string; operator: string | null; share: number } | null;
  operators: DatasetOperator[]; span: number;
}

interface DatasetIteration {
  method: string; outcome: string | null; is_running: boolean; start: number; ns: number; split: number | null;
  epoch: number | null; batches: number; rows: number; waited_ns: number; waiting_share: number | null;
  first_batch_ns: number; stages_ns: Record<string, number>; span: number;
}

interface TopFunction {
  label: string; name: number; self: number; count: number; errors: number; p50: number; p95: number; max: number;
}

/** One attempt of a run of Ray Train; `size` steps to a column. Times are in microseconds, `took` is one more, and 0 for none. */
interface TrainAttempt {
  run: string; attempt: number; row: number; failed: boolean; steps: number; met: number; size: number; world: number;
  delays: number[];
  ranks: { rank: number; row: number; node: string; failed: boolean; last: number; took: number[]; waited: number[]; rows: number[] }[];
}

/** How much of a part of a node was in use: times in milliseconds, values in thousandths. */
interface UtilizationLane {
  label: string; node: string; mean: number; most: number; begins: number[]; ends: number[]; values: number[];
}

type Told = string | { titles: string[]; rows: string[][] };

/** Runs before and now, one side each: `own` has the own share of the wall time of each stack, in nanoseconds. */
interface Comparison {
  told: Told[];
  sides: string[];
  paths: { label: string; kind: string; ns: number }[][];
  flame: { label: string[]; parent: number[]; wait: number[]; own: number[][] };
}

interface Meta {
  source: string;
  /** The address of the page that describes the findings, "" if it is not known. */
  documentation: string;
  /** Where another program shows a trace, with {trace_id} in place of its id; "" for nowhere. */
  trace_url: string;
  comparison: Comparison | null;
  /** About the whole run, if the page has a part of it. */
  whole: Told[];
  start_ms: number; extent: number; spans: number; executions: number; chunk: number;
  resources: Record<string, unknown>[]; traces: string[];
  /** The place of each lane. */
  lanes: number[];
  places: Place[];
  nodes: { label: string; detail: string; accelerators: Accelerator[] }[];
  flame: FlameMeta; graph: Graph;
  /** Both graphs with each actor apart, and whether the page begins with them; null if no class has several actors. */
  apart: { graph: Graph; flame: FlameMeta; first: boolean } | null;
  colour_order: number[][]; strip: number[]; peak: number; facts: [label: string, value: string, isBad?: boolean][];
  queues: { about: string; titles: string[]; rows: [string, ...number[]][] } | null;
  /** Null if there are none. */
  requests: ServeRequests | null;
  serves: boolean;
  datasets: { executions: Dataset[]; iterations: DatasetIteration[]; left_out: number };
  findings: Finding[];
  /** Which waits do not count as running in a place, to end a sentence. */
  ran: string;
  nothing_found: string;
  path: { steps: PathStep[]; by: PathPart[]; total: number; about: string; places: Record<number, number> };
  quality: string[]; deadlocks: number[][]; notes: string[]; details_note: string; names: string[]; top_about: string;
  top: TopFunction[]; training: TrainAttempt[]; trainings: number; utilization: UtilizationLane[];
}

/** Spans as the page uses them, by row. */
interface SpanColumns {
  start: Float64Array; took: Uint8Array | Uint32Array | Float64Array; name: Numbers; flags: Numbers; lane: Numbers;
  depth: Numbers; node: Numbers; flame: Numbers; resource: Numbers; trace: Numbers; detail: Numbers; parent: Int32Array;
  submission: Int32Array;
  /** With each actor apart: see Meta.apart. */
  nodeApart?: Numbers;
  flameApart?: Numbers; edgeFrom: Numbers; edgeTo: Numbers; edgeKind: Numbers;
  /** Phases of generations of LLM engines: 0 is the queue, 1 the prefill, 2 the decode. */
  phaseSpan: Numbers; phaseKind: Numbers; phaseFrom: Numbers; phaseTo: Numbers;
}

/** The input of figures: spans, and which of them count. */
interface Counted {
  count: number; start: Numbers; took: Numbers; flags: Numbers; lane: Numbers; depth: Numbers; flame: Numbers;
  parent: Numbers; submission: Numbers; end: number; range: number[]; keep: Uint8Array | null;
  meta: Pick<Meta, "lanes" | "executions"> & { places: { length: number }; flame: { parent: Numbers; wait: Numbers } };
}

interface StackFigures {
  spans: Numbers; summed: Numbers; wall: Numbers; own: Numbers; share: Numbers;
}

interface PlaceFigures {
  busy: Numbers; calls: Numbers; errors: Numbers;
  /** For each place the share of each slice of the range in which it was busy. */
  strips: Float64Array[];
}

interface Strip {
  running: number[] | Float64Array; failed: Numbers; most: number;
  /** The filter that was active when it was made. */
  keep: unknown;
}

interface Queue {
  most: number;
  waited(time: number): number;
  at(time: number): number;
}

interface GroupFigures {
  count: number; failed: number; p50: number; p95: number; max: number; slowest: number[];
}

type Attributes = Record<string, unknown>;

/** The details of a span that are not in columns. */
interface SpanDetails {
  spanId: string; attributes: [string, unknown][]; message: string; scope: string;
  events: [name: string, at: number, attributes: Attributes][];
  links: [trace: string, span: string, target: number, attributes: Attributes][]; parentId: string;
}

/** A span as pack.py writes it: id, shape, values, message, scope, events, links, parent. Trailing empty items are left out. */
type PackedSpan = [
  string, number, unknown[], string?, string?, SpanDetails["events"]?, SpanDetails["links"]?, string?,
];

interface Chunk {
  shapes: string[][]; spans: PackedSpan[];
}
