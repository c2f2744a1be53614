"use strict";
// The page lets workers (pictures.js) send pictures to the program that served it and draw the results with the masks
// that it answers. Another colour or strength does not run the network again.

const options = JSON.parse(document.body.dataset.options), isHair = !options.classes.length;
const LIMIT = 120; // seconds to wait for an answer
const find = (selector, inside = document) => inside.querySelector(selector);
const settings = find("#settings"), message = find("#message");
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(0)} ms`;

function say(text) { // one more line, or none at all
  const lines = message.textContent.split("\n").filter((line) => line && line !== text);
  message.textContent = text && [...lines, text].join("\n");
}

// Workers by what they do, each of which is replaced if it does not answer.
const workers = {};

function call(name, ...values) {
  const worker = (workers[name] ??= new Worker("pictures.js")), { port1, port2 } = new MessageChannel();
  let timer;
  return new Promise((done, fail) => {
    const end = (problem) => {
      worker.terminate();
      delete workers[name];
      fail(Error(problem));
    };
    const who = name === "ask" ? "The program" : "This browser";
    timer = setTimeout(end, 1000 * LIMIT, `${who} has not answered for ${LIMIT} seconds.`);
    worker.onerror = () => { end("A part of this page does not run: reload the page."); };
    port1.onmessage = ({ data: [value, error] }) => { if (error) fail(error); else done(value); };
    worker.postMessage([name, ...values], [port2]);
  }).finally(() => {
    clearTimeout(timer);
    port1.close();
  });
}

// Pictures: { element, name, source, shown, answer, drawn, drawing }.
const pictures = new Set();

function figure(place, name) {
  const element = find("#figure").content.cloneNode(true).firstElementChild, picture = { element, name };
  const slider = find(".compare input", element), slide = () => {
    element.style.setProperty("--split", `${slider.value}%`);
    element.classList.remove("new"); // ends the animation
    slider.ariaValueText = `${slider.value} % before, ${100 - slider.value} % after`;
  };
  slider.oninput = slide;
  slide();
  element.onanimationend = () => { element.classList.remove("new"); }; // it would start again whenever it is shown
  find(".name", element).textContent = name;
  find(".remove", element).onclick = () => { remove(picture); };
  find(".download", element).onclick = () => { download(picture); };
  place.after(element);
  return picture;
}

function remove(picture) {
  pictures.delete(picture);
  picture.element.remove();
}

// Ask about a picture, and show it with the answer. Of a frame of the camera: whether it follows another one.
async function look(picture, source, follows) {
  const { shown, ...sent } = await call("read", source, isHair, options.area, follows !== undefined);
  if (!picture.shown) { // show the picture before its result
    paint(picture, "before", shown);
    picture.element.classList.add("new");
  }
  const answer = await call("ask", sent, options.identity, follows);
  await picture.drawing; // of the frame before, which is drawn while the network runs
  picture.shown?.close();
  pictures.add(Object.assign(picture, { source, shown, answer, drawn: "" }));
  picture.drawing = draw(picture);
  picture.drawing.catch(() => {}); // whoever awaits it gets the error
}

// The colour of hair; the other settings are those of the form.
let colour = options.colours.copper;
const nameOf = (value) => Object.keys(options.colours).find((name) => options.colours[name] === value) ?? value;

function choices() { // how to draw: with the colour, or with it and the three that follow it
  const all = Object.values(options.colours), next = all.slice(all.indexOf(colour) + 1), view = settings.view.value;
  const colours = [...new Set([colour, ...next, ...all])].filter(Boolean).slice(0, view === "four" ? 4 : 1);
  const palette = isHair ? null : options.classes.map((entry) => entry.colour), { notDrawn } = options;
  return { palette, notDrawn, strength: settings.strength.value / 100, view, colours, names: colours.map(nameOf) };
}

async function draw(picture) {
  const { answer, shown, element } = picture, chosen = choices(), state = JSON.stringify(chosen);
  if (picture.drawn === state) return;
  const result = await call("draw", shown, answer, chosen);
  if (picture.shown !== shown) return; // the next frame of the camera has come
  paint(picture, "before", shown);
  paint(picture, "after", result);
  result.close();
  picture.drawn = state;
  find(".after", element).ariaLabel = `After: ${chosen.names.join(", ")}`;
  element.classList.remove("busy");
}

function paint({ element }, side, bitmap) {
  const canvas = Object.assign(find(`.${side}`, element), { width: bitmap.width, height: bitmap.height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  if (side === "after") return;
  element.style.setProperty("--columns", bitmap.width);
  element.style.setProperty("--rows", bitmap.height);
}

let drawing = Promise.resolve();

function renew() { // one picture at a time, each with the last settings
  drawing = drawing.then(async () => {
    for (const picture of pictures) await draw(picture).catch((error) => say(error.message));
  });
}

function describe({ element, answer }, times) {
  const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
  const hair = isHair ? `${percent(answer.share)} hair, ` : "", note = answer.hint ? ` Note: ${answer.hint}.` : "";
  const text = `${hair}${times} in the network${answer.squares > 1 ? `, ${answer.squares} squares` : ""}.${note}`;
  find(".about", element).textContent = text;
  const parts = options.classes.map((entry, n) => [answer.shares[n], entry]).filter(([share]) => share);
  find(".legend", element).replaceChildren(...parts.sort((a, b) => b[0] - a[0]).map(([share, entry]) => {
    const item = Object.assign(document.createElement("li"), { textContent: `${entry.name} ${percent(share)}` });
    item.style.setProperty("--colour", `rgb(${entry.colour})`);
    return item;
  }));
  return text;
}

async function download({ element, name, source, answer }) {
  const button = find(".download", element), link = document.createElement("a");
  if (button.ariaDisabled) return; // a button that is disabled loses the focus
  Object.assign(button, { ariaDisabled: true, textContent: "Saving …" });
  try {
    const given = source.type ?? "image/jpeg", type = /^image\/(jpeg|png|webp)$/.test(given) ? given : "image/png";
    const blob = await call("save", source, type, answer, choices());
    const stem = `${name.replace(/\.[^.]*$/, "") || "camera"}-${isHair ? "hair" : "classes"}`;
    link.href = URL.createObjectURL(blob);
    link.download = `${stem}.${blob.type.slice(6).replace("jpeg", "jpg")}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    say(`${name}: ${error.message}`);
  } finally {
    Object.assign(button, { ariaDisabled: null, textContent: "Download" });
  }
}

// Photographs. Some files are refused before they are read, others if the browser cannot decode them.
const COMMAND = `python -m mlx_unpool_zoo ${isHair ? "hair" : "predict MODEL"} FILE`;
const FILM = isHair ? `It is a film. Use ${COMMAND}` : "It is a film: choose photographs.";
const REFUSED = [
  [/^(video|audio)\/|\.(mp4|mov|m4v|mkv|webm|avi)$/i, FILM],
  [/^application\/pdf|\.pdf$/i, "It is a PDF document. Save its pages as PNG or JPEG."],
  [/^image\/svg|\.svgz?$/i, "It is a drawing in SVG. Save it as PNG."],
];

function problemOf({ type, size }, name) {
  const kind = REFUSED.find(([pattern]) => pattern.test(type) || pattern.test(name));
  if (kind) return kind[1];
  if (!size) return "The file is empty.";
  return size > 200e6 && "It has more than 200 MB.";
}

async function add(file, name) {
  const problem = problemOf(file, name);
  if (problem) return say(`${name}: ${problem}`);
  const picture = figure(find(".drop"), name), progress = find("#progress");
  progress.textContent = `${name}: working`;
  try { // a copy of the file, which may change or disappear
    await look(picture, new Blob([await file.arrayBuffer()], { type: file.type }));
    await picture.drawing;
    progress.textContent = `${name}: ${describe(picture, milliseconds(picture.answer.seconds))}`;
  } catch (error) {
    remove(picture);
    const isDeep = /^image\/(heic|heif|tiff)/.test(file.type) || /\.(hei[cf]|tiff?)$/i.test(name);
    const unread = isDeep ? `This browser cannot read HEIC and TIFF. Use ${COMMAND}` : "It is damaged, or not a photograph.";
    say(`${name}: ${error.name === "InvalidStateError" ? unread : error.message}`);
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
  const own = (attempt = {}), size = { width: 1280, height: 720, facingMode: "user" };
  say("");
  find("#start").textContent = "Stop the camera";
  try {
    const allowed = await navigator.mediaDevices.getUserMedia({ video: size });
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

function shot() { // for hair the square in the middle: the network gets squares, and was trained on faces that fill them
  const { videoWidth: width, videoHeight: height } = video, side = Math.min(width, height);
  return isHair ? createImageBitmap(video, (width - side) / 2, (height - side) / 2, side, side) : createImageBitmap(video);
}

async function frames(own) {
  const times = [performance.now()];
  while (attempt === own) {
    await new Promise(requestAnimationFrame); // not while the tab is hidden
    const before = live.source;
    await look(live, await shot(), times.length > 1);
    before?.close();
    times.push(performance.now());
    const few = times.slice(-21), mean = (few.at(-1) - few[0]) / (few.length - 1) / 1000;
    describe(live, `${(1 / mean).toFixed(mean > 0.1 ? 1 : 0)} frames per second, ${milliseconds(live.answer.seconds)}`);
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

function change() { // draw with the settings, and keep them in the address
  const strength = settings.strength.value, name = nameOf(colour ?? "");
  for (const each of find("#colours").elements) each.checked = each.className = each.value === colour ? "chosen" : "";
  find("#colours b").textContent = name;
  settings.strength.ariaValueText = `${strength} %`;
  document.body.dataset.view = settings.view.value;
  if (isHair) history.replaceState(null, "", `#${name.replace("#", "")}${strength < 100 ? `-${strength}` : ""}`);
  renew();
}

function restore() { // the settings of an address such as #copper or #2fa87a-70
  const [, name, strength] = /^#([a-z]+|[0-9a-f]{6})(?:-(\d+))?$/.exec(location.hash) ?? [];
  if (name in options.colours) colour = options.colours[name];
  else if (/^[0-9a-f]{6}$/.test(name)) colour = find("[type=color]", settings).value = `#${name}`;
  settings.strength.value = strength ?? 100;
  change();
}

for (const tab of tabs) {
  tab.onclick = () => { select(tab); };
  tab.onkeydown = ({ key }) => { if (/^Arrow(Left|Right)$/.test(key)) tabs[1 - tabs.indexOf(tab)].focus(); };
}
find("#start").onclick = () => { if (attempt) stop(); else start(); };
find("#files").onchange = ({ target }) => { addAll(target.files).then(() => (target.value = "")); };
document.onpaste = ({ clipboardData: { files } }) => { if (files.length) addAll(files); };
document.ondragover = document.ondragleave = document.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.toggle("dragging", event.type === "dragover");
  if (event.type === "drop") addAll(event.dataTransfer.files);
};
settings.onsubmit = (event) => { event.preventDefault(); };
settings.oninput = ({ target }) => {
  if (target.name === "colour") colour = target.value;
  change();
};
if (isHair) onhashchange = () => { restore(); };
find("#colours").hidden = find("#four").hidden = !isHair;
for (const [name, value] of Object.entries(isHair ? { ...options.colours, "another colour": "#2fa87a" } : {})) {
  const input = document.createElement("input"), type = name in options.colours ? "radio" : "color";
  Object.assign(input, { type, name: "colour", value, title: name, ariaLabel: name });
  input.style.setProperty("--colour", value);
  find("#colours").append(input);
}
if (isHair) restore(); else change();
if (options.portrait) fetch("portrait.jpg").then(async (answer) => add(await answer.blob(), "Example: Eileen Collins, NASA"));
