// The address that a command prints carries the key behind a #, which no server sees.
const field = document.getElementById("key");
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  field.value = given;
  history.replaceState(null, "", location.pathname + location.search);
  if ("logsIn" in field.form.dataset) field.form.requestSubmit();
}
