// uPlot in the page's colours: follows the width of its place and the light or dark of the system.

import uPlot from "./vendor/uPlot.esm.js";
import { short } from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const FONT = '12px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const known = (one) => one !== null && one !== undefined;

/**
 * A chart in `host`. `lines(data)` gives the series: {label, colour (a name of the style sheet), dash, points, width,
 * format}; `time`: x is Unix seconds, else a count; `low`: 0 keeps the axis at zero; `axis`: how its values are
 * written; `where`: how the place under the cursor is written; `rest`: what stands there without one; `log`: the axis
 * is logarithmic; `across`: what a count is of, in the legend and below the axis, `steps`: how far its marks may be apart. A line with `from` fills the room down to that other line. `dated`, which may change: x is Unix seconds of a history. The legend tells the values under the cursor, else the last ones. Arrow keys move the cursor.
 */
export class Chart {
  constructor(host, { time = false, low = null, log = false, axis = short, where = short, rest = "", range = null, across = ["events", "events learned"], steps = null }) {
    Object.assign(this, { host, time, low, log, axis, where, rest, range, across, steps, ink, font: FONT });
    this.plot = null;
    this.shape = "";
    this.dated = false;
    new ResizeObserver(() => requestAnimationFrame(() => this.resize())).observe(host);
    dark.addEventListener("change", () => { this.shape = ""; if (this.shown) this.show(...this.shown); });
    host.addEventListener("keydown", (event) => this.move(event));
    host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
  }

  /** Draw `data` ([x, y...], aligned) as `lines`; `told` says the same in words. */
  show(data, lines, told) {
    this.shown = [data, lines, told];
    const shape = JSON.stringify([this.dated, lines.map(({ format, ...rest }) => rest)]);
    if (this.plot !== null && shape === this.shape) {
      this.plot.setData(data);
    } else {
      this.clear();
      this.shape = shape;
      this.plot = new uPlot(this.options(lines), data, this.host);
    }
    this.host.setAttribute("role", "img");
    this.host.setAttribute("aria-label", told);
    this.host.tabIndex = 0;
    this.host.dataset.points = String(data.slice(1).flat().filter(known).length);
  }

  /** Nothing to draw: `element` stands there instead. */
  blank(element) {
    this.clear();
    this.shown = null;
    this.host.removeAttribute("role");
    this.host.removeAttribute("aria-label");
    this.host.removeAttribute("tabindex");
    this.host.dataset.points = "0";
    this.host.replaceChildren(element);
  }

  /** The series as they are drawn: {text, stroke, dash}. */
  legend() {
    const [data, lines] = this.shown;
    return lines.map(({ label, colour, dash = [], format }, place) => {
      const last = data[place + 1].findLast(known);
      return { text: `${label} ${known(last) ? (format ?? this.axis)(last) : "–"}`, stroke: ink(colour), dash };
    });
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

  /** The cursor one value on or back, to an end, or away. */
  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (this.plot === null || (step === undefined && event.key !== "Escape")) return;
    event.preventDefault();
    if (step === undefined) return this.plot.setCursor({ left: -10, top: -10 });
    const [xs, { min, max }] = [this.plot.data[0], this.plot.scales.x];
    const [low, high] = [xs.findIndex((x) => x >= min), xs.findLastIndex((x) => x <= max)];
    const at = this.plot.cursor.idx ?? (step > 0 ? low - 1 : high + 1);
    const next = Math.min(Math.max(at + step, low), high);
    this.plot.setCursor({ left: this.plot.valToPos(xs[next], "x"), top: 0 });
  }

  /** Of the drawing alone; the legend comes below it. */
  size() {
    return { width: this.host.clientWidth, height: parseFloat(getComputedStyle(this.host).getPropertyValue("--drawn")) };
  }

  options(lines) {
    const axis = { stroke: ink("soft"), font: FONT, grid: { stroke: ink("grid"), width: 1 }, ticks: { show: false } };
    const xs = (_, values) => values.map(short);
    const marks = this.steps ? { incrs: this.steps } : {};
    const bands = lines.flatMap(({ from = null, colour }, place) => (from === null ? [] : [{ series: [place + 1, from + 1], fill: `color-mix(in srgb, ${ink(colour)} 14%, transparent)` }]));
    const rounds = this.log ? { filter: roundOnes, grid: { ...axis.grid, filter: roundOnes } } : {};
    const dashes = lines.map(({ dash = [] }) => (dash.length === 0 ? "solid" : dash[0] > 4 ? "dashed" : "dotted"));
    return {
      ...this.size(),
      bands,
      padding: [8, this.time ? 28 : 18, 0, 0], // a time below the right edge is wider than a number
      cursor: { points: { size: 7 }, drag: { x: true, y: false } },
      legend: { markers: { dash: (_, place) => dashes[place - 1] } },
      scales: { x: { time: this.time || this.dated, range: this.range }, y: this.log ? { distr: 3 } : { range: (_, low, high) => this.margins(low, high) } },
      axes: [
        { ...axis, ...marks, space: 70, size: this.dated ? 40 : 28, ...(this.time ? { values: clockTicks } : this.dated ? { values: dateTicks, space: 90 } : { values: xs, label: this.across[1], labelSize: 18, labelGap: 0, labelFont: FONT }) },
        { ...axis, ...rounds, size: 56, values: (_, values, place, space, step) => values.map((value) => (value === null ? "" : this.axis(value, step))) },
      ],
      series: [
        { label: this.time ? "at" : this.dated ? "written" : this.across[0], value: (plot, x, place, at) => (at === null ? this.rest || this.where(plot.data[0].at(-1)) : this.where(x)) },
        ...lines.map((line) => this.series(line)),
      ],
    };
  }

  series({ label, colour, dash = [], points = false, width = 1.8, star = false, ring = false, format = null }) {
    const stroke = ink(colour);
    return {
      label, stroke, dash, width: star || ring ? 0 : width, spanGaps: !this.time,
      points: ring ? { show: true, size: 17, width: 2, fill: "transparent" } : star ? { show: true, size: 12, fill: stroke } : points ? { show: true, size: 5, fill: stroke } : { show: false },
      value: (plot, y, place, at) => {
        // Of a history the newest value there is; what a role said before it went is not its value now.
        const told = at !== null ? y : this.time ? plot.data[place].at(-1) : plot.data[place].findLast(known);
        return known(told) ? (format ?? this.axis)(told) : "–";
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

/** Of the places on a logarithmic axis 1, 2 and 5 of each power of ten; over more than two powers 1 alone. */
function roundOnes(_, places) {
  const wide = places.at(-1) / places[0] > 100;
  return places.map((place) => ((wide ? [1] : [1, 2, 5]).includes(Math.round(place / 10 ** Math.floor(Math.log10(place) + 1e-9))) ? place : null));
}

/** Hours and minutes, and the day where it begins; days alone once they are that far apart. */
function dateTicks(_, seconds, axis, space, step) {
  let day = "";
  return seconds.map((at) => {
    const moment = new Date(at * 1000);
    const date = moment.toLocaleDateString("en-CA").slice(5);
    if (step >= 86400) return date;
    const told = moment.toLocaleTimeString("en-GB").slice(0, step < 60 ? 8 : 5);
    const begins = date !== day;
    day = date;
    return begins ? `${told}\n${date}` : told;
  });
}

function clockTicks(_, seconds, axis, space, step) {
  return seconds.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB").slice(0, step < 60 ? 8 : 5));
}
