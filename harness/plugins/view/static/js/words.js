/** Word diff of two texts. */

import { count } from "./format.js";
import { html } from "./ui.js";

const LONGEST = 100_000;
const MOST_EDITS = 2000;
const MOST_PIECES = 4000;
/** Equal text of more characters is shortened, and changed text of more is cut. */
const LONG = 1500;
const KEPT = 400;

export const SAME = 0;
export const FIRST = 1;
export const SECOND = 2;

/** The pieces of two texts in order: in both, only in the first, or only in the second. */
export function wordDiff(first, second) {
  const isShort = first.length + second.length <= LONGEST;
  const found = isShort && globalThis.Diff?.diffWordsWithSpace(first, second, { maxEditLength: MOST_EDITS });
  if (found && found.length <= MOST_PIECES) {
    return found.map((each) => ({ text: each.value, side: each.removed ? FIRST : each.added ? SECOND : SAME }));
  }
  return middle(first, second);
}

/** A coarse diff for long texts: what is between their common beginning and end. */
function middle(first, second) {
  const most = Math.min(first.length, second.length);
  let head = 0;
  while (head < most && first[head] === second[head]) head += 1;
  let tail = 0;
  while (tail < most - head && first[first.length - 1 - tail] === second[second.length - 1 - tail]) tail += 1;
  const pieces = [
    { text: first.slice(0, head), side: SAME },
    { text: first.slice(head, first.length - tail), side: FIRST },
    { text: second.slice(head, second.length - tail), side: SECOND },
    { text: first.slice(first.length - tail), side: SAME },
  ];
  return pieces.filter((each) => each.text);
}

function shortened(text, isStart, isEnd) {
  if (text.length <= LONG) return text;
  const before = isStart ? "" : text.slice(0, KEPT);
  const after = isEnd ? "" : text.slice(-KEPT);
  return [before, html`<i class="quiet"> … ${count(text.length - before.length - after.length)} characters, the same … </i>`, after];
}

/** One of two texts; what the other does not have is marked. */
export function Words({ pieces, side }) {
  return html`<pre class="plain words">${pieces.map((each, place) => {
    if (each.side === SAME) return shortened(each.text, place === 0, place === pieces.length - 1);
    if (each.side !== side) return null;
    const rest = each.text.length - 4 * LONG;
    const shown = rest > 0 ? [each.text.slice(0, 4 * LONG), html`<i class="quiet"> … ${count(rest)} more characters</i>`] : each.text;
    return side === FIRST ? html`<del key=${place}>${shown}</del>` : html`<ins key=${place}>${shown}</ins>`;
  })}</pre>`;
}
