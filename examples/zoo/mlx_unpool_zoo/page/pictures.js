"use strict";
// A worker, so that large photographs do not stop the page: reads pictures, draws results and encodes files.

const SIDE = 512, LONGEST = 8 * SIDE, STRIP = 256; // as in hair.py; rows of a picture in memory at once

onmessage = async ({ data: [name, source, ...values], ports: [port] }) => {
  try {
    const picture = source instanceof Blob ? await createImageBitmap(source) : source;
    const value = await { read, draw, save }[name](picture, ...values);
    picture.close();
    port.postMessage([value], value.shown ? [value.shown, value.data.buffer] : value.close ? [value] : []);
  } catch (error) {
    port.postMessage([null, error]);
  }
};

// What the model gets of a picture, at most `area` pixels, and the picture of at most `shown` pixels.
function read(picture, isHair, area, shown, isFrame) {
  const [columns, rows] = sizeOf(picture), isLarge = isHair && picture.width > columns && picture.height > rows;
  const sent = isLarge ? (isFrame ? scaled : stretched)(picture, columns, rows) : [...strips(reduced(picture, area), Infinity, isHair)][0][1];
  const { data, width, height } = sent;
  return { data, width, height, shown: reduced(picture, shown).transferToImageBitmap() };
}

const draw = (...values) => drawn(...values).transferToImageBitmap();
const save = (picture, type, ...values) => drawn(picture, ...values).convertToBlob({ type, quality: 0.95 });

const context = (width, height) => new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });

function resized(picture, width, height, white, imageSmoothingQuality = "high") {
  const made = Object.assign(context(width, height), { imageSmoothingQuality, fillStyle: "white" });
  if (white) made.fillRect(0, 0, width, height);
  made.drawImage(picture, 0, 0, width, height);
  return made.canvas;
}

function reduced(picture, area) {
  const scale = Math.min(1, Math.sqrt(area / picture.width / picture.height));
  const [width, height] = [picture.width, picture.height].map((n) => Math.max(1, Math.floor(n * scale)));
  return resized(picture, width, height);
}

function* strips(picture, most = STRIP, white = false) {
  const { width, height } = picture, rows = Math.min(most, height), strip = context(width, rows);
  strip.fillStyle = "white"; // behind a transparent picture
  for (let y = 0; y < height; y += rows) {
    strip.clearRect(0, 0, width, rows);
    if (white) strip.fillRect(0, 0, width, rows);
    strip.drawImage(picture, 0, -y);
    yield [y, strip.getImageData(0, 0, width, Math.min(rows, height - y))];
  }
}

// The columns and rows of a picture for the hair network, as `squares_of` in hair.py.
function sizeOf({ width, height }) {
  const ratio = Math.max(width, height) / Math.min(width, height);
  const length = 3 * ratio <= 4 ? SIDE : Math.min(Math.floor(SIDE * ratio + 0.5), LONGEST);
  return width > height ? [length, SIDE] : [SIDE, length];
}

function scaled(picture, columns, rows) { // as `stretched`, faster and less exactly: for frames of a camera
  return resized(picture, columns, rows, true, "medium").getContext("2d").getImageData(0, 0, columns, rows);
}

// A larger picture, reduced; each pixel is the mean of its area, as `stretched` in hair.py.
function stretched(picture, columns, rows) {
  const { width, height } = picture, step = height / rows, length = 4 * columns;
  const sums = new Float32Array((rows + 1) * length), line = new Float32Array(length);
  for (const [y, strip] of strips(picture, STRIP, true)) {
    for (let row = 0; row < strip.height; row++) {
      means(strip.data, 4 * width * row, width / columns, line);
      const k = Math.floor((y + row) / step), share = Math.min(1, (k + 1) * step - y - row) / step;
      add(line, share, sums.subarray(k * length));
      add(line, 1 / step - share, sums.subarray((k + 1) * length));
    }
  }
  const data = Uint8ClampedArray.from(sums.subarray(0, rows * length), (mean) => Math.floor(mean + 0.5));
  return { data, width: columns, height: rows };
}

function means(data, i, step, line) { // of equal parts of a row, which begins at i
  line.fill(0);
  for (let k = 0, left = 1; k < line.length; k += 4) {
    for (let part = step, share; part > 1e-9; part -= share) {
      share = Math.min(left, part);
      for (let c = 0; c < 3; c++) line[k + c] += (share / step) * data[i + c];
      left -= share;
      if (left < 1e-9) left = 1, i += 4;
    }
  }
}

function add(line, share, sums) {
  for (let i = 0; i < line.length; i++) sums[i] += share * line[i];
}

// For each position on an axis the nearest before it of another length, and the share of the next one.
function neighbours(length, other) {
  const positions = Float64Array.from({ length }, (_, n) => Math.max(0, ((n + 0.5) * other) / length - 0.5));
  return [positions.map(Math.floor), positions.map((position) => position % 1)];
}

// A picture in its new colour, or in four colours beside and below each other, each half as large.
function drawn(picture, answer, choices) {
  if (choices.view !== "four") return coloured(picture, answer, answer.tables?.[0], choices);
  const [width, height] = [picture.width, picture.height].map((n) => Math.ceil(n / 2)), size = Math.ceil(width / 16);
  const small = resized(picture, width, height), whole = context(2 * width, 2 * height);
  Object.assign(whole, { font: `600 ${size}px system-ui, sans-serif`, fillStyle: "white", shadowBlur: size / 4, shadowColor: "black" });
  for (const [n, name] of choices.names.entries()) {
    const x = (n % 2) * width, y = n > 1 ? height : 0;
    whole.drawImage(coloured(small, answer, answer.tables[n], choices), x, y);
    whole.fillText(name, x + size / 2, y + height - size / 2, width);
  }
  return whole.canvas;
}

// A picture with other colours of its hair, as `recoloured` in hair_colour.py, or with the colours of its classes.
function coloured(picture, { mask, width, height }, table, { palette, notDrawn, strength, view }) {
  const made = context(picture.width, picture.height), line = new Float32Array(width + 1), maskOnly = view === "mask";
  const [lefts, rights] = neighbours(picture.width, width), [aboves, belows] = neighbours(picture.height, height);
  for (const [y, { data }] of strips(picture)) {
    for (let i = 0, row = y; i < data.length; row++) {
      const above = aboves[row] * width, below = Math.min(above + width, (height - 1) * width);
      const share = palette ? Math.round(belows[row]) : belows[row]; // the nearest number, or linearly
      for (let x = 0; x <= width; x++) {
        const at = Math.min(x, width - 1);
        line[x] = (1 - share) * mask[above + at] + share * mask[below + at];
      }
      for (let x = 0; x < lefts.length; x++, i += 4) {
        const left = lefts[x], share = palette ? Math.round(rights[x]) : rights[x];
        const value = (1 - share) * line[left] + share * line[left + 1];
        const likely = palette ? 2 / 3 : Math.min(1, (value / 255 - 0.3) / 0.5), part = maskOnly ? 1 : 0.9 * strength * likely;
        if (part <= 0 || !(palette || table || maskOnly) || (value === notDrawn && !maskOnly)) continue;
        const grey = Math.floor((299 * data[i] + 587 * data[i + 1] + 114 * data[i + 2]) / 1000);
        const colours = palette ? palette[value] : maskOnly ? [value, value, value] : table[grey];
        for (let c = 0; c < 3; c++) data[i + c] += part * (colours[c] - data[i + c]);
        if (maskOnly) data[i + 3] = 255;
      }
    }
    made.putImageData(new ImageData(data, picture.width), 0, y);
  }
  return made.canvas;
}
