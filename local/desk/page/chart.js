// Charts over time, drawn by uPlot: lines or stacked areas. The legend shows the values of a chosen moment.
import { AsyncDirective, directive } from "lit-html/async-directive.js";
import { render } from "lit-html";
import uPlot from "uplot";
import { clock, day, measured, minute } from "./format.js";
import { page } from "./messages.js";
import { html, nothing } from "./parts.js";
import { T } from "./texts.js";

const SHORT_SECONDS = 2 * 86_400;
const LEAST_AREA = 1.5; // pixels: 2 rejections are seen on top of 500
const LONE_BAR = 5; // pixels
const LONE_DOT = 7; // pixels
const HEADROOM = 1.08;
const LOW = 70; // pixels: too few for the times below it
const AWAY = { left: -10, top: -10 };
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

// A colour is `#rrggbb`, or a variable of the style, which is another one in the dark.
const inStyle = (color) => (color.startsWith("--") ? `var(${color})` : color);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.draw());

// A canvas knows no variables.
function paint(color) {
  document.head.style.color = inStyle(color);
  return getComputedStyle(document.head).color;
}

// Stacks each line on those before it: floor and top of its area at each moment, null where no line has a value.
function stacked(all) {
  const sums = new Array(all[0]?.length ?? 0).fill(0);
  const seen = sums.map((_, at) => all.some((values) => values[at] !== null));
  return all.map((values) =>
    values.map((value, at) => {
      if (!seen[at]) return null;
      const floor = sums[at];
      sums[at] += value ?? 0;
      return { floor, top: sums[at] };
    }),
  );
}

// The runs of moments with values: [first, last], both inclusive.
function runsOf(values) {
  const runs = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at > 0 && values[at - 1] !== null) runs.at(-1)[1] = at;
    else runs.push([at, at]);
  });
  return runs;
}

// Fills each area in its own colour only. From the top down, so that a thin area keeps its least height.
function drawAreas({ ctx, data: [times], valToPos }, areas, lines) {
  const ratio = devicePixelRatio;
  const x = (at) => valToPos(times[at], "x", true);
  const low = (area) => valToPos(area.floor, "y", true);
  const high = (area) => (area.top > area.floor ? Math.min(valToPos(area.top, "y", true), low(area) - LEAST_AREA * ratio) : low(area));
  for (let index = areas.length - 1; index >= 0; index -= 1) {
    ctx.fillStyle = paint(lines[index].color);
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
}

// Dashed for a limit.
function swatch(color, dashes = nothing) {
  return html`<svg class="swatch" viewBox="0 0 12 10" aria-hidden="true">
    <path d="M0 5H12" stroke=${inStyle(color)} stroke-width=${dashes === nothing ? 10 : 2} stroke-dasharray=${dashes}></path></svg>`;
}

// A line needs two moments: a single one is a dot.
const lone = (plot, index) => runsOf(plot.data[index]).flatMap(([first, last]) => (first === last ? [first] : []));

function seriesOf({ text, color, isStepped }) {
  const paths = isStepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
  const stroke = () => paint(color);
  return { label: text, stroke, width: 1.8, paths, points: { show: true, filter: lone, size: LONE_DOT, fill: stroke } };
}

const limitOf = ({ color }) => ({ stroke: () => paint(color), width: 1, dash: [5, 4], points: { show: false } });

const isLong = (times) => times.at(-1) - times[0] >= SHORT_SECONDS;
const momentOf = (times, at) => (isLong(times) ? T.pair(day(at), clock(at)) : clock(at));

const isLow = ({ height }) => height < LOW;

function ticksOf(plot, ticks) {
  if (isLow(plot)) return ticks.map(() => "");
  if (isLong(ticks)) return ticks.map(day);
  return ticks.map((tick) => (tick % 60 === 0 ? minute(tick) : clock(tick)));
}

class Drawing extends AsyncDirective {
  // The chosen moment, and whether the arrow keys chose it.
  at = null;
  isByKeys = false;

  update({ element }, [chart]) {
    this.figure = element;
    this.chart = { limits: [], least: 0, ...chart };
    const { times, lines, limits, isStacked, height, sync } = this.chart;
    const values = lines.map((line) => line.values);
    this.areas = isStacked ? stacked(values) : [];
    // Where an area has no height, the pointer finds nothing.
    const drawn = isStacked ? this.areas.map((area) => area.map((one) => (one !== null && one.top > one.floor ? one.top : null))) : values;
    this.measure(drawn.flat());
    if (this.at >= times.length) this.at = null;
    this.write();
    const shape = JSON.stringify([isStacked, height, sync, [...lines, ...limits].map(({ text, color }) => [text, color])]);
    if (shape !== this.shape) this.make(shape);
    this.plot.setData([times, ...drawn, ...limits.map(({ value }) => times.map(() => value))]);
  }

  // A limit far above the values would flatten the curves; then only the legend names it.
  measure(values) {
    const most = values.reduce((one, other) => Math.max(one, other), 0);
    const near = this.chart.limits.map(({ value }) => value).filter((value) => most === 0 || value <= 4 * most);
    this.lowest = values.reduce((one, other) => Math.min(one, other), this.chart.least);
    this.highest = (Math.max(most, ...near) || 1) * HEADROOM;
  }

  make(shape) {
    this.disconnected();
    this.shape = shape;
    const { lines, limits, isStacked, height, sync } = this.chart;
    const place = this.figure.querySelector(".plot > div");
    if (height) place.parentElement.style.minHeight = `${height}px`;
    const sizeOf = () => ({ width: Math.max(50, place.clientWidth), height: Math.max(40, place.clientHeight) });
    const axis = { stroke: () => paint("--muted"), grid: { stroke: () => paint("--grid"), width: 1 }, ticks: { show: false }, font: `11px ${getComputedStyle(document.body).fontFamily}` };
    const series = lines.map(seriesOf);
    if (isStacked) for (const one of series) Object.assign(one, { paths: () => null, points: { show: false } });
    const options = {
      ...sizeOf(),
      padding: [6, 26, 0, 0],
      cursor: { y: false, dataIdx: (_, at, index) => (at > lines.length ? null : index), drag: { x: false, y: false }, sync: sync && { key: sync } },
      legend: { show: false },
      scales: { x: { range: (_, first, last) => [first, Math.max(last, first + 1)] }, y: { range: () => [this.lowest, this.highest] } },
      axes: [{ ...axis, size: (plot) => (isLow(plot) ? 6 : 22), gap: 3, space: 80, values: ticksOf }, { ...axis, size: 44, gap: 4, space: 26, values: (_, ticks) => ticks.map(measured) }],
      series: [{}, ...series, ...limits.map(limitOf)],
      hooks: {
        drawAxes: [(plot) => drawAreas(plot, this.areas, lines)],
        setCursor: [(plot) => this.choose(plot.cursor.idx ?? null)],
      },
    };
    this.plot = new uPlot(options, [[], ...options.series.slice(1).map(() => [])], place);
    // It has a size once it is on the page.
    this.resized = new ResizeObserver(() => this.plot.setSize(sizeOf()));
    this.resized.observe(place);
  }

  disconnected() {
    this.resized?.disconnect();
    this.plot?.destroy();
    this.shape = undefined;
  }

  choose(at) {
    if (at === this.at) return;
    this.at = at;
    this.write();
  }

  press = (event) => {
    if (event.key === "Escape") this.leave();
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    this.isByKeys = true;
    const last = this.chart.times.length - 1;
    const from = this.at ?? (event.key === "ArrowLeft" ? last + 1 : -1);
    const at = Math.min(last, Math.max(0, from + STEPS[event.key]));
    this.plot.setCursor({ left: this.plot.valToPos(this.chart.times[at], "x"), top: 10 }, true, true);
  };

  leave = () => {
    this.isByKeys = false;
    this.plot.setCursor(AWAY, true, true);
  };

  // The title, the legend, and the same in words.
  write() {
    const { title, unit, words, lines, limits, times, below = nothing } = this.chart;
    const shownOf = (line) => (this.at === null ? line.value : line.values[this.at]);
    const when = this.at === null ? unit : momentOf(times, times[this.at]);
    const hasValues = lines.some((line) => line.values.some((value) => value !== null));
    const value = (line) => (shownOf(line) === undefined ? nothing : html` <b data-value=${shownOf(line) ?? ""}>${measured(shownOf(line))}</b>`);
    const all = lines.filter((line) => shownOf(line) !== undefined).map((line) => T.pair(line.text, measured(shownOf(line))));
    render(
      html`<figcaption>${title ? html`<h3>${title}</h3>` : nothing}<small>${when}</small>
          <ul class="legend" aria-live=${this.isByKeys ? "polite" : "off"}>
            ${lines.map((line) => html`<li data-label=${line.text}>${swatch(line.color)}${line.text}${value(line)}</li>`)}
            ${limits.map((limit) => html`<li data-limit=${limit.text}>${swatch(limit.color, "4 3")}<span>${limit.text}${limit.value > this.highest ? html` <small>${T.chart.above}</small>` : nothing}</span></li>`)}
          </ul></figcaption>
        <div class="plot" ?data-empty=${!hasValues} role="img" tabindex="0" aria-label=${words ?? T.chart.words(title, unit, all)} @keydown=${this.press} @blur=${this.leave}><div></div>${hasValues ? nothing : html`<p>${T.chart.empty}</p>`}</div>${below}`,
      this.figure,
    );
  }
}

const drawing = directive(Drawing);

// `times` are seconds, and a line has `text`, `color`, `values` (null where there is none), may have a `value` that the legend shows while
// no moment is chosen, and may be `isStepped`. `limits` have `value`, `text` and `color`. Charts with the same `sync` share
// the moment. `words` say what it shows: by default the title and the values.
export const lineChart = (chart) => html`<figure class="chart" data-title=${chart.title ?? nothing} ${drawing(chart)}></figure>`;
