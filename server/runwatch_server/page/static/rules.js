// The list of rules: find one by its name, or by what it sees.
const rows = document.querySelectorAll("tr[data-name]");

document.getElementById("find").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.dataset.name.includes(wanted);
});
