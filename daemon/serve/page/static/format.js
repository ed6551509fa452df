// Numbers, durations and moments as people read them; a unit is always written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1234567 -> "1,234,567". */
export const count = (value) => whole.format(value);

/** 25847 -> "25.8k": for axes and tiles. */
export function short(value) {
  const size = Math.abs(value);
  for (const [step, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= step) return `${trim(value / (unit === "k" ? 1e3 : step), 1)}${unit}`;
  }
  return size >= 100 || Number.isInteger(value) ? whole.format(value) : trim(value, size >= 10 ? 1 : 2);
}

/** A measure between 0 and about 1. */
export const measure = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

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

/** ISO text -> Unix seconds, or null. */
export function parse(text) {
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at / 1000;
}

function trim(value, digits) {
  return String(Number(value.toFixed(digits)));
}
