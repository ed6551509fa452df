// Versions with their verdicts and why, pruned ones included, and the verdicts that moved something.

import { get } from "./api.js";
import { find, make, refill } from "./dom.js";
import { bytes, count, measure, moment, parse } from "./format.js";

const FIRST = 12;
const STEP = 50;
const NOTES = 5;

export class Versions {
  constructor() {
    this.wanted = FIRST;
    find("more").addEventListener("click", async () => {
      this.wanted += STEP;
      this.show(await this.load());
    });
  }

  load() {
    return get("versions", { limit: Math.min(this.wanted, 200) });
  }

  /** `served`: what each name answers with, as the overview tells. */
  show(data, served = this.served) {
    this.served = served;
    this.data = data;
    const names = new Map();
    for (const one of served ?? []) if (one.base !== null) names.set(one.base, [...(names.get(one.base) ?? []), one.alias]);
    find("versions-count").textContent = data.count ? `${count(data.count)} written, ${count(data.kept.length)} kept` : "";
    refill(find("versions-table").tBodies[0], [data.versions, [...names]], () => data.versions.length
      ? data.versions.map((one) => row(one, names.get(one.number) ?? [], data.versions.some((other) => other.number > one.number && other.verdict)))
      : [make("tr", {}, make("td", { colspan: 6, class: "why" }, "Version 0 appears when tripletd learn starts; every later one with its verdict."))]);
    const more = find("more");
    more.hidden = data.more === 0 || this.wanted >= 200;
    more.textContent = `Show older versions (${count(data.more)} more)`;
    refill(find("notes"), data.notes, () => data.notes.slice(0, NOTES).map((note) => make("li", {}, `Cannot be read: ${note}`)));
    refill(find("moves"), data.moves, () => data.moves.length
      ? data.moves.map(move)
      : [make("li", { class: "why" }, "None yet: promotions, rollbacks, stops and resumes appear here.")]);
  }
}

function row(version, served, passed) {
  const unjudged = passed ? "not judged: a newer one was there first" : "not judged yet";
  const change = version.decision !== null && version.decision_of_zero !== null && version.number !== 0;
  const written = parse(version.created);
  return make("tr", {},
    make("th", { scope: "row" }, String(version.number), ...chips(version, served)),
    make("td", { class: "number", data: { label: "events" } }, count(version.events)),
    make("td", { data: { label: "written" }, class: written === null ? "blank" : null, title: version.size === null ? "" : bytes(version.size) }, written === null ? "" : moment(written)),
    make("td", { class: version.decision === null ? "number blank" : "number", data: { label: "decision" } }, measure(version.decision),
      change ? make("span", { class: "quiet" }, ` (${measure(version.decision_of_zero)})`) : null),
    make("td", { class: version.training_loss === null ? "number blank" : "number", data: { label: "loss" } }, measure(version.training_loss)),
    make("td", { class: "why" }, version.damaged || [version.verdict || unjudged, ...version.marks].join("; ")));
}

function chips(version, served) {
  const found = version.names.map((name) => make("span", { class: name === "best" ? "chip good" : "chip", title: name }, name));
  if (served.length) found.push(make("span", { class: "chip dull", title: served.join(", ") }, `served as ${served.join(", ")}`));
  if (version.behind) found.push(make("span", { class: "chip warn" }, "left behind"));
  if (version.damaged) found.push(make("span", { class: "chip bad" }, "damaged"));
  if (!version.kept) found.push(make("span", { class: "chip dull" }, "pruned"));
  return found;
}

function move(entry) {
  const at = parse(entry.at);
  const what = { PROMOTE: "promoted", ROLLBACK: "rolled back", STOP: "stopped", RESUME: "resumed" }[entry.kind] ?? entry.kind;
  const target = entry.alias === null ? "" : entry.version === null ? `: ${entry.alias} taken away` : `: ${entry.alias} is version ${entry.version}`;
  return make("li", {}, make("time", { datetime: entry.at }, at === null ? entry.at : moment(at)), make("strong", {}, what),
    make("span", {}, target.replace(/^: /, ""), make("span", { class: "why" }, `${target ? "; " : ""}${entry.reason}${entry.by ? ` (${entry.by})` : ""}`)));
}
