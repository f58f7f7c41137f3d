// Runs before anything is painted, so that nobody sees the other theme flash by. Paper is light.
"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const chosen = () => localStorage.getItem("runwatch.theme") ?? (system.matches ? "dark" : "light");
  const apply = (isPaper = paper.matches) => {
    document.documentElement.dataset.theme = isPaper ? "light" : chosen();
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  apply();
  system.addEventListener("change", () => apply());
  paper.addEventListener("change", () => apply());
  addEventListener("beforeprint", () => apply(true));
  addEventListener("afterprint", () => apply(false));
})();
