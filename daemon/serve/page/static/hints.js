// What every number means, in plain words, behind a small button beside its name.

import { find, make } from "./dom.js";

const WORDS = {
  curves: "How well each version finds what people want, over the clicks it has learned from. The line is one history: it goes on after a restart, and what a rollback left behind stays as a paler line.",
  measure: "The measure that is drawn. mAP (mean average precision) is 1 when every relevant object comes before every other one, 0 when none is found. The dashed grey line is version 0, which has learned nothing: your own ranking where the space knows it, else plain cosine similarity; points mark what was promoted and what was gone back to; the dotted line is the order that people were shown. Both are measured on the same questions as the version above them.",
  loss: "Mean hinge loss of the events between a version and the one before it, each taken before the step that learned it; where these are fewer than 500, of those before them too. 0: every clicked object already won by the wanted margin; 1: no better than chance by this margin.",
  verdict: "Whether what was learned is better for your users than the ranking that you had (version 0). Yes and no are said only where a test or an interval says so. Without judgments it is by clicks: of the held-out lists in which the two rankings order clicked and unclicked objects differently, the share where the clicked ones stand higher, corrected for the rank at which they were shown; 50 of 100 is no difference.",
  learning: "Whether tripletd learn goes on. It stops when nothing has improved in validate.patience_events events, keeps its place, and goes on when what users click changes, after as many new events as the last gain took, or by tripletd resume.",
  events: "Events learned per second by tripletd learn, mean of 10 seconds. An event is one comparison: for this query, this object was clicked and that one was not.",
  lag: "How far learning is behind the stream: events that wait, of all partitions, and the age of the oldest of them.",
  training: "Mean hinge loss of the events learned in the last 10 seconds (60 where they were fewer than 100), before their steps. Lower is better; 0 means that nothing was left to learn from them.",
  freshness: "Time from a click to the first answer that used it, of the last minute: half of the clicks were quicker than the median, 99 of 100 quicker than the p99.",
  latency: "Time to answer one question at /v1/similar, of the last minute: half were quicker than the median, 99 of 100 quicker than the p99.",
  drift: "Loss of the best version on clicks that were held out from learning. When it rises for good, what people want has changed: each time that is detected counts as one drift.",
  dead: "Records that could not be used, counted by reason since the role began: events that tripletd learn could not learn from, and item records that this server could not take in. They are kept: see tripletd deadletters.",
  served: "What the names that can be asked for answer with now. 12+3400 means: version 12, and 3,400 records learned since.",
  best: "The version that leads on the decision measure, which is what promotes a version. Beside it what version 0, your own ranking or plain cosine similarity, reaches on the same questions.",
  compare: "The objects nearest to one object, under two versions or names side by side. ▲ and ▼ tell by how many places an object stands higher or lower than in the other list. The number beside the rank is the similarity: 1 is the same. Opened, a hit tells what each view contributes to it, and in how many of the newest lists it was clicked, for this object and for those near it. The address keeps what is compared.",
  diff: "What learning did between the two: pairs of features whose similarity changed most, the directions along which similarity rose or fell, the spectrum of the symmetric part of the matrix W, and how the top 10 of up to 100 objects moved. Made on request, one comparison at a time, beside the answers: seconds, up to a minute at 10,000 dimensions.",
  keys: "One model is learned per key, such as a tenant. Each is judged on its own lists that were held out: learned means that its own model answers questions with this key, cosine that version 0 does, because its gain is not sure yet. The numbers are of the newest version that is served.",
  versions: "Every version that was written, newest first, with its verdict. Events learned: since version 0. Decision measure: what promotes a version, with what version 0 reaches on the same questions in brackets. Training loss: of the events since the version before. Left behind: learning went back to an older one and on from there. Pruned: its files are gone, its history stays.",
  moves: "Promotions, rollbacks, pins, stops and resumes, newest first, with the reason and who or what decided.",
};

/** A button that explains `name`; `title` is what it stands beside. */
export function hint(name, title) {
  const button = make("button", { type: "button", class: "hint", title: WORDS[name], "aria-label": `What is this: ${title}` }, "?");
  button.addEventListener("click", () => explain(button, WORDS[name]));
  return button;
}

/** Put a button beside everything in the page's own markup that asks for one. */
export function hints() {
  for (const host of document.querySelectorAll("[data-hint]")) host.append(" ", hint(host.dataset.hint, host.textContent));
}

function explain(button, words) {
  const box = find("explanation");
  box.textContent = words;
  box.showPopover();
  const [at, room] = [button.getBoundingClientRect(), 12];
  box.style.left = `${Math.max(room, Math.min(at.left - room, innerWidth - box.offsetWidth - room))}px`;
  const below = at.bottom + 6;
  box.style.top = `${below + box.offsetHeight + room > innerHeight ? Math.max(room, at.top - 6 - box.offsetHeight) : below}px`;
}
