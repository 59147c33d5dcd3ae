/** Several runs by example: verdicts against the first run, and the examples, those that differ most first. */

import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { useApi, useLiveApi } from "./api.js";
import { count, mean, pValue, plural, signed } from "./format.js";
import { DIALOG, useKeys } from "./keys.js";
import { QueryBox } from "./query.js";
import { go, link } from "./router.js";
import { NONE, Pages, Problem, State, Strip, Whisker, html } from "./ui.js";

const PAGE = 100;
const LETTERS = "ABCDEFGH";

/** The ids in a part of an address. */
export function idsOf(part) {
  return part.split(",").filter(Boolean);
}

/** The letter of a run. */
export function Letter({ place }) {
  return html`<b class="letter" aria-label=${`run ${LETTERS[place]}`}>${LETTERS[place]}</b>`;
}

/** A difference from the first run, coloured by its sign. */
export function Delta({ value }) {
  return html`<span class=${`delta${value > 0 ? " up" : value < 0 ? " down" : ""}`}>${signed(value)}</span>`;
}

/** Parameters that the page of one example needs to go through the same list. */
export function kept({ q, sort, desc, show, measure }) {
  return { q, sort, desc, show, measure };
}

export function ComparePage({ ids, parameters }) {
  const { q = "", sort = "", desc = "", show = "", measure = "" } = parameters;
  const offset = Number(parameters.offset) || 0;
  const runs = ids.join(",");
  const query = { runs, q, sort, desc, show, measure, offset: offset || "", limit: PAGE };
  const list = useLiveApi(runs, "compare", query);
  const first = useApi(`runs/${encodeURIComponent(ids[0])}`);
  const [row, setRow] = useState(-1);
  const table = useRef(null);
  const set = (changes) => go(link(["compare", runs], { ...parameters, offset: "", ...changes }));

  const rows = list.data?.rows || [];
  const move = (next) => {
    setRow(next);
    table.current?.querySelectorAll("tbody tr")[next]?.querySelector("a.main")?.focus();
  };
  const step = (by) => rows.length && move(Math.min(Math.max(row + by, 0), rows.length - 1));
  const flip = (by) => {
    for (let place = row + by; place >= 0 && place < rows.length; place += by) if (rows[place].difference) return move(place);
  };
  useKeys({
    j: () => step(1), k: () => step(-1), n: () => flip(1), N: () => flip(-1),
    "/": () => document.getElementById("query")?.focus(), c: () => go(link([], { chosen: runs })),
    y: () => navigator.clipboard?.writeText(location.href),
    "]": () => list.data && offset + PAGE < list.data.total && set({ offset: offset + PAGE }),
    "[": () => offset > 0 && set({ offset: Math.max(0, offset - PAGE) || "" }),
  });
  const isWrong = list.error?.status === 400 && q;
  if (!list.data) {
    if (list.error && !isWrong) return html`<main><${Problem} error=${list.error} /><p><a href=${link([], { chosen: runs })}>Choose runs</a></p></main>`;
    if (!list.error) return html`<main><p class="wait">Comparing the runs …</p></main>`;
  }
  const quick = (name, words) => html`<button type="button" class="small" aria-pressed=${show === name} onClick=${() => set({ show: show === name ? "" : name })}>${words}</button>`;
  const { data } = list;
  return html`<main class="compare">
    ${data && html`<${Heading} data=${data} ids=${ids} parameters=${parameters} />`}
    <section aria-label="examples">
      <div class="bar">
        <${QueryBox} run=${ids[0]} value=${q} columns=${first.data?.columns || []} error=${isWrong ? list.error : null} onSearch=${(value) => set({ q: value })}
          placeholder=${`Filter: reward<1   run:${ids[1] || "ID"} stop:length   /`} />
        ${data && html`<div class="quick">${quick("flips", `Differ ${count(data.flips)}`)}${quick("better", `Better ${count(data.better)}`)}${quick("worse", `Worse ${count(data.worse)}`)}</div>`}
        <label class="choice"><span>sort</span><select value=${sort} onChange=${(event) => set({ sort: event.target.value, desc: "" })}>
          <option value="">largest difference</option><option value="difference">difference</option><option value="mean">mean of A</option><option value="example">table order</option></select></label>
        ${sort && html`<button type="button" class="small" aria-label=${desc === "1" ? "sort ascending" : "sort descending"} onClick=${() => set({ desc: desc === "1" ? "" : "1" })}>${desc === "1" ? "↓" : "↑"}</button>`}
        ${data && data.measures.length > 1 && html`<label class="choice"><span>compare</span><select value=${data.measure} onChange=${(event) => set({ measure: event.target.value })}>
          ${data.measures.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`}
      </div>
      ${data && (data.of > 0 || data.runs.every((each) => each.index.done)) && html`<p class="quiet" role="status">${data.of ? `${plural(data.total, "example")}${data.total < data.of ? ` of ${count(data.of)}` : ""}` : "The runs have no example in common."}
        ${data.scan && ` · reading the journals: ${count(data.scan.scanned)} of ${count(data.scan.of)}`}
</p>`}
      ${list.error && !isWrong && html`<${Problem} error=${list.error} />`}
      ${rows.length > 0 && html`<div class=${`scroll${list.isOld ? " old" : ""}`} tabindex="0" role="region" aria-label="table of examples">
        <${Rows} table=${table} data=${data} ids=${ids} row=${row} parameters=${parameters} /></div>`}
      ${data && data.of > 0 && !rows.length && html`<p>${q || show ? "No example matches." : "There are no examples yet."}</p>`}
      <${Pages} offset=${offset} limit=${PAGE} total=${data?.total || 0} onGo=${(place) => set({ offset: place || "" })} />
    </section>
  </main>`;
}

function Heading({ data, ids, parameters }) {
  const { runs } = data;
  // While a journal is being read for the first time, its scores say nothing yet.
  const isReading = runs.some((run) => !run.index.done);
  const comparisons = isReading ? [] : data.comparisons;
  const made = comparisons.filter((each) => !each.problem);
  const names = [...new Set(runs.map((run) => run.name || run.env))];
  const ends = made.flatMap((each) => [each.estimate.low, each.estimate.high, each.estimate.mean]).map((each) => Math.abs(each || 0));
  const most = Math.max(0.01, ...ends);
  const isMany = new Set(made.map((each) => each.measure)).size > 1;
  const baseline = (place) => link(["compare", [ids[place], ...ids.filter((_, other) => other !== place)].join(",")], { ...parameters, offset: "" });
  const cell = (run, place, comparison) => html`<tr key=${`${run.id} ${comparison?.measure}`}>
    <th scope="row"><${Letter} place=${place} /> <a class="main" href=${link(["run", run.id])}>${run.label}</a>
      ${place === 0 ? html` <span class="tag">baseline</span>` : html` <a class="tag" href=${baseline(place)} title="compare the others with this run">make baseline</a>`}
      ${run.state !== "done" && html` <${State} state=${run.state} />`}
      <span class="quiet id">${run.name || run.env} · ${run.id}</span></th>
    ${isMany && html`<td>${comparison?.measure}</td>`}
    <td class="n mean">${(!comparison || comparison.measure === data.measure) && html`<span class="figure">${mean(run.mean)}</span><${Whisker} mean=${run.mean} low=${run.low} high=${run.high} />`}</td>
    <td class=${`n${run.planned && run.scored < run.planned ? " warn" : ""}`}>${count(run.scored)}${run.planned ? html`<span class="quiet"> / ${count(run.planned)}</span>` : ""}</td>
    ${comparison ? html`<td class=${`verdict-${comparison.verdict}`}>${comparison.verdict}</td>
      <td class="n mean"><span class="figure"><${Delta} value=${comparison.estimate.mean} /></span><${Whisker} name="difference" hasZero mean=${comparison.estimate.mean} low=${comparison.estimate.low} high=${comparison.estimate.high} range=${[-most, most]} /></td>
      <td class="n">${comparison.estimate.low === null ? NONE : `${signed(comparison.estimate.low)} … ${signed(comparison.estimate.high)}`}</td>
      <td class="n">${pValue(comparison.p_adjusted)}</td>
      <td class="n">${count(comparison.wins)}</td><td class="n">${count(comparison.losses)}</td><td class="n">${count(comparison.ties)}</td>`
    : html`<td colspan="7" class="quiet">${place === 0 || isReading ? "" : "not compared"}</td>`}
  </tr>`;
  return html`<header class="head">
    <h1>${names.join(", ")} <span class="by">${plural(runs.length, "run")} compared</span></h1>
    ${isReading && html`<p role="status">${runs.map((run) => run.index.done || html`<span key=${run.id}>Reading the journal of ${run.label}: ${plural(run.index.rollouts, "rollout")} so far. </span>`)}</p>`}
    ${runs.map((run) => run.index.error && html`<p key=${run.id} class="problem">${run.label}: ${run.index.error}</p>`)}
    ${comparisons.map((each, place) => html`<p key=${place} class=${each.problem ? "problem" : "said-verdict"}>
      <${Letter} place=${each.run} /> ${each.problem || html`<b class=${`verdict-${each.verdict}`}>${isMany ? `${each.measure}: ` : ""}${each.verdict}</b> ${each.sentences.join(" ")}`}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="runs and differences"><table class="list compared">
      <thead><tr><th scope="col">run</th>${isMany && html`<th scope="col">metric</th>`}<th scope="col" class="n">${isMany || data.measure === "reward" ? "mean" : data.measure}</th><th scope="col" class="n">scored</th>
        <th scope="col">verdict</th><th scope="col" class="n">difference from A</th><th scope="col" class="n">95 % interval</th><th scope="col" class="n" title=${made.length > 1 ? `corrected for ${made.length} comparisons (Holm)` : ""}>p</th>
        <th scope="col" class="n">wins</th><th scope="col" class="n">losses</th><th scope="col" class="n">ties</th></tr></thead>
      <tbody>${runs.flatMap((run, place) => {
        const own = made.filter((each) => each.run === place);
        return own.length ? own.map((each) => cell(run, place, each)) : [cell(run, place, null)];
      })}</tbody></table></div>
    ${!isReading && data.notes.map((each) => html`<p key=${each} class="quiet remark">${each}</p>`)}
  </header>`;
}

function Rows({ table, data, ids, row, parameters }) {
  const isTwo = ids.length === 2;
  const hasTask = data.rows.some((each) => each.task) && new Set(data.rows.map((each) => each.task)).size > 1;
  const hrefOf = (each, more) => link(["compare", ids.join(","), "ex", each.index], { ...kept(parameters), ...more });
  /** The link of a dot: this rollout beside one of the other run. */
  const dot = (each, place) => (rollout) => (place ? hrefOf(each, { with: isTwo ? "" : place, r: `,${rollout.r}` }) : hrefOf(each, { r: `${rollout.r},` }));
  return html`<table ref=${table} class="list examples">
    <thead><tr><th scope="col">example</th><th scope="col" class="n">difference</th>${data.runs.map((run, place) => html`<th key=${run.id} scope="col" colspan="2"><${Letter} place=${place} /> <span class="runname" title=${run.label}>${run.label}</span></th>`)}
      ${hasTask && html`<th scope="col">task</th>`}<th scope="col">prompt</th>
      ${isTwo && data.runs.map((run, place) => html`<th key=${run.id} scope="col">reply of ${LETTERS[place]}</th>`)}</tr></thead>
    <tbody>${data.rows.map((each, at) => html`<tr key=${each.index} class=${at === row ? "here" : ""}>
      <th scope="row"><a class="main" href=${hrefOf(each)}>${each.example}</a></th>
      <td class="n">${Boolean(each.difference) && !isTwo && html`<${Letter} place=${each.widest} /> `}<${Delta} value=${each.difference} /></td>
      ${each.runs.flatMap((held, place) => (held ? [html`<td key=${`s${place}`} class=${held.rollouts.length > 4 ? "dots many" : "dots"}><${Strip} rollouts=${held.rollouts} hrefOf=${dot(each, place)} /></td>`, html`<td key=${`m${place}`} class="n">${mean(held.mean)}</td>`]
        : [html`<td key=${`s${place}`} colspan="2" class="quiet">not in this run</td>`]))}
      ${hasTask && html`<td>${each.task}</td>`}<td class="said"><span>${each.prompt}</span></td>
      ${isTwo && each.runs.map((held, place) => html`<td key=${place} class="said"><span>${held?.reply}</span></td>`)}
    </tr>`)}</tbody></table>`;
}

/** A dialog to choose the run with which to compare a run; those of the same environment are first. */
export function CompareWith({ run, onClose }) {
  const { data, error } = useApi("runs");
  const [text, setText] = useState("");
  const input = useRef(null);
  useKeys({ Escape: onClose }, DIALOG);
  useEffect(() => input.current?.focus(), []);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const name = (each) => each.name || each.env;
  const found = (data?.runs || []).filter((each) => each.id !== run.id && words.every((word) => `${name(each)} ${each.model} ${each.id}`.toLowerCase().includes(word)));
  found.sort((a, b) => (name(b) === name(run)) - (name(a) === name(run)));
  const hrefOf = (each) => link(["compare", `${each.id},${run.id}`]);
  const pressed = (event) => {
    if (event.key === "Escape") onClose();
    else if (event.key === "Enter" && found.length) go(hrefOf(found[0]));
    else return;
    event.preventDefault();
  };
  return html`<div class="veil" onClick=${(event) => event.target === event.currentTarget && onClose()}>
    <div class="help chooser" role="dialog" aria-modal="true" aria-labelledby="chooser-title">
      <h2 id="chooser-title">Compare with a baseline</h2>
      <input ref=${input} type="search" aria-label="search runs" placeholder="Search runs; Enter takes the first" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed} />
      <${Problem} error=${error} />
      <ul>${found.slice(0, 100).map((each) => html`<li key=${each.id}><a href=${hrefOf(each)}>${name(each)} <span class="quiet">${each.model} · ${mean(each.mean)} · ${each.id}</span></a></li>`)}</ul>
      ${data && !found.length && html`<p class="quiet">There is no other run.</p>`}
      <button type="button" onClick=${onClose}>Close</button>
    </div></div>`;
}
