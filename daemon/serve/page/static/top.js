// The head of the page: who runs, the newest numbers, what is served.

import { find, make, refill } from "./dom.js";
import { ago, count, measure, moment, short, span } from "./format.js";

const STATES = { ready: "ready", waiting: "not ready", gone: "does not answer" };

function state(role) {
  return role.answers ? (role.not_ready === null ? "ready" : "waiting") : "gone";
}

export function showRoles(overview) {
  refill(find("roles"), overview.roles.map((role) => [role.role, state(role), role.not_ready, role.seen === null]), () =>
    overview.roles.map((role) => {
      const told = STATES[state(role)] + (state(role) === "gone" && role.seen !== null ? ` since ${moment(role.seen, overview.now)}` : "");
      return make("li", { data: { state: state(role) }, title: role.not_ready ?? "" }, make("span", {}, make("strong", {}, role.role), ` ${told}`));
    }));
}

export function showTiles(overview, curves) {
  const numbers = overview.numbers;
  const learn = overview.roles.find((role) => role.role === "learn");
  const quiet = learn?.answers ? "nothing yet" : learn?.seen ? `learn last answered ${ago(learn.seen, overview.now)}` : "learn does not answer";
  const dead = Object.entries(numbers).filter(([name]) => name.startsWith("learn.dead."));
  const letters = dead.reduce((sum, [, value]) => sum + value, 0);
  const tiles = [
    tile("Events learned", numbers["learn.events"], (v) => [short(v), " events/s"], quiet, numbers["learn.loss"] === undefined ? "" : `training loss ${measure(numbers["learn.loss"])}`),
    tile("Lag", numbers["learn.lag_events"], (v) => [short(v), v === 1 ? " event" : " events"], quiet, numbers["learn.lag_seconds"] === undefined ? "" : `${span(numbers["learn.lag_seconds"])} behind`),
    freshness(numbers),
    served(overview),
    best(curves),
    tile("Dead letters", learn?.answers ? letters : undefined, (v) => [count(v), ""], quiet, dead.length > 1 ? `${count(dead.filter(([, v]) => v > 0).length)} reasons` : "since learn began"),
  ];
  refill(find("tiles"), tiles, () => tiles.map(([name, value, unit, more, known]) => make("div", { class: known ? null : "none" },
    make("dt", {}, name), make("dd", {}, value, make("small", {}, unit)), make("dd", { class: "more" }, more || "\u00a0"))));
}

function tile(name, value, written, quiet, more) {
  return value === undefined ? [name, "–", "", quiet, false] : [name, ...written(value), more, true];
}

function freshness(numbers) {
  const found = Object.entries(numbers).filter(([name]) => name.startsWith("serve.fresh_p99."));
  const latest = found.find(([name]) => name.endsWith(".latest")) ?? found[0];
  if (!latest) return ["Freshness, p99", "–", "", "no new event was used in an answer in the last minute", false];
  const alias = latest[0].slice("serve.fresh_p99.".length);
  return ["Freshness, p99", span(latest[1]), "", `${alias}; median ${span(numbers[`serve.fresh_p50.${alias}`])}`, true];
}

function served(overview) {
  const first = overview.served.find((one) => one.alias === "latest" && one.model !== null) ?? overview.served.find((one) => one.model !== null);
  if (!first) return ["Served", "–", "", overview.served[0]?.why || "no version yet", false];
  const others = overview.served.filter((one) => one !== first && one.model !== null).map((one) => `${one.alias} ${one.model}`);
  return [`Served as ${first.alias}`, first.model, "", others.join(", ") || `since ${moment(first.since, overview.now)}`, true];
}

function best(curves) {
  const kind = curves?.kinds[0];
  if (!curves?.best || !kind) return ["Best version", "–", "", "none judged yet", false];
  for (const line of kind.lines) {
    const place = line.versions.indexOf(curves.best.version);
    if (place >= 0) {
      const reference = line.reference[place];
      return ["Best version", String(curves.best.version), "", `${measure(line.values[place])}${reference === null ? "" : `, version 0 ${measure(reference)}`}`, true];
    }
  }
  return ["Best version", String(curves.best.version), "", `after ${count(curves.best.events)} events`, true];
}

export function showServed(overview) {
  const body = find("served-table").tBodies[0];
  const rows = overview.served.map((one) => [one.alias, one.model, one.since === null ? "" : `${moment(one.since, overview.now)}, ${ago(one.since, overview.now)}`,
    one.watermark === null ? "none yet" : ago(one.watermark / 1000, overview.now), fresh(overview.numbers, one.alias), one.why]);
  refill(body, rows, () => rows.length === 0
    ? [make("tr", {}, make("td", { colspan: 6, class: "why" }, "Nothing is served yet."))]
    : rows.map(([alias, model, since, event, seconds, why]) => make("tr", {},
      make("th", { scope: "row" }, alias),
      make("td", { data: { label: "model" } }, model ?? "–"),
      make("td", { data: { label: "since" } }, since || "–"),
      make("td", { data: { label: "newest event" } }, event),
      make("td", { data: { label: "freshness" } }, seconds),
      make("td", { class: "why" }, why || (model === null ? "waits for a version" : "up to date")))));
}

function fresh(numbers, alias) {
  const [half, most] = [numbers[`serve.fresh_p50.${alias}`], numbers[`serve.fresh_p99.${alias}`]];
  return half === undefined ? "–" : `${span(half)} / ${span(most)}`;
}
