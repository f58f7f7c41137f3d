// What every page does: the theme's button, and times that say how long ago.
import { showAges } from "./time.js";

const root = document.documentElement;

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("runwatch.theme", root.dataset.theme);
  document.dispatchEvent(new CustomEvent("themechange"));
});

showAges(document);
setInterval(() => { if (!document.hidden) showAges(document); }, 5000);
