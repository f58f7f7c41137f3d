// Keys: made, shown once, revoked. Receivers: tried.
import { api, postJson, withKey } from "./api.js";
import { onSend, openers } from "./dialogs.js";
import { renew } from "./refresh.js";

const DAY_MS = 86_400_000;
const made = document.getElementById("made-key");
const text = document.getElementById("key-text");

openers();
onSend(document.querySelector("#new-key form"), async ({ name, project, days, own_key: ownKey }, form) => {
  const scopes = new FormData(form).getAll("scope");
  if (!scopes.length) throw new Error("Choose what it may do.");
  const created = await postJson("/keys", {
    name,
    scopes,
    project: project || null,
    expires_at: days ? new Date(Date.now() + Number(days) * DAY_MS).toISOString() : null,
  }, { headers: withKey(ownKey) });
  form.reset();
  form.closest("dialog").close();
  text.textContent = created.key;
  made.showModal();
  await renew();
});

const revoking = document.getElementById("revoke-key");
const revokingForm = revoking.querySelector("form");
revoking.addEventListener("opening", ({ detail: opener }) => {
  revokingForm.reset();
  revokingForm.elements.key.value = opener.dataset.key;
  revoking.querySelector(".name").textContent = opener.dataset.name;
  revoking.querySelector(".is-own").hidden = opener.dataset.key !== document.getElementById("keys").dataset.own;
});
onSend(revokingForm, async ({ key, own_key: ownKey }, form) => {
  await api("DELETE", `/keys/${key}`, { headers: withKey(ownKey) });
  form.reset();
  await renew();
});

// Once closed, it is nowhere on the page.
made.addEventListener("close", () => { text.textContent = ""; });
document.getElementById("copy").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
    button.textContent = "Selected: copy it";
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-test]");
  if (!button) return;
  button.disabled = true;
  button.textContent = "Sending …";
  try {
    const { delivered, error } = await postJson(`/receivers/${encodeURIComponent(button.dataset.test)}/test`);
    button.textContent = delivered ? "Delivered" : `Not delivered: ${error}`;
  } catch (error) {
    button.textContent = error.message;
  }
  button.disabled = false;
});
