// Starts everything: asks the server again and again, and says so when it no longer answers.

import { get, repeat } from "./api.js";
import { Changes } from "./changes.js";
import { Compare } from "./compare.js";
import { Curves } from "./curves.js";
import { find } from "./dom.js";
import { moment } from "./format.js";
import { hints } from "./hints.js";
import { Keys } from "./keys.js";
import { Live } from "./live.js";
import { showRoles, showServed, Tiles } from "./top.js";
import { Versions } from "./versions.js";

const LIVE_SECONDS = 2;
const LATE = 8; // samples that may be missing before the live numbers are told to be old
const HISTORY_SECONDS = 4;

hints();
const [tiles, curves, live, versions, compare, keys] = [new Tiles(), new Curves(), new Live(), new Versions(), new Compare(), new Keys()];
const changes = new Changes((id) => compare.choose(id));
compare.sidesChanged = (left, right) => changes.reset(left, right);
let overview = null;
let history = null;
const troubles = new Map();

async function now() {
  const [told, samples] = await Promise.all([get("overview"), get("series", { after: live.after })]);
  overview = told;
  live.add(samples);
  find("ratings-link").hidden = !told.ratings;
  showRoles(told);
  tiles.show(told, history?.curves);
  showServed(told);
  live.draw(told);
  if (history) versions.show(history.versions, told.served);
  const late = told.sampled === null || told.now - told.sampled > LATE * told.every;
  find("clock").textContent = `as of ${moment(late ? told.sampled ?? told.now : told.now, told.now)}`;
  find("clock").classList.toggle("late", late);
  if (history) compare.offer(told.aliases, history.versions.kept, told.objects, told.own);
}

async function past() {
  const [found, rows, models] = await Promise.all([get("curves"), versions.load(), keys.load()]);
  history = { curves: found, versions: rows };
  curves.show(found);
  versions.show(rows, overview?.served);
  keys.show(models);
  if (overview) {
    tiles.show(overview, found);
    compare.offer(overview.aliases, rows.kept, overview.objects, overview.own);
  }
}

/** One line for what does not work; what is shown stays, and is told to be old. */
function heard(what) {
  return (error) => {
    if (error) troubles.set(what, error);
    else troubles.delete(what);
    const trouble = find("trouble");
    trouble.hidden = troubles.size === 0;
    document.body.classList.toggle("old", troubles.size > 0);
    if (troubles.size > 0) {
      const since = overview ? ` What you see is from ${moment(overview.now)}.` : "";
      const [first] = troubles.values();
      const lost = first.name === "TypeError" || first.name === "TimeoutError";
      trouble.textContent = lost ? `The server does not answer.${since}` : `${what} cannot be shown: ${first.message}.${since}`;
    }
  };
}

repeat(LIVE_SECONDS, now, heard("Live numbers"));
repeat(HISTORY_SECONDS, past, heard("Versions"));
