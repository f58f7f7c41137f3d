// Keeps the page secret of a new session, and goes on to the page that was asked for.
import { keepPageSecret } from "./api.js";

const next = document.getElementById("next");
keepPageSecret(next.dataset.pageSecret);
location.replace(next.href);
