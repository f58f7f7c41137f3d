// Runs before anything is painted, so that nobody sees the other theme flash by.
"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("runwatch.theme");
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  apply();
  system.addEventListener("change", apply);
})();
