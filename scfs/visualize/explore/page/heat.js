// Maps of cosines as colours.

// Inferno at 17 equal steps: brighter is more, for everybody who sees, also in grey.
const STOPS = [
  "000004", "0b0724", "210c4a", "3d0965", "57106e", "71196e", "8a226a", "a32c61", "bc3754",
  "d24644", "e45a31", "f1731d", "f98e09", "fcac11", "f9cb35", "f2ea69", "fcffa4",
].map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

export const COLOURS = Array.from({ length: 256 }, (_, i) => {
  const place = (i / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, c) => Math.round(value + (place - low) * (STOPS[low + 1][c] - value)));
});

/** Lowest and highest value of some maps. */
export function rangeOf(maps) {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of maps) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Position of the highest value, as fractions of width and height. */
export function peakOf({ width, height, values }) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return [((best % width) + 0.5) / width, (Math.floor(best / width) + 0.5) / height];
}

/** The value at fractions of width and height: of the position there, or between positions. */
export function valueAt(map, x, y, smooth) {
  const columns = samples(map.width, [x], smooth)[0];
  const rows = samples(map.height, [y], smooth)[0];
  return between(map, columns, rows);
}

/** Draw a map into a canvas; values are interpolated first, colours come after. */
export function drawMap(canvas, map, [low, high], { smooth, side }) {
  canvas.width = smooth ? side : map.width;
  canvas.height = smooth ? side : map.height;
  canvas.classList.toggle("blocks", !smooth);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const columns = samples(map.width, centres(canvas.width), smooth);
  const rows = samples(map.height, centres(canvas.height), smooth);
  const scale = 255 / Math.max(high - low, 1e-6);
  let i = 0;
  for (const row of rows) {
    for (const column of columns) {
      const level = Math.round((between(map, column, row) - low) * scale);
      const colour = COLOURS[Math.max(0, Math.min(255, level))];
      image.data[i++] = colour[0];
      image.data[i++] = colour[1];
      image.data[i++] = colour[2];
      image.data[i++] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

export function drawScale(canvas) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(256, 1);
  COLOURS.forEach((colour, i) => image.data.set([...colour, 255], 4 * i));
  context.putImageData(image, 0, 0);
}

const centres = (count) => Array.from({ length: count }, (_, i) => (i + 0.5) / count);

/** Of each fraction of an axis, the two positions around it and the weight of the second. */
function samples(length, fractions, smooth) {
  return fractions.map((fraction) => {
    const place = Math.max(0, Math.min(length - 1, fraction * length - 0.5));
    if (!smooth) return [Math.round(place), Math.round(place), 0];
    const low = Math.floor(place);
    return [low, Math.min(low + 1, length - 1), place - low];
  });
}

function between({ width, values }, [left, right, x], [top, bottom, y]) {
  const above = values[top * width + left] * (1 - x) + values[top * width + right] * x;
  const below = values[bottom * width + left] * (1 - x) + values[bottom * width + right] * x;
  return above * (1 - y) + below * y;
}
