// Colour scales of the heat map, computed: lightness grows evenly, so that they read alike without
// colour vision, in grey and in print. Colours are mixed in OKLab (Ottosson 2020), where equal
// distances look equal.

const STEPS = 256;

/** 256 RGBA words, dark violet over green to bright yellow: for sizes. */
export const SEQUENTIAL = table((share) => ({
  lightness: 0.24 + 0.68 * share,
  chroma: 0.09 + 0.08 * Math.sin(Math.PI * Math.min(1, share * 1.15)),
  hue: 300 - 200 * share ** 0.9,
}));

/** 256 RGBA words, blue over near white to deep orange: for what is below and above its own. */
export const DIVERGING = table((share) => {
  const away = Math.abs(share - 0.5) * 2;
  return { lightness: 0.95 - 0.5 * away ** 1.2, chroma: 0.17 * away, hue: share < 0.5 ? 255 : 45 };
});

/** The same with a dark middle, for a dark page. */
export const DIVERGING_DARK = table((share) => {
  const away = Math.abs(share - 0.5) * 2;
  return { lightness: 0.27 + 0.53 * away, chroma: 0.16 * away, hue: share < 0.5 ? 255 : 55 };
});

/** What was no finite number: a colour that is on none of the scales. */
export const BROKEN = { light: word(208, 0, 111), dark: word(255, 60, 160) };

/** A CSS gradient of a table, for its legend. */
export function gradient(colours) {
  const stops = Array.from({ length: 17 }, (_, index) => colours[Math.round((index / 16) * (STEPS - 1))]);
  return `linear-gradient(to right, ${stops.map(css).join(", ")})`;
}

const css = (rgba) => `rgb(${rgba & 255} ${(rgba >> 8) & 255} ${(rgba >> 16) & 255})`;

function table(colourAt) {
  return Uint32Array.from({ length: STEPS }, (_, index) => rgb(colourAt(index / (STEPS - 1))));
}

function rgb({ lightness, chroma, hue }) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const low = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return word(
    gamma(4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * low),
    gamma(-1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * low),
    gamma(-0.0041960863 * long - 0.7034186147 * middle + 1.707614701 * low),
  );
}

function gamma(linear) {
  const light = Math.max(0, Math.min(1, linear));
  return Math.round(255 * (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055));
}

// Little endian, as every browser's machine is: the byte order of ImageData.
function word(red, green, blue) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
