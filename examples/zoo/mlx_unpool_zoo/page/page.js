"use strict";
// The page sends pictures to the program that served it and gets masks and tables of colours, with which a worker
// (pictures.js) draws the results. Another colour or strength does not run the network again.

const options = JSON.parse(document.body.dataset.options), isHair = !options.classes.length;
const find = (selector, inside = document) => inside.querySelector(selector);
const settings = find("#settings"), say = (text) => (find("#message").textContent = text);
const newWorker = () => new Worker("pictures.js"), reader = newWorker(), drawer = newWorker();
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(0)} ms`;
let colour = options.colours.copper;

function call(worker, ...values) {
  const { port1, port2 } = new MessageChannel();
  worker.postMessage(values, [port2]);
  return new Promise((done, fail) => (port1.onmessage = ({ data: [value, error] }) => {
    port1.close();
    if (error) fail(error); else done(value);
  }));
}

// Questions to the program, one after the other.
let socket, last = Promise.resolve();
const ask = (...question) => (last = last.catch(() => {}).then(() => exchange(...question)));

async function exchange(question, { width, height, data } = {}) {
  const received = (kind) => new Promise((done, fail) => {
    const ended = Error("The program that shows this page has ended. Start it again, then try again.");
    Object.assign(socket, { [kind]: done, onclose: () => fail(ended) });
  });
  if (socket?.readyState !== WebSocket.OPEN) {
    socket = Object.assign(new WebSocket(`ws://${location.host}/talk`), { binaryType: "arraybuffer" });
    await received("onopen");
  }
  socket.send(JSON.stringify({ ...question, width, height }));
  if (data) socket.send(data);
  const answer = JSON.parse((await received("onmessage")).data);
  if (answer.error) throw Error(answer.error);
  return data ? { ...answer, width, height, mask: new Uint8Array((await received("onmessage")).data) } : answer;
}

// Pictures: { element, name, source, shown, answer, colour, drawn }.
const pictures = new Set();

function figure(place, name) {
  const element = find("#figure").content.cloneNode(true).firstElementChild, picture = { element, name };
  find(".compare input", element).oninput = ({ target }) => {
    element.style.setProperty("--split", `${target.value}%`);
    element.classList.remove("seen"); // ends the animation
    target.ariaValueText = `${100 - target.value} % after`;
  };
  find(".name", element).textContent = name;
  find(".remove", element).onclick = () => remove(picture);
  find(".download", element).onclick = () => download(picture).catch((error) => say(`${name}: ${error.message}`));
  place.after(element);
  return picture;
}

// A picture before its result, so that the page does not jump.
function preview({ element }, bitmap) {
  element.style.setProperty("--columns", bitmap.width);
  element.style.setProperty("--rows", bitmap.height);
  const canvas = Object.assign(find(".before", element), { width: bitmap.width, height: bitmap.height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  element.classList.add("seen");
}

const remove = (picture) => (pictures.delete(picture), picture.element.remove());

async function look(picture, source, frame) { // ask about a picture, and show it with the answer
  const asked = colour, { shown, ...sent } = await call(reader, "read", source, isHair, options.side, 1600, frame !== undefined);
  if (picture.element.matches(".busy:not(.seen)")) preview(picture, shown);
  const answer = await ask({ colour: asked, frame }, sent);
  await picture.drawing; // of the frame before, which was drawn while the network ran
  picture.shown?.close();
  pictures.add(Object.assign(picture, { source, shown, answer, colour: asked, drawn: "" }));
  picture.drawing = draw(picture);
  picture.drawing.catch(() => {}); // whoever awaits it gets the error
}

const palette = isHair ? null : options.classes.map((entry) => entry.colour);
const choices = () => ({ palette, strength: settings.strength.value / 100, maskOnly: settings.mask.checked });

async function draw(picture) {
  const { answer, shown, element } = picture, chosen = choices(), wanted = colour;
  const state = JSON.stringify([chosen, wanted]);
  if (picture.drawn === state) return;
  if (answer.table && picture.colour !== wanted) {
    answer.table = (await ask({ colour: wanted, brightness: answer.brightness })).table;
    picture.colour = wanted;
  }
  const result = picture.shown === shown && (await call(drawer, "draw", shown, answer, chosen));
  if (picture.shown !== shown) return; // the next frame of the camera has come
  for (const [side, bitmap] of [["before", shown], ["after", result]]) {
    const canvas = Object.assign(find(`.${side}`, element), { width: bitmap.width, height: bitmap.height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
  }
  element.style.setProperty("--columns", shown.width);
  element.style.setProperty("--rows", shown.height);
  result.close();
  picture.drawn = state;
  element.classList.remove("busy");
}

let drawing = Promise.resolve();
const renew = () => (drawing = drawing.then(async () => { // one at a time, each with the last settings
  for (const picture of pictures) await draw(picture).catch((error) => say(error.message));
}));

function describe({ element, answer }, times) {
  const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
  const about = !isHair ? "" : answer.table ? `${percent(answer.share)} hair, ` : "No hair was found, ";
  find(".about", element).textContent = about + times;
  const parts = options.classes.map((entry, n) => [answer.shares[n], entry]).filter(([share]) => share);
  find(".legend", element).replaceChildren(...parts.sort((a, b) => b[0] - a[0]).map(([share, entry]) => {
    const item = Object.assign(document.createElement("li"), { textContent: `${entry.name} ${percent(share)}` });
    item.style.setProperty("--colour", `rgb(${entry.colour})`);
    return item;
  }));
}

async function download({ element, name, source, answer }) {
  const given = source.type ?? "image/jpeg", type = /^image\/(jpeg|png|webp)$/.test(given) ? given : "image/png";
  const button = find(".download", element), worker = newWorker(), link = document.createElement("a");
  Object.assign(button, { disabled: true, textContent: "Saving …" });
  try {
    const blob = await call(worker, "save", source, type, answer, choices());
    link.href = URL.createObjectURL(blob);
    link.download = `${name.replace(/\.[^.]*$/, "") || "camera"}-${isHair ? "hair" : "classes"}.${blob.type.slice(6).replace("jpeg", "jpg")}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } finally {
    Object.assign(button, { disabled: false, textContent: "Download" });
    worker.terminate();
  }
}

// Photographs.
const COMMAND = isHair ? "make hair ARGS=FILE" : "python examples/predict.py MODEL FILE";
const UNREAD = `This browser cannot read it. For HEIC and TIFF files use ${COMMAND}`;

async function add(file, name) {
  const picture = figure(find(".drop"), name);
  try { // a copy of the file, which may change or disappear
    if (/^(video|audio)\//.test(file.type) || file.size > 2 ** 29) throw Error("It is not a photograph, or too large.");
    await look(picture, new Blob([await file.arrayBuffer()], { type: file.type }));
    await picture.drawing;
    if (!picture.element.isConnected) return remove(picture);
    describe(picture, milliseconds(picture.answer.seconds));
    await renew();
  } catch (error) {
    remove(picture);
    say(`${name}: ${error.name === "InvalidStateError" ? UNREAD : error.message}`);
  }
}

async function addAll(files) {
  say("");
  select(find("#photograph-tab"));
  for (const file of [...files]) await add(file, file.name);
}

// The camera.
let stream = null, live = null, attempt = null;
const video = Object.assign(document.createElement("video"), { muted: true, playsInline: true });
const PROBLEMS = {
  NotAllowedError: "The browser does not allow this page to use the camera. Allow it in the settings of the site.",
  NotFoundError: "No camera was found.",
  NotReadableError: "The camera cannot be used. Another program may use it.",
};

async function start() {
  const own = (attempt = {}), wanted = { width: 1280, height: 720, facingMode: "user" };
  say("");
  find("#start").textContent = "Stop the camera";
  try {
    const allowed = await navigator.mediaDevices.getUserMedia({ video: wanted });
    if (attempt !== own) return allowed.getTracks().forEach((track) => track.stop()); // stopped meanwhile
    video.srcObject = stream = allowed;
    stream.getTracks()[0].onended = () => { stop(); say("The camera was disconnected."); };
    await video.play();
    live ??= figure(find("#mirror").parentElement, "");
    find(".remove", live.element).hidden = true;
    await frames(own);
  } catch (error) {
    if (attempt !== own) return;
    stop();
    say(PROBLEMS[error.name] ?? error.message);
  }
}

function stop() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = attempt = null;
  find("#start").textContent = "Start the camera";
}

function shot() { // for hair the square in the middle: the network gets squares, and was trained on people who fill them
  const { videoWidth: width, videoHeight: height } = video, side = Math.min(width, height);
  return isHair ? createImageBitmap(video, (width - side) / 2, (height - side) / 2, side, side) : createImageBitmap(video);
}

async function frames(own) {
  const times = [performance.now()];
  for (let frame = 0; attempt === own; frame++) {
    await new Promise(requestAnimationFrame); // not while the tab is hidden
    const before = live.source;
    await look(live, await shot(), frame);
    before?.close();
    times.push(performance.now());
    const few = times.slice(-21), mean = (few.at(-1) - few[0]) / (few.length - 1) / 1000;
    describe(live, `${(1 / mean).toFixed(mean > 0.1 ? 1 : 0)} frames per second, ${milliseconds(live.answer.seconds)} in the network`);
  }
}

// The page.
const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab) {
  for (const each of tabs) {
    Object.assign(each, { ariaSelected: each === tab, tabIndex: each === tab ? 0 : -1 });
    find(`#${each.getAttribute("aria-controls")}`).hidden = each !== tab;
  }
  if (tab.id !== "camera-tab") stop(); else if (!attempt) start();
}

function choose(input) {
  colour = input.value;
  for (const each of find("#colours").elements) each.checked = each.className = each === input ? "chosen" : "";
  find("#colours b").textContent = input.title;
}

for (const tab of tabs) {
  tab.onclick = () => select(tab);
  tab.onkeydown = ({ key }) => { if (/^Arrow(Left|Right)$/.test(key)) tabs[1 - tabs.indexOf(tab)].focus(); }; // false would cancel the key
}
find("#start").onclick = () => (attempt ? stop() : start());
find("#files").onchange = ({ target }) => addAll(target.files).then(() => (target.value = ""));
document.onpaste = ({ clipboardData: { files } }) => { if (files.length) addAll(files); };
document.ondragover = document.ondragleave = document.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.toggle("dragging", event.type === "dragover");
  if (event.type === "drop") addAll(event.dataTransfer.files);
};
settings.onsubmit = (event) => event.preventDefault();
settings.oninput = ({ target }) => { if (target.name === "colour") choose(target); renew(); };
find("#colours").hidden = !isHair;
for (const [name, value] of Object.entries(isHair ? { ...options.colours, "another colour": "#2fa87a" } : {})) {
  const input = document.createElement("input"), type = name in options.colours ? "radio" : "color";
  Object.assign(input, { type, name: "colour", value, title: name, ariaLabel: name });
  input.style.setProperty("--colour", value);
  find("#colours").append(input);
  if (value === colour) choose(input);
}
if (options.portrait) fetch("portrait.jpg").then(async (answer) => add(await answer.blob(), "Example: Eileen Collins, NASA"));
