// One model per key: whose there are, what they learned from, and what was judged of them. Hidden where one model answers all.

import { get } from "./api.js";
import { find, make, refill } from "./dom.js";
import { count, measure } from "./format.js";

const MOST = 50;

export class Keys {
  load() {
    return get("keys", { limit: MOST });
  }

  /** Whose models the explorer asks: the key with most events first, since without a key version 0 answers. */
  offer(names) {
    const select = find("key");
    if (names.join("\n") === this.offered || document.activeElement === select) return;
    this.offered = names.join("\n");
    const chosen = select.value;
    select.replaceChildren(...names.map((one) => make("option", { value: one }, one)), make("option", { value: "" }, "no key (version 0)"));
    select.value = names.includes(chosen) ? chosen : names[0] ?? "";
    if (select.value !== chosen) select.dispatchEvent(new Event("change"));
  }

  show(data) {
    const none = data.model === null;
    find("keys").hidden = none;
    find("keys-link").hidden = none;
    find("key-field").hidden = none;
    if (none) return;
    this.offer(data.keys.map((one) => one.key));
    find("keys-count").textContent = `${count(data.used)} of ${count(data.slots)} models in version ${data.model}${data.more ? `; the ${count(data.keys.length)} with most events are shown` : ""}`;
    refill(find("keys-table").tBodies[0], data.keys, () => data.keys.length
      ? data.keys.map(row)
      : [make("tr", {}, make("td", { colspan: 5, class: "why" }, "Each key appears with its first event."))]);
  }
}

function row(one) {
  const judged = one.verdict !== "";
  return make("tr", {},
    make("th", { scope: "row" }, one.key),
    make("td", { class: "number", data: { label: "events" } }, count(one.events)),
    make("td", { class: judged ? "number" : "number blank", data: { label: "judged on" } }, judged ? count(one.impressions) : ""),
    make("td", { class: judged ? "number" : "number blank", data: { label: "decision" } }, measure(one.decision),
      judged ? make("span", { class: "quiet" }, ` (${measure(one.version_0)})`) : null),
    make("td", { class: "why" }, judged ? make("span", { class: one.verdict === "learned" ? "chip good" : "chip dull" }, one.verdict) : "not judged: too few of its lists are held out", one.why));
}
