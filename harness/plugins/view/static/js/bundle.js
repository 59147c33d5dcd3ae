/**
 * Answers of a bundle (`bench view --bundle`), from its files in place of the server. Rollouts are numbered in table
 * order. A column has a code for each rollout, -1 if it has no value; a query that the pages make is a set of codes.
 */

import { ApiError } from "./api.js";

const NO_QUERY = "Queries need bench view: a bundle has the groups of its columns only.";

/** Number of files to keep in memory. */
const KEPT = 60;
const files = new Map();

function file(path) {
  const found = files.get(path) || read(path);
  files.delete(path);
  files.set(path, found);
  if (files.size > KEPT) files.delete(files.keys().next().value);
  return found;
}

async function read(path) {
  try {
    const reply = await fetch(path, { cache: "no-cache" });
    if (reply.ok) return await reply.json();
    throw new ApiError(reply.status, { error: `the file ${path} of this bundle is missing` });
  } catch (error) {
    files.delete(path);
    throw error instanceof ApiError ? error : new ApiError(0, { error: `the file ${path} of this bundle cannot be read` });
  }
}

/** The answer to a request of a page: the same values as the server's, for the queries that the pages make. */
export async function answer(path, parameters = {}) {
  const [kind, id, what, ...place] = path.split("/").map(decodeURIComponent);
  if (kind === "columns") return { name: parameters.name, values: [], more: 0 };
  if (id === undefined) return file("data/runs.json");
  const number = (await file("bench-bundle.json")).runs.indexOf(id);
  if (kind !== "runs" || number < 0) throw new ApiError(404, { error: `There is no ${kind === "runs" ? "run" : "page"} ${id} in this bundle.` });
  const folder = `data/${number}`;
  const info = await file(`${folder}/run.json`);
  if (what === undefined) return info;
  const run = { folder, info, ...info.bundle };
  if (what === "rollouts" && place.length) return rolloutAt(run, ...place.map(Number));
  return { examples: examplesPage, rollouts: rolloutsPage, groups: groupsPage, step }[what](run, parameters);
}

const tableOf = (run) => file(`${run.folder}/rollouts.json`);

function columnOf(run, name) {
  const place = run.columns.indexOf(name);
  if (place < 0) throw new ApiError(400, { error: `This bundle has no column ${name}.` });
  return file(`${run.folder}/column-${place}.json`);
}

const columnsOf = (run, names) => Promise.all(names.map((name) => columnOf(run, name)));

/** Value of a rollout in a column; `none` if it has none. */
const valueAt = ({ codes, values }, position, none = null) => (codes[position] < 0 ? none : values[codes[position]]);

const isNumbers = (column) => column.ranks === undefined;

/** For each rollout, whether a query selects it. */
async function selected(run, table, q = "") {
  const matches = new Uint8Array(table.r.length).fill(1);
  if (!q.trim()) return matches;
  for (const [, name, ranges] of conditions(q, await file(`${run.folder}/queries.json`))) {
    const { codes, values } = await columnOf(run, name);
    const allowed = new Uint8Array(values.length + 1);
    for (const [first, last] of ranges) allowed.fill(1, first + 1, last + 2);
    codes.forEach((code, position) => allowed[code + 1] || (matches[position] = 0));
  }
  return matches;
}

/** The conditions that a query consists of, all of which must hold; only those of the bundle's groups are known. */
function conditions(q, known) {
  const found = [];
  let depth = 0;
  for (let at = 0; at < q.length; ) {
    if (/[\s()]/.test(q[at])) {
      depth += { "(": 1, ")": -1 }[q[at]] || 0;
      at += 1;
      if (depth < 0) break;
      continue;
    }
    const fits = known.filter(([text]) => q.startsWith(text, at) && /^[\s)]?$/.test(q.charAt(at + text.length)));
    if (!fits.length) throw new ApiError(400, { error: NO_QUERY });
    const longest = fits.reduce((a, b) => (b[0].length > a[0].length ? b : a));
    found.push(longest);
    at += longest[0].length;
  }
  if (depth) throw new ApiError(400, { error: NO_QUERY });
  return found;
}

/** The positions of an example's rollouts: the first, and the one behind the last. */
const endsOf = (table, example) => [table.starts[example], table.starts[example + 1] ?? table.r.length];

/** Sort pairs of an item and its key; equal keys keep their order, those without a key are last. */
function ordered(pairs, isDown) {
  const sign = isDown ? -1 : 1;
  return pairs.sort(([, a], [, b]) => (a === null || b === null ? (a === null) - (b === null) : sign * (a - b))).map(([item]) => item);
}

/** Value of a column for an example: of numbers the mean over the matching rollouts, else the code of the first one. */
function exampleValue(table, matches, column, example) {
  const [first, end] = endsOf(table, example);
  let [sum, number] = [0, 0];
  for (let position = first; position < end; position += 1) {
    const code = column.codes[position];
    if (!matches[position] || code < 0) continue;
    if (!isNumbers(column)) return code;
    sum += column.values[code];
    number += 1;
  }
  return number ? sum / number : null;
}

/** Numbers of the examples with a matching rollout, sorted. */
function exampleOrder(table, matches, column, isDown) {
  const chosen = table.starts.map((_, example) => example).filter((example) => matches.subarray(...endsOf(table, example)).includes(1));
  if (!column) return isDown ? chosen.reverse() : chosen;
  const key = (value) => (value === null || isNumbers(column) ? value : column.ranks[value]);
  return ordered(chosen.map((example) => [example, key(exampleValue(table, matches, column, example))]), isDown);
}

/** What a page needs to draw rollouts: a function that gives the facts of one for its strip. */
async function strips(run, table) {
  const [reward, outcome, reason, passed] = await columnsOf(run, ["reward", "outcome", "reason", "is:passed"]);
  return (position) => ({
    r: table.r[position], reward: valueAt(reward, position), passed: passed.codes[position] === 1,
    outcome: valueAt(outcome, position, ""), reason: valueAt(reason, position, ""),
  });
}

/** Beginnings of the texts of a rollout and its example. */
async function textsAt(run, table, position) {
  const { examples, replies, first } = await file(`${run.folder}/texts-${Math.floor(position / run.texts)}.json`);
  const [example, task, answer, prompt] = examples[table.places[position]] || [null, "", "", ""];
  return { example, task, answer, prompt, reply: replies[position - first] };
}

/** What a request for rows selects: the table, whether each rollout matches, and the column to sort by. */
async function chosenBy(run, { q, sort, desc }) {
  const table = await tableOf(run);
  const matches = await selected(run, table, q);
  return { table, matches, column: sort ? await columnOf(run, sort) : null, isDown: desc === "1" };
}

const pageOf = (items, { offset, limit = 100 }) => items.slice(Number(offset || 0), Number(offset || 0) + Number(limit));

const frame = (run, parameters) => ({ index: run.info.index, scan: null, offset: Number(parameters.offset || 0) });

async function examplesPage(run, parameters) {
  const { table, matches, column, isDown } = await chosenBy(run, parameters);
  const strip = await strips(run, table);
  const examples = exampleOrder(table, matches, column, isDown);
  const rows = pageOf(examples, parameters).map(async (number) => {
    const [first, end] = endsOf(table, number);
    const positions = Array.from({ length: end - first }, (_, place) => first + place);
    const value = column ? exampleValue(table, matches, column, number) : null;
    return {
      ...(await textsAt(run, table, positions.find((position) => matches[position]))),
      index: table.places[first], mean: table.means[number],
      value: value === null || isNumbers(column) ? value : column.values[value],
      rollouts: positions.map((position) => ({ ...strip(position), match: matches[position] === 1 })),
    };
  });
  const matched = matches.reduce((sum, each) => sum + each, 0);
  return { ...frame(run, parameters), total: examples.length, matched, rows: await Promise.all(rows) };
}

async function rolloutsPage(run, parameters) {
  const { table, matches, column, isDown } = await chosenBy(run, parameters);
  const strip = await strips(run, table);
  const names = ["tokens", "cost", "seconds", "turns"];
  const [stop, ...figures] = await columnsOf(run, ["stop", ...names]);
  const all = [...table.r.keys()].filter((position) => matches[position]);
  const key = (code) => (code < 0 ? null : isNumbers(column) ? code : column.ranks[code]);
  const order = column ? ordered(all.map((position) => [position, key(column.codes[position])]), isDown) : isDown ? all.reverse() : all;
  const rows = pageOf(order, parameters).map(async (position) => ({
    ...(await textsAt(run, table, position)), ...strip(position), index: table.places[position],
    stop: valueAt(stop, position, ""), ...Object.fromEntries(figures.map((each, place) => [names[place], valueAt(each, position)])),
    value: column ? valueAt(column, position) : null,
  }));
  return { ...frame(run, parameters), total: order.length, rows: await Promise.all(rows) };
}

/** Groups by a column. Without a query they are recorded; the groups of a selection have no intervals. */
async function groupsPage(run, { q, by, limit = 50 }) {
  const place = run.groups.includes(by) ? run.columns.indexOf(by) : -1;
  if (place < 0) throw new ApiError(404, { error: `This bundle has no groups by ${by}.` });
  const recorded = await file(`${run.folder}/groups-${place}.json`);
  const cut = ({ groups, more, ...rest }) => ({ ...rest, groups: groups.slice(0, limit), more: more + Math.max(0, groups.length - limit) });
  if (!q?.trim()) return cut(recorded);
  const table = await tableOf(run);
  const matches = await selected(run, table, q);
  const [column, reward] = await columnsOf(run, [by, "reward"]);
  const found = new Map();
  table.starts.forEach((_, example) => addGroups(found, table, example, matches, column, reward));
  const queries = new Map(recorded.groups.map((each) => [each.value, each.query]));
  const groups = [...found.values()].sort((a, b) => b.count - a.count);
  const total = groups.reduce((sum, each) => sum + each.count, 0);
  return cut({
    index: run.info.index, scan: null, by, total, more: 0,
    groups: groups.map(({ sum, examples, ...each }) => ({
      ...each, share: each.count / total, mean: examples ? sum / examples : null, low: null, high: null,
      query: queries.get(each.value) ?? null,
    })),
  });
}

/** Add the rollouts of one example to groups by their value, with the sums of the means of examples. */
function addGroups(found, table, example, matches, column, reward) {
  const sums = new Map();
  const [first, end] = endsOf(table, example);
  for (let position = first; position < end; position += 1) {
    if (!matches[position]) continue;
    const value = valueAt({ codes: column.codes, values: column.texts || column.values }, position);
    if (!found.has(value)) found.set(value, { value, count: 0, scored: 0, sum: 0, examples: 0, first: { index: table.places[position], r: table.r[position] } });
    const group = found.get(value);
    group.count += 1;
    const number = valueAt(reward, position);
    if (number === null) continue;
    group.scored += 1;
    const [sum, count] = sums.get(group) || [0, 0];
    sums.set(group, [sum + number, count + 1]);
  }
  for (const [group, [sum, count]] of sums) {
    group.sum += sum / count;
    group.examples += 1;
  }
}

/** The next or previous example, rollout or failed rollout, in the order of the page of examples. */
async function step(run, { index, r, by = "example", dir, ...parameters }) {
  const { table, matches, column, isDown } = await chosenBy(run, parameters);
  const failed = by === "failed" ? (await columnOf(run, "is:failed")).codes : null;
  const examples = exampleOrder(table, matches, column, isDown);
  const here = examples.findIndex((example) => table.places[table.starts[example]] === index);
  const steps = examples.flatMap((example, rank) => {
    const [first, end] = endsOf(table, example);
    const own = [];
    for (let position = first; position < end; position += 1) if (matches[position] && (!failed || failed[position] === 1)) own.push([rank, position]);
    return by === "example" ? own.slice(0, 1) : own;
  });
  // An example that the query does not select is behind all others.
  const at = here >= 0 ? here : table.places.includes(index) ? examples.length : -1;
  const compared = ([rank, position]) => rank - at || (by === "example" ? 0 : table.r[position] - r);
  const next = dir > 0 ? steps.find((each) => compared(each) > 0) : steps.findLast((each) => compared(each) < 0);
  return next ? { index: table.places[next[1]], r: table.r[next[1]] } : { index: null, r: null };
}

async function rolloutAt(run, index, r) {
  const at = run.chunks.findLastIndex(([place, rollout]) => place < index || (place === index && rollout <= r));
  const chunk = at < 0 ? null : await file(`${run.folder}/transcripts-${at}.json`);
  const found = chunk?.rollouts[`${index}/${r}`];
  if (!found) throw new ApiError(404, { error: `The run ${run.info.run.id} has no rollout ${r} of example ${index}.` });
  if (found.error !== undefined && found.messages === undefined) throw new ApiError(500, found);
  return { ...found, run: run.info.run, siblings: chunk.siblings[index] };
}
