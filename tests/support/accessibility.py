"""Finds parts of a page that are hard to see, read or press."""

from typing import Any

from local import ROOT

_AXE = (ROOT / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
_STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

# Runs axe-core, and finds controls whose edges are too faint, for which axe-core has no rule.
_FIND = """
async (runOnly) => {
  const { violations } = await axe.run(document, { runOnly, resultTypes: ["violations"] });
  const found = violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html, any, all, none }) =>
      `${id}: ${[...any, ...all, ...none].map(({ message }) => message)[0]}: ${html.slice(0, 200)}`));

  const part = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (color) => {
    const [red, green, blue] = color.match(/[\\d.]+/g).map(Number);
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue) + 0.05;
  };
  const contrast = (...colors) => {
    const [less, more] = colors.map(light).sort((one, other) => one - other);
    return more / less;
  };
  const behind = (element) => {
    const { backgroundColor } = getComputedStyle(element);
    return backgroundColor === "rgba(0, 0, 0, 0)" ? behind(element.parentElement) : backgroundColor;
  };
  const faint = [...document.querySelectorAll("#view :is(button, input:not([type=checkbox], [type=radio]), select, textarea):enabled")].filter((control) => {
    const { borderTopWidth, borderTopColor, backgroundColor } = getComputedStyle(control);
    if (control.closest(".swagger-ui") || borderTopWidth === "0px") return false;
    const around = behind(control.parentElement);
    return contrast(borderTopColor, around) < 3 && contrast(backgroundColor, around) < 3;
  });
  return [...found, ...faint.map((control) => `faint: ${control.outerHTML.slice(0, 200)}`)];
}
"""

# Links in sentences are as high as their line, so they are left out.
BEYOND = """
() => {
  const { clientWidth, scrollWidth } = document.documentElement;
  const beyond = [...document.querySelectorAll("button, td a, input, select, textarea, summary")].filter((control) => {
    if (control.closest(".swagger-ui") || !control.checkVisibility()) return false;
    const { left, right, width, height } = control.getBoundingClientRect();
    return left < 0 || right > clientWidth || width < 24 || height < 24;
  });
  const words = beyond.map((one) => `${one.getBoundingClientRect().width} x ${one.getBoundingClientRect().height}: ${one.outerHTML.slice(0, 200)}`);
  if (scrollWidth > clientWidth) words.unshift(`the page is ${scrollWidth} px wide`);
  const top = document.getElementById("view").getBoundingClientRect().top + scrollY;
  return top > 0.35 * innerHeight ? [`the content begins at ${top} px`, ...words] : words;
}
"""

# Swagger UI turns dark with a class, which follows the colour scheme some frames later, and some parts fade.
_SETTLE = """
async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  while (document.querySelector(".swagger-ui") && document.documentElement.classList.contains("dark-mode") !== isDark()) await frame();
  await frame();
  await frame();
  const fading = document.getAnimations().filter((one) => one instanceof CSSTransition);
  await Promise.allSettled(fading.map(({ finished }) => finished));
}
"""


def find(page: Any) -> list[str]:
    """List the parts that violate WCAG 2.2 AA, or have edges that are too faint."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(_AXE)
    page.evaluate(_SETTLE)
    found: list[str] = page.evaluate(_FIND, {"type": "tag", "values": _STANDARDS})
    return found
