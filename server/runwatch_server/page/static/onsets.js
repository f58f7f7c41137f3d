// The step at which layers were first no finite number, also where a column of the map pools many.
import { gridOf } from "./heat_grid.js";

const POINTS = 500;

/** Of each layer that broke `{step, width}`: it broke within so many steps from that one on. Those
    of the earliest column are asked for more finely, until who broke first is told to the step.
    `ask(from, to, points)`: a heat map of those steps, as the service sends it. */
export async function onsetsOf(grid, ask) {
  const found = new Map();
  note(found, grid);
  let finer = grid;
  while (finer.step_width > 1 && finer.onsets.some((onset) => onset >= 0)) {
    const width = finer.step_width;
    const from = finer.steps[firstOf(finer)];
    const answer = await ask(from, from + width - 1, POINTS);
    if (answer.step_width >= width) break;
    finer = gridOf(answer, [from, from + width - 1]);
    note(found, finer);
  }
  return found;
}

const firstOf = ({ onsets }) => Math.min(...onsets.filter((onset) => onset >= 0));

function note(found, grid) {
  grid.onsets.forEach((onset, layer) => {
    if (onset >= 0) found.set(grid.layers[layer], { step: grid.steps[onset], width: grid.step_width });
  });
}
