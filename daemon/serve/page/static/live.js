// Live numbers of the roles: one card each, the newest hour kept here, gaps where nobody answered.

import { Chart } from "./charts.js";
import { empty, find, make, refill } from "./dom.js";
import { hint } from "./hints.js";
import { ago, count, measure, short, span } from "./format.js";

const HOUR = 3600;
const LEAST = 30;
const CARDS = [
  { title: "Events learned", hint: "events", role: "learn", names: { "learn.events": "events/s" }, low: 0, format: (v) => `${short(v)} events/s`, lacks: "Appears while tripletd learn runs." },
  { title: "Lag", hint: "lag", role: "learn", names: { "learn.lag_events": "events" }, low: 0, format: (v) => `${short(v)} events`, also: "learn.lag_seconds", lacks: "Appears while tripletd learn runs and its stream can be read." },
  { title: "Training loss", hint: "training", role: "learn", names: { "learn.loss": "hinge loss" }, format: measure, lacks: "Appears while tripletd learn learns events: the mean over 10 s." },
  { title: "Freshness: from click to answer", hint: "freshness", role: "serve", prefixes: { "serve.fresh_p50.": "median, ", "serve.fresh_p99.": "p99, " }, log: true, format: span, lacks: "Appears when events are learned and somebody asks: nothing was both learned and used in an answer in this window." },
  { title: "Time to answer", hint: "latency", role: "serve", names: { "serve.latency_p50": "median", "serve.latency_p99": "p99" }, low: 0, format: span, rate: "serve.requests", lacks: "Appears with the first requests to /v1/similar." },
  { title: "Drift: loss on held-out clicks", hint: "drift", role: "validate", names: { "validate.holdout_loss": "loss" }, format: measure, drifts: "validate.drifts", lacks: "Appears while tripletd validate runs and the best version was judged." },
];
/** The name that is served, of a number of it; the median before the p99. */
const ending = (name) => name.split(".").slice(2).join(".") + name;
const COLOURS = ["accent", "second", "third", "reference"];
const DEAD = /^(learn|serve)\.dead\./;

export class Live {
  constructor() {
    this.times = [];
    this.values = new Map();
    this.window = find("window");
    this.window.addEventListener("change", () => this.draw());
    this.cards = CARDS.map((card) => this.card(card));
    this.dead = make("div", {});
    find("live-cards").append(...this.cards.map((card) => card.place),
      make("div", { class: "card row" }, make("div", { class: "head" }, make("h3", {}, "Dead letters by reason ", hint("dead", "Dead letters by reason"))), this.dead));
  }

  card(about) {
    const [host, value] = [make("div", { class: "chart" }), make("span", { class: "value" })];
    const place = make("div", { class: about.prefixes ? "card many" : "card" }, make("div", { class: "head" }, make("h3", {}, `${about.title} `, hint(about.hint, about.title)), value), host);
    const range = () => [this.first(), this.last()];
    const chart = new Chart(host, { time: true, low: about.low ?? null, log: about.log ?? false, axis: about.format === span ? span : about.format === measure ? measure : short, range, where: (at) => new Date(at * 1000).toLocaleTimeString("en-GB") });
    return { ...about, place, value, chart };
  }

  /** The moment of the newest sample, by the server's clock. */
  last() {
    return this.times.at(-1) ?? Date.now() / 1000;
  }

  /** Where the window begins: not long before the first sample there is. */
  first() {
    const known = (this.times[0] ?? this.last()) - LEAST;
    return Math.max(this.last() - Number(this.window.value), Math.min(known, this.last() - 2 * LEAST));
  }

  /** Unix seconds from which samples are needed. */
  get after() {
    return this.times.at(-1);
  }

  add({ times, values }) {
    const had = this.times.length;
    this.times.push(...times);
    for (const name of Object.keys(values)) {
      if (!this.values.has(name)) this.values.set(name, new Array(had).fill(null));
    }
    for (const [name, known] of this.values) known.push(...(values[name] ?? new Array(times.length).fill(null)));
    const old = this.times.findIndex((at) => at >= this.last() - HOUR);
    if (old > 0) {
      this.times.splice(0, old);
      for (const known of this.values.values()) known.splice(0, old);
    }
  }

  /** Draw everything again; `overview` says which role answers. */
  draw(overview = this.overview) {
    this.overview = overview;
    if (!overview) return;
    const roles = new Map(overview.roles.map((role) => [role.role, role]));
    const away = new Map();
    for (const card of this.cards) {
      const role = roles.get(card.role);
      const gone = Boolean(role) && !role.answers && this.known(card).length === 0;
      card.place.hidden = gone; // one line for a role that is away, instead of a box for each of its numbers
      if (gone) away.set(role, [...(away.get(role) ?? []), card.title]);
      else this.drawCard(card, role, overview);
    }
    refill(find("away"), [...away].map(([role, titles]) => [role.role, role.down, titles]), () => [...away].map(([role, titles]) =>
      make("li", {}, make("strong", {}, `tripletd ${role.role}`), ` ${role.down ?? "does not answer"}. Appears when it does: ${titles.join(", ")}.`)));
    this.drawDead(overview.numbers, roles.get("learn"));
  }

  drawCard(card, role, overview) {
    const known = this.known(card);
    const stale = role && !role.answers;
    card.place.classList.toggle("stale", Boolean(stale));
    card.value.textContent = this.told(card, overview, stale ? role : null);
    if (known.length === 0) {
      card.chart.blank(empty(card.lacks));
      return;
    }
    const lines = known.map(([name, label], place) => ({ label, ...this.look(card, name, place), format: card.format }));
    const words = `${card.title}: ${known.map(([name, label]) => `${label} ${this.newest(name, card.format)}`).join(", ")}`;
    card.chart.show([this.times, ...known.map(([name]) => this.values.get(name))], lines, words);
  }

  /** One colour for each name that is served, its p99 dashed; else one colour per line. */
  look(card, name, place) {
    const dash = name.includes("p99") ? [6, 4] : [];
    if (!card.prefixes) return { colour: COLOURS[place % COLOURS.length], dash };
    const aliases = this.overview.aliases;
    const at = Math.max(aliases.findIndex((alias) => name.endsWith(`.${alias}`)), 0);
    return { colour: COLOURS[at % COLOURS.length], dash };
  }

  /** [name, label] of the card's numbers that have a value in the window. */
  known(card) {
    const from = this.times.findIndex((at) => at >= this.first());
    const named = Object.entries(card.names ?? {});
    for (const [prefix, label] of Object.entries(card.prefixes ?? {})) {
      for (const name of this.values.keys()) if (name.startsWith(prefix)) named.push([name, label + name.slice(prefix.length)]);
    }
    if (card.prefixes) named.sort(([one], [other]) => (ending(one) < ending(other) ? -1 : 1)); // each name's together
    return named.filter(([name]) => this.values.get(name)?.some((value, place) => value !== null && place >= from));
  }

  told(card, overview, gone) {
    if (gone) return gone.seen === null ? "" : `last ${ago(gone.seen, overview.now)}`;
    const parts = Object.keys(card.names ?? {}).slice(0, 1).map((name) => overview.numbers[name]).filter((v) => v !== undefined).map((v) => card.format(v));
    if (card.also && overview.numbers[card.also] !== undefined) parts.push(`${span(overview.numbers[card.also])} behind`);
    if (card.rate && overview.numbers[card.rate] !== undefined) parts.push(`${short(overview.numbers[card.rate])} requests/s`);
    if (card.drifts && overview.numbers[card.drifts] !== undefined) {
      const drifts = overview.numbers[card.drifts];
      parts.push(`${count(drifts)} ${drifts === 1 ? "drift" : "drifts"}`);
    }
    return parts.join(", ");
  }

  newest(name, format) {
    const value = this.values.get(name).findLast((one) => one !== null);
    return value === undefined ? "not known" : format(value);
  }

  drawDead(numbers, learn) {
    const known = Object.entries(numbers).filter(([name, value]) => DEAD.test(name) && value > 0);
    known.sort((one, other) => other[1] - one[1]);
    refill(this.dead, [known, learn?.answers], () => {
      if (known.length === 0) {
        return [empty(learn?.answers ? "None since the roles began: every record could be used." : "None in this server; those of learning are counted while tripletd learn runs. tripletd deadletters shows those that were kept.")];
      }
      return [make("ul", { class: "bars" }, ...known.map(([name, value]) => {
        const bar = make("i", { "aria-hidden": "true" });
        bar.style.width = `${(100 * value) / known[0][1]}%`;
        const [role, , reason] = name.split(".");
        return make("li", {}, make("span", {}, reason.replaceAll("_", " "), make("span", { class: "quiet" }, role === "serve" ? " (item)" : " (event)")), make("span", { class: "value" }, count(value)), bar);
      }))];
    });
  }
}
