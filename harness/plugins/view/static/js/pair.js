/** One example of a comparison: two transcripts, aligned turn by turn, with the first difference marked. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import { get, useApi, useLiveApi } from "./api.js";
import { Delta, Letter, kept } from "./compare.js";
import { compact, plural, score } from "./format.js";
import { useKeys } from "./keys.js";
import { Message, paired, textOf } from "./message.js";
import { Chunk, Sidebar } from "./rollout.js";
import { go, here, link } from "./router.js";
import { Copy, LongText, Problem, Strip, dotKind, html, toClipboard } from "./ui.js";
import { FIRST, SECOND, Words, wordDiff } from "./words.js";

const CHUNK = 30;
/** More equal turns before the first difference are folded. */
const FOLDED = 2;

/** Rollouts to show: those of the address, else two whose rewards differ as the means do. */
function chosenRollouts(row, other, given) {
  const [first, second] = [row.runs[0].rollouts, row.runs[other].rollouts];
  const named = (given || "").split(",").map((each) => (each === "" ? null : Number(each)));
  const best = (rollouts, sign) => rollouts.reduce((held, each) => (each.reward !== null && (held.reward === null || sign * each.reward > sign * held.reward) ? each : held));
  const sign = Math.sign((row.runs[other].mean ?? 0) - (row.runs[0].mean ?? 0));
  const pick = (rollouts, r, way) => rollouts.find((each) => each.r === r) || (way ? best(rollouts, way) : rollouts[0]);
  return [pick(first, named[0], -sign), pick(second, named[1], sign)];
}

export function PairPage({ ids, index, parameters }) {
  const runs = ids.join(",");
  const { turn = "", measure = "" } = parameters;
  const list = kept(parameters);
  const heading = useLiveApi(runs, `compare/${index}`, { runs, measure });
  const data = heading.data;
  const row = data?.row.index === index ? data.row : null;
  const there = row ? row.runs.map((each, place) => place).filter((place) => place && row.runs[place]) : [];
  const other = there.includes(Number(parameters.with)) ? Number(parameters.with) : there.includes(row?.widest) ? row.widest : there[0];
  const shown = row ? chosenRollouts(row, other, parameters.r) : null;
  const path = (place, at) => (row ? `runs/${encodeURIComponent(ids[place])}/rollouts/${row.runs[place].index}/${shown[at].r}` : null);
  const answers = [useApi(path(0, 0), {}, shown?.[0].outcome), useApi(path(other, 1), {}, shown?.[1].outcome)];
  const [isRaw, setRaw] = useState(false);
  const [note, setNote] = useState("");
  const place = (i, more) => link(["compare", runs, "ex", i], { ...list, with: parameters.with, ...more });
  const self = (more) => place(index, { r: parameters.r, turn, ...more });

  // Steps wait for one another and begin where the last one led: keys can be quicker than answers.
  const steps = useRef(Promise.resolve());
  const step = (by, dir) => {
    steps.current = steps.current.then(async () => {
      try {
        const found = await get("compare/step", { ...list, runs, index: Number(here().parts[3]), by, dir });
        if (found.index === null) setNote(dir > 0 ? "This is the last one." : "This is the first one.");
        else go(place(found.index));
      } catch (problem) {
        setNote(problem.message);
      }
    });
  };
  const both = answers.map((each) => (each.isOld ? null : each.data));
  const last = useRef(null);
  if (row && both[0] && both[1]) last.current = { both, row, other };
  const drawn = last.current;
  const aligned = useMemo(() => (drawn ? alignment(...drawn.both) : null), [drawn?.both[0], drawn?.both[1]]);
  const turns = aligned ? aligned.rows.length : 0;
  const toTurn = (number) => number >= 1 && number <= turns && go(self({ turn: number }), { replace: true });
  const turnHere = (none) => Number(here().parameters.turn) || none;
  const sibling = (by) => {
    if (!row) return;
    const rollouts = row.runs[other].rollouts;
    const next = rollouts[rollouts.indexOf(shown[1]) + by];
    if (next) go(self({ r: `${shown[0].r},${next.r}`, turn: "" }));
    else setNote(by > 0 ? "This is the last rollout of the example." : "This is the first rollout of the example.");
  };
  const toDifference = () => (aligned?.first >= 0 ? toTurn(aligned.first + 1) : setNote("There is no difference."));
  useKeys({
    j: () => step("example", 1), k: () => step("example", -1), n: () => step("flip", 1), N: () => step("flip", -1),
    J: () => toTurn(turnHere(0) + 1), K: () => toTurn(turnHere(2) - 1), "]": () => sibling(1), "[": () => sibling(-1),
    d: toDifference, m: () => setRaw(!isRaw), u: () => go(link(["compare", runs], list)), "/": () => go(link(["compare", runs], { ...list, focus: "query" })),
    y: async () => setNote((await toClipboard(location.href)) ? "The link is copied." : "Copying failed."),
  });
  useEffect(() => {
    setNote("");
    if (!turn) scrollTo(0, 0);
  }, [index]);

  const error = heading.error || answers[0].error || answers[1].error;
  if (error && !drawn) return html`<main><${Problem} error=${error} /><p><a href=${link(["compare", runs], list)}>Back to the comparison</a></p></main>`;
  if (!drawn) return html`<main><p class="wait">Loading the example …</p></main>`;
  const isStale = drawn.row !== row || drawn.both[0] !== both[0] || drawn.both[1] !== both[1];
  const sides = [0, drawn.other];
  const difference = drawn.row.runs[drawn.other].mean === null || drawn.row.runs[0].mean === null ? null : drawn.row.runs[drawn.other].mean - drawn.row.runs[0].mean;
  return html`<main class=${`pair${isStale ? " old" : ""}`}>
    <header class="rolloutbar">
      <h1>Example ${drawn.row.example}</h1>
      <span class="verdict"><${Delta} value=${difference} /></span>
      <span class="stepper">
        <button type="button" class="small" title="previous example (k)" aria-label="previous example" onClick=${() => step("example", -1)}>←</button>
        <button type="button" class="small" title="next example (j)" aria-label="next example" onClick=${() => step("example", 1)}>→</button>
        <button type="button" class="small" title="next example that differs (n)" onClick=${() => step("flip", 1)}>Next that differs</button>
      </span>
      <span class="tools">
        ${ids.length > 2 && html`<label class="choice"><span>beside A</span><select value=${drawn.other} onChange=${(event) => go(self({ with: event.target.value, r: "", turn: "" }))}>
          ${there.map((each) => html`<option key=${each} value=${each}>${"ABCDEFGH"[each]} ${data.runs[each].label}</option>`)}</select></label>`}
        <button type="button" class="small" title="the first difference (d)" onClick=${toDifference} disabled=${aligned.first < 0}>First difference</button>
        <button type="button" class="small" aria-pressed=${isRaw} onClick=${() => setRaw(!isRaw)} title="Markdown or raw text (m)">Raw</button>
        <${Copy} text=${() => location.href} label="Copy link" />
      </span>
      <div class="pairrow pairhead">${sides.map((run, side) => html`<section key=${side} class="cell" aria-label=${`run ${"ABCDEFGH"[run]}`}>
        <p><${Letter} place=${run} /> <a href=${link(["run", ids[run], "ex", drawn.row.runs[run].index, drawn.both[side].r])} title="the page of this rollout">${data.runs[run].label}</a>
          ${" "}<span class=${`verdict verdict-${dotKind(drawn.both[side])}`}>${drawn.both[side].reward === null ? drawn.both[side].reason || "no score" : `reward ${score(drawn.both[side].reward)}`}</span></p>
        <p class="quiet"><${Strip} rollouts=${drawn.row.runs[run].rollouts} current=${drawn.both[side].r} hrefOf=${(each) => self({ r: side ? `${drawn.both[0].r},${each.r}` : `${each.r},${drawn.both[1].r}`, turn: "" })} />
          ${" "}rollout ${drawn.both[side].r} · ended by ${drawn.both[side].reason || drawn.both[side].stop || "–"} · ${compact(drawn.both[side].usage.output_tokens)} tokens out</p>
      </section>`)}</div>
    </header>
    <p class="note" role="status">${note || (aligned.first < 0 ? "Both have the same messages." : `First difference: turn ${aligned.first + 1}, ${aligned.rows[aligned.first].what}.`)}</p>
    <${Transcripts} key=${`${drawn.row.index} ${sides} ${drawn.both.map((each) => each.r)}`} aligned=${aligned} answer=${drawn.row.answer} sides=${sides} both=${drawn.both} isRaw=${isRaw} turn=${Number(turn) || 0} hrefOfTurn=${(number) => self({ turn: number })} />
    <details class="settings"><summary>Scores, judgements and state</summary>
      <div class="pairrow pairside">${drawn.both.map((each, side) => html`<div class="cell" key=${side}><p class="cellname"><${Letter} place=${sides[side]} /></p><${Sidebar} data=${each} /></div>`)}</div></details>
  </main>`;
}

/** The turns of two rollouts side by side, and the number of the first that differs; -1 if none does. */
function alignment(first, second) {
  const held = [first, second].map((each) => {
    const { items, results } = paired(each.messages);
    const turns = [];
    for (const item of items) {
      if (item.message.prompt) continue;
      const isNext = item.message.role === "assistant" && turns.at(-1)?.some((each) => each.message.role === "assistant");
      if (isNext || !turns.length) turns.push([]);
      turns.at(-1).push(item);
    }
    return { turns, results, prompt: items.filter((each) => each.message.prompt) };
  });
  const rows = Array.from({ length: Math.max(held[0].turns.length, held[1].turns.length) }, (_, place) => {
    const [left, right] = held.map((each) => each.turns[place] || null);
    return { place, left, right, what: left && right ? difference(left, right, held[0].results, held[1].results) : "only one has it" };
  });
  return { rows, results: held.map((each) => each.results), prompt: held[0].prompt, first: rows.findIndex((each) => each.what) };
}

/** Number of messages below one another in some rows. */
function messagesIn(rows) {
  return rows.reduce((sum, { left, right }) => sum + Math.max(left?.length || 0, right?.length || 0), 0);
}

function contentText(content) {
  const isText = !Array.isArray(content) || content.every((part) => typeof part === "string" || typeof part?.text === "string");
  return isText ? textOf(content) : JSON.stringify(content);
}

/** Names and texts of a message by which it is compared; ids of calls are different in every rollout. */
function textsOf({ message }, results) {
  const role = message.role === "assistant" ? "reply" : `message of ${message.role}`;
  const calls = (message.tool_calls || []).flatMap((call) => {
    const result = results.get(call.id);
    return [["tool called", call.name || ""], ["arguments of the call", call.arguments || ""], ["result of the call", result ? contentText(result.content) : ""]];
  });
  return [["reasoning", message.reasoning || ""], [role, contentText(message.content)], ...calls];
}

/** What differs first in two turns; "" if nothing does. */
function difference(left, right, leftResults, rightResults) {
  for (let place = 0; place < Math.max(left.length, right.length); place += 1) {
    if (!left[place] || !right[place]) return "number of messages";
    const [ours, theirs] = [textsOf(left[place], leftResults), textsOf(right[place], rightResults)];
    for (let at = 0; at < Math.max(ours.length, theirs.length); at += 1) {
      if (ours[at]?.[0] !== theirs[at]?.[0] || ours[at][1] !== theirs[at][1]) return (theirs[at] || ours[at])[0];
    }
  }
  return "";
}

/** Elements that mark the words in which two messages differ, for each of the two. */
function marks(left, right, leftResults, rightResults) {
  const texts = (first, second) => {
    if (first === second || !first || !second) return [undefined, undefined];
    const pieces = wordDiff(first, second);
    return [html`<${Words} pieces=${pieces} side=${FIRST} />`, html`<${Words} pieces=${pieces} side=${SECOND} />`];
  };
  const found = [{ calls: [] }, { calls: [] }];
  const add = (name, pair, into = found) => pair.forEach((element, side) => { into[side][name] = element; });
  add("reasoning", texts(left.message.reasoning, right.message.reasoning));
  const isPlain = [left, right].every(({ message }) => typeof message.content === "string");
  if (isPlain) add("content", texts(left.message.content, right.message.content));
  const [ours, theirs] = [left.message.tool_calls || [], right.message.tool_calls || []];
  for (let place = 0; place < Math.min(ours.length, theirs.length); place += 1) {
    const calls = [{}, {}];
    add("arguments", texts(ours[place].arguments, theirs[place].arguments), calls);
    const [one, two] = [leftResults.get(ours[place].id), rightResults.get(theirs[place].id)];
    if (one && two) add("result", texts(contentText(one.content), contentText(two.content)), calls);
    calls.forEach((each, side) => found[side].calls.push(each));
  }
  return found;
}

function Transcripts({ aligned, answer, sides, both, isRaw, turn, hrefOfTurn }) {
  const { rows, prompt, results, first } = aligned;
  const folded = first - 1 > FOLDED ? first - 1 : 0;
  useLayoutEffect(() => {
    if (!turn) return undefined;
    // In several frames: parts above it are drawn when they come near, and move it.
    let frames = 12;
    let timer = 0;
    const scroll = () => {
      const element = document.getElementById(`t${turn}`);
      element?.scrollIntoView({ block: "start" });
      element?.focus({ preventScroll: true });
      if (--frames) timer = requestAnimationFrame(scroll);
    };
    timer = requestAnimationFrame(scroll);
    return () => cancelAnimationFrame(timer);
  }, [turn, rows]);
  const [isOpen, setOpen] = useState(turn > 0 && turn <= folded);
  useLayoutEffect(() => {
    if (turn > 0 && turn <= folded) setOpen(true);
  }, [turn]);
  const chunks = [];
  for (let start = isOpen ? 0 : folded; start < rows.length; start += CHUNK) chunks.push(start);
  const draw = (row) => html`<${Row} key=${row.place} row=${row} isFirst=${row.place === first} isHere=${turn === row.place + 1} sides=${sides} both=${both} results=${results} isRaw=${isRaw} hrefOfTurn=${hrefOfTurn} />`;
  const isNear = (start) => [first, turn - 1].some((each) => each >= start && each < start + CHUNK);
  const size = prompt.reduce((sum, each) => sum + contentText(each.message.content).length, 0);
  return html`<section class="transcript" aria-label="transcripts">
    <details class="same" open=${size < 2000}><summary>Prompt <span class="quiet">· the same in both · ${plural(size, "character")}</span></summary>
      ${prompt.map(({ message, number }) => html`<${Message} key=${number} prefix="p" message=${message} number=${number} results=${results[0]} isRaw=${isRaw} hrefOfTurn=${hrefOfTurn} />`)}</details>
    ${answer && html`<p class="expected"><span class="quiet">expected answer</span> <code>${answer}</code></p>`}
    ${folded > 0 && html`<p class="fold"><button type="button" class="small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Fold" : "Show"} turns 1 to ${folded}, the same in both</button></p>`}
    ${chunks.map((start) => html`<${Chunk} key=${start} size=${messagesIn(rows.slice(start, start + CHUNK))} isForced=${start === chunks[0] || isNear(start)}>${() => rows.slice(start, start + CHUNK).map(draw)}<//>`)}
    ${!rows.length && html`<p class="quiet">Neither has a reply.</p>`}
    ${both.some((each) => each.error) && html`<div class="pairrow">${both.map((each, side) => html`<div class="cell" key=${side}>${each.error && html`<div class="message ended"><header><b class="role">error</b></header><${LongText} text=${each.error}>${(shown) => html`<pre class="plain">${shown}</pre>`}<//></div>`}</div>`)}</div>`}
  </section>`;
}

function Row({ row, isFirst, isHere, sides, both, results, isRaw, hrefOfTurn }) {
  const { left, right, what, place } = row;
  const [isMarked, setMarked] = useState(isFirst);
  const canMark = Boolean(what && left && right);
  const marked = useMemo(() => (canMark && isMarked ? left.map((each, at) => (right[at] ? marks(each, right[at], ...results) : null)) : []), [row, isMarked]);
  const messages = (items, side, twins = () => undefined) => items.map((item, at) => html`<${Message} key=${item.number} prefix=${side ? "b" : "a"} message=${item.message} number=${item.number} results=${results[side]} isRaw=${isRaw} marked=${marked[at]?.[side]} twins=${twins(at)} hrefOfTurn=${() => hrefOfTurn(place + 1)} />`);
  const head = html`<header class="turnhead"><a href=${hrefOfTurn(place + 1)} title="link to this turn">turn ${place + 1}</a>
    ${isFirst ? html`<b class="diverges">first difference: ${what}</b>` : html`<span class="quiet">${what ? (canMark ? `differs: ${what}` : what) : "the same in both"}</span>`}
    ${canMark && html`<button type="button" class="small" aria-pressed=${isMarked} onClick=${() => setMarked(!isMarked)}>Mark words</button>`}</header>`;
  const kind = `turnrow${isFirst ? " first-difference" : ""}${isHere ? " here" : ""}`;
  if (!what) return html`<div class=${kind} id=${`t${place + 1}`} tabindex="-1">${head}${messages(left, 0, (at) => [left, right].map((items, side) => ["ABCDEFGH"[sides[side]], items[at].message]))}</div>`;
  const ended = (side) => html`<p class="quiet">Ended after ${plural(place, "turn")}: ${both[side].reason || both[side].stop || "–"}.</p>`;
  return html`<div class=${kind} id=${`t${place + 1}`} tabindex="-1">${head}
    <div class="pairrow">${[left, right].map((items, side) => html`<div class="cell" key=${side}><p class="cellname"><${Letter} place=${sides[side]} /></p>${items ? messages(items, side) : ended(side)}</div>`)}</div></div>`;
}
