// The head of the page: who runs, the newest numbers, what is served.

import { find, make, refill } from "./dom.js";
import { ago, count, measure, moment, short, span } from "./format.js";
import { hint } from "./hints.js";

const STATES = { ready: "ready", waiting: "not ready", gone: "does not answer" };
const DEAD = /^(learn|serve)\.dead\./;
const TILES = [["verdict", "Better than your ranking?"], ["learning", "Learning"], ["events", "Events learned"], ["lag", "Lag"], ["freshness", "Freshness, p99"], ["served", "Served"], ["best", "Best version"], ["dead", "Dead letters"]];

function state(role) {
  if (role.answers) return role.not_ready === null ? "ready" : "waiting";
  return role.down ? "down" : "gone";
}

export function showRoles(overview) {
  refill(find("roles"), overview.roles.map((role) => [role.role, state(role), role.not_ready, role.down, role.folder, role.seen === null]), () =>
    overview.roles.map((role) => {
      const told = role.down ?? STATES[state(role)] + (state(role) === "gone" && role.seen !== null ? ` since ${moment(role.seen, overview.now)}` : "");
      const lost = role.folder ? ", folder lost" : "";
      return make("li", { data: { state: state(role) }, title: role.down ?? role.folder ?? role.not_ready ?? "" }, make("span", {}, make("strong", {}, role.role), ` ${told}${lost}`));
    }));
}

/** The numbers at a glance: places that stay, and texts that change in them. */
export class Tiles {
  constructor() {
    this.places = new Map(TILES.map(([name, title]) => {
      const parts = { name: make("span", {}, title), value: make("span", {}, "–"), unit: make("small", {}), more: make("dd", { class: "more" }, "\u00a0") };
      const wide = name === "verdict" || name === "learning";
      const place = make("div", { class: wide ? "none wide" : "none", data: { tile: name } }, make("dt", {}, parts.name, " ", hint(name, title)), make("dd", {}, parts.value, parts.unit), parts.more);
      find("tiles").append(place);
      return [name, { place, ...parts }];
    }));
  }

  show(overview, curves) {
    const told = tiles(overview, curves);
    for (const [name, { value, unit = "", more = "", title, known = true, bad = false, whole = more }] of Object.entries(told)) {
      const tile = this.places.get(name);
      tile.place.classList.toggle("none", !known);
      tile.place.classList.toggle("bad", bad);
      write(tile.value, value);
      write(tile.unit, unit);
      write(tile.more, more || "\u00a0");
      tile.more.title = whole;
      if (title) write(tile.name, title);
    }
  }
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tiles(overview, curves) {
  const numbers = overview.numbers;
  const learn = overview.roles.find((role) => role.role === "learn");
  const quiet = learn?.answers ? "nothing yet" : learn?.seen ? `learn last answered ${ago(learn.seen, overview.now)}` : "learn does not answer";
  const tile = (value, written, unit, more) => (value === undefined ? nothing(quiet) : { value: written(value), unit, more });
  const { "learn.loss": loss, "learn.lag_seconds": behind, "learn.lag_events": lag } = numbers;
  return {
    verdict: verdict(curves),
    learning: learning(curves, learn, lag),
    events: tile(numbers["learn.events"], short, " events/s", loss === undefined ? "" : `training loss ${measure(loss)}`),
    lag: tile(lag, short, lag === 1 ? " event" : " events", behind === undefined ? "" : `${span(behind)} behind`),
    freshness: freshness(numbers),
    served: served(overview),
    best: best(curves),
    dead: dead(numbers, learn?.answers, quiet),
  };
}

const nothing = (more) => ({ value: "–", more, known: false });

function dead(numbers, counted, quiet) {
  const known = Object.entries(numbers).filter(([name]) => DEAD.test(name));
  if (known.length === 0 && !counted) return nothing(quiet);
  const reasons = known.filter(([, value]) => value > 0).length;
  const sum = known.reduce((total, [, value]) => total + value, 0);
  return { value: sum >= 1e6 ? short(sum) : count(sum), unit: sum === 1 ? " record" : " records", more: reasons > 1 ? `${count(reasons)} reasons` : "since the roles began" };
}

function freshness(numbers) {
  const found = Object.entries(numbers).filter(([name]) => name.startsWith("serve.fresh_p99."));
  const latest = found.find(([name]) => name.endsWith(".latest")) ?? found[0];
  if (!latest) return nothing("no new click in an answer for a minute");
  const alias = latest[0].slice("serve.fresh_p99.".length);
  return { value: span(latest[1]), more: `${alias}; median ${span(numbers[`serve.fresh_p50.${alias}`])}` };
}

function served(overview) {
  const first = overview.served.find((one) => one.version !== null);
  if (!first) return nothing(overview.served[0]?.why || "no version yet");
  const others = overview.served.filter((one) => one !== first && one.version !== null).map((one) => `${one.alias} ${one.version}${one.note ? `, ${one.note}` : ""}`);
  return { title: `Served as ${first.alias}`, value: first.version, more: others.join(", ") || `since ${moment(first.since, overview.now)}` };
}

function best(curves) {
  const kind = curves?.kinds[0];
  if (!curves?.best || !kind) return nothing("none judged yet");
  for (const line of kind.lines) {
    const place = line.versions.indexOf(curves.best.version);
    if (place >= 0) {
      const reference = line.reference[place];
      return { value: String(curves.best.version), more: `${kind.title.length < 9 ? `${kind.title} ` : ""}${measure(line.values[place])}${reference === null ? "" : `; ${curves.own ? "your ranking" : "version 0"}: ${measure(reference)}`}` };
    }
  }
  return { value: String(curves.best.version), more: `after ${short(curves.best.events)} events` };
}

/** The answer first, and never cut; what it rests on is in the title. */
function verdict(curves) {
  const found = curves?.verdict;
  if (!found) return nothing("no learned version was judged yet");
  const [, ...rest] = found.sentence.split(": ");
  const text = rest.join(": ");
  return { value: found.is_better.replace(/^./, (first) => first.toUpperCase()), more: text.replace(/^./, (first) => first.toUpperCase()), whole: [found.sentence, ...found.details].join("; ") };
}

function learning(curves, learn, lag) {
  const why = learn?.not_ready ?? "";
  if (why.startsWith("paused")) return { value: "paused", more: why, bad: true };
  if (!curves?.stopped_by) return learn?.answers ? { value: "going on", more: why } : nothing("learn does not answer");
  const waits = lag ? `; ${count(lag)} event${lag === 1 ? " waits" : "s wait"}` : "";
  const again = curves.stop?.wait ? `; goes on by itself ${count(curves.stop.wait)} new events after the stop, or when what users click changes` : "";
  return { value: "stopped", more: `${curves.stopped_by}${waits}${again}. "tripletd resume" continues now`, bad: true };
}

export function showServed(overview) {
  const body = find("served-table").tBodies[0];
  const rows = overview.served.map((one) => [one.note ? `${one.alias} (${one.note})` : one.alias, one.version, one.since === null ? "" : moment(one.since, overview.now), one.since === null ? "" : ago(one.since, overview.now),
    one.watermark === null ? "none yet" : ago(one.watermark / 1000, overview.now), fresh(overview.numbers, one.alias), one.why]);
  refill(body, rows, () => rows.length === 0
    ? [make("tr", {}, make("td", { colspan: 6, class: "why" }, "Nothing is served yet."))]
    : rows.map(([alias, model, since, age, event, seconds, why]) => make("tr", {},
      make("th", { scope: "row" }, alias),
      make("td", { data: { label: "model" } }, model ?? "–"),
      make("td", { data: { label: "since" } }, since || "–", age ? make("span", { class: "quiet" }, ` ${age}`) : null),
      make("td", { data: { label: "newest event" } }, event),
      make("td", { data: { label: "freshness, median / p99" } }, seconds),
      make("td", { class: "why" }, why || (model === null ? "waits for a version" : "up to date")))));
}

function fresh(numbers, alias) {
  const [half, most] = [numbers[`serve.fresh_p50.${alias}`], numbers[`serve.fresh_p99.${alias}`]];
  return half === undefined ? "–" : `${span(half)} / ${span(most)}`;
}
