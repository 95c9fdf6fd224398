// The deployed dashboard, from the logs and queues of the embedded AWS: alarms that are on, charts, and what is not measured.
import { unsafeHTML } from "lit-html/directives/unsafe-html.js";
import { lineChart } from "./chart.js";
import { clock, measured } from "./format.js";
import { page } from "./messages.js";
import { ask } from "./server.js";
import { choice, html, nothing, problem, repeat, table } from "./parts.js";
import { T } from "./texts.js";

const LATEST = "latest";

export function start(state) {
  const asked = new URLSearchParams(location.search).get("range");
  state.range ??= asked in T.dashboard.ranges ? asked : LATEST;
}

export const seconds = 1;

export async function read(_, { range }) {
  const snapshot = await ask(`/local/dashboard?range=${range}`);
  Object.assign(document.body.dataset, { range, now: snapshot.now });
  return snapshot;
}

const COLUMNS = [
  { text: T.dashboard.alarm, cell: ({ name }) => name },
  { text: T.dashboard.state, cell: ({ state }) => T.dashboard.states[state] },
  { text: T.dashboard.reason, kind: "wide", cell: ({ reason }) => reason },
  { text: T.dashboard.meaning, kind: "wide", cell: ({ description }) => description },
];

function alarmOf({ name, reason, description }) {
  return html`<section class="card alarm" data-alarm=${name}><h3 class="bad">▲ ${name}</h3><p>${description}</p><p class="hint">${reason}</p></section>`;
}

function alarmsOf(alarms) {
  const on = alarms.filter(({ state }) => state === "ALARM");
  const others = alarms.filter(({ state }) => state !== "ALARM");
  const amount = (isOne) => others.filter(isOne).length;
  const counts = {
    off: amount(({ state }) => state === "OK"),
    unmeasured: amount(({ unknown }) => unknown !== null),
    unknown: amount(({ state, unknown }) => state === "UNKNOWN" && unknown === null),
  };
  return html`<section id="alarms" aria-label=${T.dashboard.alarms}>
    <details class="card"><summary><strong role="status">${T.dashboard.on(on.length)}</strong>, ${T.dashboard.others(counts)}</summary>
      ${table({ label: T.dashboard.alarms, columns: COLUMNS, rows: others, keyOf: ({ name }) => name })}</details>
    <div class="cards">${repeat(on, ({ name }) => name, alarmOf)}</div>
  </section>`;
}

const isMeasured = ({ unknown }) => unknown === null;

// What the alarms say whose threshold is a line of a chart. They look at other periods than the chart.
function wordsOf({ alarms }) {
  const on = alarms.filter(({ state }) => state === "ALARM");
  const crossed = alarms.filter(({ state, isBeyond }) => isBeyond && state === "OK");
  if (on.length + crossed.length > 0) {
    return [...on.map((one) => html`<strong class="bad">${T.dashboard.isOn(one.name, one.reason)}</strong> `), ...crossed.map((one) => html`<span class="warn">${T.dashboard.isCrossed(one.name, one.reason)}</span> `)];
  }
  if (alarms.length > 1 && alarms.every(({ state }) => state === "OK")) return T.dashboard.allOff(alarms.length);
  return alarms.map((one) => (one.state === "OK" ? T.dashboard.isOff : T.dashboard.isUnknown)(one.name, one.reason)).join(" ");
}

function chartOf({ title, unit, stacked, least, series, lines: limits }, times) {
  const lines = series.filter(isMeasured).map(({ label, color, points, overall }) => ({ text: label, color: color ?? "--accent", values: points, value: overall }));
  const below = limits.filter(({ alarms }) => alarms.length).map((limit) => html`<p class="hint limit">${wordsOf(limit)}</p>`);
  return lineChart({
    title,
    unit: stacked ? `${unit}, ${T.dashboard.stacked}` : unit,
    times,
    lines,
    limits: limits.map(({ value, label, color }) => ({ value, text: label, color: color ?? "--bad" })),
    isStacked: stacked,
    least: least ?? 0,
    sync: "dashboard",
    below,
  });
}

function totalsOf({ title, series }) {
  const total = ({ label, overall }) => html`<li data-label=${label}><b data-value=${overall ?? ""}>${measured(overall)}</b> ${label}</li>`;
  return html`<h3>${title}</h3><ul>${series.map(total)}</ul>`;
}

const CONTENT = {
  graph: chartOf,
  values: totalsOf,
  error: ({ title, error }) => [html`<h3>${title}</h3>`, problem(error)],
};

// Each section is a text and the widgets behind it. Some of them measure nothing here.
function sectionsOf(widgets) {
  const sections = [{ widgets: [] }];
  for (const widget of widgets) {
    if (widget.kind === "text") sections.push({ text: widget, widgets: [] });
    else if (widget.series?.some(isMeasured) ?? true) sections.at(-1).widgets.push(widget);
  }
  return sections.filter((section) => section.widgets.length > 0);
}

function sectionOf({ text, widgets }, times) {
  const advice = text && html`<h2>${text.title}</h2><details><summary>${unsafeHTML(text.html)}</summary><p>${unsafeHTML(text.advice)}</p></details>`;
  const drawn = (widget) => html`<div class="card is-${widget.kind}">${CONTENT[widget.kind](widget, times)}</div>`;
  return html`<section class="question">${advice ?? nothing}<div class="charts">${repeat(widgets, ({ title }) => title, drawn)}</div></section>`;
}

function unmeasuredOf(widgets, alarms) {
  const charts = widgets.flatMap(({ title, series = [] }) => {
    const lines = series.filter((one) => !isMeasured(one));
    const name = lines.length < series.length ? T.dashboard.part(title, lines.map(({ label }) => label)) : title;
    return lines.length > 0 ? [{ name, unknown: lines[0].unknown }] : [];
  });
  const silent = alarms.filter((alarm) => !isMeasured(alarm));
  if (charts.length + silent.length === 0) return nothing;
  const because = (reason) => {
    const names = [charts, silent].map((all) => all.filter(({ unknown }) => unknown === reason).map(({ name }) => name));
    const words = [T.dashboard.ofCharts, T.dashboard.ofAlarms].map((wordsOf, at) => (names[at].length ? html`<p>${wordsOf(names[at])}</p>` : nothing));
    return html`<h3>${T.dashboard.because(reason)}</h3>${words}`;
  };
  return html`<details class="card" id="unmeasured"><summary>${T.dashboard.unmeasured(charts.length, silent.length)}</summary>
    ${[...new Set([...charts, ...silent].map(({ unknown }) => unknown))].map(because)}</details>`;
}

function controlsOf(state) {
  const choose = (event) => {
    state.range = event.target.value;
    history.replaceState(null, "", `?range=${state.range}`);
    page.read();
  };
  return choice("range", T.dashboard.range, Object.entries(T.dashboard.ranges), { value: state.range, onChange: choose });
}

function contentOf({ alarms, widgets, start, period, count, ready, traffic, problem: why }) {
  const times = Array.from({ length: count }, (_, index) => start + index * period);
  return [
    why ? problem(T.dashboard.unreadable(why)) : nothing,
    ready && !traffic ? html`<p class="card">${T.dashboard.noTraffic}</p>` : nothing,
    ready ? [alarmsOf(alarms), ...sectionsOf(widgets).map((section) => sectionOf(section, times)), unmeasuredOf(widgets, alarms)] : nothing,
  ];
}

export function draw(snapshot, state) {
  const { start, period, count, earlier } = snapshot;
  const about = T.dashboard.about(clock(start), clock(start + period * count), T.dashboard.resolution[period], earlier);
  return { title: snapshot.name, about, controls: controlsOf(state), content: contentOf(snapshot) };
}
