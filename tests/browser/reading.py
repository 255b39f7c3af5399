"""What a page is to those who see little or use no mouse: computed in the browser, from what it really shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page


@dataclass(frozen=True, slots=True)
class Contrast:
    """A text (or the edge of a field) and its contrast with what is behind it, 1 to 21; `needed` by WCAG 2.2 AA."""

    what: str
    ratio: float
    needed: float


_CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const [text, element] = [walk.currentNode.data.trim(), walk.currentNode.parentElement];
    if (!text || ["SCRIPT", "OPTION", "NOSCRIPT"].includes(element.tagName) || !shown(element)) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.push([`${element.tagName} ${text.slice(0, 40)}`, ratio(rgba(style.color), behind(element)), large ? 3 : 4.5]);
  }
  for (const field of document.querySelectorAll("input:not([type=range]), select, textarea, button:not(:disabled)")) {
    if (!shown(field)) continue;
    const style = getComputedStyle(field);
    found.push([`edge of ${field.id}`, ratio(rgba(style.borderTopColor), behind(field.parentElement)), 3]);
    found.push([`text of ${field.id}`, ratio(rgba(style.color), behind(field)), 4.5]);
    const hint = getComputedStyle(field, "::placeholder");
    if (field.placeholder) found.push([`hint in ${field.id}`, ratio(rgba(hint.color), behind(field)), 4.5]);
  }
  for (const bar of document.querySelectorAll("svg.bars rect")) {
    found.push(["bar", ratio(rgba(getComputedStyle(bar).fill), behind(bar.parentElement)), 3]);
  }
  return found;
}"""


async def contrasts(page: Page) -> list[Contrast]:
    """The contrast of every text, field and bar that is shown."""
    return [Contrast(*each) for each in await page.evaluate(_CONTRASTS)]


_UNNAMED = """() => {
  const text = (ids) => ids.split(/\\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  const name = (each) => each.getAttribute("aria-label") || text(each.getAttribute("aria-labelledby") || "").trim()
    || [...(each.labels ?? [])].map((label) => label.textContent).join(" ").trim()
    || (["INPUT", "SELECT", "TEXTAREA", "SVG", "svg"].includes(each.tagName) ? "" : each.textContent.trim());
  const wanted = "a, button, input, select, textarea, summary, section, nav, svg, [role=region], [role=log], pre";
  return [...document.querySelectorAll(wanted)]
    .filter((each) => each.checkVisibility() && !name(each)).map((each) => each.outerHTML.slice(0, 120));
}"""


async def unnamed(page: Page) -> list[str]:
    """What can be used or jumped to and has no name."""
    found: list[str] = await page.evaluate(_UNNAMED)
    return found


_FOCUS = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const [style, box] = [getComputedStyle(at), at.getBoundingClientRect()];
  const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  const middle = document.elementFromPoint(
    Math.min(Math.max(box.left + box.width / 2, 0), innerWidth - 1),
    Math.min(Math.max(box.top + box.height / 2, 0), innerHeight - 1));
  return { id: at.id || at.getAttribute("href") || at.textContent.slice(0, 40), inside,
    covered: !(middle && (at.contains(middle) || middle.contains(at))),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, height: box.height };
}"""


async def focused(page: Page) -> dict[str, Any] | None:
    """What has the focus: its id, whether it is on the screen, covered, outlined; None for the page itself."""
    found: dict[str, Any] | None = await page.evaluate(_FOCUS)
    return found


async def tab_order(page: Page, most: int = 80) -> list[dict[str, Any]]:
    """What the Tab key comes by, from the top of the page to its end."""
    found: list[dict[str, Any]] = []
    await page.evaluate("() => { document.activeElement?.blur(); window.scrollTo(0, 0); }")
    for _ in range(most):
        await page.keyboard.press("Tab")
        at = await focused(page)
        if at is None:
            return found
        found.append(at)
    raise AssertionError(f"the Tab key never comes to the end: {[each['id'] for each in found]}")
