// The query explorer: an object's nearest neighbours under two versions side by side, with what moved.

import { get, imageOf } from "./api.js";
import { empty, find, make } from "./dom.js";
import { measure, zeroName } from "./format.js";

const PICK_MS = 250;
const LOAD_MS = 60000;
const BUSY_MS = 3000;

export class Compare {
  constructor() {
    this.chosen = null;
    this.asked = 0;
    const wanted = new URLSearchParams(location.search);
    this.sides = { left: wanted.get("left"), right: wanted.get("right") };
    this.wanted = { object: wanted.get("object"), k: wanted.get("k"), key: wanted.get("key") };
    if (this.wanted.key) find("key").append(make("option", { value: this.wanted.key }, this.wanted.key)); // until the keys are listed
    if ([...find("k").options].some((one) => one.value === this.wanted.k)) find("k").value = this.wanted.k;
    find("key").addEventListener("change", () => this.compare());
    find("ask").addEventListener("submit", (event) => event.preventDefault());
    find("object").addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.pick(find("object").value.trim()), PICK_MS); });
    find("object").addEventListener("keydown", (event) => { if (event.key === "Enter") { clearTimeout(this.timer); this.pick(find("object").value.trim(), true); } });
    find("random").addEventListener("click", () => { find("object").value = ""; this.pick("", true); });
    for (const name of ["left", "right", "k"]) find(name).addEventListener("change", () => { this.sides[name] = find(name).value; this.sidesChanged(find("left").value, find("right").value); this.compare(); });
    this.sidesChanged = () => {};
  }

  /** Offer `aliases` and the `kept` versions as sides, and choose an object once there are any. */
  offer(aliases, kept, objects, own) {
    const numbers = kept.map(String);
    const names = [...aliases, ...(numbers.includes("0") ? [] : ["0"]), ...numbers];
    const key = [zeroName(own), ...names].join();
    this.own = own;
    const choosing = ["left", "right"].includes(document.activeElement?.id);
    if (key !== this.key && !choosing && numbers.length + aliases.length > 0) {
      this.key = key;
      this.fill("left", names, "0");
      this.fill("right", names, aliases.includes("latest") ? "latest" : aliases[0] ?? names[0]);
      if (numbers.length > 0) this.sidesChanged(find("left").value, find("right").value);
    }
    if (objects === 0) {
      find("sides").replaceChildren(empty(kept.length === 0
        ? "Appears with the first version, which tripletd learn writes when it starts."
        : "Appears when the server has read its objects. Has it none? Name a catalog file, or put some with tripletd items put."));
    } else if (this.chosen === null && this.asked === 0) {
      if (this.wanted.object) {
        this.asked++;
        this.choose(this.wanted.object);
        this.pick("");
      } else {
        this.pick("", true);
      }
    }
  }

  /** What is compared, kept in the address, so that it can be sent to somebody or come back to. */
  remember() {
    const told = new URLSearchParams({ object: this.chosen, left: find("left").value, right: find("right").value, k: find("k").value });
    if (find("key").value) told.set("key", find("key").value);
    history.replaceState(null, "", `?${told}${location.hash}`);
  }

  fill(name, names, first) {
    const select = find(name);
    select.replaceChildren(...names.map((one) => make("option", { value: one }, /^\d+$/.test(one) ? (one === "0" ? (this.own ? `version 0: ${zeroName(this.own)}` : zeroName(null)) : `version ${one}`) : one)));
    select.value = names.includes(this.sides[name]) ? this.sides[name] : first;
  }

  /** Objects that fit `text`; compare the first at once when `go`, or when it is the very one. */
  async pick(text, go = false) {
    const turn = ++this.asked;
    try {
      const { objects } = await get("objects", { text, limit: 16 });
      if (turn !== this.asked) return;
      find("choices").replaceChildren(...(objects.length ? objects.map((one) => this.choice(one, objects.some((any) => any.has_image))) : [make("li", { class: "why" }, text ? `No object's id or text contains “${text}”, as far as two seconds of searching went.` : "There are no objects yet.")]));
      if (objects.length && (go || objects[0].id === text)) this.choose(objects[0].id);
    } catch (error) {
      if (turn === this.asked) find("choices").replaceChildren(make("li", { class: "why", role: "alert" }, `The objects cannot be listed: ${error.message}`));
    }
  }

  choice(one, pictures) {
    const button = make("button", { type: "button", "aria-pressed": String(one.id === this.chosen), title: one.id }, picture(one) ?? (pictures ? noPicture() : null), make("span", {}, ...named(one)));
    button.addEventListener("click", () => this.choose(one.id));
    button.dataset.id = one.id;
    return make("li", {}, button);
  }

  choose(id) {
    this.chosen = id;
    for (const button of find("choices").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.id === id));
    this.compare();
  }

  async compare(again = 5) {
    if (this.chosen === null) return;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.remember();
    find("sides").setAttribute("aria-busy", "true");
    try {
      const found = await get("explore", { id: this.chosen, left: find("left").value, right: find("right").value, k: find("k").value, key: find("key").value }, LOAD_MS);
      if (turn === this.turn) this.show(found);
      const busy = [found.left, found.right].some((one) => one.code === "busy");
      if (busy && turn === this.turn && again > 0) setTimeout(() => { if (turn === this.turn) this.compare(again - 1); }, BUSY_MS);
    } catch (error) {
      if (turn === this.turn) find("sides").replaceChildren(empty(`No comparison: ${error.message}`));
    } finally {
      if (turn === this.turn) find("sides").removeAttribute("aria-busy");
    }
  }

  show(found) {
    const hits = Math.max(found.left.hits.length, found.right.hits.length);
    const same = found.left.hits.length && found.right.hits.length ? `${found.shared} of ${hits} are in both lists` : "";
    find("query").replaceChildren(...[picture(found.query)].filter(Boolean), make("div", {}, make("strong", { title: found.query.id }, found.query.text || found.query.id),
      make("p", { class: "quiet" }, found.query.text ? `${found.query.id} · ` : "", same)));
    find("sides").replaceChildren(side(found.left, found.right, this.own), side(found.right, found.left, this.own));
  }
}

function side(own, other, similarity) {
  const title = own.side === "0" && similarity ? `version 0: ${zeroName(similarity)}` : /^\d+$/.test(own.side) ? `version ${own.side}` : own.model ? `${own.side}: version ${own.model}` : own.side;
  const pictures = own.hits.some((hit) => hit.shown.has_image);
  return make("div", { class: "card side" }, make("h3", {}, title),
    own.problem ? empty(own.problem) : own.hits.length ? make("ol", { class: pictures ? "hits" : "hits texts" }, ...own.hits.map((hit) => item(hit, other, pictures, similarity))) : empty("It has no neighbours in the served catalog."));
}

function item(hit, other, pictures, own) {
  const move = other.hits.length === 0 ? ["", "", ""] : moved(hit);
  const facts = make("span", { class: "facts" }, make("span", {}, `${hit.rank}.`), make("span", {}, measure(hit.score)), move[1] ? make("span", { class: "move", title: move[2] }, move[1]) : null,
    move[2] ? make("span", { class: "unseen" }, move[2]) : null);
  return make("li", { class: "hit", title: hit.id, data: { move: move[0], id: hit.id } }, picture(hit.shown) ?? (pictures ? noPicture() : null), make("span", { class: "label" }, ...named(hit.shown)), facts, reasons(hit, own));
}

/** [kind, mark, words] of where a hit stands in the other list. */
function moved(hit) {
  if (hit.other_rank === null) return ["only", "only here", "not in the other list"];
  if (hit.other_rank === hit.rank) return ["same", "", ""];
  const by = hit.other_rank - hit.rank;
  return by > 0 ? ["up", `▲ ${by}`, `${by} higher than in the other list`] : ["down", `▼ ${-by}`, `${-by} lower than in the other list`];
}

/** What names an object: its text, with its id beside it. */
export function named(one) {
  const title = make("span", { class: "title" }, one.text || one.id);
  return one.text ? [title, " ", make("small", { class: "id" }, one.id)] : [title];
}

/** Why a hit has its score: what each view contributes, what two do together, where version 0 has it, and its clicks. */
function reasons({ why, rank }, own) {
  if (!why) return null;
  const zero = why.version_0.rank === rank ? "why" : own ? `yours: ${why.version_0.rank}` : `rank ${why.version_0.rank} in version 0`;
  const words = `Rank ${why.version_0.rank} by ${own ? "your ranking" : "version 0"}; open it to see what each view contributes`;
  const shares = (why.views ?? []).map(({ views, contribution }) => make("li", {}, make("span", {}, views.join(" with ")), make("span", {}, measure(contribution))));
  const told = shares.length ? shares : [make("li", {}, "This model's score is no sum over views.")];
  return make("details", { class: "reasons" }, make("summary", { title: words }, zero), make("ul", {}, ...told, make("li", {}, make("span", {}, own ? "score by your ranking" : "score by version 0"), make("span", {}, measure(why.version_0.score))), ...clicks(why.clicks)));
}

/** In how many lists the object was clicked, of those that showed it: for this very object, and for those near it. */
function clicks(found) {
  if (!found) return [make("li", {}, make("span", {}, "clicks: not read yet, compare again"))];
  const line = (words, clicked, passed) => make("li", {}, make("span", {}, words), make("span", {}, `${clicked} of ${clicked + passed}`));
  return [line("clicked here", found.clicked, found.passed_over), line("clicked near here", found.near_clicked, found.near_passed_over)];
}

/** The picture of an object, null without one. Its text stands beside it, so it has no other. */
export function picture(one) {
  if (!one.has_image) return null;
  const image = make("img", { class: "thumb", src: imageOf(one.id), alt: "" });
  image.addEventListener("error", () => image.replaceWith(noPicture()));
  return image;
}

const noPicture = () => make("div", { class: "thumb", "aria-hidden": "true" }, "no picture");
