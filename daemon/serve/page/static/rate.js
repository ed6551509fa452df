// Rating by people: one query and a blind mix of what two systems found for it; marks are kept when the next is asked for.

import { get, Refused } from "./api.js";
import { picture } from "./compare.js";
import { find, make } from "./dom.js";

const PATIENCE_MS = 130_000; // the first who comes waits for the lists to be made
const SEND_MS = 15_000;
const NAME = "tripletd.rater";
const LETTERS = "ABCDEFGHIJKLMNOPQRST";

let current = null; // {rater, query, results, done, of} that is shown
let sure = false; // whether "none is relevant" was pressed once
let busy = false;

/** What the browser keeps of who rates; "" where it keeps nothing. */
function remembered() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

function remember(name) {
  try {
    if (name) localStorage.setItem(NAME, name);
    else localStorage.removeItem(NAME);
  } catch {
    // a browser that keeps nothing asks for the name again
  }
}

function show(...shown) {
  for (const id of ["start", "task", "turn", "said"]) find(id).hidden = !shown.includes(id);
}

function trouble(text) {
  find("trouble").hidden = !text;
  find("trouble").textContent = text;
}

function begin() {
  current = null;
  find("who").hidden = find("progress").hidden = true;
  find("name").value = remembered();
  show("start");
  find("name").focus();
}

/** Ask for the next query of `rater` and show it; asked again while the lists are being made. */
async function ask(rater) {
  trouble("");
  const slow = setTimeout(() => say("One moment", "The questions are being prepared."), 600);
  try {
    const told = await get("ratings/next", { rater }, PATIENCE_MS);
    clearTimeout(slow);
    remember(told.rater);
    present(told);
  } catch (error) {
    clearTimeout(slow);
    if (error instanceof Refused && error.code === "busy") {
      say("One moment", "The questions are being prepared.");
      setTimeout(() => ask(rater), 2000);
      return;
    }
    if (error instanceof Refused && error.status === 422) begin();
    else say("Nothing can be rated now", "Load the page again in a moment.");
    trouble(said(error));
  }
}

function present(told) {
  current = told;
  sure = false;
  find("who").hidden = find("progress").hidden = false;
  find("name-told").textContent = told.rater;
  find("bar").max = told.of;
  find("bar").value = told.done;
  find("counted").textContent = told.query ? `${told.done + 1} of ${told.of}` : `${told.done} of ${told.of}`;
  if (!told.query) {
    say("That was all. Thank you!", told.done ? `You have rated ${told.done === 1 ? "one object" : `${told.done} objects`}. There is nothing left to do, and you can close this page.` : "There is nothing to rate.");
    return;
  }
  const pictures = told.results.some((one) => one.has_image);
  find("question").textContent = told.question;
  find("query").replaceChildren(picture(told.query) ?? "", make("p", { class: told.query.has_image ? "caption" : "words" }, told.query.text || (told.query.has_image ? "" : told.query.id)));
  find("results").className = pictures ? "results" : "results texts";
  find("results").replaceChildren(...told.results.map((one, place) => result(one, place, pictures)));
  find("last").textContent = LETTERS[told.results.length - 1];
  show("task", "turn");
  count();
  scrollTo(0, 0);
  find("results").querySelector("input").focus({ preventScroll: true, focusVisible: false });
}

function result(one, place, pictures) {
  const box = make("input", { type: "checkbox", class: "unseen", value: one.id, "aria-keyshortcuts": LETTERS[place], "aria-label": `${LETTERS[place]}: ${one.text || one.id}` });
  box.addEventListener("change", () => { sure = false; count(); });
  const words = one.text || (one.has_image ? "" : one.id);
  return make("li", {}, make("label", { class: "result" }, box,
    make("span", { class: "mark", "aria-hidden": "true" }, make("span", { class: "letter" }, LETTERS[place]), make("span", { class: "tick" }, "✓")),
    picture(one) ?? (pictures ? make("span", { class: "thumb blank", "aria-hidden": "true" }, "no picture") : null),
    words ? make("span", { class: pictures ? "caption" : "words", title: words }, words) : null));
}

const boxes = () => [...find("results").querySelectorAll("input")];

function count() {
  const marked = boxes().filter((box) => box.checked).length;
  find("marked").textContent = marked ? `${marked} of ${boxes().length} marked relevant` : sure ? "Really none of them? Then go on." : "None is marked yet";
  find("next").textContent = marked ? "Next" : sure ? "Yes, none of them" : "None is relevant";
  find("next").classList.toggle("warned", sure && !marked);
}

/** Keep the marks and go on; without any mark it has to be said twice. */
async function next() {
  if (!current?.query || busy) return;
  const relevant = boxes().filter((box) => box.checked).map((box) => box.value);
  if (relevant.length === 0 && !sure) {
    sure = true;
    count();
    return;
  }
  busy = true;
  find("next").disabled = true;
  trouble("");
  try {
    await send({ rater: current.rater, query: current.query.id, relevant });
    await ask(current.rater);
  } catch (error) {
    if (error instanceof Refused && error.code === "rated_before") await ask(current.rater); // in another window
    trouble(error.code === "rated_before" ? "You had rated this one before; your first answer counts." : `Not kept yet: ${said(error)} Press again in a moment.`);
  } finally {
    busy = false;
    find("next").disabled = false;
  }
}

async function send(rating) {
  const answer = await fetch("/v1/page/ratings", {
    method: "POST", body: JSON.stringify(rating), headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(SEND_MS),
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.error ?? {});
}

function said(error) {
  const lost = error.name === "TypeError" || error.name === "TimeoutError";
  return lost ? "the server does not answer." : `${error.message}.`;
}

function say(title, text) {
  find("said").replaceChildren(make("h2", {}, title), make("p", {}, text));
  show("said");
}

/** How many results stand in one row. */
function perRow(all) {
  const top = all[0].closest("li").offsetTop;
  return all.filter((box) => box.closest("li").offsetTop === top).length;
}

function key(event) {
  if (find("task").hidden || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = boxes();
  const at = all.indexOf(document.activeElement);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perRow(all), ArrowUp: -perRow(all) };
  const letter = event.key.length === 1 ? LETTERS.indexOf(event.key.toUpperCase()) : -1;
  if (event.key === "Enter" && document.activeElement?.tagName !== "BUTTON") next();
  else if (event.key in steps) all[Math.min(Math.max((at < 0 ? 0 : at) + (at < 0 ? 0 : steps[event.key]), 0), all.length - 1)].focus();
  else if (letter >= 0 && letter < all.length) {
    all[letter].focus();
    all[letter].click();
  } else return;
  event.preventDefault();
}

find("start").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(find("name").value);
});
find("other").addEventListener("click", () => { remember(""); begin(); });
find("next").addEventListener("click", next);
document.addEventListener("keydown", key);
if (remembered()) ask(remembered());
else begin();
