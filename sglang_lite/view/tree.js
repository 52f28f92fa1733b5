/* The request tree of a record: built of text nodes only, so nothing that a model wrote is ever markup. */

"use strict";

const SglTree = (() => {
  const QUIET = new Set(["text", "role_begin", "role_end", "end", "mark", "count", "decide", "accept"]);
  const TOKENS = [
    ["cached", "reused", "cached_tokens"],
    ["computed", "computed", "computed_tokens"],
    ["forced", "forced", "forced_tokens"],
    ["sampled", "sampled", "sampled_tokens"],
  ];

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") element.textContent = value;
      else if (name === "style") for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  const seconds = (value) =>
    value === null || value === undefined ? "–" : value < 0.9995 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(2)} s`;
  const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
  const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

  function tokenBar(usage, scale) {
    const total = TOKENS.reduce((sum, [, , field]) => sum + Math.max(usage[field], 0), 0);
    const label = TOKENS.map(([, word, field]) => `${usage[field]} ${word}`).join(", ");
    const bar = make("div", { class: "bar", role: "img", "aria-label": `Tokens: ${label}`, title: label });
    for (const [kind, , field] of TOKENS) {
      if (usage[field] > 0) bar.append(make("i", { class: `is-${kind}`, style: { flex: `0 0 ${(100 * usage[field]) / (scale || total || 1)}%` } }));
    }
    return bar;
  }

  function legend(...rest) {
    const words = { cached: "reused from the cache", computed: "computed", forced: "forced by a grammar", sampled: "sampled" };
    return make(
      "div",
      { class: "legend" },
      TOKENS.map(([kind]) => make("span", {}, make("i", { class: `is-${kind}` }), words[kind])),
      make("span", {}, make("i", { class: "is-queue" }), "waiting"),
      rest,
    );
  }

  function tile(value, label) {
    return make("li", { class: "tile" }, make("b", { text: value }), make("span", { text: label }));
  }

  function tiles(run) {
    const usage = run.usage;
    return make(
      "ul",
      { class: "tiles" },
      tile(seconds(run.seconds), "time"),
      tile(number(usage.requests), "requests"),
      tile(share(usage.cached_tokens, usage.prompt_tokens), `of ${number(usage.prompt_tokens)} prompt reused`),
      tile(number(usage.computed_tokens), "computed"),
      tile(number(usage.sampled_tokens), "sampled"),
      tile(number(usage.forced_tokens), "forced"),
      tile(number(usage.evicted_pages), "pages evicted"),
    );
  }

  function valueOf(entry) {
    if (entry.state === "failed") return `${entry.error.type}: ${entry.error.message}`;
    if (entry.state === "open") return "…";
    const result = entry.result || {};
    const value = result.value !== undefined && result.value !== null ? result.value : result.text || "";
    return Array.isArray(value) ? value.join("\n――\n") : value;
  }

  function detailOf(op) {
    if (op.op === "gen" || op.op === "select") return op.name || "";
    if (op.op === "role_begin") return op.role;
    if (op.op === "fork") return `into ${op.children.length}`;
    if (op.op === "join") return `of ${op.children.length}`;
    if (op.op === "ref") return `to op ${op.target}`;
    return "";
  }

  function facts(entry) {
    const op = entry.op;
    const usage = entry.usage;
    const rows = [
      ["op", `${op.id} on branch ${op.branch}`],
      ["state", entry.state],
      ["sent after", seconds(entry.sent_s)],
      ["ended after", seconds(entry.ended_s)],
    ];
    if (usage) {
      const meta = (entry.result && entry.result.meta) || {};
      rows.push(
        ["waited", seconds(usage.queue_s)],
        ["took", seconds(usage.seconds)],
        ["prompt tokens", number(usage.prompt_tokens)],
        ["reused", number(usage.cached_tokens)],
        ["computed", number(usage.computed_tokens)],
        ["sampled", number(usage.sampled_tokens)],
        ["forced", number(usage.forced_tokens)],
        ["pages evicted", number(usage.evicted_pages)],
        ["requests", number(usage.requests)],
        ["seed", usage.seed === null ? "–" : String(usage.seed)],
      );
      if (meta.finish_reason) rows.push(["ended by", reason(meta.finish_reason)]);
    }
    for (const [name, value] of Object.entries(op.params || {})) rows.push([name, plain(value)]);
    if (op.choices) rows.push(["choices", op.choices.join(" · ")]);
    return make("dl", { class: "facts" }, rows.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
  }

  const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const reason = (ended) => (ended.matched !== null && ended.matched !== undefined ? `${ended.type} at ${JSON.stringify(ended.matched)}` : ended.type);

  function timeBar(entry, total) {
    const track = make("div", { class: "node-time" });
    if (!total || entry.sent_s === undefined) return track;
    const end = entry.ended_s === undefined || entry.ended_s === null ? total : entry.ended_s;
    const wait = Math.min((entry.usage && entry.usage.queue_s) || 0, end - entry.sent_s);
    const percent = (value) => `${Math.min(Math.max((100 * value) / total, 0), 100)}%`;
    track.title = `${seconds(entry.sent_s)} to ${seconds(end)}, of it ${seconds(wait)} waiting`;
    if (wait > 0) track.append(make("i", { class: "is-queue", style: { left: percent(entry.sent_s), width: percent(wait) } }));
    track.append(make("i", { class: "is-sampled", style: { left: percent(entry.sent_s + wait), width: percent(end - entry.sent_s - wait) } }));
    return track;
  }

  function rowOf(entry, depth, context) {
    const op = entry.op;
    const isCall = op.op === "gen" || op.op === "select";
    const usage = entry.usage;
    const cost = make("div", { class: "node-cost" });
    if (usage) {
      cost.append(
        tokenBar(usage, context.scale),
        make("span", { text: `${number(usage.cached_tokens)} + ${number(usage.computed_tokens)} → ${number(usage.sampled_tokens + usage.forced_tokens)}` }),
      );
    }
    const row = make(
      "div",
      { class: "node-row" },
      make(
        "div",
        { class: "node-name", style: { "padding-left": `${depth * 16}px` } },
        make("span", { class: "fold", "aria-hidden": "true" }),
        make("span", { class: "kind", text: op.op.replace("_", " ") }),
        make("b", { text: detailOf(op) }),
      ),
      cost,
      isCall ? timeBar(entry, context.total) : make("div", {}),
      make("div", { class: "node-value", text: valueOf(entry).replace(/\s+/g, " ").slice(0, 400) }),
    );
    return row;
  }

  function nodeOf(entry, depth, context) {
    const op = entry.op;
    const isCall = op.op === "gen" || op.op === "select";
    const node = make("div", {
      class: `node ${isCall ? "is-call" : ""} ${entry.state === "failed" ? "is-failed" : ""}`,
      role: "treeitem",
      tabindex: "-1",
      "aria-level": depth + 1,
      "aria-label": `${op.op} ${detailOf(op)}, ${entry.state}`,
    });
    node.sglEntry = entry;
    node.append(rowOf(entry, depth, context));
    if (op.op === "fork") {
      const group = make("div", { class: "node-group", role: "group" });
      op.children.forEach((child, index) => group.append(branchNode(child, index, depth + 1, context)));
      node.append(group);
      setExpanded(node, true);
    }
    return node;
  }

  function branchNode(branch, index, depth, context) {
    const entries = context.byBranch.get(branch) || [];
    const node = make("div", { class: "node is-branch", role: "treeitem", tabindex: "-1", "aria-level": depth + 1, "aria-label": `child ${index}` });
    const failed = entries.some((entry) => entry.state === "failed");
    node.append(
      make(
        "div",
        { class: "node-row" },
        make(
          "div",
          { class: "node-name", style: { "padding-left": `${depth * 16}px` } },
          make("span", { class: "fold", "aria-hidden": "true" }),
          make("b", { text: `child ${index}` }),
        ),
        make("div", {}),
        make("div", {}),
        make("div", { class: "node-value", text: failed ? "failed" : "" }),
      ),
    );
    const group = make("div", { class: "node-group", role: "group" });
    for (const entry of entries) group.append(nodeOf(entry, depth + 1, context));
    node.append(group);
    setExpanded(node, true);
    return node;
  }

  function setExpanded(node, isOpen) {
    node.setAttribute("aria-expanded", isOpen ? "true" : "false");
    const fold = node.querySelector(":scope > .node-row .fold");
    if (fold) fold.textContent = isOpen ? "▾" : "▸";
  }

  function toggleDetail(node) {
    const open = node.querySelector(":scope > .node-detail");
    if (open) {
      open.remove();
      return;
    }
    const entry = node.sglEntry;
    if (!entry) {
      setExpanded(node, node.getAttribute("aria-expanded") !== "true");
      return;
    }
    const text = valueOf(entry);
    const detail = make("div", { class: "node-detail" }, text ? make("pre", { text, tabindex: "0" }) : null, facts(entry));
    node.querySelector(":scope > .node-row").after(detail);
  }

  function visibleNodes(tree) {
    return [...tree.querySelectorAll(".node")].filter((node) => node.offsetParent !== null);
  }

  function focusNode(tree, node) {
    if (!node) return;
    for (const other of tree.querySelectorAll('.node[tabindex="0"]')) other.tabIndex = -1;
    node.tabIndex = 0;
    node.focus();
  }

  function onKey(tree, event) {
    const node = event.target.closest(".node");
    if (!node || event.target.tagName === "PRE") return;
    const nodes = visibleNodes(tree);
    const at = nodes.indexOf(node);
    const isOpen = node.getAttribute("aria-expanded");
    const actions = {
      ArrowDown: () => focusNode(tree, nodes[at + 1]),
      ArrowUp: () => focusNode(tree, nodes[at - 1]),
      Home: () => focusNode(tree, nodes[0]),
      End: () => focusNode(tree, nodes[nodes.length - 1]),
      ArrowRight: () => (isOpen === "false" ? setExpanded(node, true) : isOpen === "true" ? focusNode(tree, nodes[at + 1]) : null),
      ArrowLeft: () => (isOpen === "true" ? setExpanded(node, false) : focusNode(tree, node.parentElement.closest(".node"))),
      Enter: () => toggleDetail(node),
      " ": () => toggleDetail(node),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  function onClick(tree, event) {
    const row = event.target.closest(".node-row");
    if (!row) return;
    const node = row.parentElement;
    focusNode(tree, node);
    if (event.target.closest(".fold") && node.hasAttribute("aria-expanded")) setExpanded(node, node.getAttribute("aria-expanded") !== "true");
    else toggleDetail(node);
  }

  function treeOf(run) {
    const byBranch = new Map();
    for (const entry of run.ops) {
      if (entry.op.op === "end") continue;
      if (!byBranch.has(entry.op.branch)) byBranch.set(entry.op.branch, []);
      byBranch.get(entry.op.branch).push(entry);
    }
    const sums = run.ops.filter((entry) => entry.usage).map((entry) => TOKENS.reduce((sum, [, , field]) => sum + Math.max(entry.usage[field], 0), 0));
    const context = { byBranch, total: run.seconds, scale: Math.max(1, ...sums) };
    const tree = make("div", { class: "tree", role: "tree", "aria-label": `Ops of ${run.program}` });
    tree.append(
      make("div", { class: "tree-head", "aria-hidden": "true" }, ["op", "tokens", "time", "value"].map((text) => make("span", { text }))),
    );
    for (const entry of byBranch.get(0) || []) tree.append(nodeOf(entry, 0, context));
    const first = tree.querySelector(".node");
    if (first) first.tabIndex = 0;
    else tree.append(make("p", { class: "nothing", text: "No ops." }));
    tree.addEventListener("keydown", (event) => onKey(tree, event));
    tree.addEventListener("click", (event) => onClick(tree, event));
    return tree;
  }

  function hideQuiet(tree, isHidden) {
    for (const node of tree.querySelectorAll(".node")) {
      if (node.sglEntry && QUIET.has(node.sglEntry.op.op)) node.hidden = isHidden;
    }
    const focused = tree.querySelector('.node[tabindex="0"]');
    if (!focused || focused.hidden) {
      for (const node of tree.querySelectorAll('.node[tabindex="0"]')) node.tabIndex = -1;
      const first = [...tree.querySelectorAll(".node")].find((node) => !node.hidden);
      if (first) first.tabIndex = 0;
    }
  }

  function section(run, level) {
    const tree = treeOf(run);
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => hideQuiet(tree, box.checked));
    const about = [run.model ? `${run.backend}, ${run.model}` : run.backend, run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`, run.started_at];
    const part = make(
      "section",
      { class: "run" },
      make(level ? "h2" : "h1", { class: "run-title", text: run.program }),
      make("p", { class: "run-about", text: about.filter(Boolean).join(" · ") }),
      run.error ? make("p", { class: "run-error", role: "alert", text: `${run.error.type}: ${run.error.message}` }) : null,
      tiles(run),
      tokenBar(run.usage, 0),
      legend(make("label", {}, box, " calls only")),
      tree,
    );
    return [part, ...(run.nested || []).flatMap((inner) => section(inner, level + 1))];
  }

  /* Show a record in `element`, in place of what it has. */
  function mountRecord(element, run) {
    element.replaceChildren(...section(run, 0));
  }

  return { make, mountRecord, legend, seconds, number, share };
})();
