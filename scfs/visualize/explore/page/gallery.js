// Thumbnails, a page at a time, and photos that the user added in front of them.

import { pixels, readTitles } from "./api.js";

const PAGE = 24;

export class Gallery {
  /** chosen: called with the name of an image that the user chose. */
  constructor(root, numImages, { chosen, failed }) {
    Object.assign(this, { root, numImages, chosen, failed, first: 0, own: [], photo: null });
    this.list = root.querySelector("#gallery");
    this.list.addEventListener("click", (event) => this.#choose(event.target.closest("[role=option]")));
    this.list.addEventListener("keydown", (event) => this.#key(event));
    root.querySelector("#previous").addEventListener("click", () => this.turn(-1));
    root.querySelector("#next").addEventListener("click", () => this.turn(1));
    this.go = root.querySelector("#go");
    this.go.max = numImages - 1;
    this.go.addEventListener("change", () => this.#goTo());
  }

  /** Show the page that an image is on, with the image marked. */
  async select(photo) {
    this.photo = photo;
    const isOwn = photo.startsWith("own-");
    if (!isOwn) this.go.value = photo;
    const first = isOwn ? this.first : PAGE * Math.floor(Number(photo) / PAGE);
    if (first !== this.first || !this.list.children.length) await this.#load(first);
    this.#mark();
  }

  async addOwn(photo, title) {
    this.own = [{ photo, title }, ...this.own].slice(0, 16); // the server keeps as many
    await this.#load(this.first);
  }

  async turn(pages) {
    const first = this.first + PAGE * pages;
    if (first >= 0 && first < this.numImages) await this.#load(first);
  }

  async #load(first) {
    let rows;
    try {
      rows = await readTitles(first, PAGE);
    } catch (error) {
      this.failed(error);
      return;
    }
    this.first = first;
    this.list.replaceChildren(...[...this.own, ...rows].map(option));
    this.list.scrollLeft = 0;
    const last = Math.min(first + PAGE, this.numImages);
    this.root.querySelector("#page-text").textContent = `${first}–${last - 1} of ${this.numImages}`;
    this.root.querySelector("#previous").disabled = first === 0;
    this.root.querySelector("#next").disabled = last >= this.numImages;
    this.#mark();
  }

  /** One option can be reached by Tab: the chosen one, or the first. */
  #mark() {
    const options = [...this.list.children];
    const current = options.find((each) => each.dataset.photo === this.photo);
    for (const each of options) {
      each.setAttribute("aria-selected", String(each === current));
      each.tabIndex = each === (current ?? options[0]) ? 0 : -1;
    }
    if (current) scrollInto(this.list, current);
  }

  #choose(element) {
    if (element) this.chosen(element.dataset.photo);
  }

  #goTo() {
    const index = Math.round(Number(this.go.value));
    if (this.go.value !== "" && index >= 0 && index < this.numImages) this.chosen(String(index));
    else this.failed(new Error(`Images are numbered from 0 to ${this.numImages - 1}.`));
  }

  async #key(event) {
    const options = [...this.list.children];
    const now = options.indexOf(document.activeElement);
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: options.length - 1 };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#choose(document.activeElement.closest("[role=option]"));
    } else if (event.key in to) {
      event.preventDefault();
      let next = options[to[event.key]];
      if (!next && to[event.key] >= options.length) {
        await this.turn(1);
        next = this.list.children[this.own.length];
      } else if (!next) {
        await this.turn(-1);
        next = this.list.lastElementChild;
      }
      next?.focus();
    }
  }
}

function option({ photo, title }) {
  const element = document.createElement("div");
  element.setAttribute("role", "option");
  element.dataset.photo = photo;
  element.tabIndex = -1;
  element.title = photo.startsWith("own-") ? title : `${photo}: ${title}`;
  const image = new Image();
  image.loading = "lazy";
  image.alt = element.title;
  image.draggable = false;
  image.addEventListener("error", () => element.classList.add("unreadable"));
  image.src = pixels(photo, "thumbnail");
  element.append(image);
  return element;
}

/** Scroll a list sideways, and nothing else. */
function scrollInto(list, element) {
  const [outer, inner] = [list.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) list.scrollLeft += inner.left - outer.left - outer.width / 2;
}
