// Loads the page again, off or every 2, 5 or 10 seconds, and changes what differs. Focus, scroll position and open details
// stay. It never asks twice at once, and not while the tab is hidden.
import { Idiomorph } from "./idiomorph.js";

const control = document.querySelector("[data-live]");
const select = control?.querySelector("select");
let tag = null;
let timer;
let asking = false;

async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const headers = tag ? { "if-none-match": tag } : {};
    const response = await fetch(location.href, { headers });
    if (response.status !== 200) return;
    tag = response.headers.get("etag");
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    Idiomorph.morph(document.querySelector("main"), next.querySelector("main"), { ignoreActiveValue: true });
  } catch {
    // the server is away: the next time it may be back
  } finally {
    asking = false;
  }
}

function start(seconds) {
  clearInterval(timer);
  if (seconds > 0) timer = setInterval(refresh, seconds * 1000);
}

// a form in the making must not change under its reader
if (control && select && !document.querySelector("form[method=post]")) {
  control.hidden = false;
  select.value = sessionStorage.getItem("dispatch-policy-refresh") ?? "5";
  select.addEventListener("change", () => {
    sessionStorage.setItem("dispatch-policy-refresh", select.value);
    start(Number(select.value));
  });
  start(Number(select.value));
}

document.addEventListener("keydown", (event) => {
  const search = document.querySelector("input[type=search]");
  if (event.key !== "/" || !search || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  search.focus();
});
