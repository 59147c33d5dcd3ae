/** The state of the pages is the part of the address behind `#`: a path and parameters. */

import { useEffect, useState } from "../vendor/hooks.js";

export function here() {
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  const parts = (path || "/").split("/").filter(Boolean).map(decode);
  return { parts, parameters: Object.fromEntries(new URLSearchParams(query || "")) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(parts, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${parts.map((part) => encodeURIComponent(part).replaceAll("%2C", ",")).join("/")}${query ? `?${query}` : ""}`;
}

/** Go to a page; with `replace`, back returns to the page before this one. */
export function go(address, { replace = false } = {}) {
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}

export function usePlace() {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const changed = () => setPlace(here());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
