/** One rollout: its transcript, and beside it the score, the judges' words, usage and state. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import { address, get, isBundle, useApi, useEvents } from "./api.js";
import { compact, count, dollars, duration, moment, plural, score } from "./format.js";
import { useKeys } from "./keys.js";
import { Message, figures, paired } from "./message.js";
import { Notes } from "./notes.js";
import { Markdown } from "./text.js";
import { go, here, link } from "./router.js";
import { Copy, LongText, NONE, Problem, Strip, Tree, dotKind, html, toClipboard } from "./ui.js";

/** Example and rollout that the address names. */
function placeHere() {
  const { parts } = here();
  return [Number(parts[3]), Number(parts[4])];
}

/** Messages that are drawn together, once they come near the window. */
const CHUNK = 60;

export function RolloutPage({ id, index, r, parameters }) {
  const { q = "", sort = "", desc = "", turn = "" } = parameters;
  const path = `runs/${encodeURIComponent(id)}`;
  const { data, error } = useApi(`${path}/rollouts/${index}/${r}`);
  const [isRaw, setRaw] = useState(false);
  const [note, setNote] = useState("");
  const [isNoting, setNoting] = useState(false);
  const [notesAt, setNotesAt] = useState("");
  const list = { q, sort, desc };
  const place = (i, n, more = {}) => link(["run", id, "ex", i, n], { ...list, ...more });

  // Steps wait for one another and begin where the last one led: keys can be quicker than answers.
  const steps = useRef(Promise.resolve());
  const step = (by, dir) => {
    steps.current = steps.current.then(async () => {
      const [i, n] = placeHere();
      try {
        const found = await get(`${path}/step`, { ...list, index: i, r: n, by, dir });
        if (found.index === null) setNote(dir > 0 ? "This is the last one." : "This is the first one.");
        else go(place(found.index, found.r));
      } catch (problem) {
        setNote(problem.message);
      }
    });
  };
  const turns = data ? data.messages.filter((each) => each.turn).length : 0;
  const toTurn = (number) => number >= 1 && number <= turns && go(place(index, r, { turn: number }), { replace: true });
  // From the address, since keys can be quicker than drawing.
  const turnHere = (none) => Number(here().parameters.turn) || none;
  const sibling = (by) => {
    const [i, n] = placeHere();
    const at = data?.siblings.findIndex((each) => each.r === n) ?? -1;
    const other = data?.siblings[at + by];
    if (other) go(place(i, other.r));
    else setNote(by > 0 ? "This is the last rollout of the example." : "This is the first rollout of the example.");
  };
  const askTurn = () => {
    document.getElementById("turn")?.focus();
    document.getElementById("turn")?.select();
  };
  useKeys({
    j: () => step("example", 1), k: () => step("example", -1), n: () => step("failed", 1), N: () => step("failed", -1),
    J: () => toTurn(turnHere(0) + 1), K: () => toTurn(turnHere(2) - 1),
    "]": () => sibling(1), "[": () => sibling(-1), u: () => go(link(["run", id], list)), g: () => go(link(["run", id], { ...list })),
    "/": () => go(link(["run", id], { ...list, focus: "query" })), t: askTurn, a: () => !isBundle && setNoting(true), m: () => setRaw(!isRaw),
    y: async () => setNote((await toClipboard(location.href)) ? "The link is copied." : "Copying failed."),
  });
  useEffect(() => {
    setNote("");
    setNoting(false);
    if (!turn) scrollTo(0, 0);
  }, [id, index, r]);
  useEvents(id, (name, event) => name === "run" && event.id === id && setNotesAt(event.notes));

  if (error && !data) return html`<main><${Problem} error=${error} /><p><a href=${link(["run", id], list)}>Back to the run</a></p></main>`;
  const isStale = data && (data.run.id !== id || data.example.index !== index || data.r !== r);
  if (!data) return html`<main><p class="wait">Loading the rollout …</p></main>`;
  return html`<main class=${`rollout${isStale ? " old" : ""}`}>
    <header class="rolloutbar">
      <h1>Example ${data.example.id}${data.siblings.length > 1 ? html` <span class="quiet">rollout ${data.r}</span>` : ""}</h1>
      <span class=${`verdict verdict-${dotKind(data)}`}>${data.reward === null ? data.reason || "no score" : `reward ${score(data.reward)}`}</span>
      ${data.siblings.length > 1 && html`<${Strip} rollouts=${data.siblings} hrefOf=${(each) => place(index, each.r)} current=${data.r} />`}
      <span class="stepper">
        <button type="button" class="small" title="previous example (k)" aria-label="previous example" onClick=${() => step("example", -1)}>←</button>
        <button type="button" class="small" title="next example (j)" aria-label="next example" onClick=${() => step("example", 1)}>→</button>
        <button type="button" class="small" title="next failure (n)" onClick=${() => step("failed", 1)}>Next failure</button>
      </span>
      <span class="tools">
        ${turns > 3 && html`<label class="choice"><span>turn</span><input id="turn" type="number" min="1" max=${turns} value=${turn} onChange=${(event) => toTurn(Number(event.target.value))} /> <span class="quiet">of ${turns}</span></label>`}
        <button type="button" class="small" aria-pressed=${isRaw} onClick=${() => setRaw(!isRaw)} title="Markdown or raw text (m)">Raw</button>
        ${!isBundle && html`<button type="button" class="small" title="add or edit your note (a)" onClick=${() => setNoting(true)}>Note</button>`}
        <${Copy} text=${() => location.href} label="Copy link" />
        ${!isBundle && html`<a class="small button" href=${address(`${path}/rollouts/${index}/${r}`, { whole: 1 })} target="_blank" rel="noopener">JSON</a>`}
      </span>
    </header>
    <p class="note" role="status">${note}</p>
    <div class="columns">
      <${Transcript} key=${`${id}/${index}/${r}`} data=${data} isRaw=${isRaw} turn=${Number(turn) || 0} hrefOfTurn=${(number) => place(index, r, { turn: number })} />
      <${Sidebar} data=${data} notes=${!isBundle && html`<${Notes} key=${`${id}/${index}/${r}`} id=${id} index=${index} r=${r} revision=${notesAt} isOpen=${isNoting} onOpen=${setNoting} />`} />
    </div>
  </main>`;
}

function Transcript({ data, isRaw, turn, hrefOfTurn }) {
  const { items, results } = useMemo(() => paired(data.messages), [data]);
  const target = turn ? items.findIndex(({ message }) => message.turn === turn) : -1;
  useLayoutEffect(() => {
    if (target < 0) return undefined;
    const timer = requestAnimationFrame(() => {
      const element = document.getElementById(`m${items[target].number}`);
      element?.scrollIntoView({ block: "start" });
      element?.focus({ preventScroll: true });
    });
    return () => cancelAnimationFrame(timer);
  }, [target, items]);
  const chunks = [];
  for (let start = 0; start < items.length; start += CHUNK) chunks.push(start);
  return html`<section class="transcript" aria-label="transcript">
    ${!items.length && html`<p class="quiet">There are no messages.</p>`}
    ${chunks.map((start) => html`<${Chunk} key=${start} size=${Math.min(CHUNK, items.length - start)} isForced=${start === 0 || (target >= start && target < start + CHUNK)}>
      ${() => items.slice(start, start + CHUNK).map(({ message, number }) => html`<${Message} key=${number} message=${message} number=${number} results=${results} isRaw=${isRaw} isHere=${Boolean(turn) && message.turn === turn} hrefOfTurn=${hrefOfTurn} />`)}<//>`)}
    ${data.error && html`<div class="message ended"><header><b class="role">error</b></header><${LongText} text=${data.error}>${(shown) => html`<pre class="plain">${shown}</pre>`}<//></div>`}
  </section>`;
}

/** A part of a long transcript, drawn when it comes near the window. */
export function Chunk({ size, isForced, children }) {
  const [isNear, setNear] = useState(isForced);
  const element = useRef(null);
  useEffect(() => {
    if (isNear || !element.current) return undefined;
    const watcher = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && setNear(true), { rootMargin: "1500px" });
    watcher.observe(element.current);
    return () => watcher.disconnect();
  }, [isNear]);
  if (isNear || isForced) return html`<div class="chunk">${children()}</div>`;
  return html`<div class="chunk unread" ref=${element}>${Array.from({ length: size }, (_, place) => html`<i key=${place}></i>`)}</div>`;
}

/** Usage that is in no call of the journal. */
function left({ input_tokens, output_tokens, requests, cost }) {
  return [`${compact(input_tokens)} in, ${compact(output_tokens)} out`, requests > 0 && plural(requests, "request"), cost !== null && dollars(cost)].filter(Boolean).join(", ");
}

export function Sidebar({ data, notes }) {
  const { usage, example, calls } = data;
  return html`<aside class="side" aria-label="score and facts">
    <section><h2>Score</h2>
      <table class="plain-table"><tbody>
        <tr class="total"><th scope="row">reward</th><td class="n">${score(data.reward)}</td></tr>
        ${data.metrics.map((each) => html`<tr key=${each.name}><th scope="row">${each.name}${each.weight !== null && each.weight !== undefined && each.weight !== 1 ? html` <span class="quiet">× ${each.weight}</span>` : ""}</th>
          <td class="n">${each.reason ? html`<span class="warn" title=${each.reason}>${score(each.value)}</span>` : score(each.value)}</td></tr>`)}
      </tbody></table>
      ${data.metrics.filter((each) => each.reason).map((each) => html`<p key=${each.name} class="warn">${each.name}: ${each.reason}</p>`)}
    </section>
    ${notes}
    ${data.judgements.map((each, place) => html`<section key=${place} class="judge"><h2>Judge <span class="quiet">${each.title}</span></h2>
      <${LongText} text=${each.text}>${(shown) => html`<${Markdown} text=${shown} />`}<//>
      ${each.of && html`<details><summary>what was judged</summary><${LongText} text=${String(each.of)}>${(shown) => html`<pre class="plain">${shown}</pre>`}<//></details>`}</section>`)}
    ${example.answer !== "" && example.answer !== null && html`<section><h2>Expected answer</h2><${LongText} text=${String(example.answer)}>${(shown) => html`<pre class="plain">${shown}</pre>`}<//></section>`}
    <section><h2>How it went</h2><dl class="facts">
      <dt>ended by</dt><dd>${data.reason ? html`<span class="warn">${data.reason}</span>` : data.stop || NONE}${data.truncated ? ", cut short by a limit" : ""}</dd>
      <dt>tokens</dt><dd>${compact(usage.input_tokens)} in, ${compact(usage.output_tokens)} out${usage.reasoning_tokens ? `, ${compact(usage.reasoning_tokens)} of them reasoning` : ""}</dd>
      ${calls?.rest && html`<dt title="tokens and cost that are in no turn and in no call below">of these</dt><dd>${left(calls.rest)}${data.attempts > 1 ? " in earlier attempts or discarded replies" : " in discarded replies"}</dd>`}
      <dt>requests</dt><dd>${count(usage.requests)}</dd>
      ${usage.cost !== null && usage.cost !== undefined && html`<dt>cost</dt><dd>${dollars(usage.cost)}</dd>`}
      <dt>time</dt><dd>${duration(data.seconds)}${data.seconds !== null && `, ${duration(data.model_seconds)} in the model`}${data.waiting_seconds ? `, ${duration(data.waiting_seconds)} waiting` : ""}</dd>
      ${data.scoring_seconds !== null && html`<dt>scoring</dt><dd>${duration(data.scoring_seconds)}</dd>`}
      ${data.attempts > 1 && html`<dt>attempts</dt><dd>${data.attempts}</dd>`}
      <dt>started</dt><dd>${moment(data.started)}</dd>
      ${example.task && html`<dt>task</dt><dd>${example.task}</dd>`}
    </dl></section>
    ${calls?.count > 0 && html`<section class="calls"><h2>Other calls <span class="quiet">${count(calls.count)} that made no message</span></h2>
      <ol>${calls.others.map((each) => html`<li key=${each.number} value=${each.number}>${figures(each)} ${each.error ? html`<span class="warn">${each.error}</span>` : html`<span class="quiet">${each.text}</span>`}</li>`)}</ol>
      ${calls.count > calls.others.length && html`<p class="quiet">… and ${plural(calls.count - calls.others.length, "more call")}</p>`}</section>`}
    ${Object.keys(example.info).length > 0 && html`<section><h2>Info of the example</h2><${Tree} value=${example.info} /></section>`}
    ${Object.keys(data.state).length > 0 && html`<section><h2>State</h2><${Tree} value=${data.state} /></section>`}
  </aside>`;
}
