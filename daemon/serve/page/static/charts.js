// uPlot in the page's colours: follows the width of its place and the light or dark of the system.

import uPlot from "./vendor/uPlot.esm.js";
import { short } from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const FONT = '12px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif';

/**
 * A chart in `host`. `lines(data)` gives the series: {label, colour (a name of the style sheet), dash, points, width,
 * format}; `time`: x is Unix seconds, else a count; `low`: 0 keeps the axis at zero; `axis`: how its values are
 * written; `where`: how the place under the cursor is written; `log`: the axis is logarithmic. The legend tells the
 * values under the cursor, else the last ones.
 */
export class Chart {
  constructor(host, { time = false, low = null, log = false, axis = short, where = short, range = null }) {
    Object.assign(this, { host, time, low, log, axis, where, range });
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => this.resize()).observe(host);
    dark.addEventListener("change", () => { this.shape = ""; if (this.shown) this.show(...this.shown); });
  }

  /** Draw `data` ([x, y...], aligned) as `lines`; `told` says the same in words. */
  show(data, lines, told) {
    this.shown = [data, lines, told];
    const shape = JSON.stringify(lines.map(({ format, ...rest }) => rest));
    if (this.plot !== null && shape === this.shape) {
      this.plot.setData(data);
    } else {
      this.clear();
      this.shape = shape;
      this.plot = new uPlot(this.options(lines), data, this.host);
    }
    this.host.setAttribute("role", "img");
    this.host.setAttribute("aria-label", told);
    this.host.dataset.points = String(data.slice(1).flat().filter((value) => value !== null && value !== undefined).length);
  }

  /** Nothing to draw: `element` stands there instead. */
  blank(element) {
    this.clear();
    this.shown = null;
    this.host.removeAttribute("role");
    this.host.removeAttribute("aria-label");
    this.host.dataset.points = "0";
    this.host.replaceChildren(element);
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
    this.shape = "";
    this.host.replaceChildren();
  }

  resize() {
    if (this.plot !== null && this.plot.width !== this.host.clientWidth) this.plot.setSize(this.size());
  }

  /** Of the drawing alone; the legend comes below it. */
  size() {
    return { width: this.host.clientWidth, height: parseFloat(getComputedStyle(this.host).minHeight) };
  }

  options(lines) {
    const axis = { stroke: ink("soft"), font: FONT, grid: { stroke: ink("grid"), width: 1 }, ticks: { show: false } };
    const xs = (_, values) => values.map(short);
    return {
      ...this.size(),
      padding: [8, 18, 0, 0],
      cursor: { points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { time: this.time, range: this.range }, y: this.log ? { distr: 3 } : { range: (_, low, high) => this.margins(low, high) } },
      axes: [
        { ...axis, space: 70, size: 28, ...(this.time ? { values: clockTicks } : { values: xs }) },
        { ...axis, size: 56, values: (_, values) => values.map((value) => (value === null ? "" : this.axis(value))) },
      ],
      series: [
        { label: this.time ? "at" : "events", value: (plot, x, place, at) => this.where(at === null ? plot.data[0].at(-1) : x) },
        ...lines.map((line) => this.series(line)),
      ],
    };
  }

  series({ label, colour, dash = [], points = false, width = 1.8, star = false, format = null }) {
    const stroke = ink(colour);
    return {
      label, stroke, dash, width: star ? 0 : width, spanGaps: !this.time,
      points: star ? { show: true, size: 12, fill: stroke } : points ? { show: true, size: 5, fill: stroke } : { show: false },
      value: (plot, y, place, at) => {
        const known = (one) => one !== null && one !== undefined;
        // Of a history the newest value there is; what a role said before it went is not its value now.
        const told = at !== null ? y : this.time ? plot.data[place].at(-1) : plot.data[place].findLast(known);
        return told === null || told === undefined ? "–" : (format ?? this.axis)(told);
      },
    };
  }

  margins(low, high) {
    if (low === null || high === null) return [0, 1];
    const from = this.low === null ? low : Math.min(this.low, low);
    const room = (high - from) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [this.low === null ? from - room : from, high + room];
  }
}

/** Series of different x as one aligned table; each is [xs, ys...]. */
export const join = (tables) => uPlot.join(tables);

function clockTicks(_, seconds, axis, space, step) {
  return seconds.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB").slice(0, step < 60 ? 8 : 5));
}
