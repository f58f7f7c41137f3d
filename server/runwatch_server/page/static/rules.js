// The list of rules: find one by its name.
const rows = document.querySelectorAll("tr[data-name]");

document.getElementById("find").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.dataset.name.includes(wanted);
});
