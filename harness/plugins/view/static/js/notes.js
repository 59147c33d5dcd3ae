/** Notes of people about a rollout: tags, a remark and a score, shown and written. */

import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { post, useApi } from "./api.js";
import { moment, score } from "./format.js";
import { quoted } from "./query.js";
import { link } from "./router.js";
import { LongText, Problem, html } from "./ui.js";

/** Tags that label the reply of a rollout; `bench judge check` compares them with its score. */
const VERDICTS = ["right", "wrong"];

/** The query for the rollouts with a tag. */
export function byTag(tag) {
  return `note.tag=${quoted(tag)}`;
}

/** Tags as links to filters; a note without tags is a word. */
export function Tags({ tags, hrefOf }) {
  if (!tags.length) return html`<span class="tag">note</span>`;
  return html`<span class="tags">${tags.map((tag) => html`<a key=${tag} class="tag" href=${hrefOf(tag)} title=${`filter: ${byTag(tag)}`}>${tag}</a>`)}</span>`;
}

export function Notes({ id, index, r, revision, isOpen, onOpen }) {
  const path = `runs/${encodeURIComponent(id)}/notes/${index}/${r}`;
  const [saved, setSaved] = useState(0);
  const { data, error } = useApi(path, {}, `${revision}/${saved}`);
  const own = data?.notes.find((each) => each.own);
  const close = (isSaved) => {
    if (isSaved) setSaved((last) => last + 1);
    onOpen(false);
  };
  return html`<section class="notes" aria-label="notes"><h2>Notes ${data && isOpen && html`<span class="quiet">as ${data.author}</span>`}${data && !isOpen && html`<button type="button" class="small" onClick=${() => onOpen(true)}>${own ? "Edit" : "Add a note"}</button>`}</h2>
    <${Problem} error=${error} />
    ${data?.problem && html`<p class="problem">${data.problem}</p>`}
    ${(data?.notes || []).filter((each) => !(isOpen && each.own)).map((each) => html`<div class="noted" key=${each.author}>
      <p><b>${each.author}</b> <span class="quiet">${moment(each.time)}</span></p>
      ${(each.tags.length > 0 || each.score !== null) && html`<p>${each.tags.length > 0 && html`<${Tags} tags=${each.tags} hrefOf=${(tag) => link(["run", id], { q: byTag(tag) })} />`}${each.score !== null && html` <span class="quiet">score</span> ${score(each.score)}`}</p>`}
      ${each.remark && html`<${LongText} text=${each.remark}>${(shown) => html`<div class="remark">${shown}</div>`}<//>`}
    </div>`)}
    ${data && isOpen && html`<${NoteForm} path=${path} own=${own} known=${data.tags} onClose=${close} />`}
  </section>`;
}

const words = (text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))];

function NoteForm({ path, own, known, onClose }) {
  const [tags, setTags] = useState((own?.tags || []).join(" "));
  const [remark, setRemark] = useState(own?.remark || "");
  const [points, setPoints] = useState(own && own.score !== null ? String(own.score) : "");
  const [error, setError] = useState(null);
  const first = useRef(null);
  useEffect(() => first.current.focus(), []);
  const send = (note) => post(path, note).then(() => onClose(true), setError);
  const save = () => send({ tags: words(tags), remark, score: points.trim() === "" ? null : Number(points) });
  const pressed = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      save();
    } else if (event.key === "Escape") {
      event.preventDefault();
      onClose(false);
    }
  };
  const offered = known.filter((each) => !words(tags).includes(each) && !VERDICTS.includes(each)).slice(0, 12);
  const judge = (verdict) => {
    const others = words(tags).filter((each) => !VERDICTS.includes(each));
    setTags([...others, ...(words(tags).includes(verdict) ? [] : [verdict])].join(" "));
  };
  return html`<form class="noteform" onKeyDown=${pressed} onSubmit=${(event) => { event.preventDefault(); save(); }}>
    <div class="buttons" role="group" aria-label="the reply is">${VERDICTS.map((each) => html`<button key=${each} type="button" class="small" aria-pressed=${words(tags).includes(each)} onClick=${() => judge(each)}>${each}</button>`)}</div>
    <label>Tags <input ref=${first} id="note-tags" type="text" autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="wrong-label unclear" value=${tags} onInput=${(event) => setTags(event.target.value)} /></label>
    ${offered.length > 0 && html`<div class="tags" role="group" aria-label="tags that were used">${offered.map((each) => html`<button key=${each} type="button" class="tag" onClick=${() => { setTags([...words(tags), each].join(" ")); first.current.focus(); }}>+ ${each}</button>`)}</div>`}
    <label>Remark <textarea id="note-remark" rows="4" value=${remark} onInput=${(event) => setRemark(event.target.value)}></textarea></label>
    <label>Score <input id="note-score" type="number" step="any" value=${points} onInput=${(event) => setPoints(event.target.value)} /></label>
    <${Problem} error=${error} />
    <div class="buttons"><button type="submit" class="small first" title="Ctrl+Enter">Save</button>
      <button type="button" class="small" title="Escape" onClick=${() => onClose(false)}>Cancel</button>
      ${own && html`<button type="button" class="small remove" onClick=${() => send({})}>Remove</button>`}</div>
  </form>`;
}
