// The one script of the pages. Whatever HTML it puts in place was made, and escaped, by the server;
// what it makes itself it makes of text. Pages work without it as far as a form can.

import { openConversation, showFacts } from "./chat.js";

const token = document.querySelector("meta[name=form-token]")?.content ?? "";
const $ = (selector, from = document) => from.querySelector(selector);
const at = (id) => document.getElementById(id);
const make = (tag, given) => Object.assign(document.createElement(tag), given);
const working = () => showStatus("nanobot is working");

/** Say something for a few seconds. */
export function toast(text) {
  const line = make("p", { textContent: text });
  at("toast").append(line);
  setTimeout(() => line.remove(), 6000);
}

/** Ask the server to change something; its answer, or null after a message of what went wrong. */
export async function send(path, body) {
  const options = { method: "POST", body, headers: { "X-Form-Token": token, Accept: "application/json" } };
  try {
    const answer = await fetch(path, options);
    const data = await answer.json().catch(() => ({}));
    if (answer.ok) return data;
    toast([data.error ?? `The request failed (${answer.status}).`, data.hint].filter(Boolean).join(" "));
  } catch {
    toast("nanobot isn't responding. Your text is still here.");
  }
  return null;
}

/** A piece of HTML from the server; an empty text after a message of what went wrong. */
export async function piece(path) {
  try {
    const answer = await fetch(path, { headers: { Accept: "text/html" } });
    if (answer.ok) return await answer.text();
    toast(`The request failed (${answer.status}).`);
  } catch {
    toast("nanobot isn't responding.");
  }
  return "";
}

const fields = (values) => new URLSearchParams(values);

// --- what every page has

/** Call `act` with an element that matches, when it or something in it is clicked, now or later. */
function onClick(selector, act) {
  document.addEventListener("click", (event) => {
    const one = event.target.closest(selector);
    if (one) act(one, event);
  });
}
onClick("[data-copy-code]", async (code) => {
  await navigator.clipboard.writeText($("pre", code.closest(".code")).textContent);
  code.textContent = "Copied";
  setTimeout(() => { code.textContent = "Copy"; }, 2000);
});
onClick("[data-more]", async (more) => {
  const html = await piece(more.dataset.more);
  if (html) more.closest("li, tr, p, div").outerHTML = html;
});
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]"))
    if (!menu.contains(event.target)) menu.open = false;
});

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && token) {
    event.preventDefault();
    if (at("search")?.checkVisibility()) at("search").select();
    else location.href = "/chat?list=1#search";
  }
  const open = event.key === "Escape" && event.target.closest?.("details[open]");
  if (open) {
    open.open = false;
    $("summary", open)?.focus();
  }
});

document.addEventListener("toggle", async (event) => {
  const path = event.target.open && event.target.dataset?.load;
  if (!path) return;
  delete event.target.dataset.load;
  $("[data-loaded]", event.target).innerHTML = await piece(path);
}, true);

document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-filter]")) return;
  const part = event.target.value.toLowerCase();
  for (const one of event.target.closest(".sheet, .panel").querySelectorAll(".options button")) one.hidden = !one.textContent.toLowerCase().includes(part);
});
let waiting = 0;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-live]");
  if (!form) return;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const path = form.dataset.live;
    at(form.dataset.into).innerHTML = await piece(path + (path.includes("?") ? "&" : "?") + fields(new FormData(form)));
  }, 250);
});
document.addEventListener("submit", (event) => {
  const { live, sure } = event.target.dataset;
  if (live || (sure && !window.confirm(sure))) event.preventDefault();
});

// --- live: one stream of events a page

const conversation = $("[data-conversation]");
const key = conversation?.dataset.conversation ?? "";
let last = Number(conversation?.dataset.after ?? 0);
let lost = 0;
const handlers = {};

/** Call `handler` for events of this kind. */
export const on = (kind, handler) => { (handlers[kind] ??= []).push(handler); };

// Questions that wait for the owner stand in their conversation, and behind a mark on all other pages.
function countQuestions() {
  const count = at("approvals").children.length;
  at("pending").hidden = !count;
  at("count").textContent = count;
  if (!count) at("pending").open = false;
}
const cards = () => document.querySelectorAll("[data-approval]");
on("waiting", (event) => {
  for (const card of cards()) if (!event.codes.includes(card.dataset.approval)) card.remove();
  countQuestions();
});
on("approval", (event) => {
  if ($(`[data-approval="${event.code}"]`)) return;
  const own = event.session === key && at("asked"), since = Date.now();
  const show = () => (own || at("approvals")).insertAdjacentHTML("beforeend", event.html);
  if (own) grow(show);
  else show();
  $(`[data-approval="${event.code}"]`).dataset.since = since;
  countQuestions();
});
on("closed", (event) => { $(`[data-approval="${event.code}"]`)?.remove(); countQuestions(); });
async function answerQuestion(card, answer) {
  const said = await send("/approvals", fields({ code: card.dataset.approval, answer }));
  if (said) toast(said.text);
}
onClick("[data-answer]", (button) => answerQuestion(button.closest("[data-approval]"), button.dataset.answer));
// y and n answer the question in view, with Alt also while a text is written. A key that was already
// on its way when the question appeared does not count.
document.addEventListener("keydown", (event) => {
  const letter = /^[a-z]$/i.test(event.key) ? event.key : event.code?.slice(3) ?? ""; // Alt makes another one on a Mac
  const answer = { y: "once", n: "no" }[letter.toLowerCase()], card = [...cards()].find((one) => one.checkVisibility());
  const writes = event.target.closest("input, textarea, select, dialog") && !event.altKey;
  if (!answer || !card || writes || event.repeat || event.ctrlKey || event.metaKey || event.shiftKey || Date.now() - card.dataset.since < 1000) return;
  event.preventDefault();
  answerQuestion(card, answer);
});

function connect() {
  const source = new EventSource(`/live?${fields({ c: key, after: last })}`);
  source.onopen = () => { lost = 0; at("connection").textContent = ""; handlers.open?.forEach((one) => one()); };
  source.onmessage = (message) => {
    if (message.lastEventId) last = Math.max(last, Number(message.lastEventId));
    const event = JSON.parse(message.data);
    for (const handler of handlers[event.kind] ?? []) handler(event);
  };
  source.onerror = async () => {
    lost += 1;
    at("connection").textContent = "Not connected. Reconnecting …";
    source.close();
    if (lost > 2) {
      const answer = await fetch("/session").catch(() => null);
      if (answer?.status === 401) { at("connection").textContent = "You are signed out."; return; }
    }
    setTimeout(connect, lost < 100 ? Math.min(300 * lost, 1000) : 5000); // soon, where it restarts
  };
}

// --- the list of conversations

let stale = 0;
function listLater() {
  if (!at("list")) return;
  clearTimeout(stale);
  stale = setTimeout(async () => {
    const html = await piece(`/chat/list?${fields(new FormData(at("search").form))}`);
    if (html && !at("list").contains(document.activeElement)) at("list").innerHTML = html;
  }, 500);
}
function begun() { // the first screen goes, and a new chat gets its address
  if (!at("compose") || !$(".item", conversation)) return;
  $(".welcome", conversation)?.remove();
  const heading = $("h1", conversation), words = $(".mine .words", conversation);
  if (heading.textContent === "New chat" && words) heading.textContent = words.textContent.replace(/^(.{59}).{2,}$/su, "$1…");
  if (location.search.includes("c=")) return;
  history.replaceState(null, "", `/chat?${fields({ c: key })}`);
  $("main").classList.add("open");
  at("search").form.elements.c.value = key;
}
onClick("[data-try]", (suggested) => {
  at("text").value = suggested.textContent;
  at("compose").requestSubmit();
});
on("elsewhere", listLater);
on("end", listLater);
on("turn", () => { if (!$("#list [aria-current]")) listLater(); }); // a new chat

// --- a conversation

const messages = at("messages");
const now = at("now");
const asked = at("asked");
const below = at("below");

function atEnd() {
  return messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
}
function toEnd() { messages.scrollTop = messages.scrollHeight; }

/** Change what is shown. The view follows a reader who is at the end. */
function grow(change) {
  const stays = atEnd();
  change();
  if (stays) toEnd();
  else if (!atEnd()) below.hidden = false;
}

/** Return the place of a new item. A question goes before the items that its turn has sent. */
function placeFor(item) {
  const when = (one) => Date.parse($("time[datetime]", one)?.dateTime);
  let found = now;
  for (let one = now.previousElementSibling; one?.matches(".day, [data-key]"); one = one.previousElementSibling)
    if (when(one) > when(item)) found = one;
  return found;
}
function place(html) {
  for (const item of [...make("template", { innerHTML: html }).content.children]) {
    const known = item.dataset.seq ? at(item.id) : [...messages.children].find((one) => one.dataset.key && one.dataset.key === item.dataset.key);
    if (known) known.replaceWith(item);
    else placeFor(item).before(item);
  }
  $(":scope > .hint", messages)?.remove();
}

// The running turn: pending messages, then a part for each message of the model with its tools.
let shell = null;
let turn = "";
const status = at("status");

/** Show what the turn waits for, or that it runs. Without both its line stays empty. */
function showStatus(text, is = Boolean(text)) {
  status.textContent = text;
  status.hidden = !is;
  if (at("stop")) at("stop").hidden = !is;
}
function part(number) {
  let found = $(`[data-part="${number}"]`, now);
  if (!found) {
    found = shell?.cloneNode(true) ?? make("article", { className: "item assistant" });
    if (number) $("p", found)?.remove();
    found.dataset.part = number;
    status.before(found);
  }
  return found;
}
function clearParts() { for (const one of now.querySelectorAll("[data-part]")) one.remove(); }
function step(event) {
  return [...part(event.part).querySelectorAll(".step")].findLast((one) => one.classList.contains("running"));
}

/** Without a mathematical font Chromium draws no roots, so that the stylesheet does. */
function drawRoots() {
  status.insertAdjacentHTML("afterend", "<math><msqrt><mn>1</mn></msqrt></math>");
  const probe = status.nextElementSibling, width = (name) => $(name, probe).getBoundingClientRect().width;
  document.body.classList.toggle("rootless", width("msqrt") - width("mn") < 2);
  probe.remove();
}

function followConversation() {
  drawRoots();
  const found = /^#m\d+$/.test(location.hash) && at(location.hash.slice(1));
  if (found) found.scrollIntoView({ block: "center" });
  else toEnd();
  messages.addEventListener("scroll", () => { if (atEnd()) below.hidden = true; });
  below.addEventListener("click", toEnd);
  on("open", () => { clearParts(); turn = ""; showStatus(""); });
  on("messages", (event) => grow(() => {
    const there = new Set(event.numbers), first = event.whole ? 0 : Math.min(...event.numbers);
    for (const item of messages.querySelectorAll("[data-seq]"))
      if (Number(item.dataset.seq) >= first && Number(item.dataset.seq) <= last && !there.has(Number(item.dataset.seq))) item.remove();
    place(event.html);
    for (const one of messages.querySelectorAll(":scope > .mine")) if (event.html.includes(`"${one.id}"`)) {
      const words = $(".words", one)?.textContent, said = [...now.querySelectorAll(".mine")];
      (said.find((other) => $(".words", other)?.textContent === words) ?? (turn && one.dataset.turn === turn ? said[0] : null))?.remove();
    }
    if (turn && [...messages.children].some((one) => one.dataset.turn === turn)) {
      clearParts();
      at("spoken").textContent = [...messages.querySelectorAll(":scope > .assistant .words")].at(-1)?.textContent.slice(0, 2000) ?? "";
    }
    if (event.html.trim()) notify();
    if (at("compose")) showFacts(event);
  }));
  on("extra", (event) => { grow(() => place(event.html)); notify(); });
  for (const kind of ["messages", "said", "extra"]) on(kind, () => setTimeout(begun));
  on("said", (event) => grow(() => {
    if ([...now.children].some((one) => one.dataset.key === event.event)) return;
    const first = $("[data-part]", now) ?? status;
    first.insertAdjacentHTML("beforebegin", event.html);
  }));
  on("turn", (event) => grow(() => {
    clearParts();
    shell = make("template", { innerHTML: event.html }).content.firstElementChild;
    turn = event.turn;
    working();
  }));
  on("wait", (event) => grow(() => showStatus(event.text || "nanobot is working")));
  on("text", (event) => grow(() => {
    if (!event.html && !event.keep) return;
    const item = part(event.part);
    let words = $(".words", item);
    if (!words) {
      words = make("div", { className: "words markdown", dir: "auto" });
      item.insertBefore(words, $(".step, .foot", item));
    }
    while (words.children.length > event.keep) words.lastElementChild.remove();
    words.insertAdjacentHTML("beforeend", event.html);
    working();
  }));
  on("tool", (event) => grow(() => {
    const made = make("details", { className: "step running" });
    made.append(make("summary", { textContent: event.hint }));
    const item = part(event.part);
    item.insertBefore(made, $(".foot", item));
    working();
  }));
  on("output", (event) => grow(() => {
    const shown = step(event);
    if (!shown) return;
    const output = $("pre", shown) ?? shown.appendChild(make("pre", { tabIndex: 0 }));
    output.textContent = (output.textContent + event.text).slice(-4000);
    shown.open = true;
  }));
  on("done", (event) => grow(() => {
    const shown = step(event);
    if (!shown) return;
    shown.classList.remove("running");
    shown.open = false;
    shown.firstChild.append(` · ${event.seconds} s`);
  }));
  on("note", (event) => toast(event.text));
  on("deleted", () => { location.href = "/chat?list=1"; });
  on("end", (event) => grow(() => {
    showStatus("");
    turn = "";
    clearParts();
    for (const one of [...now.children]) if (event.events.includes(one.dataset.key)) one.remove();
  }));
  onClick("[data-older]", async (older) => {
    const height = messages.scrollHeight, html = await piece(older.dataset.older);
    if (html) { older.outerHTML = html; messages.scrollTop += messages.scrollHeight - height; }
  });
  onClick("[data-press]", async ({ dataset, parentElement }) => {
    if (await send("/chat/press", fields({ c: key, button: dataset.press }))) parentElement.remove();
  });
  onClick("[data-jump]", async ({ dataset }, event) => {
    if (at(`m${dataset.jump}`)) return;
    event.preventDefault();
    messages.innerHTML = await piece(`/chat/older?${fields({ c: key, before: Number(dataset.jump) + 1 })}`);
    messages.append(now, asked);
    at(`m${dataset.jump}`)?.classList.add("found");
  });
}

function notify() {
  if (document.hidden && globalThis.Notification?.permission === "granted")
    new Notification("nanobot", { body: "You have a new message.", tag: key });
}

// --- a log that follows

function followLog(log) {
  const toNewest = () => { log.scrollTop = log.scrollHeight; };
  toNewest();
  setInterval(async () => {
    if (document.hidden || !at("follow").checked) return;
    const answer = await fetch(`${log.dataset.follow}&${fields({ after: log.dataset.position })}`).catch(() => null);
    if (!answer?.ok) return;
    const found = await answer.json();
    log.dataset.position = found.position;
    if (!found.html.trim()) return;
    const stays = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    log.insertAdjacentHTML("beforeend", found.html);
    while (log.children.length > 2000) log.firstElementChild.remove();
    $("[data-empty]")?.remove();
    if (stays) toNewest();
  }, 2000);
}

// --- a piece that is asked for again and again

/** Show the piece at `data-poll` until a form is sent, or the piece leads to another page. */
async function poll(place, shown = "") {
  const answer = document.hidden ? null : await fetch(place.dataset.poll).catch(() => null);
  const html = answer?.ok ? await answer.text() : shown;
  if (!place.dataset.poll) return;
  if (html !== shown) place.innerHTML = html;
  const next = $("[data-go]", place);
  if (next) location.assign(next.href);
  else setTimeout(poll, 1500, place, html);
}

// --- times, in this browser's zone

const style = (options) => new Intl.DateTimeFormat("en-GB", options);
const clock = style({ hour: "2-digit", minute: "2-digit" }), exact = style({ dateStyle: "full", timeStyle: "medium" });
const thisYear = style({ day: "numeric", month: "short" }), anyYear = style({ day: "numeric", month: "short", year: "numeric" });

/** The day of a time: "today", "yesterday", or its date. */
export function dayOf(when) {
  const today = new Date(), midnight = (one) => new Date(one.getFullYear(), one.getMonth(), one.getDate());
  const days = Math.round((midnight(today) - midnight(when)) / 864e5);
  if (Math.abs(days) < 2) return ["tomorrow", "today", "yesterday"][days + 1];
  return (when.getFullYear() === today.getFullYear() ? thisYear : anyYear).format(when);
}
function localize(from) {
  for (const one of from.querySelectorAll("time[datetime]:not([title])")) {
    const when = new Date(one.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    const day = dayOf(when);
    one.title = exact.format(when);
    one.textContent = day === "today" || one.closest(".messages") ? clock.format(when) : day === "yesterday" ? day : `${day}, ${clock.format(when)}`;
  }
}
localize(document);
new MutationObserver((changes) => {
  if (changes.some((one) => [...one.addedNodes].some((node) => node.nodeType === 1))) localize(document);
}).observe(document.body, { childList: true, subtree: true });

const zone = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
if (!document.cookie.split("; ").includes(zone)) { // for the server's groups of days
  document.cookie = `${zone}; path=/; samesite=strict; max-age=31536000`;
  listLater();
}

document.querySelectorAll("[data-poll]").forEach((place) => {
  setTimeout(poll, 1500, place);
  addEventListener("submit", (event) => { if (!event.defaultPrevented) place.dataset.poll = ""; });
});
if (at("log")) followLog(at("log"));
if (conversation) followConversation();
if (at("aside")) import("./temporary.js").then(({ openTemporary }) => openTemporary({ $, at, grow, key, make, now, on, place, send, toEnd }));
else if (conversation) openConversation({ $, at, conversation, fields, key, make, piece, send, toast, toEnd, dayOf });
if (token) connect();
if (matchMedia("(display-mode: standalone)").matches) navigator.serviceWorker?.register("/worker.js");
