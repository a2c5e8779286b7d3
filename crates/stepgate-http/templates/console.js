// Keeps an open page current, and recomputes the digests of a run in this browser.
// Every page works without it.
"use strict";

const REFRESH_MS = 30000;
const RETRY_MS = 2000;
// When buttons came or went, they take no click for so long: another one may have moved under the pointer.
const SETTLE_MS = 700;

// The content as the server sent it last, before this script changed it.
let fetched = document.querySelector("main").innerHTML;
let isFetching = false;
let isStale = false;

// Fetches the page again and shows what changed. What the person typed, chose, opened and focused stays.
// A page that cannot change any more is left alone.
async function refresh() {
  if (document.querySelector("main[data-final]")) return;
  if (document.hidden) return;
  if (isFetching) {
    isStale = true;
    return;
  }
  isFetching = true;
  isStale = false;
  try {
    const response = await fetch(location.href, { headers: { "stepgate-refresh": "1" } });
    if (response.redirected) {
      location.reload();
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const present = page.querySelector("main");
    if (response.ok && present && present.innerHTML !== fetched) {
      fetched = present.innerHTML;
      show(present, page.title);
    }
  } catch {
    // The gateway is away. The stream says when it is back.
  } finally {
    isFetching = false;
    if (isStale) setTimeout(refresh, RETRY_MS);
  }
}

function show(present, title) {
  const main = document.querySelector("main");
  const [kept, before] = [state(main), order(main)];
  main.replaceChildren(...present.childNodes);
  restore(main, kept);
  if (order(main) !== before) {
    main.classList.add("settling");
    setTimeout(() => main.classList.remove("settling"), SETTLE_MS);
  }
  if (document.title !== title) {
    document.title = title;
    document.getElementById("news").textContent = title;
  }
  checkChain();
}

// What can be pressed on the page, one after the other.
function order(main) {
  return [...main.querySelectorAll("button, input, summary")].map(nameOf).join();
}

// Names an element that is there again after a refresh: by its id, its key or its field, or as the n-th of its kind
// within the nearest element with an id.
function nameOf(element) {
  if (element.id || element.dataset.key) return element.id || element.dataset.key;
  if (element.name) return `${element.name}=${element.value}`;
  const place = element.parentElement.closest("[id]");
  return `${place.id} ${element.tagName} ${[...place.querySelectorAll(element.tagName)].indexOf(element)}`;
}

function state(main) {
  const kept = { open: new Set(), values: new Map(), checked: new Set(), focus: null };
  main.querySelectorAll("details").forEach((it) => it.open && kept.open.add(nameOf(it)));
  main.querySelectorAll("textarea, input[type=text], select").forEach((it) => kept.values.set(it.id, it.value));
  main.querySelectorAll("input[type=checkbox]").forEach((it) => it.checked && kept.checked.add(nameOf(it)));
  if (main.contains(document.activeElement)) kept.focus = nameOf(document.activeElement);
  return kept;
}

function restore(main, kept) {
  main.querySelectorAll("details").forEach((it) => { if (kept.open.has(nameOf(it))) it.open = true; });
  main.querySelectorAll("textarea, input[type=text], select").forEach((it) => {
    if (kept.values.has(it.id)) it.value = kept.values.get(it.id);
  });
  main.querySelectorAll("input[type=checkbox]").forEach((it) => { it.checked = kept.checked.has(nameOf(it)); });
  const focusable = main.querySelectorAll("a, button, input, textarea, select, summary");
  const focused = kept.focus && [...focusable].find((it) => nameOf(it) === kept.focus);
  if (focused) focused.focus({ preventScroll: true });
}

// One stream for a page that is seen: a browser opens only a few connections to one address.
let stream = null;

function follow() {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else if (stream === null) {
    stream = new EventSource("/live");
    stream.onmessage = refresh;
    // The browser connects again by itself. What happened before the stream was open shows now.
    stream.onopen = refresh;
  }
}

// RFC 8785 for entries: strings, whole numbers and null, with sorted names.
function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

// An artifact's text begins with its own digest, which does not cover itself.
const SEAL = /^\{"_digest":"[0-9a-f]{64}",/;

async function sha256(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Every digest of the run, as this browser computes it: the name of its place, and whether it is right.
async function checked(chain) {
  const results = [];
  let previous = "0".repeat(64);
  for (const { entry, artifact } of chain.entries) {
    const { entry_digest, ...covered } = entry;
    const holds = await sha256(canonical(covered)) === entry_digest
      && await sha256(artifact.replace(SEAL, "{")) === entry.artifact_digest
      && entry.prev_entry_digest === previous;
    results.push([`entry-${entry.sequence_number}`, holds]);
    previous = entry_digest;
  }
  if (chain.record) {
    const { text, digest } = chain.record;
    const ends = JSON.parse(text).last_entry_digest;
    const holds = await sha256(text) === digest && (ends === null || ends === previous);
    results.push(["record", holds]);
  }
  return results;
}

async function checkChain() {
  const place = document.querySelector("[data-chain]");
  if (!place) return;
  const verdict = document.getElementById("chain-verdict");
  if (!window.crypto || !crypto.subtle) {
    verdict.textContent = "This browser computes digests only over HTTPS or on this machine.";
    return;
  }
  try {
    const response = await fetch(place.dataset.chain, { headers: { "stepgate-refresh": "1" } });
    if (!response.ok) throw new Error(response.statusText);
    const results = await checked(await response.json());
    for (const [name, holds] of results) {
      const mark = document.getElementById(`mark-${name}`);
      if (mark) {
        mark.textContent = holds ? "✓ recomputed" : "✗ does not match";
        mark.className = holds ? "mark good" : "mark bad";
      }
    }
    const bad = results.filter(([, holds]) => !holds).length;
    verdict.textContent = bad === 0
      ? `This browser recomputed ${results.length} of ${results.length} digests: all match.`
      : `This browser recomputed ${results.length} digests: ${bad} do not match. The run was changed.`;
    verdict.className = bad === 0 ? "verdict good" : "verdict bad";
  } catch {
    verdict.textContent = "The digests could not be recomputed: the chain could not be fetched.";
  }
}

if (document.querySelector("[data-live]")) {
  follow();
  document.addEventListener("visibilitychange", follow);
  setInterval(refresh, REFRESH_MS);
}
checkChain();
