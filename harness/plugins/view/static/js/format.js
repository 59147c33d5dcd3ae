/** Numbers, times and texts as the pages show them. A missing value is an en dash. */

export const NONE = "–";

/** A number with decimals; one half way between two is rounded to the even digit, as the commands do. */
function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const isHalf = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (isHalf ? (2 * Math.round(scaled / 2)) / 10 ** digits : value).toFixed(digits);
}

/** A reward or mean, with at most `digits` decimals. */
export function score(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  return Number.isInteger(value) ? String(value) : fixed(value, digits);
}

/** A difference with its sign. */
export function signed(value) {
  if (value === null || value === undefined) return NONE;
  return value === 0 ? "0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`;
}

export function pValue(value) {
  if (value === null || value === undefined) return NONE;
  return value < 0.001 ? "<0.001" : value.toFixed(3);
}

/** A mean, always with three decimals, so that columns align. */
export function mean(value) {
  return value === null || value === undefined ? NONE : fixed(value, 3);
}

export function interval(low, high) {
  return low === null || low === undefined ? "" : `${fixed(low, 3)} … ${fixed(high, 3)}`;
}

export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en");
}

/** `1,234` up to 10,000, then `12.3k`, `4.5M`. */
export function compact(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 10_000) return count(Math.round(value));
  const [unit, size] = value < 1e6 ? ["k", 1e3] : value < 1e9 ? ["M", 1e6] : ["B", 1e9];
  return `${(value / size).toPrecision(3)}${unit}`;
}

export function dollars(value) {
  if (value === null || value === undefined) return NONE;
  return `$${value >= 1 || value === 0 ? value.toFixed(2) : value.toPrecision(2)}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function share(part, whole) {
  if (!whole) return NONE;
  const percent = (100 * part) / whole;
  return part && percent < 1 ? "< 1 %" : part < whole && percent > 99 ? "> 99 %" : `${Math.round(percent)} %`;
}

const DAY = { day: "numeric", month: "short" };
const MINUTE = { hour: "2-digit", minute: "2-digit", hour12: false };

export function moment(iso) {
  if (!iso) return NONE;
  const time = new Date(iso);
  const year = time.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return `${time.toLocaleDateString("en-GB", { ...DAY, ...year })} ${time.toLocaleTimeString("en-GB", MINUTE)}`;
}

/** The time of day, with seconds, of a number of seconds since 1970. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", { ...MINUTE, second: "2-digit" });
}

/** Rate, remaining time and rollouts in flight of a run in progress, as far as its status has them. */
export function pace(status) {
  if (!status) return [];
  return [
    status.per_minute && `${count(Math.round(status.per_minute))} a minute`,
    status.left !== null && `${duration(status.left)} to go`,
    status.generating !== null && `${count(status.generating)} in flight`,
    status.scoring && `${count(status.scoring)} in scoring`,
  ].filter(Boolean);
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A value of any type on one line. */
export function line(value) {
  if (value === null || value === undefined) return NONE;
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  return (typeof value === "string" ? value : JSON.stringify(value)).replace(/\s+/g, " ");
}
