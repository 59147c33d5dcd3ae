/** Keys of the pages: each page says what its keys do, and the help lists them. */

import { useLayoutEffect } from "../vendor/hooks.js";

const layers = [];

function isTyping(target) {
  return target.isContentEditable || (["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && target.type !== "checkbox");
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const most = Math.max(...layers.map((each) => each.level));
  for (const { keys, level } of [...layers].sort((a, b) => b.level - a.level)) {
    if (most >= DIALOG && level < most) return;
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key](event);
      return;
    }
  }
});

/** Levels: a key of a page counts before the same key of the frame; while a dialog is open, only its keys count. */
export const FRAME = 0;
export const PAGE = 1;
export const DIALOG = 2;

/** While a component is shown, these keys call its functions. */
export function useKeys(keys, level = PAGE) {
  // Before anything else can happen: a key may follow at once.
  useLayoutEffect(() => {
    const held = { keys, level };
    layers.push(held);
    return () => layers.splice(layers.indexOf(held), 1);
  });
}
