// The table of examples and their transcripts. Every text of others is set as text, never as markup.
"use strict";
(() => {
  const runs = JSON.parse(document.getElementById("data-rows").textContent);
  let transcripts = null; // parsed when the first one is opened
  const PAGE = 50;
  const MEASURES = { turns: "turns", tokens: "tokens", seconds: "seconds", cost: "cost" };

  function make(name, options, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(options || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") element.className = value;
      else if (key === "click") element.addEventListener("click", value);
      else element.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) element.append(child);
    }
    return element;
  }

  const score = (value) => {
    if (value === null) return "–";
    const size = Math.abs(value);
    return size && (size >= 1e6 || size < 1e-5) ? value.toPrecision(3) : value.toFixed(3);
  };
  const amount = (measure, value) => {
    if (value === null) return "–";
    if (measure === "cost") return "$" + (value >= 0.1 ? value.toFixed(2) : Number(value.toPrecision(2)));
    if (measure === "seconds") return value < 10 ? value.toPrecision(2) : Math.round(value).toLocaleString("en");
    return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(1);
  };

  // One row an example: [run, position in the run's columns].
  const rows = [];
  runs.forEach((run, number) => run.example.forEach((_, position) => rows.push([number, position])));
  const lower = new Map();
  const searched = (row) => {
    const key = row[0] + ":" + row[1];
    let found = lower.get(key);
    if (found === undefined) {
      const run = runs[row[0]], code = run.reason[row[1]];
      found = (run.example[row[1]] + "\n" + run.asked[row[1]] + "\n" + (code < 0 ? "" : run.reasons[code])).toLowerCase();
      lower.set(key, found);
    }
    return found;
  };

  const passes = (run, value) => value !== null && value >= run.threshold - 1e-9;
  const OUTCOMES = {
    all: ["all examples", () => true],
    shown: ["with a transcript here", (run, n) => run.transcript[n] >= 0],
    unscored: ["with a rollout without a score", (run, n) => run.scored[n] < run.made[n]],
    failed: ["no rollout passed", (run, n) => run.scored[n] > 0 && !passes(run, run.high[n])],
    mixed: ["some rollouts passed, some did not", (run, n) => passes(run, run.high[n]) && !passes(run, run.low[n])],
    passed: ["every scored rollout passed", (run, n) => run.scored[n] > 0 && passes(run, run.low[n])],
  };

  const state = { text: "", environment: "", run: "", outcome: "all", sort: "", up: true, page: 0, shown: rows };
  const home = document.getElementById("explorer");
  const environments = [...new Set(runs.map((run) => run.environment))];
  const measures = Object.keys(MEASURES).filter((measure) => runs.some((run) => run.measures[measure]));

  const columns = [
    ["example", "example", (run, n) => run.example[n], false],
    ...(environments.length > 1 ? [["environment", "environment", (run) => run.environment, false]] : []),
    ...(runs.length > 1 ? [["model", "model", (run) => run.label, false]] : []),
    ["asked", "question", (run, n) => run.asked[n], false],
    ["mean", "mean", (run, n) => run.mean[n], true],
    ["scored", "scored", (run, n) => run.scored[n] / run.made[n], true],
    ...measures.map((m) => [m, MEASURES[m], (run, n) => (run.measures[m] ? run.measures[m][n] : null), true]),
  ];

  function option(value, words) {
    return make("option", { value }, words);
  }
  function chooser(words, choices, key) {
    const select = make("select", {}, choices.map(([value, said]) => option(value, said)));
    select.addEventListener("change", () => { state[key] = select.value; update(); });
    return make("label", {}, words, select);
  }

  const search = make("input", { type: "search", placeholder: "id, question or reason", autocomplete: "off" });
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.text = search.value.trim().toLowerCase(); update(); }, 120);
  });
  const filters = make("div", { class: "filters" },
    make("label", { class: "grow" }, "Search", search),
    environments.length > 1 ? chooser("Environment", [["", "all"], ...environments.map((e) => [e, e])], "environment") : null,
    runs.length > 1 ? chooser("Model", [["", "all"], ...[...new Set(runs.map((r) => r.label))].map((l) => [l, l])], "run") : null,
    chooser("Outcome", Object.entries(OUTCOMES).map(([key, [words]]) => [key, words]), "outcome"));

  const heads = new Map();
  const head = make("tr", {}, columns.map(([key, words, , figure]) => {
    const cell = make("th", { scope: "col", "aria-sort": "none", class: figure ? "n" : null },
      make("button", { type: "button", click: () => sortBy(key) }, words));
    heads.set(key, cell);
    return cell;
  }));
  const body = make("tbody");
  const count = make("span", { "aria-live": "polite" });
  const before = make("button", { type: "button", click: () => turn(-1) }, "‹ Back");
  const after = make("button", { type: "button", click: () => turn(1) }, "Next ›");
  home.append(filters,
    make("div", { class: "scroll examples", tabindex: "0", role: "region", "aria-label": "table of examples" },
      make("table", {}, make("thead", {}, head), body)),
    make("div", { class: "pager" }, before, count, after));

  function sortBy(key) {
    const figure = columns.find((column) => column[0] === key)[3];
    if (state.sort !== key) { state.sort = key; state.up = !figure || key === "mean" || key === "scored"; }
    else state.up = !state.up;
    update();
  }

  function ordered(found) {
    if (!state.sort) return found;
    const value = columns.find((column) => column[0] === state.sort)[2];
    const sign = state.up ? 1 : -1;
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    const keyed = found.map((row, place) => [value(runs[row[0]], row[1]), place, row]);
    keyed.sort(([a, i], [b, j]) => {
      if (a === b) return i - j;
      if (a === null) return 1; // what is unknown comes last, either way
      if (b === null) return -1;
      return sign * (typeof a === "number" ? a - b : compare(a, b)) || i - j;
    });
    return keyed.map((each) => each[2]);
  }

  function update() {
    const keeps = OUTCOMES[state.outcome][1];
    state.shown = ordered(rows.filter((row) => {
      const run = runs[row[0]];
      return (!state.run || run.label === state.run) && (!state.environment || run.environment === state.environment)
        && keeps(run, row[1]) && (!state.text || searched(row).includes(state.text));
    }));
    state.page = 0;
    for (const [key, cell] of heads) {
      cell.setAttribute("aria-sort", state.sort !== key ? "none" : state.up ? "ascending" : "descending");
    }
    draw();
  }

  function turn(step) {
    state.page += step;
    draw();
  }

  function draw() {
    const begin = state.page * PAGE, end = Math.min(begin + PAGE, state.shown.length);
    body.replaceChildren(...state.shown.slice(begin, end).map((row, place) => line(row, begin + place)));
    const total = state.shown.length.toLocaleString("en");
    count.textContent = state.shown.length ? `${(begin + 1).toLocaleString("en")}–${end.toLocaleString("en")} of ${total}` : "none is like that";
    before.disabled = begin === 0;
    after.disabled = end >= state.shown.length;
  }

  function line([number, n], place) {
    const run = runs[number];
    const cells = columns.map(([key, , value, figure]) => {
      if (key === "example") {
        return make("td", {}, run.transcript[n] < 0 ? run.example[n]
          : make("button", { type: "button", click: () => open(place) }, run.example[n] || "(no id)"));
      }
      if (key === "model") return make("td", {}, make("span", { class: "who" },
          make("span", { class: `mark t-c${run.colour}`, "aria-hidden": "true" }, run.symbol), make("span", { class: "name" }, run.label)));
      if (key === "asked") return make("td", { class: "asked" }, run.asked[n]);
      if (key === "mean") return make("td", { class: "n" }, score(run.mean[n]));
      if (key === "scored") {
        const lacks = run.scored[n] < run.made[n];
        const why = run.reason[n] < 0 ? null : run.reasons[run.reason[n]];
        return make("td", { class: "n", title: why }, make("span", { class: lacks ? "warn" : null }, `${run.scored[n]} of ${run.made[n]}`));
      }
      const said = value(run, n);
      return make("td", { class: figure ? "n" : null }, figure ? amount(key, said) : said);
    });
    return make("tr", {}, cells);
  }

  const dialog = make("dialog", { "aria-label": "transcript" });
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));

  function readable(row) {
    return runs[row[0]].transcript[row[1]] >= 0;
  }
  function neighbour(place, step) {
    for (let at = place + step; at >= 0 && at < state.shown.length; at += step) if (readable(state.shown[at])) return at;
    return -1;
  }

  function open(place) {
    const [number, n] = state.shown[place];
    show(number, n, neighbour(place, -1), neighbour(place, 1));
  }

  function show(number, n, back, next) {
    if (transcripts === null) transcripts = JSON.parse(document.getElementById("data-transcripts").textContent);
    const run = runs[number], data = transcripts[run.transcript[n]];
    const held = dialog.contains(document.activeElement) ? document.activeElement.textContent : "";
    const step = (place, words) => {
      const button = make("button", { type: "button", click: () => open(place) }, words);
      button.disabled = place < 0;
      return button;
    };
    const bar = make("div", { class: "bar" },
      make("h3", {}, `Example ${data.name}`), step(back, "‹ Back"), step(next, "Next ›"),
      make("button", { type: "button", click: () => dialog.close() }, "Close"));
    const inside = make("div", { class: "inside" },
      make("p", { class: "note" }, [...new Set([run.environment, run.label, data.task])].filter(Boolean).join(" · ")),
      others(number, n),
      data.prompt.map(message),
      data.expected ? make("dl", { class: "facts" }, make("dt", {}, "expected"), make("dd", {}, data.expected)) : null,
      data.rollouts.map(rollout),
      data.more ? make("p", { class: "note" }, `${data.more} more rollouts of this example are not on the page.`) : null);
    dialog.replaceChildren(bar, inside);
    if (!dialog.open) dialog.showModal();
    // Who goes on by keyboard stays where they were: the button that was pressed is a new one now.
    else (buttons(bar).find((each) => each.textContent === held && !each.disabled) || buttons(bar).at(-1)).focus();
    dialog.scrollTop = 0;
    history.replaceState(null, "", `#example=${number}.${n}`);
  }

  const buttons = (bar) => [...bar.querySelectorAll("button")];

  // The same example in the other runs of the environment.
  function others(number, n) {
    const here = runs[number], key = transcripts[here.transcript[n]].key;
    const found = [];
    runs.forEach((run, other) => {
      if (other === number || run.environment !== here.environment) return;
      const place = run.transcript.findIndex((at) => at >= 0 && transcripts[at].key === key);
      if (place >= 0) {
        const words = `${run.label}: ${score(run.mean[place])}`;
        found.push(make("button", { type: "button", click: () => show(other, place, -1, -1) }, words));
      }
    });
    return found.length ? make("div", { class: "others" }, "The same example by", found) : null;
  }

  function message(said) {
    if (said.note) return make("p", { class: "note" }, said.note);
    const kind = ["user", "system", "tool", "assistant"].find((role) => said.role.split(" · ")[0] === role) || "";
    const empty = !(said.texts.length || said.calls);
    return make("div", { class: `message ${kind}` },
      make("div", { class: "role" }, said.role),
      (said.thoughts || []).map((text) => make("details", {}, make("summary", {}, "reasoning"), make("div", { class: "text" }, text))),
      said.texts.map((text) => make("div", { class: "text" }, text)),
      (said.calls || []).map((call) => make("div", { class: "call" }, call)),
      empty ? make("div", { class: "note" }, "(empty)") : null,
      said.others ? facts(said.others) : null);
  }

  function facts(pairs) {
    return make("dl", { class: "facts" }, pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }

  function rollout(data) {
    return make("div", { class: "rollout" },
      make("h4", {}, `Rollout ${data.index} · `, make("span", { class: data.scored ? null : "warn" }, data.verdict)),
      data.messages.map(message),
      data.error ? facts([["error", data.error]]) : null,
      facts(data.figures),
      data.judges.map((judge) => make("div", { class: "message" },
        make("div", { class: "role" }, `judge · ${judge.name}`), make("div", { class: "text" }, judge.text))));
  }

  // What is folded away is printed all the same.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details:not([open])")];
    folded.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));

  document.getElementById("no-script").hidden = true;
  home.hidden = false;
  update();
  const asked = /^#example=(\d+)\.(\d+)$/.exec(location.hash);
  if (asked) {
    const [number, n] = [Number(asked[1]), Number(asked[2])];
    if (runs[number] && runs[number].transcript[n] >= 0) show(number, n, -1, -1);
  }
})();
