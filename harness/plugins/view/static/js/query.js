/** The query box: the language of `bench runs show --where`, with completion of columns and values. */

import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { get } from "./api.js";
import { html } from "./ui.js";

const WORD = /[^\s()]*$/;
const COMPARED = /^-?(.*?)(:|<=|>=|!=|=|<|>)(.*)$/;

/** What can stand at the end of a query: whole words that replace the last one. */
async function suggestions(text, columns, run, signal) {
  const word = text.match(WORD)[0];
  const compared = word.match(COMPARED);
  if (!compared) {
    const name = word.replace(/^-/, "").toLowerCase();
    if (!name) return [];
    const found = columns.filter((each) => each.name.toLowerCase().includes(name));
    found.sort((a, b) => b.name.toLowerCase().startsWith(name) - a.name.toLowerCase().startsWith(name));
    return found.slice(0, 8).map((each) => ({
      text: `${each.name}${each.kind === "number" ? "<" : ":"}`, doc: each.doc, isOpen: true,
    }));
  }
  const [, name, operator, begun] = compared;
  const column = columns.find((each) => each.name === name);
  if (!column || column.kind === "number") return [];
  const { values } = await get(`columns/${encodeURIComponent(run)}/values`, { name, q: begun.replace(/^"/, "") }, signal);
  return values.slice(0, 8).map((each) => ({ text: `${name}${operator}${quoted(String(each.value))}`, doc: `× ${each.count}` }));
}

export function quoted(value) {
  return /^[\w.+-]+$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** Join two queries: both must match. */
export function both(first, second) {
  if (!first.trim()) return second;
  if (!second) return first;
  return `${/\bor\b/i.test(first) ? `(${first})` : first} ${second}`;
}

export function QueryBox({ run, value, columns, error, onSearch, placeholder }) {
  const [text, setText] = useState(value);
  const [offered, setOffered] = useState([]);
  const [chosen, setChosen] = useState(-1);
  const input = useRef(null);
  const control = useRef(null);
  useEffect(() => setText(value), [value]);

  const close = () => {
    control.current?.abort();
    setOffered([]);
    setChosen(-1);
  };
  const typed = (event) => {
    const now = event.target.value;
    setText(now);
    setChosen(-1);
    control.current?.abort();
    control.current = new AbortController();
    const { signal } = control.current;
    suggestions(now, columns, run, signal).then(
      (found) => signal.aborted || setOffered(found),
      () => signal.aborted || setOffered([]),
    );
  };
  const take = (offer) => {
    setText(text.replace(WORD, (word) => (word.startsWith("-") ? "-" : "") + offer.text) + (offer.isOpen ? "" : " "));
    close();
    input.current.focus();
  };
  const pressed = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!offered.length) return;
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setChosen((chosen + step + offered.length + (chosen < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if (event.key === "Tab" && offered.length) {
      event.preventDefault();
      take(offered[Math.max(chosen, 0)]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (chosen >= 0) take(offered[chosen]);
      else {
        close();
        onSearch(text.trim());
      }
    } else if (event.key === "Escape" && offered.length) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  const mark = error?.start !== undefined && value === text.trim();
  return html`<form class="query" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="unseen" for="query">Query</label>
    <input id="query" ref=${input} type="text" autocomplete="off" autocapitalize="off" spellcheck="false" value=${text}
      placeholder=${placeholder} role="combobox" aria-expanded=${offered.length > 0} aria-controls="offered"
      aria-activedescendant=${chosen >= 0 ? `offer-${chosen}` : undefined} aria-invalid=${error ? "true" : undefined}
      aria-describedby=${error ? "query-error" : undefined} onInput=${typed} onKeyDown=${pressed} onBlur=${close} />
    ${text && html`<button type="button" class="small clear" aria-label="clear the query" onClick=${() => { setText(""); close(); onSearch(""); }}>✕</button>`}
    <ul id="offered" class="offered" role="listbox" aria-label="suggestions" hidden=${!offered.length}>
      ${offered.map((each, place) => html`<li key=${each.text} id=${`offer-${place}`} role="option" aria-selected=${place === chosen}
        onMouseDown=${(event) => { event.preventDefault(); take(each); }}><code>${each.text}</code> <span class="quiet">${each.doc}</span></li>`)}
    </ul>
    ${error && html`<p id="query-error" class="problem" role="alert">${error.message}${mark && html`<${Caret} text=${value} start=${error.start} end=${error.end} />`}</p>`}
  </form>`;
}

function Caret({ text, start, end }) {
  return html`<code class="caret">${text.slice(0, start)}<mark>${text.slice(start, Math.max(end, start + 1)) || " "}</mark>${text.slice(Math.max(end, start + 1))}</code>`;
}
