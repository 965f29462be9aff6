// Reading what the page carries: base64 of gzip in inert script elements, as pack.py writes it.

function decoded(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function unzipped(base64) {
  const stream = new Blob([decoded(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function readJson(base64) {
  return JSON.parse(new TextDecoder().decode(await unzipped(base64)));
}

async function readColumns(base64) {
  return columnsOf(await unzipped(base64));
}

function columnsOf(bytes) {
  const headerSize = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headerSize)));
  const columns = {};
  let at = 4 + headerSize;
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

function embedded(id) {
  const element = document.getElementById(id);
  return element ? element.textContent.trim() : "";
}

// The attributes of spans stand in chunks, one a line, each compressed for itself: a click unpacks one of them.
class Details {
  constructor(text, chunkSize) {
    this.lines = text ? text.split("\n") : [];
    this.chunkSize = chunkSize;
    this.recent = new Map();
  }

  async chunk(number) {
    if (!this.lines[number]) return null;
    if (!this.recent.has(number)) {
      if (this.recent.size > 8) this.recent.delete(this.recent.keys().next().value);
      this.recent.set(number, readJson(this.lines[number]));
    }
    return this.recent.get(number);
  }

  // What is known of one span beyond the columns, or null where the page does not hold it.
  async of(position) {
    if (position < 0) return null;
    const chunk = await this.chunk(Math.floor(position / this.chunkSize));
    return chunk ? Details.expanded(chunk, chunk.spans[position % this.chunkSize]) : null;
  }

  static expanded(chunk, span) {
    if (!span) return null;
    const [spanId, shape, values, message, scope, events, links, parentId] = span;
    const attributes = chunk.shapes[shape].map((key, i) => [key, values[i]]);
    return {
      spanId, attributes, message: message || "", scope: scope || "", events: events || [], links: links || [],
      parentId: parentId || "",
    };
  }
}
