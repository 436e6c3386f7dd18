/* The stream, the language, and what is told to who cannot see. */
const MOST_EVENTS = 100;
const SILENT_MS = 40000;
const main = document.getElementById("main");
const link = document.getElementById("link");
const told = document.getElementById("told");
const button = document.getElementById("lang");
let status = null;
let cache = null;
let events = [];
let behind = 0;  // this clock minus the daemon's
let heard = 0;
let open = false;
let source = null;
let pause = 1000;
let again = null;
let drawing = null;
let anew = false;

/* Messages come in bursts; what they change is drawn once. */
function drawSoon() {
  drawing ??= setTimeout(draw, 50);
}

function draw() {
  clearTimeout(drawing);
  drawing = null;
  if (!status) return;
  const now = Date.now() - behind;
  const fresh = h("main", {id: "main", tabindex: "-1"}, drawHead(status, now), drawAlerts(status), drawPlanes(status),
    drawGroups(status), drawComponents(status, now), drawRouter(status.router), drawCache(cache),
    drawNodes(status, now), drawEvents(events));
  morph(main, fresh);
  document.title = (status.ready ? "● " : "✕ ") + status.node + " · " + status.cluster;
}

function drawLink() {
  link.textContent = t(open ? "live" : heard ? "connection lost, trying again" : "connecting");
  link.className = "link" + (open || !heard ? "" : " bad");
}

function tell(before, after) {
  if (!before) return;
  const changed = Object.entries(after.components).filter(([name, c]) => before.components[name]?.state !== c.state)
    .map(([name, c]) => name + ": " + t(c.state));
  if (before.ready !== after.ready) changed.unshift(after.node + ": " + t(after.ready ? "ready" : "not ready"));
  if (changed.length) told.textContent = changed.join("; ");
}

function connect() {
  clearTimeout(again);
  source?.close();
  source = new EventSource("/stream");
  const hear = (take) => (message) => {
    heard = Date.now();
    open = true;
    pause = 1000;
    take(JSON.parse(message.data));
    drawSoon();
    drawLink();
  };
  source.onopen = () => { anew = true; };
  source.addEventListener("status", hear((next) => {
    behind = Date.now() - new Date(next.at).getTime();
    tell(status, next);
    status = next;
  }));
  source.addEventListener("cache", hear((next) => { cache = next; }));
  source.addEventListener("message", hear((event) => {
    // a stream begins with the latest events, and after a loss of the daemon's files they count from 1 again
    events = [event, ...(anew ? [] : events)].slice(0, MOST_EVENTS);
    anew = false;
  }));
  source.onerror = lost;
}

function lost() {
  if (open) told.textContent = t("connection lost, trying again");
  open = false;
  drawLink();
  retry();
}

/* Ours and not the browser's: that one gives up for good when it is refused once. */
function retry() {
  source.close();
  clearTimeout(again);
  again = setTimeout(connect, pause * (1 + Math.random() / 2));
  pause = Math.min(pause * 2, 15000);
}

function speak(next) {
  lang = next;
  document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
  button.textContent = lang === "zh" ? "English" : "中文";
  button.lang = lang === "zh" ? "en" : "zh-CN";
  document.getElementById("skip").textContent = t("Skip to content");
  draw();
  drawLink();
}

function remembered() {
  try { return localStorage.getItem("yrnode.lang"); } catch { return null; }
}

button.hidden = false;
button.addEventListener("click", () => {
  speak(lang === "zh" ? "en" : "zh");
  try { localStorage.setItem("yrnode.lang", lang); } catch { /* a private window forgets */ }
});
setInterval(() => {
  if (open && Date.now() - heard > SILENT_MS) {
    lost();
  }
  if (!document.hidden) draw();
}, 1000);
speak(remembered() ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en"));
connect();
