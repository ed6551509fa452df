// Follow a version by name and search with it, from JavaScript: no server, no library, only the checkpoint folder.
//
//     node similar.mjs FOLDER NAME OBJECTS.jsonl ID [K]        the K objects most similar to the object ID
//     node similar.mjs FOLDER NAME OBJECTS.jsonl ID K --follow  again each time that NAME means another version
//
// FOLDER is the learner's checkpoint folder, NAME is stable, best, latest or a pinned name, and OBJECTS.jsonl is
// the catalog, one {"id", "x": vector} or {"id", "views": {view: vector}} a line, a vector being [numbers] or
// {"indices", "values"}. What is read, and why it may be trusted, is specified in checkpoints/FORMAT.md, "Reading a
// version from another language".

import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

class Refused extends Error {}

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** A sealed JSON record of a known format, its digest checked. */
function sealed(path, formats = [1]) {
  const data = readFileSync(path);
  if (data.length < 79 || sha256(data.subarray(0, -79)) !== data.subarray(-68, -4).toString()) {
    throw new Refused(`${path}: its bytes do not match its sha256`);
  }
  const record = JSON.parse(data.toString());
  if (!formats.includes(record.format)) throw new Refused(`${path}: format ${record.format} is not known here`);
  return record;
}

/** Arrays of a safetensors file by name, {shape, values}, its size and digest checked first. */
function arrays(path, size, digest) {
  const data = readFileSync(path);
  if (data.length !== size || sha256(data) !== digest) throw new Refused(`${path}: not the bytes that were written`);
  const start = 8 + Number(data.readBigUInt64LE(0));
  const header = JSON.parse(data.subarray(8, start).toString());
  const found = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (dtype !== "F32" && dtype !== "U8") continue; // __metadata__, and what the learner alone needs
    const [begin, end] = data_offsets;
    const bytes = data.buffer.slice(data.byteOffset + start + begin, data.byteOffset + start + end);
    found[name] = { shape, values: dtype === "F32" ? new Float32Array(bytes) : new Uint8Array(bytes) };
  }
  return found;
}

/** The manifest of the version that `name` means, and no other where that one is not there. */
function meaning(folder, name) {
  const numbers = readdirSync(join(folder, "versions")).sort();
  const kept = new Map();
  for (const number of numbers) {
    const path = join(folder, "versions", number, "manifest.json");
    if (existsSync(path)) kept.set(Number(number), path);
  }
  const named = {};
  const ledger = join(folder, "ledger");
  const read = (file) => {
    try {
      return sealed(join(ledger, file));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      console.error(`passed over: ${error.message}`);
      return null;
    }
  };
  const files = existsSync(ledger) ? readdirSync(ledger).sort() : [];
  let folded = { through: 0, entries: [] };
  for (const file of files.filter((file) => file.startsWith("folded-")).reverse()) {
    folded = read(file) ?? folded;
    if (folded.through) break;
  }
  const said = [...folded.entries];
  for (const file of files) {
    if (/^\d{10}\.json$/.test(file) && Number(file.slice(0, 10)) > folded.through) said.push(read(file));
  }
  for (const entry of said) {
    const { kind, alias, version } = entry ?? {};
    if (["PROMOTE", "ROLLBACK"].includes(kind) && alias !== null) named[alias] = version;
  }
  if (name === "latest") {
    for (const number of [...kept.keys()].sort((a, b) => b - a)) {
      const manifest = sealed(kept.get(number), [1, 2]);
      if (manifest.kind === "version") return manifest;
    }
  }
  const number = name === "stable" ? named.stable ?? named.best ?? 0 : named[name];
  if (!kept.has(number)) throw new Refused(`${name} means no version that is there`);
  const manifest = sealed(kept.get(number), [1, 2]);
  if (manifest.kind !== "version") throw new Refused(`${number} is no version`);
  return manifest;
}

const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);

/** x of unit length, in float32; zeros stay. */
function unit(x) {
  const length = Math.sqrt(dot(x, x));
  return length > 0 ? Float64Array.from(x, (value) => Math.fround(value / length)) : x;
}

/** matrix [n, m], row by row, times x [m]. */
function times({ shape: [rows, columns], values }, x) {
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0, at = i * columns; j < columns; j++, at++) out[i] += values[at] * x[j];
  }
  return out;
}

/** x [n] times matrix [n, m]. */
function timesTransposed({ shape: [rows, columns], values }, x) {
  const out = new Float64Array(columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0, at = i * columns; j < columns; j++, at++) out[j] += values[at] * x[i];
  }
  return out;
}

/** Columns that a map reads. */
const columnsIn = (view) => (view.kind === "chain" ? columnsIn(view.maps[0]) : view.dim_in);

/** A vector that is not zero through one map, whose arrays begin with `prefix`. */
function through(view, state, prefix, x) {
  if (view.kind === "chain") return view.maps.reduce((y, one, n) => through(one, state, `${prefix}${n}.`, y), x);
  const own = (name) => state[prefix + name];
  if (view.kind === "unit") x = unit(x);
  if (view.kind === "standardise") x = x.map((v, j) => (v - own("mean").values[j]) * own("scale").values[j]);
  if (view.kind === "whiten") x = timesTransposed(own("components"), x.map((v, j) => v - own("mean").values[j]));
  if (view.kind === "precondition") x = timesTransposed(own("components"), x);
  if (view.kind === "tfidf") x = unit(x.map((v, j) => v * own("idf").values[j]));
  return x.map(Math.fround);
}

/** The metric in which a map carries the inner product of what it reads, a number for each column. */
function metric(view, state, prefix) {
  if (view.kind === "chain") {
    const parts = view.maps.map((one, n) => metric(one, state, `${prefix}${n}.`));
    return parts.find((part) => part.some((value) => value !== 1)) ?? parts[0];
  }
  if (view.kind === "precondition") return state[`${prefix}weights`].values;
  if (view.kind === "tfidf") return Float64Array.from(state[`${prefix}idf`].values, (value) => 1 / value ** 2);
  return new Float64Array(view.dim_in).fill(1);
}

/** The user's own ranking, with which version 0 answers: the diagonal of its form. */
function ownRanking({ views, weights, scales }, state) {
  return views.flatMap((view) => {
    const factor = weights[view.name] / scales[view.name] ** 2;
    return Array.from(metric(view, state, `map.${view.name}.`), (value) => factor * value);
  });
}

/** The vector of one object: its views through the map of the version, joined. */
function mapped(map, state, views) {
  const joined = [];
  for (const view of map.spec.views) {
    const width = view.kind === "whiten" ? view.dim : columnsIn(view);
    let x = new Float64Array(columnsIn(view));
    const given = views[view.name] ?? [];
    if (Array.isArray(given)) given.forEach((value, at) => (x[at] = Math.fround(value)));
    else given.indices.forEach((index, at) => (x[index] = Math.fround(given.values[at])));
    if (!x.some((value) => value !== 0)) {
      joined.push(...new Float64Array(width));
      continue;
    }
    x = through(view, state, `map.${view.name}.`, x);
    if (map.spec.unit && !map.spec.effective) x = unit(x);
    const scale = map.spec.scales?.[view.name] ?? 1;
    joined.push(...x.map((value) => scale * value));
  }
  const whole = Float64Array.from(joined);
  return map.spec.unit && !map.spec.by_block ? unit(whole) : whole;
}

/** One version: the form its scores are made of, and the objects with their norms under it. */
class Version {
  constructor(folder, manifest, objects) {
    this.number = manifest.number;
    this.watermark = manifest.watermark;
    const place = join(folder, "versions", String(manifest.number).padStart(10, "0"));
    const [file] = manifest.files;
    const state = arrays(join(place, file.name), file.size, file.sha256);
    this.W = state.W;
    this.form = null;
    const { spec } = manifest.map;
    this.own = manifest.number === 0 && spec.format === 2 ? ownRanking(spec, state) : null;
    const serving = join(place, "serving.json");
    if (this.own === null && existsSync(serving)) {
      const record = sealed(serving);
      this.form = arrays(join(place, record.file), record.size, record.sha256_of_file);
    } else if (manifest.number !== 0) {
      throw new Refused(`version ${manifest.number} has no serving form yet: the validator adds it`);
    }
    this.normalised = this.form === null || this.form.normalised.values[0] !== 0;
    if (this.own !== null) this.normalised = spec.similarity === "cosine";
    this.distance = !this.normalised && spec.similarity === "euclidean";
    this.items = objects.map(({ id, x, views = { x } }) => ({ id, p: mapped(manifest.map, state, views) }));
    for (const item of this.items) item.square = dot(this.fold(item.p), item.p);
  }

  /** f = S q: what every item is multiplied with. */
  fold(q) {
    if (this.own !== null) return q.map((value, at) => value * this.own[at]);
    if (this.form?.matrix) return this.correct(q, times(this.form.matrix, q));
    const left = times(this.W, q);
    const right = timesTransposed(this.W, q);
    return this.correct(q, left.map((value, at) => (value + right[at]) / 2));
  }

  correct(q, f) {
    if (this.form === null || this.form.correction_values.values.length === 0) return f;
    const U = this.form.correction_vectors;
    const along = timesTransposed(U, q).map((value, at) => value * this.form.correction_values.values[at]);
    const away = times(U, along);
    return f.map((value, at) => value - away[at]);
  }

  /** The k items most similar to the object `id`, best first. */
  similar(id, k) {
    const query = this.items.find((item) => item.id === id);
    if (!query) throw new Refused(`there is no object ${id}`);
    const f = this.fold(query.p);
    const score = ({ p, square }) => {
      if (this.distance) return 2 * dot(f, p) - query.square - square;
      if (!this.normalised) return dot(f, p);
      return query.square > 0 && square > 0 ? dot(f, p) / Math.sqrt(query.square * square) : 0;
    };
    const found = this.items.filter((item) => item !== query).map((item) => ({ id: item.id, score: score(item) }));
    return found.sort((a, b) => b.score - a.score).slice(0, k);
  }
}

const [folder, name, file, id, k = "10", follow] = process.argv.slice(2);
if (id === undefined) {
  console.error("usage: node similar.mjs CHECKPOINTS NAME ITEMS.jsonl ID [K [--follow]]");
  process.exit(64);
}
const objects = readFileSync(file, "utf8").split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
let served = null;

/** Load what `name` means when it is another version than the one that answers; that one stays when it fails. */
function look() {
  const manifest = meaning(folder, name);
  if (manifest.number === served?.number) return;
  served = new Version(folder, manifest, objects);
  const { number: version, watermark } = served;
  console.log(JSON.stringify({ version, watermark, results: served.similar(id, Number(k)) }));
}

function tryToLook() {
  try {
    look();
  } catch (error) {
    if (!(error instanceof Refused) && error.code !== "ENOENT") throw error;
    console.error(served ? `not swapped: ${error.message}` : error.message);
    if (follow !== "--follow") process.exitCode = 1;
  }
}

tryToLook();
if (follow === "--follow") setInterval(tryToLook, 1000);
