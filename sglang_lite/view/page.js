/* The server's page: playground, recent programs, the radix tree, load over time. Text is only ever put in as text. */

"use strict";

(() => {
  const { make, seconds, number, share } = SglTree;
  const by = (id) => document.getElementById(id);
  const LOOK_MS = 1000;
  const KEY = "sglang_lite-key";
  const THEME = "sglang_lite-theme";
  const EXAMPLE = {
    ops: [
      { op: "text", id: 0, branch: 0, text: "Name one thing about the sea.\n" },
      { op: "fork", id: 1, branch: 0, children: [1, 2] },
      { op: "text", id: 2, branch: 1, text: "A fact:" },
      { op: "gen", id: 3, branch: 1, name: "fact", params: { max_new_tokens: 16, temperature: 0.7, stop: ["\n"] } },
      { op: "text", id: 4, branch: 2, text: "A poem:" },
      { op: "gen", id: 5, branch: 2, name: "poem", params: { max_new_tokens: 24, temperature: 0.9 } },
      { op: "join", id: 6, branch: 0, children: [1, 2] },
      { op: "text", id: 7, branch: 0, text: "Is the sea salty? Answer:" },
      { op: "select", id: 8, branch: 0, name: "salty", choices: [" yes", " no"] },
    ],
  };

  let about = null;
  let running = null;
  let mode = "chat";
  let messages = [];
  const drafts = { chat: "", prompt: "The capital of France is", tree: `{"ops": [\n${EXAMPLE.ops.map((op) => `  ${JSON.stringify(op)}`).join(",\n")}\n]}` };

  // --- requests ---

  function headers() {
    const key = sessionStorage.getItem(KEY);
    return key ? { Authorization: `Bearer ${key}` } : {};
  }

  async function failure(answer) {
    if (answer.status === 401) by("key-form").hidden = false;
    let text = `${answer.status} ${answer.statusText}`;
    try {
      text = (await answer.json()).error.message;
    } catch {
      // no JSON: the status says enough
    }
    return new Error(text);
  }

  async function get(path) {
    const answer = await fetch(path, { headers: headers(), cache: "no-store" });
    if (!answer.ok) throw await failure(answer);
    return answer.json();
  }

  async function* eventsOf(path, body, signal) {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers() },
      body: JSON.stringify(body),
      signal,
    });
    if (!answer.ok) throw await failure(answer);
    const program = answer.headers.get("x-program-id");
    if (program) yield { program };
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const line = block.split("\n").find((one) => one.startsWith("data: "));
        if (!line || line === "data: [DONE]") continue;
        const data = JSON.parse(line.slice(6));
        if (data.error && data.event === undefined) throw new Error(data.error.message);
        yield data;
      }
    }
  }

  // --- tokens ---

  const shown = (text) => JSON.stringify(text).slice(1, -1);

  function describe(span) {
    const { kind, logprob } = span.dataset;
    const chance = logprob === undefined ? "" : ` · log-probability ${Number(logprob).toFixed(3)} · ${(100 * Math.exp(Number(logprob))).toFixed(1)} %`;
    return `“${shown(span.textContent)}” · ${kind || "prompt, not computed yet"}${chance}`;
  }

  function pointAt(box, span) {
    for (const other of document.querySelectorAll(".tokens > .is-here")) other.classList.remove("is-here");
    if (!span) return;
    span.classList.add("is-here");
    by("token-info").textContent = describe(span);
  }

  function tokenBox(label) {
    const box = make("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": label });
    box.addEventListener("mouseover", (event) => pointAt(box, event.target.closest("span")));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !box.childElementCount) return;
      event.preventDefault();
      const here = box.querySelector(".is-here");
      const next = here ? (step > 0 ? here.nextElementSibling : here.previousElementSibling) : step > 0 ? box.firstElementChild : box.lastElementChild;
      if (next) pointAt(box, next);
    });
    return box;
  }

  function addToken(box, token) {
    const span = make("span", { class: token.kind ? `t-${token.kind}` : "", text: token.text });
    if (token.kind) span.dataset.kind = token.kind;
    if (token.logprob !== undefined && token.logprob !== null) span.dataset.logprob = token.logprob;
    span.title = describe(span);
    box.append(span);
  }

  function paintPrompt(box, cached) {
    [...box.children].forEach((span, index) => {
      const kind = index < cached ? "cached" : "computed";
      span.className = `t-${kind}`;
      span.dataset.kind = kind;
      span.title = describe(span);
    });
  }

  const counts = (end) =>
    [
      `${number(end.prompt_tokens)} prompt tokens, ${number(end.cached_tokens)} reused`,
      `${number(end.completion_tokens)} output tokens, ${number(end.forced_tokens || 0)} forced`,
      end.queue_time === undefined ? null : `waited ${seconds(end.queue_time)}`,
      end.time_to_first_token === undefined ? null : `first token after ${seconds(end.time_to_first_token)}`,
      `done after ${seconds(end.e2e_latency)}`,
      end.finish_reason ? `ended by ${end.finish_reason.type}` : null,
    ]
      .filter(Boolean)
      .join(" · ");

  // --- playground ---

  function sampling() {
    const params = { max_new_tokens: Number(by("max-tokens").value), temperature: Number(by("temperature").value), top_p: Number(by("top-p").value) };
    if (by("seed").value !== "") params.seed = Number(by("seed").value);
    if (by("stops").value !== "") params.stop = [by("stops").value];
    const kind = by("constraint").value;
    const text = by("constraint-text").value;
    if (kind === "choices") params.choices = text.split("\n").filter((line) => line !== "");
    else if (kind) params[kind] = text;
    return params;
  }

  function turn(role, text) {
    const body = make("div", { class: role === "assistant" ? "" : "plain", text: text || "" });
    const item = make("div", { class: `turn is-${role}` }, make("h3", { text: role }), body);
    by("chat").append(item);
    by("chat").scrollTop = by("chat").scrollHeight;
    return { item, body };
  }

  async function runTokens(body, promptBox, outputBox, note, signal) {
    let text = "";
    for await (const data of eventsOf("/viewer/run", body, signal)) {
      const chat = by("chat");
      const atEnd = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 60;
      if (data.prompt) data.prompt.forEach((one) => addToken(promptBox, { text: one }));
      if (data.tokens) {
        data.tokens.forEach((token) => addToken(outputBox, token));
        text += data.tokens.map((token) => token.text).join("");
      }
      if (data.end) {
        paintPrompt(promptBox, data.end.cached_tokens || 0);
        note.textContent = counts(data.end);
        text = data.text;
      }
      if (atEnd) chat.scrollTop = chat.scrollHeight;
    }
    return text;
  }

  async function runChat(signal) {
    const text = by("text").value.trim();
    if (!text) throw new Error("The message is empty: write one.");
    const asked = [...messages, { role: "user", content: text }];
    turn("user", text);
    by("text").value = "";
    const { item, body } = turn("assistant", "");
    const promptBox = tokenBox("Prompt tokens");
    const outputBox = tokenBox("Answer tokens");
    const note = make("p", { class: "counts" });
    body.append(outputBox);
    item.append(make("details", {}, make("summary", { class: "hint", text: "Prompt, token by token" }), promptBox), note);
    const system = by("system").value.trim();
    const given = system ? [{ role: "system", content: system }, ...asked] : asked;
    try {
      const answer = await runTokens({ messages: given, sampling_params: sampling() }, promptBox, outputBox, note, signal);
      messages = [...asked, { role: "assistant", content: answer }];
    } catch (error) {
      if (!outputBox.childElementCount) {
        item.previousElementSibling.remove();
        item.remove();
        by("text").value = text;
      }
      throw error;
    }
  }

  async function runPrompt(signal) {
    const promptBox = tokenBox("Prompt tokens");
    const outputBox = tokenBox("Output tokens");
    const note = make("p", { class: "counts" });
    by("output").hidden = false;
    by("output").replaceChildren(make("h3", { text: "Prompt" }), promptBox, make("h3", { text: "Output" }), outputBox, note, SglTree.legend());
    await runTokens({ text: by("text").value, sampling_params: sampling() }, promptBox, outputBox, note, signal);
  }

  async function runTree(signal) {
    let tree;
    try {
      tree = JSON.parse(by("text").value);
    } catch (error) {
      throw new Error(`The request tree is no JSON: ${error.message}`);
    }
    const given = Array.isArray(tree) ? { ops: tree } : tree;
    let name = null;
    const show = async () => {
      if (name) await showRecord(by("tree-output"), name);
    };
    for await (const data of eventsOf("/v1/programs", { ...given, close: true, stream: true }, signal)) {
      if (data.program) name = data.program;
      else if (data.event === "done" || data.event === "failed") await show();
    }
    await show();
  }

  async function showRecord(element, name) {
    SglTree.mountRecord(element, await get(`/viewer/programs/${encodeURIComponent(name)}`));
  }

  async function run(event) {
    if (event) event.preventDefault();
    if (running) return;
    running = new AbortController();
    by("run").disabled = true;
    by("stop").disabled = false;
    by("problem").textContent = "";
    try {
      await { chat: runChat, prompt: runPrompt, tree: runTree }[mode](running.signal);
    } catch (error) {
      if (error.name !== "AbortError") by("problem").textContent = error.message;
    } finally {
      running = null;
      by("run").disabled = false;
      by("stop").disabled = true;
    }
  }

  function setMode(next) {
    drafts[mode] = by("text").value;
    mode = next;
    for (const element of document.querySelectorAll("[data-mode]")) element.hidden = !element.dataset.mode.split(" ").includes(mode);
    if (mode === "prompt") by("output").hidden = !by("output").childElementCount;
    document.querySelector("label[for=system]").hidden = mode !== "chat";
    document.querySelector(".play").classList.toggle("is-tree", mode === "tree");
    by("text-label").textContent = { chat: "Message", prompt: "Prompt", tree: "Ops as JSON" }[mode];
    by("run").textContent = mode === "chat" ? "Send" : "Run";
    by("text").value = drafts[mode];
    by("text").rows = { chat: 3, prompt: 5, tree: 14 }[mode];
  }

  function clear() {
    messages = [];
    by("chat").replaceChildren();
    by("output").replaceChildren();
    by("output").hidden = true;
    by("tree-output").replaceChildren();
    by("problem").textContent = "";
  }

  // --- programs ---

  let chosen = null;
  let chosenState = null;

  function programItem(program) {
    const usage = program.usage;
    const bar = usage ? make("div", { class: "bar" }) : null;
    if (usage) {
      const parts = [["cached", usage.cached_tokens], ["computed", usage.computed_tokens], ["forced", usage.forced_tokens], ["sampled", usage.sampled_tokens]];
      const total = parts.reduce((sum, [, count]) => sum + count, 0) || 1;
      for (const [kind, count] of parts) if (count > 0) bar.append(make("i", { class: `is-${kind}`, style: { flex: `0 0 ${(100 * count) / total}%` } }));
    }
    const item = make(
      "div",
      { role: "option", id: `p-${program.name}`, "aria-selected": program.name === chosen ? "true" : "false" },
      make("b", { text: program.name }),
      make("span", {
        class: program.state === "failed" ? "state-failed" : "",
        text: [program.state || "too large to keep", `${program.calls} calls`, program.forks ? `${program.forks} forks` : null, program.seconds === undefined ? null : seconds(program.seconds)].filter(Boolean).join(" · "),
      }),
      usage ? make("span", { text: ` · ${share(usage.cached_tokens, usage.prompt_tokens)} reused` }) : null,
      bar,
    );
    item.addEventListener("click", () => choose(program.name));
    return item;
  }

  async function choose(name) {
    chosen = name;
    chosenState = null;
    await refreshPrograms();
  }

  async function refreshPrograms() {
    const { programs } = await get("/viewer/programs");
    const list = by("program-list");
    list.replaceChildren(...programs.map(programItem));
    if (!programs.length) list.append(make("p", { class: "nothing", text: "No programs yet: run one against this server." }));
    if (!chosen && programs.length) chosen = programs[0].name;
    for (const item of list.querySelectorAll("[role=option]")) item.setAttribute("aria-selected", item.id === `p-${chosen}` ? "true" : "false");
    list.setAttribute("aria-activedescendant", chosen ? `p-${chosen}` : "");
    const program = programs.find((one) => one.name === chosen);
    const state = program && program.has_record ? `${program.name} ${program.state} ${program.ops} ${program.state === "open" ? Date.now() : ""}` : null;
    if (state && state !== chosenState) {
      chosenState = state;
      await showRecord(by("program"), chosen);
    }
  }

  function onListKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = [...by("program-list").querySelectorAll("[role=option]")].map((item) => item.id.slice(2));
    const next = names[names.indexOf(chosen) + step];
    if (next) {
      choose(next);
      by(`p-${next}`).scrollIntoView({ block: "nearest" });
    }
  }

  // --- cache ---

  let knownNodes = null;

  function cell(text, className) {
    return make("span", { class: className || "", text });
  }

  function radixRow(node, latest, mark) {
    const level = node.depth;
    const row = make("div", {
      class: `rx ${mark} ${node.locks ? "is-locked" : ""}`,
      role: "treeitem",
      "aria-level": level + 1,
      tabindex: "-1",
      "aria-label": `${node.tokens} tokens, ${node.locks} locks, ${mark === "is-gone" ? "evicted" : ""}`,
    });
    const name = node.parent === null ? `root ${node.namespace || ""}` : node.is_tail ? "tail" : "node";
    row.append(
      make("span", { class: "rx-name", style: { "padding-left": `${Math.min(level, 12) * 14}px` }, text: name }),
      cell(number(node.tokens)),
      cell(number(node.pages)),
      cell(number(node.locks)),
      cell(mark === "is-gone" ? "evicted" : latest - node.last_use === 0 ? "last" : `${number(latest - node.last_use)} ago`),
      make("span", { class: "rx-text", text: node.text === undefined ? (node.leases ? `${node.leases} leases` : "") : shown(node.text) }),
    );
    return row;
  }

  function showCache(seen) {
    const kv = seen.statistics.kv;
    const nodes = seen.tree.nodes;
    by("cache-tiles").replaceChildren(
      ...[
        [number(nodes.length + seen.tree.left_off), "nodes"],
        [number(nodes.reduce((sum, node) => sum + node.tokens, 0)), "tokens in the tree"],
        [number(kv.protected_pages), "pages locked"],
        [number(kv.evictable_pages), "pages evictable"],
        [number(kv.free_pages), "pages free"],
        [number(kv.evicted_pages), "pages evicted so far"],
        [share(seen.statistics.cached_tokens, seen.statistics.cached_tokens + seen.statistics.computed_tokens), "hit rate"],
      ].map(([value, label]) => make("li", { class: "tile" }, make("b", { text: value }), make("span", { text: label }))),
    );
    by("cache-hint").textContent = `Pages of ${seen.tree.page_size} tokens. “Ago” counts uses of the tree. A green edge is new since the last look, what is struck out was evicted or split.${seen.tree.left_off ? ` ${seen.tree.left_off} nodes are left off.` : ""}`;
    const latest = Math.max(0, ...nodes.map((node) => node.last_use));
    const ids = new Set(nodes.map((node) => node.id));
    const gone = knownNodes ? [...knownNodes.values()].filter((node) => !ids.has(node.id)).slice(0, 50) : [];
    const tree = by("radix");
    const focused = [...tree.querySelectorAll("[role=treeitem]")].indexOf(document.activeElement);
    const head = make("div", { class: "rx is-head", "aria-hidden": "true" }, ["", "tokens", "pages", "locks", "last use", about && about.texts ? "text" : ""].map((text) => cell(text)));
    tree.replaceChildren(
      head,
      ...nodes.map((node) => radixRow(node, latest, knownNodes && !knownNodes.has(node.id) ? "is-new" : "")),
      ...gone.map((node) => radixRow(node, latest, "is-gone")),
    );
    const rows = tree.querySelectorAll("[role=treeitem]");
    if (rows.length) (rows[Math.max(focused, 0)] || rows[0]).tabIndex = 0;
    if (focused >= 0 && rows[focused]) rows[focused].focus();
    knownNodes = new Map(nodes.map((node) => [node.id, node]));
  }

  function onRadixKey(event) {
    const rows = [...by("radix").querySelectorAll("[role=treeitem]")];
    const at = rows.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (next === undefined || !rows[next]) return;
    event.preventDefault();
    for (const row of rows) row.tabIndex = -1;
    rows[next].tabIndex = 0;
    rows[next].focus();
  }

  // --- load ---

  const percent = (value) => `${(100 * value).toFixed(0)} %`;
  const rate = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)}/s`;
  const charts = {
    requests: SglCharts.chart("Requests", ["running", "waiting"], (value) => number(value), null),
    kv: SglCharts.chart("KV pool", ["in use", "cached"], percent, 1),
    tokens: SglCharts.chart("Tokens", ["output", "computed"], rate, null),
    hits: SglCharts.chart("Hit rate", ["since the last look"], percent, 1),
  };
  let before = null;

  function showLoad(seen) {
    const stats = seen.statistics;
    const kv = stats.kv;
    const now = performance.now() / 1000;
    const runs = stats.running + stats.prefilling + stats.scoring;
    const waits = stats.waiting + stats.waiting_for_grammar;
    const used = (kv.private_pages + kv.protected_pages) / kv.total_pages;
    const cached = kv.evictable_pages / kv.total_pages;
    const past = before || { stats, now: now - 1 };
    const passed = Math.max(now - past.now, 0.001);
    const delta = (name) => Math.max(stats[name] - past.stats[name], 0);
    const output = delta("output_tokens") / passed;
    const computed = delta("computed_tokens") / passed;
    const asked = delta("cached_tokens") + delta("computed_tokens");
    charts.requests.push([runs, waits]);
    charts.kv.push([used, cached]);
    charts.tokens.push([output, computed]);
    charts.hits.push([asked ? delta("cached_tokens") / asked : 0]);
    before = { stats, now };
    by("load-tiles").replaceChildren(
      ...[
        [number(runs), "running"],
        [number(waits), "waiting"],
        [percent(used), "of the KV pool"],
        [rate(output), "output tokens"],
        [number(stats.output_tokens), "output so far"],
        [number(stats.forced_tokens), "forced"],
        [number(stats.retractions), "retractions"],
        [number(stats.step), "steps"],
      ].map(([value, label]) => make("li", { class: "tile" }, make("b", { text: value }), make("span", { text: label }))),
    );
    by("status").classList.remove("is-bad");
    by("status").textContent = `${runs} running · ${waits} waiting · ${percent(used)} KV · ${rate(output)}`;
    showRequests(seen.requests);
  }

  function showRequests(requests) {
    const withText = requests.some((one) => one.text !== undefined);
    const names = ["request", "where", "prompt", "reused", "output", "at most", ...(withText ? ["end of the prompt"] : [])];
    const numbers = new Set([2, 3, 4, 5]);
    const head = make("tr", {}, names.map((name, index) => make("th", { class: numbers.has(index) ? "number" : "", scope: "col", text: name })));
    const rows = requests.map((one) => {
      const cells = [one.rid, one.place, number(one.prompt_tokens), number(one.cached_tokens), number(one.output_tokens), number(one.max_new_tokens), ...(withText ? [shown(one.text || "")] : [])];
      return make("tr", {}, cells.map((text, index) => make("td", { class: numbers.has(index) ? "number" : index === 6 ? "text" : "", text })));
    });
    if (!rows.length) rows.push(make("tr", {}, make("td", { colspan: names.length, text: "None at the moment." })));
    by("requests").replaceChildren(make("thead", {}, head), make("tbody", {}, rows));
  }

  // --- the whole page ---

  const tabs = [...document.querySelectorAll("[role=tab]")];
  let view = "play";

  function showTab(tab) {
    view = tab.id.slice(4);
    for (const other of tabs) {
      const isChosen = other === tab;
      other.setAttribute("aria-selected", isChosen ? "true" : "false");
      other.tabIndex = isChosen ? 0 : -1;
      by(other.getAttribute("aria-controls")).hidden = !isChosen;
    }
    if (location.hash.slice(1) !== view) history.replaceState(null, "", `#${view}`);
    lookOnce();
  }

  function onTabKey(event) {
    const usable = tabs.filter((tab) => !tab.hidden);
    const at = usable.indexOf(document.activeElement);
    const next = { ArrowRight: (at + 1) % usable.length, ArrowLeft: (at + usable.length - 1) % usable.length, Home: 0, End: usable.length - 1 }[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    usable[next].focus();
    showTab(usable[next]);
  }

  let isLooking = false;

  async function lookOnce() {
    if (isLooking || document.hidden || !about) return;
    isLooking = true;
    try {
      const seen = await get("/viewer/statistics");
      showLoad(seen);
      if (view === "cache") showCache(seen);
      if (view === "programs") await refreshPrograms();
    } catch (error) {
      by("status").classList.add("is-bad");
      by("status").textContent = error.message;
    } finally {
      isLooking = false;
    }
  }

  async function start() {
    try {
      about = await get("/viewer/about");
    } catch (error) {
      by("status").classList.add("is-bad");
      by("status").textContent = error.message;
      return;
    }
    by("key-form").hidden = true;
    by("model").textContent = about.model;
    document.title = `${about.model} · sglang_lite`;
    by("tab-play").hidden = about.mode !== "full";
    if (!about.has_chat_template) {
      const chat = document.querySelector("input[name=mode][value=chat]");
      chat.disabled = true;
      document.querySelector("input[name=mode][value=prompt]").checked = true;
      setMode("prompt");
    }
    const wanted = tabs.find((tab) => tab.id === `tab-${location.hash.slice(1)}` && !tab.hidden);
    showTab(wanted || tabs.find((tab) => !tab.hidden));
  }

  function applyTheme(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    by("theme").textContent = `Theme: ${theme}`;
  }

  function nextTheme() {
    const order = ["system", "light", "dark"];
    const now = localStorage.getItem(THEME) || "system";
    const next = order[(order.indexOf(now) + 1) % order.length];
    localStorage.setItem(THEME, next);
    applyTheme(next);
  }

  applyTheme(localStorage.getItem(THEME) || "system");
  for (const chart of Object.values(charts)) by("charts").append(chart.element);
  if (matchMedia("(max-width: 900px)").matches) by("options").open = false;
  by("text").value = drafts.chat;
  setMode("chat");
  for (const tab of tabs) tab.addEventListener("click", () => showTab(tab));
  document.querySelector("[role=tablist]").addEventListener("keydown", onTabKey);
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", () => setMode(radio.value));
  by("run-form").addEventListener("submit", run);
  by("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  });
  by("stop").addEventListener("click", () => running && running.abort());
  by("clear").addEventListener("click", clear);
  by("theme").addEventListener("click", nextTheme);
  by("constraint").addEventListener("change", () => {
    by("constraint-text").hidden = !by("constraint").value;
  });
  by("program-list").addEventListener("keydown", onListKey);
  by("radix").addEventListener("keydown", onRadixKey);
  by("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, by("key").value);
    start();
  });
  start();
  setInterval(lookOnce, LOOK_MS);
})();
