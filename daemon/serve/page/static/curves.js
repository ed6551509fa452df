// Learning curves: one measure by version with its reference lines and what was promoted, and the training loss;
// over the events learned, or over the time at which versions were written.

import { Chart, join } from "./charts.js";
import { empty, find, make, refill } from "./dom.js";
import { count, measure, moment, zeroName } from "./format.js";
import { save } from "./picture.js";

const LOSS = "training_loss";
const NOTES = {
  map_clicks: "Clicks as the only relevant objects reward the order that was shown: never decides alone.",
  map_shown: "Inside the shown lists alone: can rise while retrieval falls, so it never decides alone.",
  position_balanced: "The shown order itself scores 0.5.",
};

export class Curves {
  constructor() {
    this.data = null;
    const where = (x) => `${this.dated ? moment(x) : count(x)}${this.named.has(x) ? ` (version ${this.named.get(x)})` : ""}`;
    this.dated = false;
    this.named = new Map();
    const about = { axis: measure, where, rest: "newest of each" };
    this.measure = new Chart(find("measure-chart"), about);
    this.loss = new Chart(find("loss-chart"), about);
    this.select = find("kind");
    find("measure-png").addEventListener("click", () => save(this.measure, `curve-${this.select.value}`, find("measure-title").textContent, find("measure-note").textContent));
    find("loss-png").addEventListener("click", () => save(this.loss, "curve-training_loss", "Training loss by version", "Mean hinge loss of each version's events, before their steps."));
    this.select.addEventListener("change", () => this.draw());
    find("axis").addEventListener("change", () => { this.dated = find("axis").value === "time"; this.draw(); });
  }

  show(data) {
    const text = JSON.stringify(data);
    if (text === this.text) return;
    this.text = text;
    this.data = data;
    const kinds = data.kinds.filter((kind) => kind.name !== LOSS);
    const chosen = this.select.value;
    refill(this.select, kinds.map((kind) => kind.name), () => kinds.map((kind) => make("option", { value: kind.name }, kind.title)));
    this.select.parentElement.hidden = kinds.length === 0;
    if (kinds.some((kind) => kind.name === chosen)) this.select.value = chosen;
    this.draw();
  }

  draw() {
    if (this.data === null) return;
    const by = new Map(this.data.kinds.map((kind) => [kind.name, kind]));
    this.named.clear();
    for (const kind of by.values()) {
      for (const line of kind.lines) this.xs(line).forEach((at, place) => this.named.set(at, line.versions[place]));
    }
    this.measure.dated = this.loss.dated = this.dated;
    const kind = by.get(this.select.value);
    find("measure-title").textContent = kind?.title ?? "Measure by version";
    find("measure-png").disabled = !kind?.lines.length;
    if (kind === undefined || kind.lines.length === 0) {
      this.measure.blank(empty("The curve begins with the first judged version: tripletd validate judges them, on the holdout stream that tripletd feed makes."));
      find("measure-note").textContent = "";
    } else {
      this.measure.show(...this.lines(kind, true));
      find("measure-note").textContent = this.note(kind);
    }
    const loss = by.get(LOSS);
    find("loss-png").disabled = !loss?.lines.length;
    if (!loss || loss.lines.length === 0) {
      this.loss.blank(empty("Appears with the second version that tripletd learn writes."));
    } else {
      this.loss.show(...this.lines(loss, false));
    }
  }

  /** Where a line's versions stand: at the events learned, or at when they were written. */
  xs(line) {
    return this.dated ? line.times : line.events;
  }

  /** [aligned data, series, the same in words]. */
  lines(kind, judged) {
    const [tables, drawn] = [[], []];
    const add = (xs, ys, series) => {
      // a version whose time is lost has no place on an axis of time; uPlot wants x ascending, each once
      const at = new Map(xs.map((x, place) => [x, ys[place]]).filter(([x]) => x !== null));
      const places = [...at.keys()].sort((one, other) => one - other);
      if (ys.some((y) => y !== null) && places.length > 0) { tables.push([places, places.map((x) => at.get(x))]); drawn.push(series); }
    };
    const current = kind.lines.find((line) => line.current);
    for (const line of kind.lines.filter((one) => one !== current)) {
      add(this.xs(line), line.values, { label: "left behind", colour: "behind", width: 1.4 });
    }
    if (current) {
      add(this.xs(current), current.reference, { label: zeroName(this.data.own), colour: "reference", dash: [7, 5], width: 1.5 });
      add(this.xs(current), current.shown_order, { label: "shown order", colour: "third", dash: [2, 4], width: 1.6 });
      add(this.xs(current), current.values, { label: judged ? "version" : "loss", colour: "accent", points: judged, width: 2.2 });
    }
    if (judged) this.marked(kind, add);
    const best = this.bestOf(kind);
    if (best) add([this.dated ? best.time : best.events], [best.value], { label: "best", colour: "second", star: true });
    const last = current ? current.values.length - 1 : -1;
    const words = last < 0 ? kind.title : `${kind.title}: ${last + 1} versions, from ${measure(current.values[0])} to ${measure(current.values[last])}`;
    return [join(tables), drawn, best ? `${words}; best ${measure(best.value)}, version ${best.version}` : words];
  }

  /** What was promoted, and what was gone back to, as points on the lines. */
  marked(kind, add) {
    for (const [mark, label, colour] of [["PROMOTE", "promoted", "good"], ["ROLLBACK", "gone back to", "bad"]]) {
      const versions = new Set(this.data.marks.filter((one) => one.kind === mark).map((one) => one.version));
      const [xs, ys] = [[], []];
      for (const line of kind.lines) {
        line.versions.forEach((version, place) => { if (versions.delete(version)) { xs.push(this.xs(line)[place]); ys.push(line.values[place]); } });
      }
      add(xs, ys, { label, colour, ring: true });
    }
  }

  bestOf(kind) {
    if (this.data.best === null) return null;
    for (const line of kind.lines) {
      const place = line.versions.indexOf(this.data.best.version);
      if (place >= 0) return { ...this.data.best, time: line.times[place], value: line.values[place], reference: line.reference[place] };
    }
    return null;
  }

  note(kind) {
    const parts = [`${count(this.data.judged)} judged version${this.data.judged === 1 ? "" : "s"}`];
    const best = this.bestOf(kind);
    if (best) {
      parts.push(`best is version ${best.version} after ${count(best.events)} events: ${measure(best.value)}${best.reference === null ? "" : `; ${zeroName(this.data.own)}: ${measure(best.reference)} on the same questions`}`);
    }
    if (kind.lines.length > 1) parts.push("paler lines were left behind by going back to an older version");
    if (this.data.lost) parts.push(this.data.lost);
    if (this.data.stopped_by) parts.push(`learning was stopped: ${this.data.stopped_by}`);
    return `${parts.join("; ")}.${NOTES[kind.name] ? ` ${NOTES[kind.name]}` : ""}`;
  }
}
