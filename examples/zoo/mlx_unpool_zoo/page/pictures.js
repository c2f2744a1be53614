"use strict";
// A worker, so that large photographs do not stop the page: reads pictures, asks the program about them, draws results
// and encodes files.

const SIDE = 512, LONGEST = 8 * SIDE; // as in hair.py
const STRIP = 256, SHOWN = 1600 ** 2; // rows of a picture in memory at once; pixels of a picture on the page

onmessage = async ({ data: [name, source, ...values], ports: [port] }) => {
  try {
    const picture = source instanceof Blob ? await createImageBitmap(source) : source;
    const value = await { read, ask, draw, save }[name](picture, ...values);
    picture.close?.();
    port.postMessage([value], value.data ? [value.shown, value.data.buffer] : value.close ? [value] : []);
  } catch (error) {
    port.postMessage([null, error]);
  }
};

// What the model gets of a picture, at most `area` pixels, and the picture as the page shows it.
function read(picture, isHair, area, isFrame) {
  const [columns, rows] = sizeOf(picture), isLarge = isHair && picture.width > columns && picture.height > rows;
  const shown = resized(picture, ...fitting(picture, SHOWN)).transferToImageBitmap();
  if (isLarge && !isFrame) return { shown, ...stretched(picture, columns, rows) };
  const size = isLarge ? [columns, rows] : fitting(picture, area);
  const sent = resized(picture, ...size, isHair, isFrame ? "medium" : "high"); // frames faster and less exactly
  const { data, width, height } = sent.getContext("2d").getImageData(0, 0, ...size);
  return { shown, data, width, height };
}

// Questions to the program, one after the other.
let socket, last = Promise.resolve();
const ENDED = "The program that shows this page has ended. Start it again, then try again.";

function ask(...question) {
  last = last.catch(() => {}).then(() => exchange(...question));
  return last;
}

async function exchange({ width, height, data }, identity, follows) {
  const received = (kind) => new Promise((done, fail) => {
    Object.assign(socket, { [kind]: done, onclose: ({ reason }) => { fail(Error(reason || ENDED)); } });
  });
  if (socket?.readyState !== WebSocket.OPEN) {
    socket = new WebSocket(`ws://${location.host}/talk?${identity}`);
    socket.binaryType = "arraybuffer";
    await received("onopen");
  }
  socket.send(JSON.stringify({ width, height, follows }));
  socket.send(data);
  const answer = JSON.parse((await received("onmessage")).data);
  if (answer.error) throw Error(answer.error);
  return { ...answer, width, height, mask: new Uint8Array((await received("onmessage")).data) };
}

const draw = (...values) => drawn(...values).transferToImageBitmap();

async function save(picture, type, ...values) {
  const canvas = drawn(picture, ...values), blob = await canvas.convertToBlob({ type, quality: 0.95 });
  canvas.width = 0; // frees its memory at once
  return blob;
}

const context = (width, height) => new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });

function resized(picture, width, height, white, imageSmoothingQuality = "high") {
  const made = Object.assign(context(width, height), { imageSmoothingQuality, fillStyle: "white" });
  if (white) made.fillRect(0, 0, width, height); // behind a transparent picture
  made.drawImage(picture, 0, 0, width, height);
  return made.canvas;
}

function fitting({ width, height }, area) {
  const scale = Math.min(1, Math.sqrt(area / width / height));
  return [width, height].map((length) => Math.max(1, Math.floor(length * scale)));
}

function* strips(picture, white) {
  const { width, height } = picture, strip = Object.assign(context(width, STRIP), { fillStyle: "white" });
  for (let y = 0; y < height; y += STRIP) {
    strip.clearRect(0, 0, width, STRIP);
    if (white) strip.fillRect(0, 0, width, STRIP);
    strip.drawImage(picture, 0, -y);
    yield [y, strip.getImageData(0, 0, width, Math.min(STRIP, height - y))];
  }
}

// The columns and rows of a picture for the hair network, as `squares_of` in hair.py.
function sizeOf({ width, height }) {
  const ratio = Math.max(width, height) / Math.min(width, height);
  const length = 3 * ratio <= 4 ? SIDE : Math.min(Math.floor(SIDE * ratio + 0.5), LONGEST);
  return width > height ? [length, SIDE] : [SIDE, length];
}

// A larger picture, reduced; each pixel is the mean of its area, as `stretched` in hair.py.
function stretched(picture, columns, rows) {
  const across = parts(picture.width, columns), down = parts(picture.height, rows), length = 4 * columns;
  const sums = new Float32Array((rows + 1) * length), line = new Float32Array(length + 4);
  for (const [y, { data }] of strips(picture, true)) {
    for (let i = 0, row = y; i < data.length; row++) {
      line.fill(0);
      for (const { place, share, rest } of across) {
        for (let k = 4 * place; k < 4 * place + 4; k++, i++) {
          line[k] += share * data[i];
          line[k + 4] += rest * data[i];
        }
      }
      const { place, share, rest } = down[row];
      for (let k = 0, at = place * length; k < length; k++, at++) {
        sums[at] += share * line[k];
        sums[at + length] += rest * line[k];
      }
    }
  }
  const data = Uint8ClampedArray.from(sums.subarray(0, rows * length), (mean) => Math.floor(mean + 0.5));
  return { data, width: columns, height: rows };
}

// Of each position on an axis the place on a shorter axis, and its weights in the means there and at the next place.
function parts(length, shorter) {
  const step = length / shorter;
  return Array.from({ length }, (_, position) => {
    const place = Math.floor(position / step), share = Math.min(1, (place + 1) * step - position) / step;
    return { place, share, rest: 1 / step - share };
  });
}

// For each position on an axis the nearest before it of another length, and the share of the next one.
function neighbours(length, other) {
  const positions = Float64Array.from({ length }, (_, n) => Math.max(0, ((n + 0.5) * other) / length - 0.5));
  return [positions.map(Math.floor), positions.map((position) => position % 1)];
}

// The colour of hair for each brightness of a pixel, as `table_of` in hair_colour.py.
function tableOf(hex, brightness) {
  const within = (value) => Math.min(0.98, Math.max(0.02, value)), mean = within(brightness);
  const colour = [1, 3, 5].map((at) => within(parseInt(hex.slice(at, at + 2), 16) / 255));
  const own = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
  const gamma = Math.log(mean + (own - mean) * (own > mean ? 0.5 : 0.8)) / Math.log(mean);
  return Array.from({ length: 256 }, (_, n) => {
    const level = (1e-3 + (n / 255) * (1 - 1e-3)) ** gamma;
    return colour.map((value) => {
      const dark = 0.65 * value * level / own + 0.35 * value ** (Math.log(level) / Math.log(own));
      const lightest = (1 + value / Math.max(...colour)) / 2;
      const light = lightest - (lightest - value) * (1 - level) / (1 - own);
      return 255 * (level < own ? dark : light);
    });
  });
}

// A picture in its new colour, or in four colours beside and below each other, each half as large.
function drawn(picture, answer, choices) {
  if (choices.view !== "four") return coloured(picture, answer, choices.colours[0], choices);
  const [width, height] = [picture.width, picture.height].map((n) => Math.ceil(n / 2)), size = Math.ceil(width / 16);
  const small = resized(picture, width, height), whole = context(2 * width, 2 * height);
  const font = `600 ${size}px system-ui, sans-serif`;
  Object.assign(whole, { font, fillStyle: "white", shadowBlur: size / 4, shadowColor: "black" });
  for (const [n, name] of choices.names.entries()) {
    const x = (n % 2) * width, y = n > 1 ? height : 0;
    whole.drawImage(coloured(small, answer, choices.colours[n], choices), x, y);
    whole.fillText(name, x + size / 2, y + height - size / 2, width);
  }
  return whole.canvas;
}

// A picture with another colour of its hair, as `recoloured` in hair_colour.py, or with the colours of its classes.
function coloured(picture, { mask, width, height, brightness }, colour, { palette, notDrawn, strength, view }) {
  const made = context(picture.width, picture.height), line = new Float32Array(width + 1), maskOnly = view === "mask";
  const table = colour && tableOf(colour, brightness), most = brightness === null ? 0 : 0.9 * strength; // 0: no hair
  const [lefts, rights] = neighbours(picture.width, width), [aboves, belows] = neighbours(picture.height, height);
  const shareOf = palette ? Math.round : Number; // the nearest number, or linearly
  for (const [y, { data }] of strips(picture)) {
    for (let i = 0, row = y; i < data.length; row++) {
      const above = aboves[row] * width, below = Math.min(above + width, (height - 1) * width);
      const lower = shareOf(belows[row]);
      for (let x = 0; x <= width; x++) {
        const at = Math.min(x, width - 1);
        line[x] = (1 - lower) * mask[above + at] + lower * mask[below + at];
      }
      for (let x = 0; x < lefts.length; x++, i += 4) {
        const left = lefts[x], right = shareOf(rights[x]), value = (1 - right) * line[left] + right * line[left + 1];
        const likely = palette ? 2 / 3 : Math.min(1, (value / 255 - 0.3) / 0.5);
        const part = maskOnly ? 1 : most * likely;
        if (part <= 0 || (value === notDrawn && !maskOnly)) continue;
        const grey = Math.floor((299 * data[i] + 587 * data[i + 1] + 114 * data[i + 2]) / 1000);
        const colours = palette ? palette[value] : maskOnly ? [value, value, value] : table[grey];
        for (let channel = 0; channel < 3; channel++) data[i + channel] += part * (colours[channel] - data[i + channel]);
        if (maskOnly) data[i + 3] = 255;
      }
    }
    made.putImageData(new ImageData(data, picture.width), 0, y);
  }
  return made.canvas;
}
