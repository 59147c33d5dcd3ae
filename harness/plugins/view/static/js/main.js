/** The frame of all pages: header, theme, help, and the page that the address names. */

import { h, render } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { isBundle } from "./api.js";
import { ComparePage, idsOf } from "./compare.js";
import { DIALOG, FRAME, useKeys } from "./keys.js";
import { PairPage } from "./pair.js";
import { RolloutPage } from "./rollout.js";
import { go, link, usePlace } from "./router.js";
import { RunPage } from "./run.js";
import { RunsPage } from "./runs.js";
import { html } from "./ui.js";

const THEMES = ["auto", "light", "dark"];
const NUMBER = /^\d+$/;

function useTheme() {
  const [theme, setTheme] = useState(() => {
    try {
      return THEMES.includes(localStorage.theme) ? localStorage.theme : "auto";
    } catch {
      return "auto"; // storage is switched off
    }
  });
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.theme = theme;
    } catch {
      // the choice lasts until the page is closed
    }
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

const KEYS = [
  ["j  k", "next, previous example or run"],
  ["n  N", "next, previous failure; in a comparison, example that differs"],
  ["x  c", "choose a run; compare the chosen runs, or this run with another one"],
  ["d", "in a comparison: the first difference"],
  ["]  [", "next, previous rollout of the example; page of a table"],
  ["J  K", "next, previous turn"],
  ["t", "go to a turn"],
  ["/", "query or search"],
  ["g", "kinds of failures"],
  ["m", "Markdown or raw text"],
  ["a", "add or edit your note"],
  ["y", "copy the link"],
  ["u", "up: from a rollout to its run, from a run to all"],
  ["?", "this list"],
];

function Help({ onClose }) {
  useKeys({ Escape: onClose, "?": onClose }, DIALOG);
  useEffect(() => document.getElementById("close-help")?.focus(), []);
  return html`<div class="veil" onClick=${(event) => event.target === event.currentTarget && onClose()}>
    <div class="help" role="dialog" aria-modal="true" aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl>${KEYS.map(([keys, words]) => html`<dt key=${keys}>${keys.split("  ").map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd>${words}</dd>`)}</dl>
      <h2>Queries</h2>
      ${isBundle ? html`<p>A bundle has the groups of its columns only; other queries need <code>bench view</code>.</p>` : html`<p><code>${"reward<1 stop:length"}</code> both must hold · <code>or</code>, <code>-</code> (not), parentheses · <code>text:"let me think"</code> · <code>is:failed</code> · <code>metric.format=0</code> · <code>info.level:hard</code> · <code>note:wrong-label</code></p>`}
      <button type="button" id="close-help" onClick=${onClose}>Close</button>
    </div></div>`;
}

function titleOf(parts) {
  if (parts[0] === "compare" && parts[1]) return `${parts[2] === "ex" ? `${parts[3]} · ` : ""}${idsOf(parts[1]).join(" · ")} · compare`;
  if (parts[0] !== "run") return "bench view";
  return parts[2] === "ex" ? `${parts[3]} #${parts[4]} · ${parts[1]}` : `${parts[1]} · bench view`;
}

function Page({ parts, parameters }) {
  if (!parts.length) return html`<${RunsPage} parameters=${parameters} />`;
  const [kind, id, what, index, r] = parts;
  if (kind === "run" && id && what === undefined) return html`<${RunPage} id=${id} parameters=${parameters} />`;
  if (kind === "run" && what === "ex" && NUMBER.test(index) && NUMBER.test(r)) {
    return html`<${RolloutPage} id=${id} index=${Number(index)} r=${Number(r)} parameters=${parameters} />`;
  }
  if (kind === "compare" && id && what === undefined) return html`<${ComparePage} key=${id} ids=${idsOf(id)} parameters=${parameters} />`;
  if (kind === "compare" && what === "ex" && NUMBER.test(index)) {
    return html`<${PairPage} key=${id} ids=${idsOf(id)} index=${Number(index)} parameters=${parameters} />`;
  }
  return html`<main><p class="problem">There is no such page. <a href="#/">All runs</a></p></main>`;
}

function App() {
  const place = usePlace();
  const [theme, nextTheme] = useTheme();
  const [isHelp, setHelp] = useState(false);
  const { parts, parameters } = place;
  useEffect(() => {
    document.title = titleOf(parts);
  }, [parts.join("/")]);
  useEffect(() => {
    if (parameters.focus === "query") document.getElementById("query")?.focus();
  });
  const up = () => parts.length && go("#/");
  useKeys({ "?": () => setHelp(true), u: up }, FRAME);
  const { q = "", sort = "", desc = "", show = "", measure = "" } = parameters;
  return html`<a class="skip" href=${location.hash || "#/"} onClick=${(event) => { event.preventDefault(); document.querySelector("main")?.scrollIntoView(); document.querySelector("main a, main button, main input")?.focus(); }}>Skip to the page</a>
    <header class="top">
      <nav aria-label="place"><a class="brand" href="#/">bench <b>view</b></a>
        ${parts[0] === "run" && parts[1] && html`<span class="crumb"><span aria-hidden="true">/</span> <a href=${link(["run", parts[1]], parts[2] ? { q, sort, desc } : {})}>${parts[1]}</a></span>`}
        ${parts[0] === "compare" && parts[1] && html`<span class="crumb"><span aria-hidden="true">/</span> <a href=${link(["compare", parts[1]], parts[2] ? { q, sort, desc, show, measure } : {})}>compare ${idsOf(parts[1]).length} runs</a></span>`}
        ${parts[2] === "ex" && html`<span class="crumb"><span aria-hidden="true">/</span> <span>${parts[0] === "compare" ? "example" : "rollout"}</span></span>`}</nav>
      <span class="tools"><button type="button" class="small" onClick=${nextTheme} title="colours: as the system, light, dark">Theme: ${theme}</button>
        <button type="button" class="small" onClick=${() => setHelp(true)} aria-label="keys and queries">?</button></span>
    </header>
    <${Page} parts=${parts} parameters=${parameters} />
    ${isHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

const root = document.getElementById("app");
root.textContent = "";
render(h(App), root);
