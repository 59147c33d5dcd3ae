/** One run: its figures, kinds of failures, and the table of its examples. */

import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { isBundle, useApi, useEvents } from "./api.js";
import { clock, compact, count, dollars, duration, interval, line, mean, moment, pace, plural, score, share } from "./format.js";
import { CompareWith } from "./compare.js";
import { useKeys } from "./keys.js";
import { QueryBox, both } from "./query.js";
import { Tags, byTag } from "./notes.js";
import { go, link } from "./router.js";
import { Copy, NONE, Pages, Problem, State, Strip, Tile, Whisker, html } from "./ui.js";

const PAGE = 100;

/** Parts of an event after whose change the page asks for everything again. */
const PARTS = ["state", "scored", "failed", "index"];
const same = (one, two) => JSON.stringify(one) === JSON.stringify(two);

export function RunPage({ id, parameters }) {
  const [live, setLive] = useState(null);
  const [revision, setRevision] = useState(0);
  const { data, error } = useApi(`runs/${encodeURIComponent(id)}`, {}, revision);
  useEvents(id, (name, event) => {
    const isOnlyStatus = name === "run" && live && event.id === id && PARTS.every((part) => same(event[part], live[part]));
    if (name === "run" && event.id === id) setLive(event);
    if (!isOnlyStatus) setRevision((last) => last + 1);
  });
  const [isChoosing, setChoosing] = useState(false);
  useEffect(() => setLive(null), [id]);
  useKeys({ c: () => !isBundle && setChoosing(true) });
  if (error && !data) return html`<main><${Problem} error=${error} /></main>`;
  if (!data || data.run.id !== id) return html`<main><p class="wait">Loading the run …</p></main>`;
  return html`<main class="run">
    <${Head} data=${data} live=${live} onCompare=${isBundle ? null : () => setChoosing(true)} />
    <${Examples} key=${id} id=${id} data=${data} parameters=${parameters} revision=${revision} />
    <${Settings} data=${data} />
    ${isChoosing && html`<${CompareWith} run=${data.run} onClose=${() => setChoosing(false)} />`}
  </main>`;
}

function Head({ data, live, onCompare }) {
  const { run, range, metrics, usage, latency } = data;
  const isLive = run.state === "running";
  const figures = isLive && live ? { ...run, ...live } : run;
  const unscored = data.outcomes.filter((each) => each.reason);
  const missing = unscored.reduce((sum, each) => sum + each.count, 0);
  return html`<header class="head">
    <h1><span>${run.name || run.env}</span> <span class="by">${run.model}</span></h1>
    <p class="quiet meta"><${State} state=${run.state} /> <code>${run.id}</code> <${Copy} text=${run.id} label="Copy id" /> ${onCompare && html`<button type="button" class="small" title="compare with another run (c)" onClick=${onCompare}>Compare</button>`} · started ${moment(run.created)}
      ${run.parent && html` · made from <a href=${link(["run", run.parent])}>${run.parent}</a>`}
      ${run.private && html` · <span class="tag">private</span>`}</p>
    ${run.problems.map((each) => html`<p class="problem" key=${each}>${each}</p>`)}
    ${isLive && html`<${Progress} run=${figures} live=${live} />`}
    <dl class="tiles">
      <div class="tile headline"><dt>mean reward</dt><dd>${mean(figures.mean)}</dd>
        <dd><${Whisker} mean=${figures.mean} low=${figures.low} high=${figures.high} range=${range} /></dd>
        <dd class="quiet">${figures.low === null || figures.low === undefined ? "" : `95 % interval ${interval(figures.low, figures.high)}`}</dd></div>
      <${Tile} label="scored" note=${run.planned ? `of ${count(run.planned)} planned` : ""}>${count(figures.scored)}<//>
      <${Tile} label="no score" note=${unscored.slice(0, 2).map((each) => `${each.reason} ${count(each.count)}`).join(", ")}>
        <span class=${missing ? "warn" : ""}>${count(missing)}</span><//>
      <${Tile} label="tokens" note=${usage ? `${compact(usage.input_tokens)} in, ${compact(usage.output_tokens)} out` : ""}>${compact(run.tokens)}<//>
      ${run.cost !== null && html`<${Tile} label="cost">${dollars(run.cost)}<//>`}
      <${Tile} label="time of a rollout" note=${latency ? `95 % within ${duration(latency.p95)}` : ""}>${latency ? duration(latency.p50) : NONE}<//>
      <${Tile} label="time of the run">${duration(run.seconds)}<//>
    </dl>
    ${metrics.length > 0 && html`<details class="metrics" open=${metrics.length <= 4}><summary>${plural(metrics.length, "metric")}</summary><div class="scroll"><table class="plain-table">
      <thead><tr><th scope="col">metric</th><th scope="col" class="n">mean</th><th scope="col">95 % interval</th><th scope="col" class="n">values</th></tr></thead>
      <tbody>${metrics.map((each) => html`<tr key=${each.name}><th scope="row">${each.name}</th><td class="n">${mean(each.mean)}</td>
        <td class="quiet">${interval(each.low, each.high) || NONE}</td><td class="n">${count(each.scored)}</td></tr>`)}</tbody></table></div></details>`}
  </header>`;
}

function Progress({ run, live }) {
  const ended = (run.scored || 0) + (run.failed || 0);
  const status = live ? live.status : run.status;
  return html`<div class="progress" role="status">
    <progress max=${run.planned || 1} value=${ended} aria-label="rollouts that ended"></progress>
    <span>${[`${count(ended)} of ${count(run.planned)}`, ...pace(status)].join(" · ")}</span>
    ${(status?.delays || []).map((each) => html`<span class="warn" key=${each.reason}>${each.reason}${each.until ? ` until ${clock(each.until)}` : ""}</span>`)}
  </div>`;
}

/** Columns worth grouping by, in the order of the menu. */
function groupable(columns) {
  const first = ["reason", "outcome", "stop", "metrics", "reward", "parsed", "error", "tool", "task", "answer", "turns", "note"];
  const named = (name) => columns.find((each) => each.name === name);
  const rest = columns.filter((each) => /^(info|state|metric)\./.test(each.name));
  return [...first.map(named).filter(Boolean), ...rest];
}

function Examples({ id, data, parameters, revision }) {
  const { q = "", sort = "", desc = "", show = "examples" } = parameters;
  const offset = Number(parameters.offset) || 0;
  const defaultBy = data.outcomes.some((each) => each.reason) ? "reason" : data.metrics.length > 1 ? "metrics" : "stop";
  const by = parameters.by || defaultBy;
  const set = (changes) => go(link(["run", id], { ...parameters, offset: "", ...changes }));
  const path = `runs/${encodeURIComponent(id)}`;
  const list = useApi(`${path}/${show === "rollouts" ? "rollouts" : "examples"}`, { q, sort, desc, offset: offset || "", limit: PAGE }, revision);
  const groups = useApi(`${path}/groups`, { q, by, limit: 30 }, revision);
  const [row, setRow] = useState(-1);
  const groupMenu = useRef(null);
  const table = useRef(null);

  const rows = list.data?.rows || [];
  const move = (step) => {
    const next = Math.min(Math.max(row + step, 0), rows.length - 1);
    setRow(next);
    table.current?.querySelectorAll("tbody tr")[next]?.querySelector("a.main")?.focus();
  };
  const nextFailure = (step) => {
    const fails = (each) => (each.rollouts ? each.rollouts.some((rollout) => !rollout.passed) : !each.passed);
    for (let place = row + step; place >= 0 && place < rows.length; place += step) {
      if (fails(rows[place])) return move(place - row);
    }
  };
  useKeys({
    j: () => move(1), k: () => move(-1), n: () => nextFailure(1), N: () => nextFailure(-1),
    "/": () => document.getElementById("query")?.focus(), g: () => groupMenu.current?.focus(),
    y: () => navigator.clipboard?.writeText(location.href),
    "]": () => list.data && offset + PAGE < list.data.total && set({ offset: offset + PAGE }),
    "[": () => offset > 0 && set({ offset: Math.max(0, offset - PAGE) || "" }),
  });
  const index = list.data?.index || data.index;
  return html`<section aria-label="examples">
    <div class="panels">
      <${Histogram} data=${data} onChoose=${(query) => set({ q: both(q, query) })} />
      <${Groups} groups=${groups} by=${by} columns=${groupable(data.columns)} menu=${groupMenu} q=${q}
        onBy=${(value) => set({ by: value })} onChoose=${(query) => set({ q: both(q, query) })} range=${data.range} />
    </div>
    <div class="bar">
      <${QueryBox} run=${id} value=${q} columns=${isBundle ? [] : data.columns} error=${list.error?.start !== undefined || list.error?.status === 400 ? list.error : null}
        onSearch=${(value) => set({ q: value })} placeholder=${isBundle ? "Choose a bar or a kind to filter" : 'Filter: reward<1 stop:length text:"let me think"   /'} />
      <div class="quick">
        <button type="button" class="small" aria-pressed=${q === "is:failed"} onClick=${() => set({ q: q === "is:failed" ? "" : "is:failed" })}>Failed</button>
        <button type="button" class="small" aria-pressed=${q === "outcome:unscored"} onClick=${() => set({ q: q === "outcome:unscored" ? "" : "outcome:unscored" })}>No score</button>
        ${(data.noted > 0 || q === "is:noted") && html`<button type="button" class="small" aria-pressed=${q === "is:noted"} onClick=${() => set({ q: q === "is:noted" ? "" : "is:noted" })}>Noted ${count(data.noted)}</button>`}
      </div>
      <label class="choice"><span>sort</span><select value=${sort} onChange=${(event) => set({ sort: event.target.value, desc: "" })}>
        <option value="">table order</option>
        ${data.columns.filter((each) => each.indexed || each.name === sort).map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}
      </select></label>
      ${sort && html`<button type="button" class="small" aria-label=${desc === "1" ? "sort ascending" : "sort descending"} onClick=${() => set({ desc: desc === "1" ? "" : "1" })}>${desc === "1" ? "↓" : "↑"}</button>`}
      <label class="choice"><span>show</span><select value=${show} onChange=${(event) => set({ show: event.target.value === "examples" ? "" : event.target.value })}>
        <option value="examples">examples</option><option value="rollouts">rollouts</option></select></label>
    </div>
    <p class="quiet" role="status">${list.data ? (show === "rollouts" ? `${plural(list.data.total, "rollout")}${q ? ` of ${count(data.rollouts)}` : ""}` : `${plural(list.data.total, "example")}${list.data.matched !== undefined ? `, ${plural(list.data.matched, "rollout")}` : ""}${q ? ` of ${count(data.examples)} and ${count(data.rollouts)}` : ""}`) : "Loading …"}
      ${index && !index.done && html` · reading the journal: ${count(index.rollouts)} so far`}</p>
    ${list.error && list.error.status !== 400 && html`<${Problem} error=${list.error} />`}
    ${rows.length > 0 && html`<div class=${`scroll${list.isOld ? " old" : ""}`} tabindex="0" role="region" aria-label="table of examples"><table ref=${table} class="list examples">
      ${show === "rollouts" ? html`<${RolloutRows} id=${id} rows=${rows} row=${row} parameters=${parameters} />` : html`<${ExampleRows} id=${id} rows=${rows} row=${row} parameters=${parameters} />`}
    </table></div>`}
    ${list.data && !rows.length && html`<p>${q ? "No rollout matches." : "There are no rollouts yet."}</p>`}
    <${Pages} offset=${offset} limit=${PAGE} total=${list.data?.total || 0} onGo=${(place) => set({ offset: place || "" })} />
  </section>`;
}

/** Tags of the notes about some rollouts, each a filter; null if no rollout has a note. */
function NoteCell({ id, rollouts, parameters }) {
  const noted = rollouts.filter((each) => each.note);
  const hrefOfTag = (tag) => link(["run", id], { ...parameters, offset: "", q: both(parameters.q || "", byTag(tag)) });
  return html`<td>${noted.length > 0 && html`<${Tags} tags=${[...new Set(noted.flatMap((each) => each.note))]} hrefOf=${hrefOfTag} />`}</td>`;
}

/** Parameters that a rollout's page needs to go through the same list. */
function kept({ q, sort, desc }) {
  return { q, sort, desc };
}

function hrefOf(id, index, r, parameters) {
  return link(["run", id, "ex", index, r], kept(parameters));
}

function ExampleRows({ id, rows, row, parameters }) {
  const hasTask = rows.some((each) => each.task);
  const hasAnswer = rows.some((each) => each.answer);
  const hasNote = rows.some((each) => each.rollouts.some((rollout) => rollout.note));
  const { sort } = parameters;
  const hasValue = sort && !["reward", "example", "task", "answer"].includes(sort);
  return html`<thead><tr><th scope="col">example</th><th scope="col">rollouts</th><th scope="col" class="n">mean</th>${hasNote && html`<th scope="col">notes</th>`}
      ${hasValue && html`<th scope="col" class="n">${sort}</th>`}${hasTask && html`<th scope="col">task</th>`}
      <th scope="col">prompt</th><th scope="col">reply</th>${hasAnswer && html`<th scope="col">answer</th>`}</tr></thead>
    <tbody>${rows.map((each, place) => {
      const first = each.rollouts.find((rollout) => rollout.match !== false) || each.rollouts[0];
      return html`<tr key=${each.index} class=${place === row ? "here" : ""}>
        <th scope="row"><a class="main" href=${hrefOf(id, each.index, first.r, parameters)}>${each.example}</a></th>
        <td><${Strip} rollouts=${each.rollouts} hrefOf=${(rollout) => hrefOf(id, each.index, rollout.r, parameters)} /></td>
        <td class="n">${mean(each.mean)}</td>
        ${hasNote && html`<${NoteCell} id=${id} rollouts=${each.rollouts} parameters=${parameters} />`}
        ${hasValue && html`<td class="n">${line(each.value)}</td>`}${hasTask && html`<td>${each.task}</td>`}
        <td class="said"><span>${each.prompt}</span></td><td class="said"><span>${each.reply}</span></td>
        ${hasAnswer && html`<td class="said short"><span>${each.answer}</span></td>`}
      </tr>`;
    })}</tbody>`;
}

function RolloutRows({ id, rows, row, parameters }) {
  const { sort } = parameters;
  const hasNote = rows.some((each) => each.note);
  const hasValue = sort && !["reward", "example", "tokens", "seconds", "reason", "stop", "turns", "rollout"].includes(sort);
  return html`<thead><tr><th scope="col">example</th><th scope="col" class="n">reward</th><th scope="col">ended by</th>${hasNote && html`<th scope="col">notes</th>`}
      ${hasValue && html`<th scope="col" class="n">${sort}</th>`}
      <th scope="col" class="n">turns</th><th scope="col" class="n">tokens</th><th scope="col" class="n">time</th><th scope="col">prompt</th><th scope="col">reply</th></tr></thead>
    <tbody>${rows.map((each, place) => html`<tr key=${`${each.index}/${each.r}`} class=${place === row ? "here" : ""}>
      <th scope="row"><${Strip} rollouts=${[each]} hrefOf=${() => hrefOf(id, each.index, each.r, parameters)} />
        <a class="main" href=${hrefOf(id, each.index, each.r, parameters)}>${each.example}<span class="quiet">#${each.r}</span></a></th>
      <td class="n">${score(each.reward)}</td><td class=${each.reason ? "warn" : ""}>${each.reason || each.stop || NONE}</td>
      ${hasNote && html`<${NoteCell} id=${id} rollouts=${[each]} parameters=${parameters} />`}
      ${hasValue && html`<td class="n">${line(each.value)}</td>`}
      <td class="n">${count(each.turns)}</td><td class="n">${compact(each.tokens)}</td><td class="n">${duration(each.seconds)}</td>
      <td class="said"><span>${each.prompt}</span></td><td class="said"><span>${each.reply}</span></td>
    </tr>`)}</tbody>`;
}

function Histogram({ data, onChoose }) {
  const { edges, counts, passed, discrete, queries } = data.histogram || { edges: [], counts: [] };
  const most = Math.max(1, ...counts);
  const total = counts.reduce((sum, each) => sum + each, 0);
  const bins = counts.map((number, place) => {
    const [low, high] = discrete ? [edges[place], edges[place]] : [edges[place], edges[place + 1]];
    const words = discrete ? score(low) : `${score(low)} to ${score(high)}`;
    return { number, words, query: queries[place], isPassed: passed?.[place], height: (100 * number) / most };
  });
  return html`<section class="panel"><h2>Rewards</h2>
    ${!total && html`<p class="quiet">No rollout has a reward yet.</p>`}
    ${total > 0 && html`<div class="histogram">${bins.map((each) => html`<button type="button" key=${each.words} class="column" disabled=${!each.number}
        title=${`reward ${each.words}: ${plural(each.number, "rollout")}, ${share(each.number, total)}`} aria-label=${`reward ${each.words}: ${plural(each.number, "rollout")}`}
        onClick=${() => onChoose(each.query)}><svg aria-hidden="true" preserveAspectRatio="none"><rect class=${each.isPassed ? "pass" : ""} x="0" width="100%" y=${`${100 - each.height}%`} height=${`${each.height}%`} /></svg></button>`)}</div>
      <div class=${`ticks${discrete && bins.length <= 12 ? " each" : ""}`}>${discrete && bins.length <= 12 ? bins.map((each) => html`<span key=${each.words}>${each.words}</span>`) : html`<span>${score(edges[0])}</span><span>${score(edges.at(-1))}</span>`}</div>`}
  </section>`;
}

function Groups({ groups, by, columns, menu, onBy, onChoose, range }) {
  const found = groups.data?.by === by ? groups.data : null;
  const most = Math.max(1, ...(found?.groups || []).map((each) => each.count));
  return html`<section class="panel wide"><h2>Kinds <label class="choice"><span>by</span>
      <select ref=${menu} value=${by} onChange=${(event) => onBy(event.target.value)}>
        ${columns.some((each) => each.name === by) ? null : html`<option value=${by}>${by}</option>`}
        ${columns.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label></h2>
    ${groups.error && groups.error.status !== 400 && html`<${Problem} error=${groups.error} />`}
    ${found && html`<div class=${`scroll short${groups.isOld ? " old" : ""}`} tabindex="0" role="region" aria-label="kinds"><table class="plain-table groups"><thead class="unseen"><tr><th scope="col">value</th><th scope="col">share</th><th scope="col">rollouts</th><th scope="col">mean</th><th scope="col">interval</th></tr></thead><tbody>
      ${found.groups.map((each) => html`<tr key=${String(each.value)}>
        <th scope="row">${each.query ? html`<button type="button" class="linklike" title=${`filter: ${each.query}`} onClick=${() => onChoose(each.query)}>${each.value === null || each.value === "" ? "(none)" : line(each.value)}</button>` : html`<span>${each.value === null ? "(none)" : line(each.value)}</span>`}</th>
        <td class="groupbar"><svg aria-hidden="true"><rect x="0" y="25%" height="50%" width=${`${(100 * each.count) / most}%`} /></svg></td>
        <td class="n">${count(each.count)} <span class="quiet">${share(each.count, found.total)}</span></td>
        <td class="n">${mean(each.mean)}</td><td><${Whisker} mean=${each.mean} low=${each.low} high=${each.high} range=${range} /></td></tr>`)}
    </tbody></table></div>
    ${found.more > 0 && html`<p class="quiet">and ${plural(found.more, "more value")}</p>`}
    ${!found.groups.length && html`<p class="quiet">No rollout matches.</p>`}`}
  </section>`;
}

function Settings({ data }) {
  return html`<details class="settings"><summary>Settings and versions</summary>
    ${data.command && html`<p><code>${data.command}</code></p>`}
    ${data.made && html`<p>${data.made}</p>`}
    <div class="scroll"><table class="plain-table"><thead><tr><th scope="col">setting</th><th scope="col">value</th><th scope="col">from</th></tr></thead>
      <tbody>${data.settings.map(([path, value, source]) => html`<tr key=${path}><th scope="row">${path}</th><td><code>${value}</code></td><td class="quiet">${source}</td></tr>`)}</tbody></table></div>
    <p class="quiet">${Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join(" · ")}${data.git ? ` · commit ${data.git}` : ""}</p>
  </details>`;
}
