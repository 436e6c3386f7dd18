/* From what the daemon has sent to a tree of elements. */
const PLANES = ["store", "cache", "engine", "router"];
const WORST = ["failed", "unhealthy", "backoff", "stopping", "cleaning", "starting", "stopped", "ready"];
/* In other states the checks of a component say nothing of it, or the state says it already. */
const JUDGED = new Set(["ready", "unhealthy", "stopping"]);
/* What an earlier event began leaves its evidence to that one, a few lines below. */
const FOLLOWING = new Set(["clean", "start", "wait", "go"]);
/* Of another day with its date: at night "13:34" may be yesterday's. */
const clock = (at) => (at.toDateString() === new Date().toDateString() ? "" : at.toLocaleDateString(lang, {month: "2-digit", day: "2-digit"}) + " ") +
  at.toLocaleTimeString(lang, {hourCycle: "h23"});
const percent = (share) => (share === null || share === undefined ? "–" : Math.round(share * 100) + " %");

function section(title, ...inside) {
  const id = "h-" + title.toLowerCase().replace(/\W+/g, "-");
  return h("section", {"aria-labelledby": id, "data-key": id}, h("h2", {id}, t(title)), inside);
}

function since(iso, now) {
  const at = new Date(iso);
  return h("time", {datetime: iso, title: at.toLocaleString(lang)}, span((now - at.getTime()) / 1000));
}

function fact(word, value) {
  return value === null || value === undefined || value === "" ? null : h("span", {class: "num"}, t(word) + " " + value);
}

/* Not ready is no alarm by itself: who starts for the first time only waits. */
function trouble(s) {
  if (s.ready) return "good";
  const all = Object.values(s.components);
  if (all.some((c) => kind(c.state) === "bad")) return "bad";
  const faults = Object.values(s.groups).some((g) => g.fails > 0);
  return faults || all.some((c) => c.state === "unhealthy" || c.state === "backoff") ? "warn" : "wait";
}

function failing(c) {
  return JUDGED.has(c.state) ? Object.entries(c.checks).filter(([, check]) => check.verdict === "fail") : [];
}

function drawHead(s, now) {
  const store = s.store;
  const fails = Object.entries(s.components).filter(([, c]) => failing(c).length)
    .map(([name, c]) => name + " (" + failing(c).map(([check]) => check).join(", ") + ")");
  return h("div", {class: "card head" + (s.ready ? "" : " trouble " + trouble(s)), "data-key": "head"},
    state(s.ready ? "ready" : "not ready", null, trouble(s)),
    h("span", {class: "soft"}, "yrnode " + s.version + " · " + t("up for") + " ", since(s.started_at, now)),
    h("span", {class: "store " + (store.available ? "soft" : "bad")},
      t(store.available ? "store answers" : "store unavailable") + " · " + t("for") + " ", since(store.since, now)),
    fails.length ? state("check-failed", t("checks fail") + ": " + fails.slice(0, 3).join(", ") +
      (fails.length > 3 ? " +" + (fails.length - 3) : "")) : null,
    s.reasons.length ? h("ul", {class: "why"}, s.reasons.map((line) => h("li", {}, line))) : null);
}

function drawAlerts(s) {
  const found = [];
  const say = (bad, title, lines, key = title) => found.push(h("div", {class: "card alert" + (bad ? " bad" : ""), "data-key": "a-" + key},
    h("h3", {}, t(title)), lines.filter(Boolean).map((line) => h("p", {}, line))));
  const store = s.store;
  if (store.refuses_writes) say(true, "store refuses writes", [store.refuses_writes.evidence, ...store.refuses_writes.cure]);
  if (store.frozen.length) say(true, "cannot be decided now", [store.frozen_why, ...store.frozen]);
  if (s.drain) say(false, "draining", [s.drain.evidence, t("unfinished requests") + ": " + (s.drain.unfinished ?? "–")]);
  for (const [target, i] of Object.entries(s.intents)) {
    say(false, "operator", [target + ": " + t(i.paused ? "paused" : "stopped") + " · " + i.by + (i.why ? " · " + i.why : "")], "operator-" + target);
  }
  return found;
}

function drawPlanes(s) {
  const all = Object.values(s.components);
  return section("Planes", h("ul", {class: "planes"}, PLANES.map((plane) => {
    const here = all.filter((c) => c.plane === plane);
    if (!here.length) return null;
    const worst = WORST.find((w) => here.some((c) => c.state === w)) ?? "unknown";
    const ready = here.filter((c) => c.state === "ready").length;
    return h("li", {class: "card"}, h("span", {class: "soft"}, t(plane)), state(worst), " ",
      h("span", {class: "num soft"}, ready + "/" + here.length + " " + t("ready")),
      here.some((c) => failing(c).length) ? state("check-failed", t("checks fail")) : null);
  })));
}

function drawGroups(s) {
  return section("Groups", h("ul", {class: "two"}, Object.entries(s.groups).map(([name, g]) =>
    h("li", {class: "card", "data-key": name},
      h("div", {class: "facts"}, h("h3", {class: "mono"}, name), fact("generation", g.generation),
        h("span", {}, t("stage") + " " + t(g.stage)), g.wanted ? null : h("span", {}, t("not wanted"))),
      h("div", {class: "phases"}, Object.entries(g.phases).map(([node, phase]) =>
        phase === "held" ? state("stopped", node + ": " + t("kept stopped")) : state(phase, node + ": " + t(phase)))),
      drawProgress(g.progress),
      g.cause ? h("p", {class: "soft"}, t("cause") + ": " + g.cause) : null,
      g.waiting_for.length ? h("p", {}, t("waits for") + ": " + g.waiting_for.join(", ")) : null))));
}

function drawCheck(name, check, of) {
  const age = check.age_s === null ? t("not yet") : span(check.age_s) + (lang === "zh" ? "" : " ") + t("ago");
  return h("li", {class: "check", "data-key": name}, state(check.verdict, name + ": " + t(check.verdict), of),
    h("p", {}, check.evidence), h("span", {class: "soft num"}, age));
}

/* `component`: its state and checks. Of one that is not running, the checks are of the past. */
function drawChecks(component) {
  const all = Object.entries(component.checks);
  if (!all.length) return null;
  const fails = failing(component);
  const judge = (check) => JUDGED.has(component.state) ? kind(check.verdict)
    : component.state !== "starting" ? "idle" : check.verdict === "fail" ? "wait" : kind(check.verdict);
  return h("div", {class: "checks"},
    fails.length ? h("ul", {"data-key": "failing"}, fails.map(([name, c]) => drawCheck(name, c))) : null,
    h("details", {"data-key": "all"},
      h("summary", {}, h("span", {}, t("checks")), all.map(([name, c]) => state(c.verdict, name, judge(c)))),
      h("ul", {}, all.map(([name, c]) => drawCheck(name, c, judge(c))))));
}

/* How long it has taken, and how long it usually does. */
function drawProgress(p) {
  if (!p) return null;
  const usually = p.usual_s === null ? null : t("usually") + " " + span(p.usual_s);
  return h("p", {class: "why num", "data-key": "progress"},
    [t(p.what) + ": " + span(p.elapsed_s), usually, p.doing].filter(Boolean).join(" · "),
    p.late ? [" ", state("late", null, "warn")] : null);
}

function drawComponent(name, c, now) {
  const failure = c.last_failure;
  return h("li", {class: "unit", "data-key": name, "data-name": name, "data-state": c.state},
    state(c.state), h("h3", {class: "mono"}, name),
    h("span", {class: "for soft num"}, t("for") + " ", since(c.since, now)),
    h("span", {class: "facts"}, fact("pid", c.pid), fact("generation", c.generation || null), fact("restarts", c.restarts)),
    drawProgress(c.progress),
    c.reason && c.state !== "ready" ? h("p", {class: "why"}, c.reason) : null,
    // what it is being restarted for stands in the line above
    failure && (c.state === "ready" || !c.reason.includes(failure.cause)) ? h("p", {class: "why soft", "data-key": "failure"}, t("last failure") + " ",
      h("time", {datetime: failure.at}, clock(new Date(failure.at))),
      ": " + failure.cause + (failure.evidence ? " [" + failure.evidence + "]" : "")) : null,
    drawChecks(c));
}

function drawComponents(s, now) {
  return section("Components", h("ul", {class: "card rows"},
    Object.entries(s.components).map(([name, c]) => drawComponent(name, c, now))));
}

function line(points, column, of) {
  const parts = [[]];
  for (const p of points) {
    if (p[column] === null) parts.push([]);
    else parts[parts.length - 1].push(((900 - p[0]) / 9).toFixed(2) + "," + (38 - p[column] * 36).toFixed(2));
  }
  return parts.filter((p) => p.length).map((p) => p.length > 1
    ? h("polyline", {class: of, points: p.join(" ")})
    : h("line", {class: of, x1: p[0].split(",")[0], x2: Number(p[0].split(",")[0]) + 1, y1: p[0].split(",")[1], y2: p[0].split(",")[1]}));
}

function drawPlot(name, rank, points) {
  const told = name + ": " + t("local") + " " + percent(rank.local_win) + ", " + t("external") + " " + percent(rank.ext_win) +
    " (" + t("in the last minute") + ")";
  return h("svg", {class: "plot", viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": told},
    [2, 20, 38].map((y) => h("line", {x1: 0, x2: 100, y1: y, y2: y})),
    line(points, 3, "c"), line(points, 1, "a"), line(points, 2, "b"));
}

function drawCache(cache) {
  if (!cache || !Object.keys(cache.ranks).length) return null;
  return section("Cache hit rates", h("ul", {class: "two"}, Object.entries(cache.ranks).map(([name, rank]) =>
    h("li", {class: "card", "data-key": name},
      h("div", {class: "facts"}, h("h3", {class: "mono"}, name), h("span", {}, t(rank.meaning))),
      h("div", {class: "keys num"}, h("span", {class: "a"}, "— " + t("local") + " " + percent(rank.local_win)),
        h("span", {class: "b"}, "╌ " + t("external") + " " + percent(rank.ext_win)),
        h("span", {}, "┈ " + t("effective") + " " + percent(rank.eff_win))),
      drawPlot(name, rank, cache.series[name] ?? []),
      h("div", {class: "facts ends"}, h("span", {}, "−15 " + t("minutes")), h("span", {}, "0–100 %"), h("span", {}, t("now")))))));
}

function drawNodes(s, now) {
  const others = Object.entries(s.peers).map(([name, p]) => {
    const word = p.fenced ? "fenced" : p.up === null ? "unknown" : !p.up ? "absent" : p.differs.length ? "differs" : "up";
    return h("li", {class: "unit", "data-key": name}, state(word), h("h3", {class: "mono"}, name),
      h("span", {class: "for soft"}, p.absent_since ? [t("for") + " ", since(p.absent_since, now)] : null),
      h("span", {class: "facts"}, fact("yrnode", p.version), p.api ? h("span", {class: "mono"}, p.api) : null,
        fact("clock", p.clock_offset_s === null ? null : p.clock_offset_s + " s")),
      p.differs.length ? h("ul", {class: "why"}, p.differs.map((x) => h("li", {}, String(x)))) : null);
  });
  return section("Nodes", h("ul", {class: "card rows"},
    h("li", {class: "unit", "data-key": "me"}, state(s.ready ? "ready" : "not ready", null, trouble(s)),
      h("h3", {class: "mono"}, s.node), h("span", {class: "for soft"}, t("this node")),
      h("span", {class: "facts"}, fact("yrnode", s.version)), drawChecks({state: "ready", checks: s.node_checks})),
    others));
}

function drawRouter(router) {
  if (!router) return null;
  return section("Router", h("ul", {class: "card rows"},
    h("li", {"data-key": "url"}, h("span", {class: "mono"}, router.url), " ", h("span", {class: "soft"}, router.kind),
      router.error ? h("p", {class: "bad"}, router.error) : null),
    router.members.map((m) => h("li", {class: "unit", "data-key": m.node + m.rank}, state(m.state),
      h("h3", {class: "mono"}, m.rank), h("span", {class: "for soft"}, m.node + " · " + m.role),
      h("span", {class: "facts mono"}, m.url), m.why ? h("p", {class: "why soft"}, m.why) : null))));
}

function drawEvents(events) {
  return section("Events", h("ol", {class: "card rows"}, events.length ? events.map((e) => {
    const at = new Date(e.at * 1000);
    return h("li", {class: "event", "data-key": String(e.seq)},
      h("time", {class: "soft num", datetime: at.toISOString(), title: at.toLocaleString(lang)}, clock(at)),
      h("span", {class: "mono"}, e.target), state(e.what),
      h("div", {}, h("p", {}, e.text), e.evidence && !FOLLOWING.has(e.what) ? h("p", {}, e.evidence) : null,
        e.culprit ? h("p", {}, t("cause") + ": " + e.culprit) : null));
  }) : h("li", {}, t("none yet"))));
}
