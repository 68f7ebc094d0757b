// The image with the box: draw, move and resize it with a mouse, a finger, a pen or the keyboard.

const SMALLEST = 0.04; // side of a box, as a fraction of the image's
const STEP = 0.02; // of a key
const CLICK = 0.015; // a drag shorter than this is a click

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

export class Picker {
  /** changed: called with the box [left, top, right, bottom], fractions of the image, whenever it has changed. */
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    this.image = root.querySelector("img");
    this.element = root.querySelector("#box");
    this.shade = root.querySelector("#shade");
    this.box = [0.3, 0.3, 0.7, 0.7];
    root.addEventListener("pointerdown", (event) => this.#begin(event));
    root.addEventListener("pointermove", (event) => this.#drag(event));
    for (const end of ["pointerup", "pointercancel"]) root.addEventListener(end, (event) => this.#finish(event));
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  show(address, title, width, height) {
    this.image.src = address;
    this.image.alt = `The chosen image, ${title}`;
    Object.assign(this.root.style, { aspectRatio: `${width} / ${height}`, maxWidth: `calc(70vh * ${width / height})` });
  }

  setBox(box) {
    this.box = box;
    const [left, top, right, bottom] = box.map((value) => `${100 * value}%`);
    Object.assign(this.element.style, { left, top, width: `calc(${right} - ${left})`, height: `calc(${bottom} - ${top})` });
    this.shade.style.clipPath = `polygon(evenodd, 0 0, 100% 0, 100% 100%, 0 100%, 0 0,
      ${left} ${top}, ${right} ${top}, ${right} ${bottom}, ${left} ${bottom}, ${left} ${top})`;
    const [x, y] = [left, top].map((value) => `${Math.round(parseFloat(value))} %`);
    this.element.setAttribute("aria-label", `Box: ${this.text}, ${x} from the left, ${y} from the top`);
  }

  /** The size of the box, as a fraction of the image's. */
  get text() {
    const [left, top, right, bottom] = this.box;
    return `${Math.round(100 * (right - left))} × ${Math.round(100 * (bottom - top))} % of the image`;
  }

  #point(event) {
    const area = this.root.getBoundingClientRect();
    return [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height].map((v) => clamp(v, 0, 1));
  }

  #begin(event) {
    if (!event.isPrimary || event.button !== 0 || this.start) return;
    event.preventDefault();
    this.root.setPointerCapture(event.pointerId);
    this.element.focus({ preventScroll: true });
    this.start = { point: this.#point(event), box: this.box, how: this.#how(event) };
  }

  /** A corner to resize by; otherwise "move" inside of the box, and "draw" elsewhere. */
  #how(event) {
    const corner = event.target.dataset?.corner;
    return corner ?? (this.element.contains(event.target) ? "move" : "draw");
  }

  #drag(event) {
    if (!this.start || !event.isPrimary) return;
    const { point, box, how } = this.start;
    const now = this.#point(event);
    const [x, y] = [now[0] - point[0], now[1] - point[1]];
    if (how === "draw" && Math.hypot(x, y) < CLICK) return;
    if (how === "move") this.#set(moved(box, x, y));
    else if (how === "draw") this.#set(spanned(point, now));
    else {
      const fixed = [how.includes("w") ? box[2] : box[0], how.includes("n") ? box[3] : box[1]];
      this.#set(spanned(fixed, now));
    }
  }

  #finish(event) {
    if (!this.start || !event.isPrimary) return;
    const { point, box, how } = this.start;
    const now = this.#point(event);
    this.start = null;
    if (event.type === "pointerup" && how === "draw" && Math.hypot(now[0] - point[0], now[1] - point[1]) < CLICK) {
      this.#set(moved(box, now[0] - (box[0] + box[2]) / 2, now[1] - (box[1] + box[3]) / 2)); // a click centres it
    }
  }

  #key(event) {
    const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if ((!x && !y) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [left, top, right, bottom] = this.box;
    if (!event.shiftKey) this.#set(moved(this.box, STEP * x, STEP * y));
    else this.#set([left, top, clamp(right + STEP * x, left + SMALLEST, 1), clamp(bottom + STEP * y, top + SMALLEST, 1)]);
  }

  #set(box) {
    this.setBox(box);
    this.changed(box);
  }
}

function moved([left, top, right, bottom], x, y) {
  const [dx, dy] = [clamp(x, -left, 1 - right), clamp(y, -top, 1 - bottom)];
  return [left + dx, top + dy, right + dx, bottom + dy].map((value) => clamp(value, 0, 1));
}

/** The box between two points; not smaller than the smallest, which grows into the image. */
function spanned([x0, y0], [x1, y1]) {
  const [left, right] = axis(x0, x1);
  const [top, bottom] = axis(y0, y1);
  return [left, top, right, bottom];
}

function axis(fixed, other) {
  const [low, high] = [Math.min(fixed, other), Math.max(fixed, other)];
  if (high - low >= SMALLEST) return [low, high];
  return other < fixed || fixed + SMALLEST > 1 ? [Math.max(0, high - SMALLEST), Math.max(high, SMALLEST)] : [low, low + SMALLEST];
}
