/** Requests to the server of `bench view`, and its events. */

import { useEffect, useRef, useState } from "../vendor/hooks.js";

export class ApiError extends Error {
  /** A refused request: `start` and `end` are the place of the mistake in a query, if there is one. */
  constructor(status, { error, start, end }) {
    super(error || `the server answered with status ${status}`);
    this.status = status;
    this.start = start;
    this.end = end;
  }
}

/** Address of an API call with its parameters; empty ones are left out. */
export function address(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `api/${path}${query ? `?${query}` : ""}`;
}

/** Whether this page is a bundle: files that `bench view --bundle` wrote, without a server. */
export const isBundle = document.querySelector('meta[name="bench-bundle"]') !== null;

export async function get(path, parameters, signal) {
  if (isBundle) {
    const { answer } = await import("./bundle.js");
    const found = await answer(path, parameters);
    signal?.throwIfAborted();
    return found;
  }
  return answered(address(path, parameters), { signal, headers: { Accept: "application/json" } });
}

export function post(path, value) {
  return answered(address(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
}

async function answered(url, options) {
  let reply, body;
  try {
    reply = await fetch(url, options);
    body = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!reply) throw new ApiError(0, { error: "the server does not answer: has `bench view` ended?" });
    throw new ApiError(reply.status, { error: `the server's answer with status ${reply.status} cannot be read` });
  }
  if (!reply.ok) throw new ApiError(reply.status, body);
  return body;
}

/**
 * The answer to an API call, asked again when the address or `revision` changes. Until a new answer is there, `data`
 * is the last one, and `isOld` says so.
 */
export function useApi(path, parameters = {}, revision = 0) {
  const url = path === null ? null : address(path, parameters);
  const [state, setState] = useState({ url: null, data: null, error: null, answered: -1 });
  useEffect(() => {
    if (url === null) return undefined;
    const control = new AbortController();
    const ask = () => get(path, parameters, control.signal).then(
      (data) => {
        setState({ url, data, error: null, answered: revision });
        if (data.scan) ask(); // the same request continues to read the journal
      },
      (error) => {
        if (error.name !== "AbortError") setState((last) => ({ url, data: last.data, error, answered: revision }));
      },
    );
    ask();
    return () => control.abort();
  }, [url, revision]);
  return { data: state.data, error: state.url === url ? state.error : null, isOld: state.url !== url, answered: state.answered };
}

/** As `useApi`, asked again after an event about one of the runs `ids`, once the last answer is there. */
export function useLiveApi(ids, path, parameters) {
  const [wanted, setWanted] = useState(0);
  const [asked, setAsked] = useState(0);
  const found = useApi(path, parameters, asked);
  useEvents(ids, () => setWanted((last) => last + 1));
  useEffect(() => {
    if (found.answered === asked) setAsked(wanted);
  }, [wanted, found.answered, asked]);
  return found;
}

/** Listen to the server's events about some runs (`null`: only about the list of runs) while a page is shown. */
export function useEvents(ids, onEvent) {
  const handler = useRef(onEvent);
  handler.current = onEvent;
  useEffect(() => {
    if (ids === undefined || isBundle) return undefined;
    const source = new EventSource(address("events", { runs: ids === null ? "" : ids }));
    for (const name of ["run", "runs", "statuses"]) {
      source.addEventListener(name, (event) => handler.current(name, event.data ? JSON.parse(event.data) : null));
    }
    return () => source.close();
  }, [ids]);
}
