// Maps times to positions on the screen, and labels the axis.

/** The position of a time range on the screen, in pixels. */
export class Scale {
  /** @param {number[]} range @param {number} left @param {number} width */
  constructor([from, to], left, width) {
    this.from = from;
    this.to = to;
    this.left = left;
    this.width = width;
  }

  /** @param {number} time */
  x(time) {
    return this.left + ((time - this.from) / (this.to - this.from)) * this.width;
  }

  /** @param {number} x */
  timeAt(x) {
    return this.from + ((x - this.left) / this.width) * (this.to - this.from);
  }
}

/** The smallest step of 1, 2 or 5 times a power of ten that is at least this.
 * @param {number} least */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) || 10 * power;
}

/** The label of a tick, with a unit and precision that fit the distance between ticks.
 * @param {number} tick @param {number} step */
export function axisLabel(tick, step) {
  /** @type {[number, string]} */
  const [unit, name] = tick >= 60e9 && step >= 1e9 ? [60e9, "m"] : step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "us"] : [1, "ns"];
  if (name === "m") {
    const seconds = Math.round(tick / 1e9);
    return `${Math.floor(seconds / 60)}m ${String(seconds % 60).padStart(2, "0")}s`;
  }
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / unit))));
  return `${(tick / unit).toFixed(digits)} ${name}`;
}

/** The first of consecutive steps that ends after a time.
 * @param {{ end: number }[]} steps @param {number} time */
export function firstStep(steps, time) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].end <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}
