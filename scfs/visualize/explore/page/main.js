// The page: what is chosen, and what follows from it.

import { addPhoto, pixels, readPhoto, readSession } from "./api.js";
import { Column } from "./column.js";
import { Gallery } from "./gallery.js";
import { rangeOf } from "./heat.js";
import { Picker } from "./picker.js";

const $ = (selector) => document.querySelector(selector);
const state = { photo: null, box: null, layer: 0, columns: [] };
let session, gallery, picker, drawing;

history.replaceState(null, "", location.pathname); // the token is in a cookie now: keep it out of sight and history
start().catch(showProblem);

async function start() {
  session = await readSession();
  picker = new Picker($("#picker"), (box) => setBox(box));
  gallery = new Gallery($("#images"), session.num_images, { chosen: choose, failed: showProblem });
  buildControls();
  state.columns = session.runs.slice(0, 2).map((_, run) => newColumn(run));
  $("#columns").append(...state.columns.map((column) => column.element));
  $("#columns").classList.toggle("two", state.columns.length > 1);
  acceptPhotos();
  await choose(session.first_photo);
  busy(-1);
}

function newColumn(run) {
  return new Column(session, run, {
    answered: draw,
    failed: showProblem,
    chosen: choose,
    busy,
    switched: (column, to) => {
      column.setRun(to);
      showLayers();
      ask();
    },
  });
}

async function choose(photo) {
  busy(1);
  try {
    show(await readPhoto(photo));
    await gallery.select(photo);
  } catch (error) {
    showProblem(error);
  }
  busy(-1);
}

function show({ photo, title, width, height, box }) {
  hideProblem();
  state.photo = photo;
  picker.show(pixels(photo, "full"), title, width, height);
  picker.setBox(box);
  $("#photo-title").textContent = photo.startsWith("own-") ? title : `${title} · number ${photo}`;
  setBox(box);
}

function setBox(box) {
  state.box = box;
  $("#box-text").textContent = `Box: ${picker.text}`;
  ask();
}

function ask() {
  if (state.photo === null) return;
  const by = $("#by").value;
  for (const column of state.columns) {
    column.ask({ run: column.run, photo: state.photo, box: state.box, by: by === "own" ? column.run : Number(by) });
  }
}

/** Draw everything before the next frame, however many answers came. */
function draw() {
  drawing ??= requestAnimationFrame(() => {
    drawing = undefined;
    const ranges = state.columns.map((column) => rangeOf(column.maps(state.layer)));
    const all = [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
    const options = { smooth: $("#smooth").checked, box: state.box };
    state.columns.forEach((column, i) => {
      if (!column.images.length) return;
      const range = { shared: all, own: ranges[i], fixed: [0, 1] }[$("#scale").value];
      column.draw(state.layer, range, options);
    });
    document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
  });
}

function buildControls() {
  const { runs } = session;
  $("#by").append(new Option("each run", "own"));
  runs.forEach(({ name }, i) => $("#by").append(new Option(name, i)));
  $("#by-label").hidden = runs.length < 2;
  if (runs.length < 2) {
    $("#scale [value=own]").remove();
    $("#scale [value=shared]").textContent = "lowest to highest";
  }
  $("#more").open = !matchMedia("(max-width: 620px)").matches; // where space is short, it opens on request
  state.layer = Math.floor((runs[0].layers.length - 1) / 2);
  showLayers();
  $("#by").addEventListener("change", ask);
  for (const name of ["#scale", "#smooth"]) $(name).addEventListener("change", draw);
  for (const name of ["#opacity", "#heat"]) $(name).addEventListener("input", showHeat);
  $("#controls").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input:not([type=checkbox]), select");
    if (event.key.toLowerCase() !== "h" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    $("#heat").checked = !$("#heat").checked;
    showHeat();
  });
  showHeat();
}

/** One choice per depth, named as in the first column's network. */
function showLayers() {
  const first = session.runs[state.columns[0]?.run ?? 0];
  const most = Math.max(...session.runs.map(({ layers }) => layers.length));
  const choices = Array.from({ length: most }, (_, i) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "layer", value: i });
    input.checked = i === state.layer;
    input.addEventListener("change", () => {
      state.layer = i;
      draw();
    });
    label.append(input, first.layers[i] ?? `layer ${i + 1} of ${most}`);
    return label;
  });
  $("#layers").replaceChildren($("#layers legend"), ...choices);
}

function showHeat() {
  document.body.classList.toggle("no-heat", !$("#heat").checked);
  document.documentElement.style.setProperty("--heat", $("#opacity").value / 100);
}

function acceptPhotos() {
  $("#file").addEventListener("change", (event) => {
    add(event.target.files[0]);
    event.target.value = "";
  });
  let depth = 0;
  const isFile = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dropping", depth > 0);
  };
  document.addEventListener("dragenter", (event) => isFile(event) && mark(1));
  document.addEventListener("dragleave", (event) => isFile(event) && mark(-1));
  document.addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(-depth);
    add(event.dataTransfer?.files[0]);
  });
}

async function add(file) {
  if (!file) return;
  busy(1);
  try {
    if (file.size > session.max_upload) {
      throw new Error(`${file.name} is larger than ${Math.round(session.max_upload / 2 ** 20)} MB; choose a smaller photo.`);
    }
    const about = await addPhoto(file);
    show(about);
    await gallery.addOwn(about.photo, about.title);
    await gallery.select(about.photo);
  } catch (error) {
    showProblem(error);
  }
  busy(-1);
}

function busy(change) {
  document.body.dataset.busy = Number(document.body.dataset.busy) + change;
}

function showProblem(error) {
  $("#problem").textContent = error.message;
  $("#problem").hidden = false;
}

function hideProblem() {
  $("#problem").hidden = true;
}
