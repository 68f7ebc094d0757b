// What one run finds: a legend, the image, and its neighbours.

import { pixels, search } from "./api.js";
import { drawMap, drawScale, peakOf, valueAt } from "./heat.js";

const SIDES = { own: 320, neighbour: 176 }; // of smooth heat maps, in pixels of their canvas

export class Column {
  /** answered: called when there is something new to draw; chosen: with a neighbour that the user clicked. */
  constructor(session, run, { answered, failed, chosen, switched, busy }) {
    const { runs } = session;
    Object.assign(this, { session, runs, run, answered, failed, chosen, busy, images: [], wanted: null, asking: false });
    this.element = document.querySelector("#column").content.firstElementChild.cloneNode(true);
    this.tiles = this.element.querySelector(".tiles");
    this.legend = this.element.querySelector(".legend");
    drawScale(this.legend.querySelector("canvas"));
    const select = this.element.querySelector("select");
    runs.forEach(({ name }, i) => select.append(new Option(name, i, i === run, i === run)));
    select.hidden = runs.length < 2;
    select.addEventListener("change", () => switched(this, Number(select.value)));
    this.element.querySelector("h3").hidden = runs.length > 1;
    this.#title();
  }

  setRun(run) {
    this.run = run;
    this.#title();
  }

  layer(index) {
    const { layers } = this.runs[this.run];
    return layers[Math.min(index, layers.length - 1)];
  }

  maps(index) {
    return this.images.map((image) => image.maps[this.layer(index)]).filter(Boolean);
  }

  /** Ask for a box. While an answer is awaited, only the newest question waits; for another image or run, at once. */
  ask(query) {
    const isOther = query.photo !== this.wanted?.photo || query.run !== this.wanted.run || query.by !== this.wanted.by;
    this.wanted = query;
    if (isOther) {
      this.controller?.abort();
      this.quick = query.photo !== this.images[0]?.photo; // first the image alone: neighbours may take a while
    }
    if (!this.asking) this.#pump();
  }

  async #pump() {
    this.asking = true;
    this.busy(1);
    this.element.setAttribute("aria-busy", "true");
    let done = null;
    while (done !== this.wanted) {
      const query = this.wanted;
      const quick = this.quick;
      this.controller = new AbortController();
      try {
        const images = await search({ ...query, neighbours: !quick }, this.controller.signal);
        if (query.photo !== this.wanted.photo || query.run !== this.wanted.run) continue;
        this.images = images;
        this.isPartial = quick;
        this.quick = false;
        if (!quick) done = query;
        this.answered();
      } catch (error) {
        if (error.name === "AbortError") continue;
        this.failed(error);
        done = query;
      }
    }
    this.asking = false;
    this.element.removeAttribute("aria-busy");
    this.busy(-1);
  }

  draw(index, range, options) {
    const layer = this.layer(index);
    const run = this.runs[this.run];
    const map = this.images[0]?.maps[layer];
    const size = map ? `, ${map.width} × ${map.height} positions` : "";
    this.element.querySelector(".about").textContent = `${run.backbone} · ${layer}${size}`;
    this.#drawLegend(range);
    [...this.tiles.children].forEach((tile, i) => {
      const isLeft = i >= this.images.length;
      tile.classList.toggle("waiting", isLeft); // they stay until the new ones come, so that nothing jumps
      if (isLeft && !this.isPartial) tile.remove();
    });
    this.images.forEach((image, i) => {
      const tile = this.tiles.children[i] ?? this.tiles.appendChild(this.#newTile(i));
      this.#drawTile(tile, image, image.maps[layer], range, { ...options, isOwn: i === 0 });
    });
  }

  #title() {
    this.element.querySelector("h3").textContent = this.runs[this.run].name;
    this.element.setAttribute("aria-label", this.runs[this.run].name);
  }

  get #ownCaption() {
    const { num_neighbours: count, num_sampled: sampled } = this.session;
    return `The image itself${count ? `; below, the most similar of ${sampled}, with the cosine of their features` : ""}.`;
  }

  #drawLegend([low, high]) {
    this.range = [low, high];
    const shown = { low: `cosine ${format(low)}`, middle: format((low + high) / 2), high: format(high) };
    for (const [name, text] of Object.entries(shown)) this.legend.querySelector(`.${name}`).textContent = text;
    this.legend.setAttribute("aria-label", `Colour scale: dark is cosine ${format(low)}, bright is ${format(high)}`);
  }

  #newTile(i) {
    const tile = document.querySelector("#tile").content.firstElementChild.cloneNode(true);
    tile.classList.toggle("own", i === 0);
    const picture = tile.querySelector(".picture");
    picture.addEventListener("pointermove", (event) => this.#point(tile, event));
    picture.addEventListener("pointerleave", () => this.#unpoint(tile));
    if (i > 0) {
      picture.tabIndex = 0;
      picture.setAttribute("role", "button");
      picture.addEventListener("click", () => this.chosen(tile.dataset.photo));
      picture.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.chosen(tile.dataset.photo);
      });
    } else {
      picture.append(Object.assign(document.createElement("i"), { className: "frame" }));
    }
    return tile;
  }

  #drawTile(tile, image, map, range, { smooth, box, isOwn }) {
    const picture = tile.querySelector("img");
    const address = pixels(image.photo, isOwn ? "full" : "small");
    if (picture.getAttribute("src") !== address) picture.src = address;
    tile.dataset.photo = image.photo;
    tile.map = map;
    tile.smooth = smooth;
    const side = isOwn ? SIDES.own : SIDES.neighbour;
    drawMap(tile.querySelector(".heat"), map, range, { smooth, side });
    const [x, y] = peakOf(map);
    Object.assign(tile.querySelector(".peak").style, { left: `${100 * x}%`, top: `${100 * y}%` });
    if (isOwn) {
      const [left, top, right, bottom] = box.map((value) => 100 * value);
      const frame = { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` };
      Object.assign(tile.querySelector(".frame").style, frame);
    }
    tile.caption = isOwn ? [this.#ownCaption, ""] : [image.title, format(image.cosine)];
    const most = `${Math.round(100 * x)} % from the left and ${Math.round(100 * y)} % from the top`;
    tile.querySelector(".heat").setAttribute("aria-label", `Heat map, brightest ${most}`);
    if (!isOwn) {
      const about = `Neighbour ${image.title}, number ${image.photo}, cosine ${format(image.cosine)}; search in it instead`;
      tile.querySelector(".picture").setAttribute("aria-label", about);
      tile.querySelector(".picture").title = "Search in this image instead";
    }
    if (!tile.pointed) write(tile, tile.caption);
  }

  /** The cosine below the pointer, in the caption and on the legend. */
  #point(tile, event) {
    if (!tile.map) return;
    const area = tile.querySelector(".picture").getBoundingClientRect();
    const [x, y] = [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
    const value = valueAt(tile.map, x, y, tile.smooth);
    tile.pointed = true;
    write(tile, ["cosine here", format(value)]);
    const [low, high] = this.range;
    const pointer = this.legend.querySelector(".pointer");
    pointer.hidden = false;
    pointer.style.left = `${100 * Math.max(0, Math.min(1, (value - low) / Math.max(high - low, 1e-6)))}%`;
  }

  #unpoint(tile) {
    tile.pointed = false;
    write(tile, tile.caption);
    this.legend.querySelector(".pointer").hidden = true;
  }
}

function write(tile, [text, value]) {
  tile.querySelector("figcaption span").textContent = text;
  tile.querySelector("figcaption b").textContent = value;
}

const format = (value) => value.toFixed(2).replace("-", "−");
