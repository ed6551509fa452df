// What changed between the two versions that are compared: made by the server on request, one at a time.

import { get, Refused } from "./api.js";
import { named, picture } from "./compare.js";
import { find, make } from "./dom.js";
import { count, figure, share } from "./format.js";

const AGAIN_MS = 700;
const TRIES = 400;
const FEW = 4;

const nameOf = (side) => (/^\d+$/.test(side) ? `version ${side}` : side);

export class Changes {
  /** `choose(id)` has the explorer show an object. */
  constructor(choose) {
    this.choose = choose;
    this.turn = 0;
    find("diff-ask").addEventListener("click", () => this.ask());
  }

  /** Other sides: what was told of the last ones goes. */
  reset(left, right) {
    if (left === this.left && right === this.right) return;
    Object.assign(this, { left, right });
    this.turn += 1;
    find("diff-title").textContent = `What changed from ${nameOf(left)} to ${nameOf(right)}`;
    find("diff-told").textContent = left === right ? "Choose two different ones." : "Features, spectrum and queries that moved most; made when you ask for it.";
    find("diff-found").replaceChildren();
    find("diff-ask").disabled = left === right || !left || !right;
  }

  async ask() {
    const turn = ++this.turn;
    const told = (text) => { if (turn === this.turn) find("diff-told").textContent = text; };
    find("diff-ask").disabled = true;
    told("Comparing; it runs beside the answers, at a low priority…");
    try {
      const found = await this.wait(turn, told);
      if (turn === this.turn && found) this.show(found);
    } catch (error) {
      told(`No comparison: ${error.message}`);
    }
    if (turn === this.turn) find("diff-ask").disabled = false;
  }

  /** Ask until it is made; null when others sides were chosen meanwhile. */
  async wait(turn, told) {
    for (let tries = 0; tries < TRIES; tries += 1) {
      try {
        const found = await get("diff", { left: this.left, right: this.right });
        if (found.state === "done") return found;
      } catch (error) {
        if (!(error instanceof Refused) || error.code !== "busy") throw error;
        told(`Waiting: ${error.message}`);
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      if (turn !== this.turn) return null;
    }
    throw new Error("it takes too long; tripletd models diff tells the same");
  }

  show({ diff, objects }) {
    const names = [`version ${diff.before}`, `version ${diff.after}`];
    const matrix = diff.spectra.length > 0;
    const parts = [`From ${names[0]} to ${names[1]}${matrix ? `: the matrix W (${count(diff.dim)} × ${count(diff.dim)}) changed by ${share(diff.relative)} of its size, its symmetric part, which similarity is made of, by ${share(diff.symmetric)}` : ""}`];
    if (diff.queries) parts.push(`of the top ${diff.queries.k} of ${count(diff.queries.sampled)} objects drawn at random ${share(diff.queries.shared)} stay, ${count(diff.queries.unchanged)} are unchanged`);
    if (diff.skipped.length) parts.push(`left out: ${diff.skipped.join("; ")}`);
    find("diff-told").textContent = `${parts.join("; ")}.`;
    find("diff-found").replaceChildren(...(matrix ? [make("div", { class: "found" },
      steps(diff, names), spectrum(diff.spectra, names), directions(diff.directions))] : []),
    ...(diff.queries?.moved.length ? [this.moved(diff.queries, objects)] : []));
  }

  moved({ moved, k }, objects) {
    return make("div", {}, make("h4", {}, "Queries whose nearest objects moved most"),
      make("ol", { class: "moved" }, ...moved.map((query) => {
        const one = objects[query.id];
        const button = make("button", { type: "button", title: `Compare ${query.id}` }, picture(one), make("span", { class: "label" }, ...named(one)));
        button.addEventListener("click", () => { this.choose(query.id); find("query").scrollIntoView({ block: "center" }); });
        return make("li", {}, button, make("p", {}, make("strong", {}, `${query.shared} of ${k} stay`)),
          some("came in", query.entered, objects), some("went out", query.left, objects));
      })));
  }
}

function some(what, ids, objects) {
  const more = ids.length > FEW ? make("span", { class: "quiet" }, `and ${ids.length - FEW} more`) : null;
  return make("div", { class: "some" }, make("span", { class: "quiet" }, what),
    ...(ids.length ? ids.slice(0, FEW).map((id) => picture(objects[id])
      ? make("span", { class: "small", title: objects[id].text || id }, picture(objects[id]), make("span", { class: "unseen" }, objects[id].text || id))
      : make("span", { class: "label", title: id }, ...named(objects[id]))) : [make("span", {}, "none")]), more);
}

function steps({ steps: found }, names) {
  const most = Math.max(...found.map((one) => Math.abs(one.after - one.before)), 0);
  return make("div", {}, make("h4", {}, "Largest steps: similarity of two features"), found.length === 0 ? make("p", { class: "quiet" }, "None: both are the same.")
    : make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...["Features", ...names, "change"].map((one, place) => make("th", { scope: "col", class: place > 0 ? "number" : null }, one)))),
      make("tbody", {}, ...found.map((one) => {
        const by = one.after - one.before;
        const bar = make("i", { "aria-hidden": "true", class: by < 0 ? "fell" : "rose" });
        bar.style.width = `${(100 * Math.abs(by)) / most}%`;
        return make("tr", {}, make("th", { scope: "row" }, one.second === one.first ? `${one.first} with itself` : `${one.first} with ${one.second}`), make("td", { class: "number" }, figure(one.before)), make("td", { class: "number" }, figure(one.after)),
          make("td", { class: "number bar" }, signed(by), bar));
      }))));
}

function directions(found) {
  return make("div", {}, make("h4", {}, "Directions along which similarity changed"), found.length === 0 ? make("p", { class: "quiet" }, "None.")
    : make("ul", { class: "turns" }, ...found.map((one) => make("li", {}, make("strong", {}, `${one.value < 0 ? "fell" : "rose"} by ${figure(Math.abs(one.value))}`),
      make("span", { class: "quiet" }, ` along ${one.features.map(([name, weight]) => `${signed(weight, 2)} ${name}`).join(", ")}`)))));
}

function spectrum(both, names) {
  const rows = [
    ["Largest eigenvalue", "How much the direction that counts most is stretched", (one) => figure(one.largest[0])],
    ["Smallest eigenvalue", "Below 0: a direction along which likeness counts against; the serving form leaves it out", (one) => figure(one.smallest[0])],
    ["Negative eigenvalues", "How many there are, and their share of the sum of all sizes", (one) => (one.negatives === null ? "–" : `${count(one.negatives)} (${share(one.negative_share)})`)],
    ["Effective rank", "How many directions similarity really uses", (one) => figure(one.effective_rank)],
    ["Stable rank", "A lower bound of the rank: sum of squared eigenvalues over the largest one", (one) => figure(one.stable_rank)],
  ];
  return make("div", {}, make("h4", {}, "Spectrum of the symmetric part"), make("table", { class: "plain" },
    make("thead", {}, make("tr", {}, make("td", {}), ...names.map((one) => make("th", { scope: "col", class: "number" }, one)))),
    make("tbody", {}, ...rows.map(([title, words, told]) => make("tr", { title: words }, make("th", { scope: "row" }, title), ...both.map((one) => make("td", { class: "number" }, told(one))))),
      make("tr", { title: "The largest eigenvalues, in falling order" }, make("th", { scope: "row" }, "Largest ones"), ...both.map((one) => make("td", { class: "number" }, bars(one.largest, both)))))));
}

/** The eigenvalues as small bars, to the same scale in both. */
function bars(values, both) {
  const most = Math.max(...both.flatMap((one) => one.largest), 1e-12);
  return make("span", { class: "spark", role: "img", "aria-label": values.map((one) => figure(one)).join(", "), title: values.map((one) => figure(one)).join(", ") }, ...values.map((value) => {
    const bar = make("i", {});
    bar.style.height = `${Math.max((100 * value) / most, 3)}%`;
    return bar;
  }));
}

function signed(value, digits = 3) {
  return `${value < 0 ? "−" : "+"}${figure(Math.abs(value), digits)}`;
}
