/** The list of runs. */

import { useMemo, useRef, useState } from "../vendor/hooks.js";
import { isBundle, useApi, useEvents } from "./api.js";
import { clock, compact, count, dollars, duration, mean, moment, pace, plural } from "./format.js";
import { useKeys } from "./keys.js";
import { go, link } from "./router.js";
import { Pages, Problem, Sparkline, State, Whisker, html } from "./ui.js";

const PAGE = 200;

const COLUMNS = [
  { name: "env", label: "environment", value: (run) => (run.name || run.env).toLowerCase() },
  { name: "model", label: "model", value: (run) => run.model.toLowerCase() },
  { name: "state", label: "state", value: (run) => run.state },
  { name: "mean", label: "mean", value: (run) => run.mean, isNumber: true },
  { name: "scored", label: "scored", value: (run) => run.scored, isNumber: true },
  { name: "tokens", label: "tokens", value: (run) => run.tokens, isNumber: true },
  { name: "cost", label: "cost", value: (run) => run.cost, isNumber: true },
  { name: "seconds", label: "time", value: (run) => run.seconds, isNumber: true },
  { name: "created", label: "started", value: (run) => run.created, isNumber: true },
];

function ordered(runs, sort, isDown) {
  const column = COLUMNS.find((each) => each.name === sort);
  if (!column) return runs;
  const isMissing = (value) => value === null || value === undefined || value === "";
  return [...runs].sort((a, b) => {
    const [first, second] = [column.value(a), column.value(b)];
    if (isMissing(first) || isMissing(second)) return isMissing(first) - isMissing(second);
    return (first < second ? -1 : first > second ? 1 : 0) * (isDown ? -1 : 1);
  });
}

function Choice({ label, value, values, onChoose }) {
  return html`<label class="choice"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChoose(event.target.value)}>
      <option value="">all</option>
      ${values.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
    </select></label>`;
}

const MOST_MEANS = 12;

/** Of each run, its mean after those of earlier runs of the same environment, label and model. */
function means(runs) {
  const lists = new Map();
  const found = new Map();
  for (const run of [...runs].sort((a, b) => (a.created || "") < (b.created || "") ? -1 : 1)) {
    const key = JSON.stringify([run.env, run.name, run.model]);
    const list = lists.get(key) || [];
    if (run.mean !== null) list.push(run.mean);
    lists.set(key, list);
    if (run.mean !== null && list.length > 1) found.set(run.id, list.slice(-MOST_MEANS));
  }
  return found;
}

export function RunsPage({ parameters }) {
  const [revision, setRevision] = useState(0);
  const { data, error } = useApi("runs", {}, revision);
  const search = useRef(null);
  const table = useRef(null);
  const [statuses, setStatuses] = useState({});
  useEvents(null, (name, event) => (name === "statuses" ? setStatuses(event) : setRevision((last) => last + 1)));

  const { text = "", env = "", model = "", state = "", since = "", suite = "", sort = "", desc = "" } = parameters;
  const offset = Number(parameters.offset) || 0;
  const set = (changes, replace = false) => go(link([], { ...parameters, offset: "", ...changes }), { replace });
  const runs = data ? data.runs : [];
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = runs.filter((run) => {
      const all = `${run.env} ${run.name} ${run.model} ${run.id} ${run.suite} ${run.kind}`.toLowerCase();
      return words.every((word) => all.includes(word)) && (!env || (run.name || run.env) === env)
        && (!model || run.model === model) && (!state || run.state === state) && (!suite || run.suite === suite)
        && (!since || (run.created || "") >= since);
    });
    return ordered(kept, sort, desc === "1");
  }, [runs, text, env, model, state, since, suite, sort, desc]);
  const earlier = useMemo(() => means(runs), [runs]);
  const values = (of) => [...new Set(runs.map(of))].filter(Boolean).sort();

  const move = (step) => {
    const links = [...(table.current?.querySelectorAll("tbody a.main") || [])];
    const at = links.indexOf(document.activeElement);
    links[Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
  };
  const chosen = (parameters.chosen || "").split(",").filter(Boolean);
  const choose = (ids) => go(link([], { ...parameters, chosen: ids.join(",") }), { replace: true });
  const toggle = (id) => choose(chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]);
  const isEnough = chosen.length >= 2;
  const [isHinted, setHinted] = useState(false);
  const compare = () => !isBundle && (isEnough ? go(link(["compare", chosen.join(",")])) : setHinted(true));
  useKeys({
    "/": () => search.current?.focus(), j: () => move(1), k: () => move(-1), c: compare,
    x: () => {
      const focused = document.activeElement?.closest("tr")?.dataset.run;
      if (focused && !isBundle) toggle(focused);
    },
  });

  if (error && !data) return html`<main><${Problem} error=${error} /></main>`;
  if (!data) return html`<main><p class="wait">Loading the list of runs …</p></main>`;
  const shown = found.slice(offset, offset + PAGE);
  const isFiltered = text || env || model || state || since || suite;
  const hasCost = runs.some((run) => run.cost !== null);
  const heading = (column) => {
    const isSorted = sort === column.name;
    const next = !isSorted ? { sort: column.name, desc: column.isNumber ? "1" : "" } : { sort: column.name, desc: desc === "1" ? "" : "1" };
    return html`<th key=${column.name} scope="col" class=${column.isNumber ? "n" : ""} aria-sort=${isSorted ? (desc === "1" ? "descending" : "ascending") : undefined}>
      <button type="button" class="sort" onClick=${() => set(next)}>${column.label}${isSorted ? (desc === "1" ? " ↓" : " ↑") : ""}</button></th>`;
  };
  const columns = COLUMNS.filter((column) => column.name !== "cost" || hasCost);
  return html`<main class="runs">
    <h1 class="unseen">Runs</h1>
    <div class="filters" role="search">
      <input ref=${search} type="search" aria-label="search runs" placeholder="Search runs   /" value=${text}
        onInput=${(event) => set({ text: event.target.value }, true)} />
      <${Choice} label="environment" value=${env} values=${values((run) => run.name || run.env)} onChoose=${(value) => set({ env: value })} />
      <${Choice} label="model" value=${model} values=${values((run) => run.model)} onChoose=${(value) => set({ model: value })} />
      <${Choice} label="state" value=${state} values=${values((run) => run.state)} onChoose=${(value) => set({ state: value })} />
      <label class="choice"><span>since</span><input type="date" value=${since} onChange=${(event) => set({ since: event.target.value })} /></label>
      ${isFiltered && html`<button type="button" class="small" onClick=${() => go(link([]))}>Clear</button>`}
    </div>
    <p class="quiet" role="status">${isFiltered ? `${count(found.length)} of ${plural(runs.length, "run")}` : plural(runs.length, "run")} in ${data.root}</p>
    ${(chosen.length > 0 || isHinted) && html`<p class="chosen" role="status">${isEnough ? `${plural(chosen.length, "run")} chosen; the first is the baseline.` : "Choose two runs or more with their boxes, or with j, k and x; the first is the baseline."}
      <button type="button" class="small" disabled=${!isEnough} onClick=${compare}>Compare</button>
      ${chosen.length > 0 && html`<button type="button" class="small" onClick=${() => choose([])}>Choose none</button>`}</p>`}
    ${!runs.length && html`<p>There are no runs here yet. <code>bench run gsm8k -n 10</code> makes one.</p>`}
    ${suite && !isBundle && html`<${SuiteTable} key=${suite} suite=${suite} states=${runs.filter((run) => run.suite === suite).map((run) => run.state).join()} />`}
    ${found.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="runs"><table ref=${table} class="list">
      <thead><tr>${!isBundle && html`<th scope="col" class="pick"><span class="unseen">chosen</span></th>`}${columns.map(heading)}</tr></thead>
      <tbody>${shown.map((run) => html`<${RunRow} key=${run.id} run=${run} before=${earlier.get(run.id)} status=${run.state === "running" ? statuses[run.id] || run.status : null} hasCost=${hasCost} place=${chosen.indexOf(run.id)} onToggle=${() => toggle(run.id)} onSuite=${(value) => set({ suite: value })} />`)}</tbody>
    </table></div>`}
    <${Pages} offset=${offset} limit=${PAGE} total=${found.length} onGo=${(place) => set({ offset: place || "" })} />
  </main>`;
}

function RunRow({ run, before, status, hasCost, place, onToggle, onSuite }) {
  const planned = run.planned ?? null;
  const isShort = planned !== null && run.scored !== null && run.scored < planned;
  return html`<tr data-run=${run.id}>
    ${!isBundle && html`<td class="pick"><label><input type="checkbox" checked=${place >= 0} onChange=${onToggle} aria-label=${`choose ${run.id} to compare`} />${place >= 0 && html`<span class="quiet">${place + 1}</span>`}</label></td>`}
    <th scope="row"><a class="main" href=${link(["run", run.id])}>${run.name || run.env}</a>
      ${run.private && html` <span class="tag" title="private: pushed and bundled only on request">private</span>`}
      ${run.kind && run.kind !== "run" && html` <span class="tag">${run.kind}</span>`}
      <span class="quiet id">${run.id}${run.suite && html` · <button type="button" class="linklike" title="show the runs of this invocation" onClick=${() => onSuite(run.suite)}>suite</button>`}</span></th>
    <td class="model">${run.model}</td>
    <td><${State} state=${run.state} />${status && html`<${Progress} run=${run} status=${status} />`}</td>
    <td class="n mean"><${Sparkline} values=${before} /><span class="figure">${mean(run.mean)}</span><${Whisker} mean=${run.mean} low=${run.low} high=${run.high} /></td>
    <td class=${`n${isShort ? " warn" : ""}`}>${count(run.scored)}${planned !== null && html`<span class="quiet"> / ${count(planned)}</span>`}</td>
    <td class="n">${compact(run.tokens)}</td>
    ${hasCost && html`<td class="n">${dollars(run.cost)}</td>`}
    <td class="n">${duration(run.seconds)}</td>
    <td class="n" title=${run.created}>${moment(run.created)}</td>
  </tr>`;
}

function Progress({ run, status }) {
  const delay = status.delays[0];
  const words = [`${count(status.done)} of ${count(status.planned)}`, ...pace(status)].join(" · ");
  return html`<span class="quiet live" title=${words}><progress max=${status.planned || 1} value=${status.done || 0} aria-label=${`rollouts of ${run.id} that ended`}></progress>
    ${status.left !== null && html` ${duration(status.left)} to go`}
    ${delay && html` <span class="warn">${delay.reason}${delay.until ? ` until ${clock(delay.until)}` : ""}</span>`}</span>`;
}

/** The table models × environments of an invocation, as `bench report` prints it. */
function SuiteTable({ suite, states }) {
  const { data, error } = useApi(`suites/${encodeURIComponent(suite)}/table`, {}, states);
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return html`<p class="quiet" role="status">Computing the table of the suite …</p>`;
  if (data.rows.length * data.columns.length < 2) return null;
  return html`<section class="panel suite-table" aria-label="models and environments"><h2>Models and environments</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="table of models and environments"><table class="plain-table">
      <thead><tr><th scope="col">${data.corner}</th>${data.columns.map((each) => html`<th key=${each} scope="col" class="n">${each}</th>`)}</tr></thead>
      <tbody>${data.rows.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th>${row.cells.map((cell, place) => html`<td key=${place} class="n"><${ResultCell} cell=${cell} /></td>`)}</tr>`)}</tbody></table></div>
    <details><summary>How to read it</summary><ul class="quiet">${data.notes.map(([letter, words]) => html`<li key=${letter}><sup>${letter}</sup> ${words}</li>`)}${data.footnotes.map((words) => html`<li key=${words}>${words}</li>`)}</ul></details>
  </section>`;
}

function ResultCell({ cell }) {
  const mean = cell.best ? html`<strong>${cell.mean}</strong>` : cell.mean;
  const raised = `${cell.sign}${cell.letter}`;
  return html`${cell.run ? html`<a href=${link(["run", cell.run])}>${mean}</a>` : mean}${raised && html`<sup>${raised}</sup>`} <span class="quiet">${cell.interval}</span>`;
}
