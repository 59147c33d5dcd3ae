/** Small parts that several pages use. Text of runs only ever becomes text nodes and attributes, never markup. */

import { h } from "../vendor/preact.js";
import { useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { NONE, interval, score } from "./format.js";

export const html = htm.bind(h);

export function Problem({ error }) {
  return error ? html`<p class="problem" role="alert">${error.message}</p>` : null;
}

export function State({ state }) {
  return html`<span class=${`state state-${/^[a-z_]+$/.test(state) ? state : "other"}`}>${state}</span>`;
}

/** A mean with its interval on the axis of possible rewards; for a difference, with a line at 0. */
export function Whisker({ mean, low, high, range = [0, 1], name = "mean", hasZero = false }) {
  if (mean === null || mean === undefined) return html`<span class="whisker"></span>`;
  const [least, most] = [Math.min(range[0] ?? 0, mean), Math.max(range[1] ?? 1, mean)];
  const place = (value) => `${(100 * (Math.min(Math.max(value, least), most) - least)) / (most - least || 1)}%`;
  const title = `${name} ${score(mean)}${low === null || low === undefined ? "" : `, 95 % interval ${interval(low, high)}`}`;
  const hasEnds = low !== null && low !== undefined;
  return html`<svg class="whisker" role="img" aria-label=${title} preserveAspectRatio="none">
    <title>${title}</title>
    <line class="axis" x1="0" x2="100%" y1="50%" y2="50%" />
    ${hasZero && html`<line class="zero" x1=${place(0)} x2=${place(0)} y1="0" y2="100%" />`}
    ${hasEnds && html`<line class="span" x1=${place(low)} x2=${place(high)} y1="50%" y2="50%" />`}
    <circle cx=${place(mean)} cy="50%" r="3.5" />
  </svg>`;
}

/** Means of runs, oldest first, as a line on the axis from 0 to 1, or that of the values. */
export function Sparkline({ values }) {
  if (!values) return null;
  const [least, most] = [Math.min(0, ...values), Math.max(1, ...values)];
  const at = (value, place) => [(100 * place) / (values.length - 1), 100 - (100 * (value - least)) / (most - least)];
  const title = `means of earlier runs, oldest first, and of this one: ${values.map((each) => score(each)).join(", ")}`;
  return html`<svg class="sparkline" role="img" aria-label=${title} viewBox="0 0 100 100" preserveAspectRatio="none"><title>${title}</title>
    <polyline points=${values.map((value, place) => at(value, place).map((each) => each.toFixed(1)).join(",")).join(" ")} /></svg>`;
}

export function dotKind(rollout) {
  if (rollout.reward === null || rollout.reward === undefined) return rollout.outcome === "generated" ? "wait" : "none";
  return rollout.passed ? "pass" : rollout.reward > 0 ? "part" : "fail";
}

const DOT_WORDS = { pass: "passed", part: "partial credit", fail: "failed", none: "no score", wait: "not scored yet" };

export function dotTitle(rollout) {
  const kind = DOT_WORDS[dotKind(rollout)];
  const value = rollout.reward === null || rollout.reward === undefined ? rollout.reason || "" : score(rollout.reward);
  const note = rollout.note ? `; note${rollout.note.length ? `: ${rollout.note.join(" ")}` : ""}` : "";
  return `rollout ${rollout.r}: ${kind}${value ? `, ${value}` : ""}${note}`;
}

const MOST_DOTS = 60;

/** The rollouts of an example, a dot each: filled if passed, half filled for partial credit, a cross without a score. */
export function Strip({ rollouts, hrefOf, current }) {
  const shown = rollouts.slice(0, MOST_DOTS);
  const rest = rollouts.length - shown.length;
  return html`<span class="strip">
    ${shown.map((each) => {
      const words = dotTitle(each);
      const kind = `dot dot-${dotKind(each)}${each.match === false ? " dot-off" : ""}${each.note ? " dot-noted" : ""}${each.r === current ? " dot-here" : ""}`;
      return html`<a key=${each.r} class=${kind} href=${hrefOf(each)} title=${words} aria-label=${words}
        aria-current=${each.r === current ? "true" : undefined}></a>`;
    })}
    ${rest > 0 && html`<span class="quiet"> +${rest}</span>`}
  </span>`;
}

export function Tile({ label, children, note }) {
  return html`<div class="tile"><dt>${label}</dt><dd>${children}</dd>${note && html`<dd class="quiet">${note}</dd>`}</div>`;
}

/** A button that copies text and says so for a moment. */
export function Copy({ text, label = "Copy", title, className = "" }) {
  const [said, setSaid] = useState("");
  const timer = useRef(0);
  const copy = async () => {
    const wanted = typeof text === "function" ? await text() : text;
    setSaid((await toClipboard(wanted)) ? "Copied" : "Copying failed");
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setSaid(""), 1500);
  };
  return html`<button type="button" class=${`small ${className}`} title=${title} onClick=${copy}>
    ${said || label}<span class="unseen" role="status">${said}</span>
  </button>`;
}

export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

const LONG = 4000;
const LINES = 60;

/** Text of any length; a long one shows its beginning, with a button for the rest. */
export function LongText({ text, children }) {
  const [isOpen, setOpen] = useState(false);
  const lines = text.length > LONG ? LINES + 1 : text.split("\n", LINES + 2).length;
  if (isOpen || (text.length <= LONG && lines <= LINES)) return children(text);
  const cut = text.slice(0, LONG).split("\n").slice(0, LINES).join("\n");
  return html`${children(cut)}
    <button type="button" class="small more" onClick=${() => setOpen(true)}>
      Show all ${text.length.toLocaleString("en")} characters
    </button>`;
}

/** Values as a tree that can be opened, like the state of a rollout. */
export function Tree({ value, name, depth = 0 }) {
  const label = name === undefined ? null : html`<span class="key">${name}</span>`;
  if (value === null || typeof value !== "object") {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const isLong = typeof value === "string" && (value.length > 80 || value.includes("\n"));
    if (!isLong) return html`<div class="leaf">${label} <span class=${`val val-${value === null ? "null" : typeof value}`}>${text === "" ? "(empty)" : text}</span></div>`;
    return html`<details class="leaf"><summary>${label} <span class="val val-string">${value.slice(0, 60)} …</span></summary>
      <${LongText} text=${value}>${(shown) => html`<pre class="plain">${shown}</pre>`}<//></details>`;
  }
  const entries = Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return html`<div class="leaf">${label} <span class="quiet">${size}</span></div>`;
  const inside = (each = entries) => each.slice(0, 500).map(([key, held]) => html`<${Tree} key=${key} name=${key} value=${held} depth=${depth + 1} />`);
  const rest = entries.length > 500 ? html`<p class="quiet">and ${entries.length - 500} more</p>` : null;
  if (name === undefined) return html`<div class="tree">${inside()}${rest}</div>`;
  return html`<${Branch} label=${label} size=${size} isOpen=${depth < 2 && entries.length <= 20}>${() => [inside(), rest]}<//>`;
}

/** A part of a tree; what is inside is made when it is opened for the first time. */
function Branch({ label, size, isOpen, children }) {
  const [wasOpened, setOpened] = useState(isOpen);
  return html`<details class="branch" open=${isOpen} onToggle=${(event) => event.currentTarget.open && setOpened(true)}>
    <summary>${label} <span class="quiet">${size}</span></summary>
    <div class="inside">${wasOpened && children()}</div>
  </details>`;
}

/** Buttons to go through pages of a long table. */
export function Pages({ offset, limit, total, onGo }) {
  if (total <= limit && offset === 0) return null;
  const last = Math.max(0, Math.floor((total - 1) / limit) * limit);
  const to = (place) => () => onGo(Math.min(Math.max(0, place), last));
  return html`<nav class="pages" aria-label="pages of the table">
    <button type="button" disabled=${offset === 0} onClick=${to(0)} aria-label="first page">⇤</button>
    <button type="button" disabled=${offset === 0} onClick=${to(offset - limit)} aria-label="previous page">←</button>
    <span>${(Math.min(offset, total - 1) + 1).toLocaleString("en")}–${Math.min(offset + limit, total).toLocaleString("en")} of ${total.toLocaleString("en")}</span>
    <button type="button" disabled=${offset >= last} onClick=${to(offset + limit)} aria-label="next page">→</button>
    <button type="button" disabled=${offset >= last} onClick=${to(last)} aria-label="last page">⇥</button>
  </nav>`;
}

export { NONE };
