// Polls /data/dashboard once a second and draws it: widgets in CloudWatch's grid of 24 columns, charts with uPlot.
"use strict";

const POLL_MILLISECONDS = 1000;
const COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#d62728", "#7f7f7f"];
const LEAST_AREA = 1.5; // pixels: 2 rejections are seen on top of 500
const LONE_BAR = 5; // pixels
const LONE_DOT = 7; // pixels
const RESOLUTIONS = {
  1: "one point per second (CloudWatch: per minute)",
  5: "one point per 5 seconds (CloudWatch: per minute)",
  30: "one point per 30 seconds (CloudWatch: per minute)",
  60: "one point per minute, as on CloudWatch",
};

const dark = matchMedia("(prefers-color-scheme: dark)");

let layout = null;
let widgets = [];
let latest = null;
let charts = [];
let explained = null; // index of the alarm in the dialog

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colorOf(series, index) {
  return series.color ?? COLORS[index % COLORS.length];
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = Number.isInteger(value) || size >= 1000 ? 0 : size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function setValue(node, value) {
  setText(node, shown(value));
  node.dataset.value = value ?? "";
}

// ---------------------------------------------------------------- text, numbers, alarms

function heading(title, unit = "") {
  return element("h3", {}, title, element("small", { textContent: unit }));
}

function textWidget(root, widget) {
  // The server renders the Markdown and escapes HTML in it, so this is safe.
  root.innerHTML = widget.html;
  return () => {};
}

function errorWidget(root, widget) {
  root.append(heading(widget.title), element("div", { className: "plot" }, element("p", { className: "empty", textContent: widget.error })));
  return () => {};
}

function swatch(color) {
  const made = element("span", { className: "swatch" });
  made.style.background = color;
  return made;
}

function numbersWidget(root, widget) {
  const values = widget.series.map(() => element("b"));
  const numbers = widget.series.map((series, index) => {
    const label = element("span", {}, swatch(colorOf(series, index)), series.label);
    const made = element("div", { className: "number" }, values[index], label);
    made.dataset.label = series.label;
    return made;
  });
  root.append(heading(widget.title), element("div", { className: "numbers" }, ...numbers));
  return (now) => now.series.forEach((series, index) => setValue(values[index], series.overall));
}

function alarmsWidget(root, widget) {
  const count = element("small");
  const title = element("h3", {}, widget.title, count);
  const items = widget.alarms.map((alarm, index) => {
    const button = element("button", { type: "button", textContent: alarm.name, ariaHasPopup: "dialog" });
    const item = element("li", {}, button);
    item.dataset.name = alarm.name;
    button.addEventListener("click", () => {
      explained = index;
      explain(current.alarms[index]);
      byId("explanation").showModal();
    });
    return item;
  });
  let current = widget;
  root.append(title, element("ul", { className: "alarm-list" }, ...items));
  return (now) => {
    current = now;
    const counts = { ALARM: 0, OK: 0, UNKNOWN: 0 };
    now.alarms.forEach((alarm, index) => {
      counts[alarm.state] += 1;
      items[index].dataset.state = alarm.state;
      items[index].firstChild.title = alarm.reason;
      items[index].firstChild.ariaLabel = `${alarm.name}: ${alarm.state}`;
    });
    setText(count, `${counts.ALARM} in alarm · ${counts.OK} OK · ${counts.UNKNOWN} not known on this machine`);
    if (byId("explanation").open && explained in now.alarms) explain(now.alarms[explained]);
  };
}

function explain(alarm) {
  setText(byId("explanation-title"), `${alarm.name}: ${alarm.state}`);
  setText(byId("explanation-meaning"), alarm.description);
  setText(byId("explanation-reason"), alarm.reason);
}

// ---------------------------------------------------------------- graphs

// Stacks each series on those before it: floor and top of its area at each moment, null where no series has a value.
function stacked(all) {
  const sums = new Array(all[0]?.length ?? 0).fill(0);
  const seen = sums.map((_, at) => all.some((points) => points[at] !== null));
  return all.map((points) =>
    points.map((value, at) => {
      if (!seen[at]) return null;
      const floor = sums[at];
      sums[at] += value ?? 0;
      return { floor, top: sums[at] };
    }),
  );
}

// The runs of moments with values: [first, last], both inclusive.
function runsOf(points) {
  const runs = [];
  points.forEach((point, at) => {
    if (point === null) return;
    if (at > 0 && points[at - 1] !== null) runs.at(-1)[1] = at;
    else runs.push([at, at]);
  });
  return runs;
}

// Fills each area in its own colour only. From the top down, so that a thin area keeps its least height.
function drawAreas(chart, areas, colors) {
  const { ctx } = chart;
  const ratio = devicePixelRatio;
  const x = (at) => chart.valToPos(chart.data[0][at], "x", true);
  const low = (area) => chart.valToPos(area.floor, "y", true);
  const high = (area) => (area.top > area.floor ? Math.min(chart.valToPos(area.top, "y", true), low(area) - LEAST_AREA * ratio) : low(area));
  ctx.save();
  for (let index = areas.length - 1; index >= 0; index -= 1) {
    ctx.fillStyle = colors[index];
    for (const [first, last] of runsOf(areas[index])) {
      const run = areas[index].slice(first, last + 1);
      let edge = run.map((area, offset) => [x(first + offset), area]);
      // A single moment has no width: a bar stands for it.
      if (first === last) edge = [-0.5, 0.5].map((side) => [x(first) + side * LONE_BAR * ratio, run[0]]);
      const top = edge.map(([left, area]) => [left, high(area)]);
      const bottom = edge.map(([left, area]) => [left, low(area)]).reverse();
      ctx.beginPath();
      [...top, ...bottom].forEach(([left, y]) => ctx.lineTo(left, y));
      ctx.fill();
    }
  }
  ctx.restore();
}

function highest(data, widget) {
  let most = 0;
  for (const points of data.slice(1)) for (const value of points) if (value > most) most = value;
  // A line far above the values would flatten the curves; then only the legend tells of it.
  for (const line of widget.lines) if (most === 0 || line.value <= 4 * most) most = Math.max(most, line.value);
  return most || 1;
}

function drawLines(chart, lines, items) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  ctx.save();
  const width = Math.max(1, Math.round(ratio));
  ctx.lineWidth = width;
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  lines.forEach((line, index) => {
    const above = line.value > chart.scales.y.max;
    items[index].lastChild.hidden = !above;
    if (above) return;
    // On whole pixels, so that the line is sharp.
    const y = Math.round(chart.valToPos(line.value, "y", true)) + width / 2;
    ctx.strokeStyle = line.color ?? style("--muted");
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  });
  ctx.restore();
}

// The labels of lines are in the legend, where they cover no curve.
function lineItem(line) {
  const dash = element("span", { className: "dash" });
  dash.style.borderColor = line.color ?? "var(--muted)";
  const value = line.label.includes(shown(line.value)) ? "" : ` ${shown(line.value)}`;
  const item = element("li", {}, dash, line.label + value, element("small", { textContent: "(above this graph)", hidden: true }));
  item.dataset.line = line.label;
  return item;
}

function makeChart(plot, widget, known, hooks) {
  const axis = { stroke: style("--muted"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false }, grid: { stroke: style("--grid"), width: 1 } };
  // A line needs two moments: a single one is a dot.
  const lone = (chart, index) => runsOf(chart.data[index]).flatMap(([first, last]) => (first === last ? [first] : []));
  const series = known.map((one, index) => {
    const color = colorOf(one, index);
    return { label: one.label, stroke: color, width: 1.8, points: { show: true, filter: lone, size: LONE_DOT, fill: color } };
  });
  if (widget.stacked) for (const one of series) Object.assign(one, { paths: () => null, points: { show: false } });
  return new uPlot(
    {
      width: plot.clientWidth,
      height: plot.clientHeight,
      padding: [8, 22, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "dashboard" }, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: true, range: () => [latest.start, latest.start + latest.period * Math.max(1, latest.count - 1)] }, y: { range: (chart) => [widget.least ?? 0, highest(chart.data, widget) * 1.08] } },
      series: [{}, ...series],
      axes: [
        { ...axis, size: 24, gap: 4, space: 70, values: (_, ticks) => ticks.map((tick) => (tick % 60 === 0 ? clock(tick).slice(0, 5) : clock(tick))) },
        { ...axis, size: 46, gap: 4, space: 34, values: (_, ticks) => ticks.map(shown) },
      ],
      hooks,
    },
    [[], ...known.map(() => [])],
    plot,
  );
}

function graphWidget(root, widget) {
  const plot = element("div", { className: "plot" });
  const empty = element("p", { className: "empty", hidden: true });
  const known = () => current.series.filter((series) => series.unknown === null);
  let current = widget;
  let at = null;
  let areas = [];

  plot.append(empty);
  const unit = [widget.unit, widget.stacked ? "stacked" : ""].filter(Boolean).join(", ");
  root.append(heading(widget.title, unit), plot);
  const values = new Map();
  const legend = element("ul", { className: "legend" });
  widget.series.forEach((series, index) => {
    if (series.unknown !== null) return;
    const value = element("b");
    values.set(series.label, value);
    const item = element("li", {}, swatch(colorOf(series, index)), series.label, value);
    item.dataset.label = series.label;
    legend.append(item);
  });
  const lines = widget.lines.map(lineItem);
  legend.append(...lines);
  const unknown = widget.series.filter((series) => series.unknown !== null);
  const reasons = [...new Set(unknown.map((series) => series.unknown))].join("; ");
  const nothing = values.size === 0;
  if (!nothing) root.append(legend);
  if (unknown.length > 0 && !nothing) {
    const names = unknown.map((series) => series.label).join(", ");
    root.append(element("p", { className: "note", textContent: `Not known on this machine: ${names} (${reasons}).` }));
  }
  if (nothing) {
    empty.hidden = false;
    empty.textContent = `Not known on this machine: ${reasons}. CloudWatch shows it here.`;
    return () => {};
  }

  // The legend shows the values under the pointer, or those of the whole range.
  const fill = () => {
    for (const series of known()) setValue(values.get(series.label), at === null ? series.overall : series.points[at]);
  };
  const colored = known().map((series) => ({ ...series, color: colorOf(series, widget.series.findIndex((one) => one.label === series.label)) }));
  const chart = makeChart(plot, widget, colored, {
    drawAxes: [(one) => drawAreas(one, areas, colored.map((series) => series.color))],
    draw: [(one) => drawLines(one, widget.lines, lines)],
    setCursor: [
      (one) => {
        at = one.cursor.idx ?? null;
        fill();
      },
    ],
  });
  charts.push(chart);
  new ResizeObserver(() => {
    if (plot.clientWidth > 0) chart.setSize({ width: plot.clientWidth, height: plot.clientHeight });
  }).observe(plot);

  return (now) => {
    current = now;
    const times = Array.from({ length: latest.count }, (_, index) => latest.start + index * latest.period);
    const points = known().map((series) => series.points);
    if (at !== null && at >= latest.count) at = null;
    areas = widget.stacked ? stacked(points) : [];
    // Where an area has no height, the pointer finds nothing.
    const drawn = widget.stacked ? areas.map((area) => area.map((one) => (one !== null && one.top > one.floor ? one.top : null))) : points;
    chart.setData([times, ...drawn]);
    const none = points.every((one) => one.every((value) => value === null));
    empty.hidden = !none;
    setText(empty, none ? (latest.traffic ? "No data in this time range." : "No traffic yet.") : "");
    fill();
  };
}

// ---------------------------------------------------------------- the page

const KINDS = { text: textWidget, values: numbersWidget, alarms: alarmsWidget, graph: graphWidget, error: errorWidget };

function build(snapshot) {
  const grid = byId("grid");
  charts.forEach((chart) => chart.destroy());
  charts = [];
  grid.replaceChildren();
  widgets = snapshot.widgets.map((widget) => {
    const root = element("section", { className: `widget is-${widget.kind}` });
    root.dataset.title = widget.title;
    root.style.gridColumn = `${widget.x + 1} / span ${widget.width}`;
    root.style.gridRow = `${widget.y + 1} / span ${widget.height}`;
    grid.append(root);
    return KINDS[widget.kind](root, widget);
  });
}

function listenToPopups() {
  const dialog = byId("explanation");
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  // The dialog's content fills it, so its own surface is what lies around it. Escape closes it by itself.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

function show(snapshot) {
  latest = snapshot;
  document.title = `${snapshot.name} - Desk`;
  setText(byId("name"), snapshot.name);
  const resolution = RESOLUTIONS[snapshot.period];
  setText(
    byId("about"),
    `The deployed dashboard, from the logs and queues of the embedded AWS at ${snapshot.endpoint}. ` +
      `${clock(snapshot.start)} to ${clock(snapshot.start + snapshot.period * snapshot.count)}, ${resolution}. ` +
      "Legends show the whole range, or the moment under the pointer." +
      (snapshot.earlier ? " There was earlier traffic: choose a longer range to see it." : ""),
  );
  live(`live, ${clock(snapshot.now)}`, "on");
  document.body.classList.remove("stale");
  if (snapshot.problem) notice(`The embedded AWS cannot be read: ${snapshot.problem}`);
  else if (snapshot.ready && !snapshot.traffic) notice("No traffic yet: run `make demo` in another terminal, and watch it here.");
  else notice("");
  if (!snapshot.ready) return;
  if (layout !== snapshot.layout) {
    build(snapshot);
    layout = snapshot.layout;
  }
  snapshot.widgets.forEach((widget, index) => widgets[index](widget));
  document.body.dataset.range = byId("range").value;
  document.body.dataset.now = snapshot.now;
}

async function poll() {
  const range = byId("range").value;
  try {
    const snapshot = await ask(`/data/dashboard?range=${range}`);
    if (range === byId("range").value) show(snapshot);
  } catch (error) {
    live("stopped", "off");
    document.body.classList.add("stale");
    notice(error.message);
    if (!(error instanceof GoneError)) console.error(error);
  }
}

async function main() {
  const select = byId("range");
  const asked = new URLSearchParams(location.search).get("range");
  if ([...select.options].some((option) => option.value === asked)) select.value = asked;
  select.addEventListener("change", () => {
    history.replaceState(null, "", `?range=${select.value}`);
    poll();
  });
  listenToPopups();
  // Charts take their colours when they are created.
  dark.addEventListener("change", () => {
    layout = null;
    poll();
  });
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
  }
}

main();
