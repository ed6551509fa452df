// What people's ratings say: precision of both systems by rank, with its error, by rater, and how far raters agree.

import { get, repeat } from "./api.js";
import { Chart } from "./charts.js";
import { empty, find, make, refill } from "./dom.js";
import { count, measure, moment, share } from "./format.js";
import { save } from "./picture.js";

const SECONDS = 5;
const SHOWN = [1, 5, 10];
const RANKS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

const chart = new Chart(find("chart"), { low: 0, axis: measure, across: ["first", "first places"], where: (k) => String(Math.round(k)), steps: [1, 2, 5] });
find("address").textContent = new URL("/rate", location.href).href;
find("png").addEventListener("click", () => save(chart, "ratings", "Precision by rank", find("note").textContent));

/** "stable (12)": the system with the model that answered. */
const named = ({ name, model }) => {
  const what = name === "0" ? "version 0" : /^\d+$/.test(name) ? `version ${name}` : name;
  return model && model !== name ? `${what} (${model})` : what;
};
const signed = (value) => `${value < 0 ? "−" : "+"}${measure(Math.abs(value))}`;
const cell = (label, ...children) => make("td", { class: "number", data: { label } }, ...children);
const head = (...titles) => titles.map(([title, words]) => make("th", { scope: "col", class: title === "Rater" || title === "First" ? null : "number", title: words ?? null }, title));

async function show() {
  const told = await get("ratings/report");
  const titles = told.systems?.map((one) => named(one.system)) ?? told.named;
  find("study").textContent = `study ${told.study}: ${titles.join(" against ")}`;
  refill(find("tiles"), told, () => tiles(told, titles));
  find("coming").hidden = true;
  find("found").hidden = !told.systems;
  find("nothing").hidden = Boolean(told.systems);
  refill(find("nothing"), told.began, () => [empty(told.began === null ? "The study begins when the first rater comes: then its queries are drawn and the lists of both systems are kept." : `The study began on ${moment(told.began / 1000)}. Nobody has rated anything yet.`)]);
  if (!told.systems) return;
  draw(told, titles);
  refill(find("ranks").tHead.rows[0], titles, () => head(["First"], [titles[0]], [titles[1]], ["Difference", "The first less the second, on the same queries; below it its interval of 95 %"]));
  refill(find("ranks").tBodies[0], told, () => RANKS.map((k) => rank(told, titles, k)));
  const columns = titles.flatMap((title) => SHOWN.map((k) => [`${title}, P@${k}`]));
  refill(find("raters").tHead.rows[0], columns, () => head(["Rater"], ["Queries"], ...columns));
  refill(find("raters").tBodies[0], told, () => Object.entries(told.raters).map(([rater, queries]) => make("tr", {}, make("th", { scope: "row" }, rater), cell("queries", count(queries)),
    ...told.systems.flatMap((one, which) => SHOWN.map((k) => cell(`${titles[which]}, P@${k}`, measure(one.by_rater[rater][k - 1])))))));
  find("spread").textContent = told.systems.map((one, which) => one.spread_queries === null ? "" : `Average precision of ${titles[which]} varies by ${measure(one.spread_queries)} over the queries of a rater${one.spread_raters === null ? "" : `, and by ${measure(one.spread_raters)} over the raters of a query`}.`).join(" ");
}

function tiles(told, titles) {
  const agreed = told.agreement;
  const raters = Object.keys(told.raters).length;
  const last = told.difference.at(-1);
  const proven = last && last.low !== null && (last.low > 0 || last.high < 0);
  const better = last && (last.mean >= 0 ? titles[0] : titles[1]);
  return [
    tile("Ratings", count(told.ratings), `of ${count(raters)} ${raters === 1 ? "rater" : "raters"}, on ${count(told.queries)} of ${count(told.of)} queries`),
    ...(told.systems ?? []).map((one, which) => tile(`P@10, ${titles[which]}`, measure(one.precision[9].mean), one.precision[9].error === null ? "" : `± ${measure(one.precision[9].error)}`)),
    tile("Difference at 10", last ? signed(last.mean) : "–", !last ? "" : last.low === null ? "no error with one query" : `95 %: ${signed(last.low)} to ${signed(last.high)}, ${proven ? `for ${better}` : "not sure"}`),
    tile("Raters agree", share(agreed.same), agreed.same === null ? "known when two have rated the same query" : `of the pairs of marks on ${count(agreed.objects)} results`),
    tile("Fleiss' kappa", measure(agreed.fleiss), agreed.cohen === null ? "" : `Cohen's: ${measure(agreed.cohen)}, mean of ${count(agreed.pairs)} ${agreed.pairs === 1 ? "pair" : "pairs"}`),
  ];
}

const tile = (title, value, more) => make("div", { class: value === "–" ? "none" : null }, make("dt", {}, title), make("dd", {}, value), make("dd", { class: "more" }, more));

function rank(told, titles, k) {
  const difference = told.difference[k - 1];
  const told_ = (one) => [measure(one.mean), one.error === null ? null : make("small", {}, `± ${measure(one.error)}`)];
  return make("tr", {}, make("th", { scope: "row" }, String(k)),
    ...told.systems.map((one, which) => cell(titles[which], ...told_(one.precision[k - 1]))),
    cell("difference", signed(difference.mean), difference.low === null ? null : make("small", {}, `${signed(difference.low)} to ${signed(difference.high)}`)));
}

function draw(told, titles) {
  const lines = [];
  const data = [RANKS];
  told.systems.forEach((one, which) => {
    data.push(one.precision.map((at) => at.mean));
    lines.push({ label: titles[which], colour: ["accent", "second"][which], points: true, width: 2, format: measure });
  });
  told.systems.forEach((one, which) => {
    if (one.precision[0].low === null) return;
    for (const [end, words] of [["low", "from"], ["high", "to"]]) { // their places in the legend are hidden
      data.push(one.precision.map((at) => at[end]));
      lines.push({ label: `95 % ${words}`, colour: ["accent", "second"][which], width: 0, format: measure, from: end === "high" ? lines.length - 1 : null });
    }
  });
  find("note").textContent = `Mean over queries of the mean over the raters of each. Shaded: interval of 95 %, by drawing the ${count(told.queries)} queries again (bootstrap).`;
  chart.show(data, lines, `Precision by rank: ${titles.map((title, which) => `${title} ${measure(told.systems[which].precision[0].mean)} at 1, ${measure(told.systems[which].precision[9].mean)} at 10`).join("; ")}`);
}

repeat(SECONDS, show, (error) => {
  find("trouble").hidden = error === null;
  document.body.classList.toggle("old", error !== null);
  if (error) find("trouble").textContent = error.status === 401 || error.status === 403 ? `The report is not for you: ${error.message}.` : `The report cannot be shown: ${error.message}.`;
});
