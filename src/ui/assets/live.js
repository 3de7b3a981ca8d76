// Loads the page again, off or every 2, 5 or 10 seconds, and changes what differs. Focus, scroll position, open details and
// what somebody fills in stay. It never asks twice at once, and not while the tab is hidden.
//
// An answer that is not this page is not shown. A sign-in page within the frame of this one would ask for a password at an
// address where nobody expects it. The page says instead as of when it is.
import { Idiomorph } from "./idiomorph.js";

const control = document.querySelector("[data-live]");
const select = control?.querySelector("select");
const says = control?.querySelector("[role=status]");
let tag = null;
let timer;
let asking = false;
let asOf = new Date();

async function refresh(seconds) {
  if (asking || document.hidden) return;
  asking = true;
  try {
    say(await load(seconds));
  } catch {
    say("the server does not answer");
  } finally {
    asking = false;
  }
}

/** Puts in what is new. Returns what is wrong, or an empty text. */
async function load(seconds) {
  // as old as others may have it already, so that open tabs share what the server has made
  const headers = { "cache-control": `max-age=${seconds - 1}` };
  if (tag) headers["if-none-match"] = tag;
  const response = await fetch(location.href, { headers, redirect: "manual" });
  if (response.status === 304) return "";
  if (response.type === "opaqueredirect" || response.redirected || [401, 403].includes(response.status))
    return "sign in again";
  if (response.status !== 200) return `the server answers ${response.status}`;
  const next = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!next.querySelector("[data-live]")) return "sign in again";
  if (document.querySelector("td input:checked")) return ""; // its row must not move away under who ticks others
  tag = response.headers.get("etag");
  Idiomorph.morph(document.querySelector("main"), next.querySelector("main"), {
    callbacks: { beforeAttributeUpdated: (name, element) => !isReaders(name, element) },
  });
  relate();
  return "";
}

const UNITS = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** "3 min ago": a time that stands alone, of the last or next week. What is said within a sentence stays, and so does the title. */
function relate() {
  for (const time of document.querySelectorAll(":is(td, dd) > time:only-child:not(.exact)")) {
    if (time.parentElement.childNodes.length > 1) continue;
    time.title ||= `${time.textContent} UTC`;
    const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
    const [size, unit] = UNITS.find(([size]) => Math.abs(seconds) >= size) ?? [];
    const text = size ? `${Math.floor(Math.abs(seconds) / size)} ${unit}` : "a moment";
    if (Math.abs(seconds) < 7 * 86_400) time.textContent = seconds > 0 ? `in ${text}` : `${text} ago`;
  }
}
relate();
setInterval(relate, 20_000);

/** Details that somebody has opened, and what they fill in: the answer has what the address says, and would take it away. */
function isReaders(name, element) {
  if (name === "open") return element.matches("details");
  return ["value", "selected", "checked"].includes(name) && element.closest("form") !== null;
}

function say(wrong) {
  if (!wrong) asOf = new Date();
  const text = wrong && `As of ${asOf.toISOString().slice(11, 19)}: ${wrong}`;
  if (says.textContent !== text) says.textContent = text; // else it would be read aloud again
}

function start(seconds) {
  clearInterval(timer);
  if (seconds > 0) timer = setInterval(refresh, seconds * 1000, seconds);
}

// a form in the making must not change under its reader
const isLive = control && select && !document.querySelector("form[method=post]");
if (isLive) {
  control.hidden = false;
  select.value = sessionStorage.getItem("dispatch-policy-refresh") ?? "5";
  select.addEventListener("change", () => {
    sessionStorage.setItem("dispatch-policy-refresh", select.value);
    start(Number(select.value));
  });
  start(Number(select.value));
}

// What is done in steps goes on by itself. A click on stop while a step is under way would show what was before that step: so it
// counts when the step has ended.
const STOP = "dispatch-policy-stop";
const goOn = document.querySelector("[data-goes-on]");
const isToStop = sessionStorage.getItem(STOP) !== null;
sessionStorage.removeItem(STOP);
if (goOn) {
  const stop = document.querySelector("button[name=stop]");
  // once the page has loaded: it is to be seen while the step is under way
  addEventListener("load", () =>
    setTimeout(() => {
      (isToStop ? stop : goOn).click();
      stop.addEventListener("click", (event) => {
        event.preventDefault();
        sessionStorage.setItem(STOP, "1");
        stop.textContent = "stops after this step";
      });
    }),
  );
}

// of chips and the field beside them that counts which was given last
document.addEventListener("input", ({ target }) => {
  const isChip = target.type === "radio";
  for (const other of target.closest(".chips")?.querySelectorAll("input") ?? [])
    if (other.type !== "radio" && isChip) other.value = "";
    else if (other.type === "radio" && !isChip) other.checked = target.value === "" && other.value === "";
});

const toSearch = () => {
  const field = document.querySelector("header input[type=search]");
  field?.focus();
  field?.select();
};
/** To the link of another row, from that of the row with the focus. */
function toRow(by) {
  const links = [...document.querySelectorAll("main tbody tr")].flatMap(
    (row) => row.querySelector("a") ?? [],
  );
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

/** Whether the key before was `g`. */
let goes = false;
const KEYS = {
  j: () => toRow(1),
  k: () => toRow(-1),
  "/": toSearch,
  r: () => isLive && refresh(1),
  "?": () => document.querySelector("#keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key === "k" && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    toSearch();
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const place = goes && document.querySelector(`header [aria-keyshortcuts="g ${CSS.escape(event.key)}"]`);
  goes = event.key === "g";
  const act = place ? () => place.click() : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
