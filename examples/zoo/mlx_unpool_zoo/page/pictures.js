"use strict";
// A worker, so that large photographs do not stop the page: reads pictures, draws results and encodes files.

const SIDE = 512, STRIP = 256; // sides of what the hair network gets; rows of a picture in memory at once

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

// What the model gets of a picture, at most `sent` x `sent` pixels, and the picture of at most `shown` x `shown`.
function read(picture, isHair, sent, shown, isFrame) {
  const isLarge = isHair && Math.min(picture.width, picture.height) > SIDE;
  const { data, width, height } = isLarge ? (isFrame ? scaled : stretched)(picture) : [...strips(reduced(picture, sent), Infinity)][0][1];
  return { data, width, height, shown: reduced(picture, shown).transferToImageBitmap() };
}

const draw = (...values) => coloured(...values).transferToImageBitmap();
const save = (picture, type, ...values) => coloured(picture, ...values).convertToBlob({ type, quality: 0.95 });

const context = (width, height) => new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });

function reduced(picture, largest) {
  const scale = Math.min(1, largest / Math.sqrt(picture.width * picture.height));
  const [width, height] = [picture.width, picture.height].map((n) => Math.max(1, Math.floor(n * scale)));
  const drawn = Object.assign(context(width, height), { imageSmoothingQuality: "high" });
  drawn.drawImage(picture, 0, 0, width, height);
  return drawn.canvas;
}

function* strips(picture, most = STRIP) {
  const { width, height } = picture, rows = Math.min(most, height), strip = context(width, rows);
  for (let y = 0; y < height; y += rows) {
    strip.clearRect(0, 0, width, rows);
    strip.drawImage(picture, 0, -y);
    yield [y, strip.getImageData(0, 0, width, Math.min(rows, height - y))];
  }
}

function scaled(picture) { // the same, faster and less exactly: for frames of a camera
  const drawn = Object.assign(context(SIDE, SIDE), { imageSmoothingQuality: "medium" });
  drawn.drawImage(picture, 0, 0, SIDE, SIDE);
  return drawn.getImageData(0, 0, SIDE, SIDE);
}

// A larger picture with 512 x 512 pixels, each the mean of its area, as `stretched` in hair.py.
function stretched(picture) {
  const { width, height } = picture, step = height / SIDE, length = 4 * SIDE;
  const sums = new Float32Array((SIDE + 1) * length), line = new Float32Array(length);
  for (const [y, strip] of strips(picture)) {
    for (let row = 0; row < strip.height; row++) {
      means(strip.data, 4 * width * row, width / SIDE, line);
      const k = Math.floor((y + row) / step), share = Math.min(1, (k + 1) * step - y - row) / step;
      add(line, share, sums.subarray(k * length));
      add(line, 1 / step - share, sums.subarray((k + 1) * length));
    }
  }
  const data = Uint8ClampedArray.from(sums.subarray(0, SIDE * length), (mean) => Math.floor(mean + 0.5));
  return { data, width: SIDE, height: SIDE };
}

function means(data, i, step, line) { // of 512 parts of a row, which begins at i
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

// A picture with other colours of its hair, as `recoloured` in hair_colour.py, or with the colours of its classes.
function coloured(picture, { mask, width, height, table }, { palette, strength, maskOnly }) {
  const drawn = context(picture.width, picture.height), line = new Float32Array(width + 1);
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
        if (part <= 0 || !(palette || table || maskOnly)) continue;
        const grey = Math.floor((299 * data[i] + 587 * data[i + 1] + 114 * data[i + 2]) / 1000);
        const colours = palette ? palette[value] : maskOnly ? [value, value, value] : table[grey];
        for (let c = 0; c < 3; c++) data[i + c] += part * (colours[c] - data[i + c]);
        if (maskOnly) data[i + 3] = 255;
      }
    }
    drawn.putImageData(new ImageData(data, picture.width), 0, y);
  }
  return drawn.canvas;
}
