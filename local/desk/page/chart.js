// Line charts over time.
import { clock, day, measured } from "./format.js";
import { html } from "./parts.js";

const HEIGHT = 200;
const SHORT_SECONDS = 2 * 86_400;
// Above the highest value.
const HEADROOM = 1.08;

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function seriesOf({ text, color, isStepped, isDashed }) {
  const paths = isStepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
  return { label: text, stroke: styleOf(color), width: 1.8, dash: isDashed ? [5, 4] : undefined, paths, points: { show: false }, value: (_, value) => measured(value) };
}

// Drawn again as a whole when its lines change; new values only move them.
class LineChart extends HTMLElement {
  #plot = null;
  #shape = "";
  #shown = null;

  constructor() {
    super();
    // It has a width once it is on the page.
    new ResizeObserver(() => this.#draw()).observe(this);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw(true));
  }

  set shown(shown) {
    this.#shown = shown;
    this.#draw();
  }

  #draw(isAfresh = false) {
    const width = this.clientWidth;
    if (width === 0 || this.#shown === null) return;
    const { times, lines, height = HEIGHT } = this.#shown;
    const data = [times, ...lines.map((line) => line.values)];
    const shape = JSON.stringify([lines.map(({ text, color }) => [text, color]), height]);
    if (isAfresh || shape !== this.#shape) {
      this.#plot?.destroy();
      this.#plot = new uPlot(this.#options(width, height, lines), data, this);
      this.#shape = shape;
      return;
    }
    if (this.#plot.width !== width) this.#plot.setSize({ width, height });
    this.#plot.setData(data);
  }

  #options(width, height, lines) {
    const axis = { stroke: styleOf("--muted"), grid: { stroke: styleOf("--grid"), width: 1 }, ticks: { show: false } };
    const nameOf = (at) => (this.#shown.times.at(-1) - this.#shown.times[0] < SHORT_SECONDS ? clock : day)(at);
    return {
      width,
      height,
      cursor: { drag: { x: false, y: false } },
      legend: { live: false },
      scales: { y: { range: (_, least, most) => [Math.min(0, least), Math.max(1, most) * HEADROOM] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(nameOf) }, { ...axis, values: (_, ticks) => ticks.map(measured) }],
      series: [{}, ...lines.map(seriesOf)],
    };
  }
}

customElements.define("line-chart", LineChart);

// `times` are seconds, and a line has `text`, `color` (a variable of the style), `values`, and may be `isStepped` or `isDashed`.
// `label` says in words what it shows.
export function chart(label, times, lines, height) {
  return html`<line-chart role="img" aria-label=${label} .shown=${{ times, lines, height }}></line-chart>`;
}
