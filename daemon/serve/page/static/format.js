// Numbers, durations and moments as people read them; a unit is always written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1234567 -> "1,234,567". */
export const count = (value) => whole.format(value);

/** 25847 -> "25.8k": for axes (as exact as their `step` needs) and tiles. */
export function short(value, step) {
  const size = Math.abs(value);
  for (const [from, one, unit] of [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]]) {
    if (size >= from) return `${trim(value / one, step === undefined ? 1 : decimals(step / one))}${unit}`;
  }
  if (step !== undefined) return trim(value, decimals(step)).replace(/^(-?\d)(\d{3})$/, "$1,$2");
  return size >= 100 || Number.isInteger(value) ? whole.format(value) : trim(value, size >= 10 ? 1 : 2);
}

/** A measure between 0 and about 1, to three places; on an axis as exact as its `step` needs. */
export const measure = (value, step) => (value === null || value === undefined ? "–" : value.toFixed(step === undefined ? 3 : decimals(step)));

/** A number of any size, to `digits` places that count: 0.01234 -> "0.0123". */
export const figure = (value, digits = 3) => (value === null || value === undefined ? "–" : Math.abs(value) >= 1e5 ? short(value) : String(Number(value.toPrecision(digits))).replace("-", "−"));

/** 0.9512 -> "95.1 %". */
export const share = (value) => (value === null || value === undefined ? "–" : `${trim(100 * value, value < 0.1 ? 2 : 1)} %`);

/** Seconds -> "0.42 s", "380 ms", "3 m 20 s", "2 h". */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.max(seconds, 0);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${trim(size * 1e6, 0)} µs`;
  if (size < 0.1) return `${trim(size * 1000, size < 0.01 ? 1 : 0)} ms`;
  if (size < 10) return `${trim(size, 2)} s`;
  if (size < 90) return `${whole.format(size)} s`;
  if (size < 5400) return `${whole.format(size / 60)} min`;
  if (size < 172800) return `${trim(size / 3600, 1)} h`;
  return `${whole.format(size / 86400)} d`;
}

/** Bytes -> "1.5 MiB". */
export function bytes(value) {
  let size = value;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (size < 1024) return `${trim(size, unit === "B" ? 0 : 1)} ${unit}`;
    size /= 1024;
  }
  return `${trim(size, 1)} GiB`;
}

/** Unix seconds -> "13:02:08", with the day when it is not today's. */
export function moment(seconds, now = Date.now() / 1000) {
  const at = new Date(seconds * 1000);
  const clock = at.toLocaleTimeString("en-GB");
  const today = new Date(now * 1000).toDateString() === at.toDateString();
  return today ? clock : `${at.toLocaleDateString("en-CA")} ${clock}`;
}

/** Unix seconds -> "12 s ago". */
export function ago(seconds, now) {
  const age = now - seconds;
  return age < 1 ? "just now" : `${span(age < 90 ? Math.round(age) : age)} ago`;
}

/** What version 0 is to people: their own ranking, where it is exactly that. */
export const zeroName = (own) => (own ? `your ranking (${own.replaceAll("_", " ")})` : "version 0 (cosine)");

/** ISO text -> Unix seconds, or null. */
export function parse(text) {
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at / 1000;
}

/** Places after the point that write a `step` as it is, so that 0.025 and its multiples are not rounded. */
function decimals(step) {
  let places = 0;
  for (let size = step; places < 8 && (size < 0.999 || Math.abs(size - Math.round(size)) > 1e-6); size = step * 10 ** places) places++;
  return places;
}

function trim(value, digits) {
  return String(Number(value.toFixed(digits)));
}
