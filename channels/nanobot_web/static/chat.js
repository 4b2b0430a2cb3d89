// Messages and the composer of the open conversation. As in app.js, all HTML comes from the server.

let $, at, conversation, fields, key, make, piece, send, toast, toEnd, dayOf; // of app.js
let messages, acts, form, text, slash, writable;

/** Begin, with what app.js offers. */
export function openConversation(page) {
  ({ $, at, conversation, fields, key, make, piece, send, toast, toEnd, dayOf } = page);
  [messages, acts, form, text, slash] = ["messages", "acts", "compose", "text", "slash"].map(at);
  writable = Boolean(form);
  followDays();
  followActions();
  if (writable) write();
  followKeys();
  const speak = at("speak");
  if (speak && globalThis.MediaRecorder && navigator.mediaDevices) {
    speak.hidden = false;
    speak.onclick = async () => {
      speak.disabled = true;
      await (await import("./voice.js")).record(page);
      speak.disabled = false;
    };
  }
}

// --- days

function separateDays() {
  for (const one of messages.querySelectorAll(".day")) one.remove();
  let day = "";
  for (const item of messages.querySelectorAll(":scope > .item")) {
    const stamp = $("time[datetime]", item)?.dateTime, own = Number.isNaN(Date.parse(stamp)) ? day : dayOf(new Date(stamp));
    if (own !== day) item.before(make("p", { className: "day", textContent: own[0].toUpperCase() + own.slice(1) }));
    day = own;
  }
}
function followDays() {
  const days = new MutationObserver(() => { separateDays(); days.takeRecords(); });
  separateDays();
  days.observe(messages, { childList: true });
}

// --- actions on a message: one menu, which moves to the message in use

let chosen = null; // the message of the menu
let editing = ""; // the turn that the composer replaces

function choose(item) {
  const foot = item && $(".foot", item);
  if (!foot || item === chosen) return;
  close();
  chosen = item;
  const mine = item.classList.contains("mine"), { seq, turn } = item.dataset;
  const shown = {
    copy: $(".words", item), edit: writable && mine && turn && $(".words", item), keep: writable && seq,
    retry: writable && turn && !mine, read: seq && !mine && $(".words", item), turn: turn && acts.dataset.owner,
    why: turn && acts.dataset.owner && !mine,
  };
  for (const one of acts.children) one.hidden = !shown[one.dataset.do];
  $("[data-do=turn]", acts).href = `/activity/turn?${fields({ id: turn ?? "" })}`;
  $("[data-do=why]", acts).href = `${$("[data-do=turn]", acts).href}#memory`;
  $("[data-do=keep]", acts).textContent = $(".tag", foot) ? "Don't keep" : "Keep";
  foot.append(acts);
  acts.hidden = false;
}
function close() {
  if (chosen) { $("[data-acts]", chosen)?.setAttribute("aria-expanded", "false"); chosen.classList.remove("chosen"); }
  conversation.append(acts);
  acts.hidden = true;
  chosen = null;
}
const busy = () => chosen?.classList.contains("chosen") || $(":focus-visible", acts);
async function copy(item) {
  const { seq } = item.dataset;
  let words = $(".words", item).innerText;
  if (seq && !item.classList.contains("mine")) {
    const answer = await fetch(`/chat/source?${fields({ c: key, seq })}`).catch(() => null);
    if (answer?.ok) words = (await answer.json()).text;
  }
  await navigator.clipboard.writeText(words).then(() => toast("Copied."), () => toast("Your browser doesn't allow copying."));
}
function edit(item) {
  editing = item.dataset.turn;
  text.value = $(".words", item).textContent;
  at("editing").hidden = false;
  text.dispatchEvent(new Event("input"));
  text.focus();
}
function stopEditing() {
  editing = "";
  at("editing").hidden = true;
  text.value = "";
  text.dispatchEvent(new Event("input"));
}
let player = null; // the sound of the message that is read aloud, or was
const isLast = (item) => ![...messages.querySelectorAll("[data-turn]")].some((one) => Number(one.dataset.seq) > Number(item.dataset.seq));
const actions = {
  copy,
  edit,
  read(item) {
    const stops = player?.item === item && !player.paused && !player.ended;
    player?.pause();
    if (stops) return;
    player = Object.assign(new Audio(`/chat/speech?${fields({ c: key, seq: item.dataset.seq })}`), { item });
    player.play().catch((error) => { if (error.name !== "AbortError") toast("This message can't be read aloud."); });
  },
  async retry(item) {
    if (!isLast(item) && !window.confirm("Answer this again? All later messages are removed. Their effects may remain.")) return;
    await say(`/retry --turn ${item.dataset.turn}`);
  },
  async keep(item) {
    const tag = $(".foot .tag", item), { seq } = item.dataset;
    if (!await send("/chat/keep", fields({ c: key, seq, kept: tag ? "no" : "yes" }))) return;
    $("[data-do=keep]", acts).textContent = tag ? "Keep" : "Don't keep";
  },
};

/** Show the marks, title and model that another tab may have changed. */
export function showFacts({ kept, model, numbers, title }) {
  for (const seq of numbers) {
    const foot = $(`#m${seq} > .foot`, messages), tag = foot && $(".tag", foot);
    if (tag && !kept.includes(seq)) tag.remove();
    if (foot && !tag && kept.includes(seq))
      foot.prepend(make("span", { className: "tag", textContent: "kept", title: "marked to keep" }));
  }
  if (title) $("h1", conversation).textContent = title;
  const chosenModel = $(".model summary", conversation);
  if (chosenModel) chosenModel.textContent = model;
}
function followActions() {
  messages.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse" && !busy()) choose(event.target.closest(".item")); });
  // The menu must not go with a message that is replaced.
  new MutationObserver(() => { if (chosen && !messages.contains(chosen)) { close(); choose($(".item:hover", messages)); } }).observe(messages, { childList: true });
  messages.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-do], [data-acts], [data-version], [data-current]");
    const item = button?.closest(".messages > .item");
    if (!item) return;
    if ("acts" in button.dataset) {
      const open = !item.classList.contains("chosen");
      if (chosen !== item || !open) close();
      if (open) { choose(item); item.classList.add("chosen"); button.setAttribute("aria-expanded", "true"); $("button:not([hidden])", acts).focus(); acts.scrollIntoView({ block: "nearest" }); }
    } else if (actions[button.dataset.do]) actions[button.dataset.do](item);
    else if (!button.dataset.do) { event.preventDefault(); await showVersion(item, button); }
  });
  messages.addEventListener("keydown", (event) => {
    const item = event.target.closest(".messages > .item");
    if (event.key === "Escape" && item?.classList.contains("chosen")) { close(); $("[data-acts]", item).focus(); }
  });

  document.addEventListener("click", (event) => { if (chosen && !chosen.contains(event.target)) close(); });
}

/** Show an earlier version in place of a turn, or the current one again. */
async function showVersion(item, link) {
  const current = "current" in link.dataset, { turn } = item.dataset;
  const html = current ? "" : await piece(`${link.getAttribute("href")}&part=1`);
  if (!current && !html) return;
  $(".earlier", item)?.remove();
  for (const one of messages.querySelectorAll(`[data-turn="${CSS.escape(turn)}"]`)) one.classList.toggle("replaced", !current);
  item.insertAdjacentHTML("beforeend", html);
  $("[data-version], [data-current]", current ? item : $(".earlier", item))?.focus();
}

// --- writing

let attached = [];

function attach(files) {
  attached.push(...files);
  showAttached();
  text.focus();
}
const sizeOf = (bytes) => bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
function showAttached() {
  at("attached").replaceChildren(...attached.map((file, index) => {
    const remove = make("button", { type: "button", className: "chip", textContent: `${file.name} ` });
    remove.append(make("span", { className: "meta", textContent: sizeOf(file.size) }), " ×");
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.onclick = () => { attached.splice(index, 1); showAttached(); text.focus(); };
    const place = make("li");
    place.append(remove);
    return place;
  }));
}

async function say(words, files = [], id = crypto.randomUUID()) {
  const body = new FormData();
  for (const [name, value] of Object.entries({ c: key, event: id, text: words })) body.append(name, value);
  for (const file of files) body.append("files", file, file.name);
  return send("/chat/send", body);
}

function write() {
  let pending = null;
  const grow = () => { text.style.height = "auto"; text.style.height = `${text.scrollHeight + 2}px`; };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let words = text.value.trim();
    if (!words && !attached.length) return;
    if (editing) words = `/edit --turn ${editing} ${words}`;
    // The same words after a failure go out under the same id, so that they count once.
    if (pending?.words !== words) pending = { words, id: crypto.randomUUID() };
    at("send").disabled = true;
    if (await say(words, attached, pending.id)) {
      stopEditing();
      attached = [];
      pending = null;
      showAttached();
      toEnd();
    }
    at("send").disabled = false;
    text.focus();
  });
  text.addEventListener("input", () => { grow(); suggest(); });
  text.addEventListener("keydown", (event) => {
    if (event.isComposing || chooseCommand(event)) return;
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
    if (event.key === "Escape" && editing) stopEditing();
    if (event.key === "ArrowUp" && !text.value && !attached.length) {
      const mine = [...messages.querySelectorAll(":scope > .item.mine[data-turn]")].filter((one) => one.dataset.turn && $(".words", one));
      if (mine.length) { event.preventDefault(); edit(mine.at(-1)); }
    }
  });
  at("files").addEventListener("change", (event) => { attach(event.target.files); event.target.value = ""; });
  text.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); }
  });
  for (const kind of ["dragover", "dragleave", "drop"])
    conversation.addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      conversation.classList.toggle("dropping", kind === "dragover");
      if (kind === "drop") attach(event.dataTransfer.files);
    });
  conversation.addEventListener("click", (event) => {
    const button = event.target.closest("[data-say], [data-model], [data-effort]");
    if (!button) return;
    const { say: words, model, effort } = button.dataset;
    say(words ?? (model ? `/model ${model}` : `/think ${effort}`));
    button.closest("details")?.removeAttribute("open");
    for (const one of button.parentElement.querySelectorAll("[aria-pressed]")) one.setAttribute("aria-pressed", String(one === button));
  });
  slash.addEventListener("mousedown", (event) => {
    const option = event.target.closest("[data-command]");
    if (option) { event.preventDefault(); complete(option.dataset.command); }
  });
  at("cancel").onclick = () => { stopEditing(); text.focus(); };
  $("[data-rename]", conversation)?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const title = new FormData(event.target).get("title").trim();
    if (await say(`/title ${title}`)) { $("h1", conversation).textContent = title || "New chat"; event.target.closest("details").open = false; }
  });
  $("[data-notify]", conversation)?.addEventListener("click", async () => {
    const permission = await globalThis.Notification?.requestPermission();
    toast(permission === "granted" ? "You'll get notifications while this page is in the background." : "Your browser doesn't allow notifications.");
  });
}

// --- the commands after a slash

let commands = null; // a promise of all of them, once they were needed

async function suggest() {
  const typed = /^\/([\w-]*)$/.exec(text.value)?.[1];
  if (typed !== undefined) commands ??= fetch("/chat/commands").then((one) => one.json()).catch(() => []);
  const found = typed === undefined ? [] : (await commands).filter((one) => one.name.startsWith(typed.toLowerCase()));
  if (typed !== undefined && text.value !== `/${typed}`) return; // typed on in the meantime
  slash.replaceChildren(...found.map((one, index) => {
    const place = make("li", { id: `slash${index}`, role: "option" });
    place.dataset.command = one.name;
    place.append(make("b", { textContent: `/${one.name}` }), ` ${one.summary}`);
    return place;
  }));
  slash.hidden = !found.length;
  mark(0);
}
function mark(index) {
  const every = [...slash.children];
  every.forEach((one, place) => one.setAttribute("aria-selected", String(place === index)));
  every[index]?.scrollIntoView({ block: "nearest" });
  if (every[index]) text.setAttribute("aria-activedescendant", every[index].id);
  else text.removeAttribute("aria-activedescendant");
}
function complete(name) {
  text.value = `/${name} `;
  slash.hidden = true;
  text.removeAttribute("aria-activedescendant");
  text.focus();
}
/** Handle a key while commands are shown. Return true if it was one of them. */
function chooseCommand(event) {
  if (slash.hidden) return false;
  const every = [...slash.children], index = every.findIndex((one) => one.ariaSelected === "true");
  const { command } = every[index].dataset, whole = text.value === `/${command}`;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") mark((index + (event.key === "ArrowDown" ? 1 : every.length - 1)) % every.length);
  else if (event.key === "Escape") slash.hidden = true;
  else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !whole)) complete(command);
  else { if (event.key === "Enter") slash.hidden = true; return false; }
  event.preventDefault();
  return true;
}
// --- keys

function followKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") at("keys").showModal();
    else if (event.key === "/" && text) { event.preventDefault(); text.focus(); text.value = "/"; suggest(); }
  });
  $("[data-keys]")?.addEventListener("click", (event) => { event.target.closest("details").open = false; at("keys").showModal(); });
}
