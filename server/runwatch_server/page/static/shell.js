// What every page does: the theme's button, times that say how long ago, and the login's end.
import { forgetPageSecret, pageSecret, toLogin } from "./api.js";
import { showAges } from "./time.js";

const root = document.documentElement;

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("runwatch.theme", root.dataset.theme);
  document.dispatchEvent(new CustomEvent("themechange"));
});

showAges(document);
setInterval(() => { if (!document.hidden) showAges(document); }, 5000);

// Nobody is to write a rule first, and to hear then that it cannot be sent.
const logout = document.getElementById("logout");
if (logout && !pageSecret()) toLogin();
logout?.addEventListener("submit", forgetPageSecret);
