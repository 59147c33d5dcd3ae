/** One message of a transcript. */

import { useState } from "../vendor/hooks.js";
import { compact, dollars, duration } from "./format.js";
import { Code, Markdown } from "./text.js";
import { Copy, LongText, Tree, html } from "./ui.js";

export const ROLES = { system: "system", user: "user", assistant: "assistant", tool: "tool", developer: "developer" };

/** Text of a message's content, without images. */
export function textOf(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : [content];
  return parts.map((part) => (typeof part === "string" ? part : typeof part?.text === "string" ? part.text : "")).filter(Boolean).join("\n");
}

function Part({ part, isRaw }) {
  if (typeof part === "string" || typeof part?.text === "string") return html`<${Text} text=${typeof part === "string" ? part : part.text} isRaw=${isRaw} />`;
  const url = part?.image_url?.url ?? part?.image_url;
  if (typeof url === "string" && /^data:image\/(png|jpeg|gif|webp);base64,/.test(url)) return html`<img class="picture" src=${url} alt="image of the message" loading="lazy" />`;
  if (typeof url === "string") return html`<p class="literal">[image: ${url.slice(0, 500)}]</p>`;
  return html`<${Tree} value=${part} name=${part?.type || "part"} />`;
}

export function Text({ text, isRaw }) {
  return html`<${LongText} text=${text}>${(shown) => (isRaw ? html`<pre class="plain">${shown}</pre>` : html`<${Markdown} text=${shown} />`)}<//>`;
}

/** Messages in order, without results of tools that stand below their calls. */
export function paired(messages) {
  const called = new Set(messages.flatMap((each) => (each.tool_calls || []).map((call) => call.id)).filter(Boolean));
  const results = new Map();
  const items = [];
  messages.forEach((message, number) => {
    const isResult = message.role === "tool" && called.has(message.tool_call_id) && !results.has(message.tool_call_id);
    if (isResult) results.set(message.tool_call_id, message);
    else items.push({ message, number });
  });
  return { items, results };
}

function pretty(text) {
  try {
    return [JSON.stringify(JSON.parse(text), null, 2), "json"];
  } catch {
    return [text, ""];
  }
}

function Call({ call, result, isRaw, marked }) {
  const [text, language] = isRaw ? [call.arguments, ""] : pretty(call.arguments || "");
  const isBroken = Boolean(call.arguments) && language === "" && !isRaw;
  return html`<div class="call">
    <p class="callname"><span aria-hidden="true">→</span> <code>${call.name}</code> ${isBroken && html`<span class="warn">the arguments are not JSON</span>`}</p>
    ${marked?.arguments || (text && text !== "{}" && html`<${LongText} text=${text}>${(shown) => html`<${Code} text=${shown} language=${language} />`}<//>`)}
    ${result && html`<div class="result"><p class="quiet">result</p>${marked?.result || parts(result.content, isRaw, true)}</div>`}
  </div>`;
}

function parts(content, isRaw, isTool = false) {
  if (content === null || content === undefined || content === "") return html`<p class="quiet">(empty)</p>`;
  if (isTool && typeof content === "string") {
    const [text, language] = isRaw ? [content, ""] : pretty(content);
    return html`<${LongText} text=${text}>${(shown) => html`<${Code} text=${shown} language=${language} />`}<//>`;
  }
  return (Array.isArray(content) ? content : [content]).map((part, place) => html`<${Part} key=${place} part=${part} isRaw=${isRaw} />`);
}

/** Tokens, seconds and cost of a call of the model, as text; "" if unknown. */
export function figures({ tokens, seconds, cost }) {
  const words = [];
  if (tokens) {
    const parts = [tokens.cached && `${compact(tokens.cached)} cached`, tokens.reasoning && `${compact(tokens.reasoning)} reasoning`];
    words.push([`${compact(tokens.input)} → ${compact(tokens.output)} tokens`, ...parts.filter(Boolean)].join(", "));
  }
  if (seconds !== null && seconds !== undefined) words.push(duration(seconds));
  if (cost !== null && cost !== undefined) words.push(dollars(cost));
  return words.join(" · ");
}

function Figures({ message, twins }) {
  const texts = (twins || [["", message]]).map(([letter, each]) => [letter, figures(each)]).filter(([, text]) => text);
  return texts.map(([letter, text]) => html`<span key=${letter} class="quiet figures" title="tokens of the prompt and of the reply, time and cost of this call of the model">${letter && html`<b>${letter}</b> `}${text}</span>`);
}

/**
 * `results`: messages with the results of this message's tool calls, by id of the call. `marked`: elements to show instead
 * of its texts, by name (`reasoning`, `content`; `calls`: `arguments` and `result` of each call). `twins`: messages whose
 * figures are shown, each with a letter before it; its own by default.
 */
export function Message({ message, number, results, isRaw, isHere, hrefOfTurn, marked, twins, prefix = "" }) {
  const [ownRaw, setOwnRaw] = useState(null);
  const raw = ownRaw ?? isRaw;
  const role = ROLES[message.role] || "other";
  const calls = message.tool_calls || [];
  const hasText = textOf(message.content) !== "" || Array.isArray(message.content);
  const others = Object.keys(message.other || {}).length > 0;
  return html`<article class=${`message role-${role}${message.prompt ? " in-prompt" : ""}${isHere ? " here" : ""}`} id=${`${prefix}m${number}`} aria-label=${`${message.role}, message ${number + 1}`} tabindex="-1">
    <header><b class="role">${message.role}${message.name && html` <span class="quiet">${message.name}</span>`}</b>
      ${message.turn && html`<a class="quiet" href=${hrefOfTurn(message.turn)} title="link to this turn">turn ${message.turn}</a>`}
      <${Figures} message=${message} twins=${twins} />
      <span class="tools">
        <button type="button" class="small" aria-pressed=${raw} onClick=${() => setOwnRaw(!raw)}>Raw</button>
        <${Copy} text=${() => textOf(message.content) || JSON.stringify(message, null, 2)} title="copy this message" />
      </span></header>
    ${message.reasoning && html`<details class="reasoning" open=${Boolean(marked?.reasoning)}><summary>Reasoning <span class="quiet">${compact(message.reasoning.length)} characters</span></summary>
      ${marked?.reasoning || html`<${Text} text=${message.reasoning} isRaw=${raw} />`}</details>`}
    ${(hasText || (!calls.length && !message.reasoning)) && html`<div class="content">${marked?.content || parts(message.content, raw, message.role === "tool")}</div>`}
    ${calls.map((call, place) => html`<${Call} key=${call.id || place} call=${call} result=${results.get(call.id)} isRaw=${raw} marked=${marked?.calls?.[place]} />`)}
    ${others && html`<details class="others"><summary>Other fields</summary><${Tree} value=${message.other} /></details>`}
  </article>`;
}
