// A heat map on a canvas: one row a layer in the model's order (or a rank), one column a bucket of
// steps, on the charts' step axis.
import { BROKEN, DIVERGING, DIVERGING_DARK, gradient, SEQUENTIAL } from "./colours.js";
import { clearGaps, gapAt, gapWords, hatchEmpty } from "./gaps.js";
import { scaleOf } from "./heat_grid.js";
import { count, lastAtMost, short } from "./numbers.js";
import { palette } from "./palette.js";
import { margins } from "./step_axis.js";

const MOST_PIXELS = 520;
const LEAST_PIXELS = 120;
const CROSSED = 5;

/** Draws grids; knows where each cell is. */
export class Heatmap {
  constructor(canvas, axis) {
    this.canvas = canvas;
    this.axis = axis;
    this.grid = null;
    this.rows = [];
    this.mode = "own";
  }

  /** `rows`: indices of the layers to show, in the model's order. */
  draw(grid, rows, mode) {
    Object.assign(this, { grid, rows, mode });
    const dpr = devicePixelRatio || 1;
    const width = this.canvas.parentElement.clientWidth;
    this.rowPixels = Math.max(1, Math.min(18, Math.floor(MOST_PIXELS / rows.length)));
    this.layersPerRow = Math.max(1, Math.ceil(rows.length / MOST_PIXELS));
    this.numRows = Math.ceil(rows.length / this.layersPerRow);
    if (this.numRows * this.rowPixels < LEAST_PIXELS && rows.length) {
      this.rowPixels = Math.min(28, Math.floor(LEAST_PIXELS / this.numRows));
    }
    const height = this.numRows * this.rowPixels;
    this.canvas.width = Math.round(width * dpr);
    this.canvas.height = Math.round(height * dpr);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.#paint(dpr, width, height);
  }

  #paint(dpr, width, height) {
    const context = this.canvas.getContext("2d");
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.grid.columns || !this.rows.length) return;
    const { left, right } = margins();
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left - right, height);
    context.clip();
    context.imageSmoothingEnabled = false;
    const picture = this.#picture();
    for (const { from, columns } of runsOf(this.grid)) {
      const x0 = this.axis.x(this.grid.steps[from], width);
      const x1 = this.axis.x(this.grid.steps[from + columns - 1] + this.grid.step_width, width);
      // However narrow a column is, it is seen.
      const wide = Math.max(x1 - x0, columns / dpr);
      context.drawImage(picture, from, 0, columns, this.numRows, x0, 0, wide, height);
    }
    this.#cross(context, width);
    clearGaps(context, this.grid.gaps, (step) => this.axis.x(step, width), height);
    hatchEmpty(context, width, height, palette().faint);
    this.#front(context, width);
    context.restore();
  }

  /** One pixel a cell. */
  #picture() {
    const { columns, values, broken } = this.grid;
    const picture = new OffscreenCanvas(columns, this.numRows);
    const context = picture.getContext("2d");
    const pixels = context.createImageData(columns, this.numRows);
    const words = new Uint32Array(pixels.data.buffer);
    const isDark = document.documentElement.dataset.theme === "dark";
    this.colours = this.mode !== "size" ? (isDark ? DIVERGING_DARK : DIVERGING) : SEQUENTIAL;
    this.scale = scaleOf(this.grid, this.mode);
    const brokenWord = isDark ? BROKEN.dark : BROKEN.light;
    const loudest = new Float64Array(columns);
    for (let row = 0; row < this.numRows; row += 1) {
      loudest.fill(-1);
      for (const layer of this.layersOf(row)) {
        const place = this.scale.place(layer);
        for (let column = 0; column < columns; column += 1) {
          const at = row * columns + column;
          const value = values[layer][column];
          if (broken[layer * columns + column]) {
            loudest[column] = Infinity;
            words[at] = brokenWord;
          } else if (value === value && loudest[column] < Infinity) {
            const share = Math.max(0, Math.min(1, place(value, column)));
            if (share > loudest[column]) {
              loudest[column] = share;
              words[at] = this.colours[Math.round(share * 255)];
            }
          }
        }
      }
    }
    context.putImageData(pixels, 0, 0);
    return picture;
  }

  // Where cells are large enough, what is no number is crossed out too: a shape beside the colour.
  #cross(context, width) {
    const { columns, broken, steps, step_width } = this.grid;
    const cell = this.axis.x(steps[0] + step_width, width) - this.axis.x(steps[0], width);
    if (this.rowPixels < CROSSED || cell < CROSSED) return;
    context.strokeStyle = "rgb(255 255 255 / 85%)";
    context.lineWidth = 1;
    context.beginPath();
    for (let row = 0; row < this.numRows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        if (!broken[this.rows[row] * columns + column]) continue;
        const [x, y] = [this.axis.x(steps[column], width), row * this.rowPixels];
        context.moveTo(x + 1, y + 1);
        context.lineTo(x + cell - 1, y + this.rowPixels - 1);
        context.moveTo(x + cell - 1, y + 1);
        context.lineTo(x + 1, y + this.rowPixels - 1);
      }
    }
    context.stroke();
  }

  /** The onset, as a line down the layers: where each was first no finite number. */
  #front(context, width) {
    const { onsets, steps } = this.grid;
    const first = (row) => {
      const found = this.layersOf(row).map((layer) => onsets[layer]).filter((onset) => onset >= 0);
      return found.length ? Math.min(...found) : -1;
    };
    const line = new Path2D();
    let isDown = false;
    for (let row = 0; row < this.numRows; row += 1) {
      const onset = first(row);
      if (onset < 0) { isDown = false; continue; }
      const x = this.axis.x(steps[onset], width);
      if (isDown) line.lineTo(x, row * this.rowPixels);
      else line.moveTo(x, row * this.rowPixels);
      line.lineTo(x, (row + 1) * this.rowPixels);
      isDown = true;
    }
    context.lineJoin = "round";
    for (const [colour, size] of [["rgb(0 0 0 / 70%)", 4], ["#fff", 1.75]]) {
      context.strokeStyle = colour;
      context.lineWidth = size;
      context.stroke(line);
    }
  }

  layersOf(row) {
    return this.rows.slice(row * this.layersPerRow, (row + 1) * this.layersPerRow);
  }

  legend() {
    return gradient(this.colours);
  }

  /** `{row, layer, column}` at a pixel of the canvas; null beside the cells. */
  cellAt(x, y) {
    if (!this.grid?.columns) return null;
    const step = this.axis.stepAt(x, this.canvas.clientWidth);
    const row = Math.floor(y / this.rowPixels);
    if (step === null || row < 0 || row >= this.numRows) return null;
    return this.cell(row, step);
  }

  cell(row, step) {
    const column = Math.max(0, lastAtMost(this.grid.steps, step));
    const layers = this.layersOf(row);
    const at = (layer) => layer * this.grid.columns + column;
    const layer = this.#worstOf(layers, column);
    const since = step - this.grid.steps[column];
    return { row, layer, column, step, isInside: since >= 0 && since < this.grid.step_width,
      value: this.grid.values[layer][column], broken: this.grid.broken[at(layer)],
      gap: gapAt(this.grid.gaps, step) };
  }

  /** The layer that a cell of several has its colour by: a broken one, and of those the first to
      break; else the loudest. */
  #worstOf(layers, column) {
    const { broken, columns, onsets, values } = this.grid;
    const hurt = layers.filter((layer) => broken[layer * columns + column]);
    if (hurt.length) return hurt.reduce((a, b) => (onsets[b] < onsets[a] ? b : a));
    const shares = layers.map((layer) => {
      const share = this.scale.place(layer)(values[layer][column], column);
      return Number.isNaN(share) ? -Infinity : share;
    });
    return layers[shares.indexOf(Math.max(...shares))];
  }

  /** What a cell holds, in words: `{step, worth, gap}`, where the last two may be empty. */
  words(cell) {
    const gap = cell.gap ? gapWords(cell.gap) : "";
    if (!cell.isInside) return { step: cell.step, worth: gap ? "" : "–", gap };
    const step = this.grid.steps[cell.column];
    if (cell.broken) return { step, worth: `${count(cell.broken)} NaN or ∞`, gap };
    if (Number.isNaN(cell.value)) return { step, worth: gap ? "" : "not recorded", gap };
    return { step, worth: short(cell.value), gap };
  }
}

/** Buckets that follow each other without a gap. */
function runsOf(grid) {
  const runs = [];
  grid.steps.forEach((step, index) => {
    const last = runs.at(-1);
    const isNext = last && step - grid.steps[index - 1] === grid.step_width;
    if (isNext) last.columns += 1;
    else runs.push({ from: index, columns: 1 });
  });
  return runs;
}

/** What a map asks the server for: the steps in view, in as many columns as can be told apart. */
export function mapQuery(canvas, axis, wanted) {
  const { left, right } = margins();
  const width = canvas.parentElement.clientWidth - left - right;
  const points = Math.max(50, Math.min(500, Math.round(width / 2)));
  const query = new URLSearchParams({ ...wanted, points: String(points) });
  if (!axis.isWhole) {
    query.set("from", String(axis.range[0]));
    query.set("to", String(axis.range[1]));
  }
  return query;
}

/** Puts a map's lines where the pointer is and where a step is chosen, or hides them. */
export function placeLines(place, canvas, axis) {
  const [from, to] = axis.range;
  for (const [name, step] of [[".cursor", axis.cursor], [".chosen", axis.selected]]) {
    const line = place.querySelector(`.map ${name}`);
    line.hidden = step === null || step < from || step > to;
    if (!line.hidden) line.style.transform = `translateX(${axis.x(step, canvas.clientWidth)}px)`;
  }
}
