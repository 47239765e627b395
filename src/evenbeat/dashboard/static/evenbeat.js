// The dashboard's only script. It fetches pages of this service and swaps parts of them, as
// attributes in the page say (see CONTRIBUTING.md). Everything works without it, just with
// more reloading.

const DEBOUNCE = 700; // ms: many events at once cause one refresh, and slow responses fewer
const SCROLLING = ".scroll, .chart-box, .lanes-box";
const REFRESH_EVERY = 15_000; // ms: without any event

const dialog = document.getElementById("dialog");
const parser = new DOMParser();
let typing; // the timer of a form that is sent while the user types

// On a phone the navigation may be wider than the screen: show where we are.
document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// -- fetching and swapping ------------------------------------------------------------------------

async function load(url, options = {}) {
  const headers = { Accept: "text/html", ...options.headers };
  const response = await fetch(url, { credentials: "same-origin", ...options, headers });
  const { pathname } = new URL(response.url), { root } = document.body.dataset;
  if (pathname === `${root}login`) {
    location.assign(response.url);
    return null;
  }
  if (!pathname.startsWith(root)) { // a sign-in around this service
    location.reload();
    return null;
  }
  const type = response.headers.get("content-type") ?? "";
  if (!type.includes("text/html")) throw new Error(`The service responded with ${response.status}.`);
  return { page: parser.parseFromString(await response.text(), "text/html"), response };
}

function swap(old, fresh) {
  const open = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
  const ticked = new Set([...old.querySelectorAll("input[type=checkbox]:checked")].map(keyOf));
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const focusId = focus?.id, focusHref = focus?.getAttribute("href");
  const node = document.importNode(fresh, true);
  for (const id of open) node.querySelector(`details[id="${CSS.escape(id)}"]`)?.setAttribute("open", "");
  for (const box of node.querySelectorAll("input[type=checkbox]")) if (ticked.has(keyOf(box))) box.checked = true;
  keepOpenRuns(old, node);
  const scrolled = [...old.querySelectorAll(SCROLLING)].map((one) => [one.scrollLeft, one.scrollTop]);
  old.replaceWith(node);
  node.querySelectorAll(SCROLLING).forEach((one, n) => scrolled[n] && one.scrollTo(...scrolled[n]));
  const again = focusId ? document.getElementById(focusId) : focusHref && node.querySelector(`a[href="${CSS.escape(focusHref)}"]`);
  again?.focus({ preventScroll: true });
  return node;
}

// What was fetched into an opened run stays there; a run in progress is fetched again.
function keepOpenRuns(old, node) {
  for (const was of old.querySelectorAll("details[open][data-source]")) {
    const now = node.querySelector(`details[id="${CSS.escape(was.id)}"]`);
    const body = was.querySelector("[data-part]");
    if (!now || !body) continue;
    now.querySelector(".runs-body").replaceWith(body);
    if (was.dataset.running !== undefined) reportingErrors(() => fetchInto(now));
  }
}

async function fetchInto(details) {
  const result = await load(details.dataset.source, { headers: { "X-Evenbeat-Refresh": "1" } });
  const part = result?.page.querySelector("[data-part]");
  if (!part) return;
  part.removeAttribute("id");
  part.removeAttribute("data-live");
  part.classList.remove("runs-page");
  details.querySelector(".runs-body").replaceWith(document.importNode(part, true));
}

document.addEventListener("toggle", (event) => {
  const details = event.target;
  if (details.open && details.dataset?.source && !details.querySelector("[data-part]")) reportingErrors(() => fetchInto(details));
}, true);

const keyOf = (box) => `${box.name}=${box.value}`;

function show(page, response) {
  const focusId = document.activeElement?.getAttribute("id");
  document.title = page.title;
  for (const id of ["main", "notices"]) {
    const fresh = page.getElementById(id);
    if (fresh) document.getElementById(id).replaceWith(document.importNode(fresh, true));
  }
  if (response.redirected && response.url !== location.href) history.pushState(null, "", response.url);
  document.body.dataset.now = page.body.dataset.now ?? document.body.dataset.now;
  afterUpdate();
  const wrong = document.querySelector("main [aria-invalid=true]");
  (wrong ?? (focusId && document.getElementById(focusId)))?.focus();
}

function notice(text) {
  const box = document.createElement("div");
  box.className = "notice notice-failed";
  box.setAttribute("role", "alert");
  const words = document.createElement("p");
  words.textContent = text;
  const dismiss = document.createElement("button");
  dismiss.className = "button";
  dismiss.dataset.dismiss = "";
  dismiss.textContent = "Dismiss";
  box.append(words, dismiss);
  document.getElementById("notices").replaceChildren(box);
}

async function reportingErrors(work, busy) {
  busy?.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    notice(error instanceof TypeError ? "The service cannot be reached right now." : error.message);
  } finally {
    busy?.removeAttribute("aria-busy");
  }
}

// -- dialogs --------------------------------------------------------------------------------------

function openDialog(content) {
  dialog.replaceChildren(document.importNode(content, true));
  const heading = dialog.querySelector("h1, h2");
  if (heading) heading.id = "dialog-title";
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.removeAttribute("open");
  if (!dialog.open) dialog.showModal();
  (dialog.querySelector("[autofocus]") ?? dialog).focus();
}

function showResult(result) {
  if (!result) return;
  const problem = result.page.querySelector("[data-problem]");
  if (problem) return notice(problem.textContent);
  const content = result.page.querySelector("[data-dialog-content]");
  if (content) return openDialog(content);
  if (dialog.open) dialog.close();
  show(result.page, result.response);
}

dialog.addEventListener("close", () => dialog.replaceChildren());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

// -- links and forms ------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  const near = (selector) => event.target.closest?.(selector);
  if (near("[data-dismiss]")) near(".notice").remove();
  if (near("[data-close]") && dialog.open) {
    event.preventDefault();
    dialog.close();
  }
  if (near("[data-copy]")) copy(near("[data-copy]"));
  const link = near("a[data-dialog]");
  if (link && plain) {
    event.preventDefault();
    reportingErrors(async () => showResult(await load(link.href)), link);
  }
  for (const menu of document.querySelectorAll("details.menu[open]"))
    if (!menu.contains(event.target)) menu.removeAttribute("open");
});

document.addEventListener("keydown", (event) => {
  const menu = event.target.closest?.("details.menu[open]");
  if (event.key === "Escape" && menu) {
    menu.removeAttribute("open");
    menu.querySelector("summary").focus();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  const zone = event.submitter?.dataset.localZone !== undefined;
  if (zone) event.submitter.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (form.dataset.filter) {
    event.preventDefault();
    filter(form);
  } else if (form.matches("[data-enhance], [data-dialog], dialog form") && form.method === "post") {
    event.preventDefault();
    clearTimeout(typing);
    const target = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action");
    const body = new URLSearchParams(new FormData(form, event.submitter));
    reportingErrors(async () => showResult(await load(target, { method: "POST", body })), event.submitter ?? form);
  }
});

async function filter(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const url = new URL(form.action);
  url.search = query;
  await reportingErrors(async () => {
    const result = await load(url);
    if (!result) return;
    history.replaceState(null, "", url);
    for (const selector of form.dataset.filter.split(",")) {
      const fresh = result.page.querySelector(selector);
      if (fresh) swap(document.querySelector(selector), fresh);
    }
    afterUpdate();
  });
}

async function preview(form) {
  const body = new URLSearchParams(new FormData(form));
  const target = form.querySelector("[data-preview-target]");
  const response = await fetch(form.dataset.preview, { method: "POST", body });
  const page = parser.parseFromString(await response.text(), "text/html");
  const fresh = page.querySelector("[data-preview-target]");
  if (fresh && target.isConnected) target.replaceWith(document.importNode(fresh, true));
}

document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (event.target.matches("[data-all]")) tickAll(event.target);
  if (event.target.matches("input[name=id], [data-all], [data-everything]")) countSelected();
  if (!form?.dataset.filter && !form?.dataset.preview) return;
  clearTimeout(typing);
  const delay = event.target.matches("select, [type=checkbox], [type=radio]") ? 0 : 280;
  typing = setTimeout(() => (form.dataset.filter ? filter(form) : reportingErrors(() => preview(form))), delay);
});

// -- copying --------------------------------------------------------------------------------------

async function copy(button) {
  const place = document.querySelector(button.dataset.copy);
  const words = button.querySelector("span");
  try {
    await navigator.clipboard.writeText(place.textContent.trim());
    button.classList.add("copied");
    if (words) words.textContent = "Copied";
    button.setAttribute("title", "Copied");
  } catch {
    getSelection().selectAllChildren(place); // without permission to write, select the text for the user
  }
}

// -- a selection in a list ------------------------------------------------------------------------

const boxes = () => [...document.querySelectorAll("main input[name=id]")];

function tickAll(box) {
  for (const one of boxes()) one.checked = box.checked;
}

function countSelected() {
  const selected = boxes().filter((box) => box.checked).length;
  for (const place of document.querySelectorAll("[data-selected]")) place.textContent = `${selected} selected`;
  const everything = document.querySelector("[data-everything]")?.checked;
  for (const button of document.querySelectorAll("[data-needs-selection]")) button.disabled = selected === 0 && !everything;
  const all = document.querySelector("[data-all]");
  if (all) {
    all.checked = selected > 0 && selected === boxes().length;
    all.indeterminate = selected > 0 && !all.checked;
  }
}

// -- relative times, in the notation of evenbeat/humanize.py --------------------------------------

const STEPS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
let clockOffset = 0; // how far the service's clock is ahead of ours, in ms

function relative(seconds) {
  if (seconds === 0) return "now";
  const whole = Math.abs(seconds) < 60 ? Math.abs(seconds) : Math.floor(Math.abs(seconds) / 60) * 60;
  const first = STEPS.findIndex(([size]) => whole >= size);
  const [size, unit] = STEPS[first];
  const [below, nextUnit] = STEPS[first + 1] ?? [Infinity];
  const rest = Math.floor((whole % size) / below);
  const text = `${Math.floor(whole / size).toLocaleString("en")} ${unit}${rest ? ` ${rest} ${nextUnit}` : ""}`;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

function tick() {
  const now = Date.now() + clockOffset;
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const text = relative(Math.round((Date.parse(time.dateTime) - now) / 1000));
    if (time.textContent !== text) time.textContent = text;
  }
}

// -- live -----------------------------------------------------------------------------------------

const shownHtml = new WeakMap(); // the HTML that a region was last replaced with
let source, timer, refreshing = false, lastDuration = 0;

const liveRegions = (page) => [...page.querySelectorAll("[data-live][id]")];
// Not `region.id`: for a form that is its field called "id".
const idOf = (region) => region.getAttribute("id");

async function refresh() {
  clearTimeout(timer);
  timer = undefined;
  const regions = liveRegions(document);
  if (!regions.length || refreshing || document.hidden || dialog.open) return;
  if (document.querySelector("details.menu[open]")) return;
  refreshing = true;
  const start = performance.now();
  try {
    const address = location.href;
    const result = await load(address, { headers: { "X-Evenbeat-Refresh": "1" } });
    if (result?.response.status === 404) location.reload(); // it was deleted
    if (!result?.response.ok || location.href !== address || dialog.open) return;
    if (`${regions.map(idOf)}` !== `${liveRegions(result.page).map(idOf)}`) // no longer empty, or empty now
      document.getElementById("main").replaceWith(document.importNode(result.page.getElementById("main"), true));
    for (const region of regions) {
      const fresh = result.page.getElementById(idOf(region));
      if (fresh && region.isConnected && fresh.innerHTML !== shownHtml.get(region)) shownHtml.set(swap(region, fresh), fresh.innerHTML);
    }
    document.body.dataset.now = result.page.body.dataset.now;
    afterUpdate();
  } catch {
    live(false);
  } finally {
    refreshing = false;
    lastDuration = performance.now() - start;
  }
}

function onEvent(event) {
  const jobId = document.querySelector("[data-live-for]")?.dataset.liveFor;
  if (jobId && event.type === "execution" && !event.data.includes(jobId)) return;
  timer ??= setTimeout(refresh, Math.max(DEBOUNCE, 5 * lastDuration));
}

function live(on) {
  const place = document.getElementById("live");
  if (!place) return;
  place.dataset.state = on ? "on" : "off";
  document.getElementById("live-words").textContent = on ? "Live" : "Reconnecting";
}

function listen() {
  source?.close();
  source = undefined;
  if (document.hidden || !document.body.dataset.events) return;
  source = new EventSource(document.body.dataset.events);
  source.onopen = () => live(true);
  source.onerror = () => live(false);
  for (const kind of ["execution", "figures", "summary", "reset"]) source.addEventListener(kind, onEvent);
}

// -- the log of a run ------------------------------------------------------------------------------

const TAIL_EVERY = 500; // ms

async function tail() {
  const log = document.querySelector("[data-tail]");
  if (log?.dataset.growing === undefined) return;
  try {
    if (document.hidden) return;
    const response = await fetch(`${log.dataset.tail}?after=${log.dataset.after}`, { headers: { Accept: "text/html", "X-Evenbeat-Refresh": "1" } });
    if (response.status !== 200 || response.redirected) return;
    const fresh = parser.parseFromString(await response.text(), "text/html").querySelector("[data-tail]");
    if (!fresh || !log.isConnected) return;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(...document.importNode(fresh, true).children);
    log.dataset.after = fresh.dataset.after;
    if (fresh.dataset.growing === undefined) delete log.dataset.growing;
    if (log.children.length) document.querySelector("[data-no-lines]")?.remove();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  } catch {
    live(false);
  } finally {
    setTimeout(tail, TAIL_EVERY);
  }
}

// -- start ----------------------------------------------------------------------------------------

function afterUpdate() {
  clockOffset = Date.parse(document.body.dataset.now) - Date.now();
  tick();
  countSelected();
  if (document.querySelector("[data-pending]")) timer ??= setTimeout(refresh, DEBOUNCE);
}

document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) refresh();
});
addEventListener("popstate", () => location.reload());
addEventListener("pagehide", () => source?.close());
setInterval(tick, 1000);
setInterval(refresh, REFRESH_EVERY);
afterUpdate();
listen();
for (const log of document.querySelectorAll("[data-growing]")) log.scrollTop = log.scrollHeight;
tail();
