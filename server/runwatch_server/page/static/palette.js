// The theme's colours, as what draws on its own needs them.

let known = { theme: null };

/** The page's colours, as Plotly needs them. */
export function palette() {
  const theme = document.documentElement.dataset.theme;
  if (known.theme === theme) return known;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const series = Array.from({ length: 8 }, (_, index) => colour(`--series-${index + 1}`));
  known = {
    theme, series, bands: series.map((hex) => `${hex}2e`), faint: colour("--text-3"),
    bad: colour("--bad"), critical: colour("--bad"), warning: colour("--warn"), info: colour("--info"),
    broken: colour("--broken"), brokenBg: colour("--broken-bg"),
    line: colour("--line"), grid: colour("--grid"), text: colour("--text-3"), textStrong: colour("--text"),
    font: colour("--font"), surface: colour("--surface-2"),
  };
  return known;
}

/** The colour of a series: a limit's is its rule's severity, what is faint is grey, the others have
    theirs in turn (`colour`). */
export function colourOf(one, colours = palette()) {
  if (one.isLimit) return colours[one.severity];
  return one.isFaint ? colours.faint : colours.series[one.colour % colours.series.length];
}
