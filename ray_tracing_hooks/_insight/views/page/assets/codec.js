// Reads the data in the page: base64 of gzip in inert script elements, as pack.py writes it.

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
function decoded(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @param {string} base64 */
async function unzipped(base64) {
  const stream = new Blob([decoded(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} base64 @returns {Promise<any>} */
export async function readJson(base64) {
  return JSON.parse(new TextDecoder().decode(await unzipped(base64)));
}

/** @param {string} base64 */
export async function readColumns(base64) {
  return columnsOf(await unzipped(base64));
}

/** The JSON at the beginning of a block, and the bytes after it.
 * @param {Uint8Array} bytes @returns {[any, Uint8Array]} */
function headOf(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), bytes.subarray(4 + size)];
}

/** The columns of a block, by name. Each consists of byte planes: the lowest byte of every number, then the next one.
 * @param {Uint8Array} block */
export function columnsOf(block) {
  /** @type {[[string, number, number][], Uint8Array]} */
  const [header, bytes] = headOf(block);
  /** @type {Columns} */
  const columns = {};
  let at = 0;
  for (const [name, count, width] of header) {
    const column = width <= 1 ? new Uint8Array(count) : width <= 4 ? new Uint32Array(count) : new Float64Array(count);
    let weight = 1;
    for (let plane = 0; plane < width; plane++, weight *= 256, at += count) {
      const part = bytes.subarray(at, at + count);
      if (plane === 0) for (let i = 0; i < count; i++) column[i] = part[i];
      else for (let i = 0; i < count; i++) column[i] += part[i] * weight;
    }
    columns[name] = column;
  }
  return columns;
}

/** The columns of spans as the page uses them. Starts are packed as differences, parents as distances back.
 * @param {Columns} columns @returns {SpanColumns} */
export function spanColumns(columns) {
  const count = columns.start.length;
  const start = new Float64Array(count), parent = new Int32Array(count), submission = new Int32Array(count);
  for (let i = 0, at = 0; i < count; i++) start[i] = at += columns.start[i];
  for (let i = 0; i < count; i++) {
    const back = columns.parent[i] - 1;
    parent[i] = back < 0 ? -1 : i - (back % 2 ? -(back + 1) / 2 : back / 2);
    const of = columns.submission[i];
    submission[i] = of === 0 ? -1 : of === 1 ? parent[i] : of - 2;
  }
  const { took, name, flags, lane, depth, function: node, flame, resource, trace, detail } = columns;
  return {
    start, took, name, flags, lane, depth, node, flame, resource, trace, detail, parent, submission,
    nodeApart: columns.function_apart, flameApart: columns.flame_apart, edgeFrom: columns.edge_from, edgeTo: columns.edge_to, edgeKind: columns.edge_kind,
    phaseSpan: columns.phase_span, phaseKind: columns.phase_kind, phaseFrom: columns.phase_from, phaseTo: columns.phase_to,
  };
}

/** @param {string} id */
export function embedded(id) {
  return document.getElementById(id)?.textContent?.trim() ?? "";
}

const MOST_RECENT = 8;

// The attributes of spans are in chunks, one per line, each compressed separately: a click unpacks one of them.
export class Details {
  /** @param {string} text @param {number} chunkSize */
  constructor(text, chunkSize) {
    this.lines = text ? text.split("\n") : [];
    this.chunkSize = chunkSize;
    /** @type {Map<number, Promise<Chunk>>} */
    this.recent = new Map();
  }

  /** @param {number} number @returns {Promise<Chunk> | null} */
  chunk(number) {
    if (!this.lines[number]) return null;
    let found = this.recent.get(number);
    if (!found) {
      for (const oldest of this.recent.keys()) if (this.recent.size > MOST_RECENT) this.recent.delete(oldest);
      this.recent.set(number, (found = readJson(this.lines[number])));
    }
    return found;
  }

  /** The details of a span that the columns do not have, or null if the page does not hold them.
   * @param {number} position */
  async of(position) {
    if (position < 0) return null;
    const chunk = await this.chunk(Math.floor(position / this.chunkSize));
    return chunk ? expanded(chunk.shapes, chunk.spans[position % this.chunkSize]) : null;
  }
}

/** @param {string[][]} shapes @param {PackedSpan | undefined} span @returns {SpanDetails | null} */
function expanded(shapes, span) {
  if (!span) return null;
  const [spanId, shape, values, message, scope, events, links, parentId] = span;
  return {
    spanId, attributes: shapes[shape].map((key, i) => [key, values[i]]), message: message || "", scope: scope || "",
    events: events || [], links: links || [], parentId: parentId || "",
  };
}
