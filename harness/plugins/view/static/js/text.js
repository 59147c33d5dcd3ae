/** Markdown and code as elements. Libraries only split text into tokens; elements are made here, from text nodes. */

import { lexer } from "../vendor/marked.js";
import { html } from "./ui.js";

const MOST = 200_000;
const ALIASES = { py: "python", js: "javascript", ts: "javascript", sh: "bash", shell: "bash", yml: "yaml", rs: "rust", "c++": "cpp" };

/** Coloured code; plain where the language is not known. */
export function Code({ text, language = "" }) {
  const name = ALIASES[language.toLowerCase()] || language.toLowerCase();
  const prism = globalThis.Prism;
  const grammar = prism && Object.hasOwn(prism.languages, name) && typeof prism.languages[name] === "object" ? prism.languages[name] : null;
  if (!grammar || text.length > 50_000) return html`<pre class="code"><code>${text}</code></pre>`;
  return html`<pre class="code"><code>${coloured(prism.tokenize(text, grammar))}</code></pre>`;
}

function coloured(token) {
  if (typeof token === "string") return token;
  if (Array.isArray(token)) return token.map(coloured);
  return html`<span class=${`tok tok-${token.type}`}>${coloured(token.content)}</span>`;
}

export function Markdown({ text }) {
  if (text.length > MOST) return html`<pre class="plain">${text}</pre>`;
  let tokens;
  try {
    tokens = lexer(text);
  } catch {
    return html`<pre class="plain">${text}</pre>`; // a text that its parser does not understand is shown as it is
  }
  return html`<div class="markdown">${tokens.map(block)}</div>`;
}

function block(token, place) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return html`<p key=${place} class="heading" role="heading" aria-level=${Math.min(6, token.depth + 3)}>${spans(token)}</p>`;
    case "paragraph":
      return html`<p key=${place}>${spans(token)}</p>`;
    case "text":
      return html`<span key=${place}>${spans(token)}</span>`;
    case "code":
      return html`<${Code} key=${place} text=${token.text} language=${(token.lang || "").split(/\s/)[0]} />`;
    case "blockquote":
      return html`<blockquote key=${place}>${token.tokens.map(block)}</blockquote>`;
    case "list": {
      const items = token.items.map((item, number) => html`<li key=${number}>${item.task ? (item.checked ? "☑ " : "☐ ") : ""}${item.tokens.map(block)}</li>`);
      return token.ordered ? html`<ol key=${place} start=${token.start || 1}>${items}</ol>` : html`<ul key=${place}>${items}</ul>`;
    }
    case "table":
      return html`<div key=${place} class="scroll"><table class="plain-table"><thead><tr>${token.header.map((cell, number) => html`<th key=${number} scope="col">${inline(cell.tokens)}</th>`)}</tr></thead>
        <tbody>${token.rows.map((row, number) => html`<tr key=${number}>${row.map((cell, at) => html`<td key=${at}>${inline(cell.tokens)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "hr":
      return html`<hr key=${place} />`;
    default:
      return html`<span key=${place} class="literal">${token.raw}</span>`; // HTML stays text
  }
}

function spans(token) {
  return token.tokens ? inline(token.tokens) : unescaped(token.text);
}

function inline(tokens) {
  return tokens.map((token, place) => {
    switch (token.type) {
      case "strong":
        return html`<strong key=${place}>${inline(token.tokens)}</strong>`;
      case "em":
        return html`<em key=${place}>${inline(token.tokens)}</em>`;
      case "del":
        return html`<del key=${place}>${inline(token.tokens)}</del>`;
      case "codespan":
        return html`<code key=${place}>${unescaped(token.text)}</code>`;
      case "br":
        return html`<br key=${place} />`;
      case "link": {
        const inside = inline(token.tokens);
        if (!/^https?:\/\//i.test(token.href)) return html`<span key=${place} title=${token.href}>${inside}</span>`;
        return html`<a key=${place} href=${token.href} title=${token.href} target="_blank" rel="noopener noreferrer nofollow">${inside}</a>`;
      }
      case "image":
        return html`<span key=${place} class="literal" title=${token.href}>[image: ${token.text || token.href}]</span>`;
      case "escape":
        return unescaped(token.text);
      case "text":
        return token.tokens ? inline(token.tokens) : unescaped(token.text);
      default:
        return html`<span key=${place} class="literal">${token.raw}</span>`;
    }
  });
}

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };

/** Some versions of the parser write `&lt;` for `<` in its tokens. */
function unescaped(text) {
  return text.replace(/&(?:lt|gt|quot|#39|amp);/g, (found) => ENTITIES[found]);
}
