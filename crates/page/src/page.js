"use strict";
// Draws a plan. The data is the JSON in #data, as compact.rs writes it. Every name is set as text, never as markup.
//
// Contents: data, words, colours, plots (Clock, Memory, Queue), parts of the page, tables, start.

// ---- Data ------------------------------------------------------------------------------------------------------------------------

const KINDS = ["value", "copy", "scratch", "computed again"];
const WORKS = ["kernel", "copy", "file", "loop", "runs again"];
const PARTS = ["variables", "constants", "activations", "workspace", "transfer", "overhead"];
const BANDS = { overhead: "overhead", variables: "variables", constants: "constants", "fed and fetched": "ends" };

/** The names that models share, by their numbers. */
function readNames({ parent, part }) {
  const full = part.map(() => null);
  // Parents come before their children.
  part.forEach((word, index) => {
    full[index] = parent[index] === 0 ? word : full[parent[index] - 1] + "/" + word;
  });
  return (number) => full[number - 1];
}

/** A model with names and commands as objects; the columns of buffers stay as they are. */
function readModel(raw, nameOf, ops) {
  const name = raw.nodes.name.map(nameOf);
  const op = raw.nodes.op.map((index) => ops[index]);
  return { ...raw, names: name, op, stages: raw.stages.map((stage) => readStage(stage, raw, name, nameOf)) };
}

function readStage(raw, model, name, nameOf) {
  const count = Math.max(1, raw.queues.length);
  const queues = raw.queues.map((queue) => readQueue(queue, model, name));
  const devices = raw.devices.map((device) => {
    const need = model.needs[device.need];
    const queue = device.queue === null ? null : queues[device.queue];
    const buffers = device.buffers;
    const values = buffers.values.map((held) =>
      held.map(([node, writer, ...readers]) => ({
        node,
        writer: commandOf(writer, count),
        readers: readers.map((reader) => commandOf(reader, count)),
      }))
    );
    const bands = device.bands.map((band) => ({ ...band, entries: band.entries.map(([entry, bytes]) => [nameOf(entry), bytes]) }));
    const resident = bands.reduce((sum, band) => sum + band.bytes, 0);
    return { ...device, bands, required: need, queue, buffers: { ...buffers, values }, count: buffers.offset.length, resident };
  });
  return { ...raw, queues, devices };
}

function commandOf(number, queues) {
  return { queue: number % queues, number: Math.floor(number / queues) };
}

function readQueue(raw, model, name) {
  const waits = raw.start.map(() => []);
  raw.waits.forEach(([number, queue, count]) => waits[number].push({ queue, count }));
  const title = (index) => {
    const nodes = raw.nodes[index];
    if (nodes.length === 0) return "(no node)";
    return name[nodes[0]] + (nodes.length > 1 ? ` (+${nodes.length - 1})` : "");
  };
  // A command without a start begins when the one before it ends.
  const start = raw.start.map((time, index) => time ?? (index > 0 ? raw.end[index - 1] : 0));
  return {
    ...raw,
    start,
    waits,
    count: start.length,
    required: model.needs[raw.need],
    title,
    detailOf: (index) => raw.details[raw.detail[index]],
  };
}

// ---- Words -----------------------------------------------------------------------------------------------------------------------

/** As the program prints sizes: 36.62 MiB. */
function size(bytes) {
  const units = [
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ];
  for (const [unit, each] of units) {
    if (bytes >= each) return (bytes % each === 0 ? String(bytes / each) : (bytes / each).toFixed(2)) + " " + unit;
  }
  return bytes + " B";
}

function exact(bytes) {
  return bytes.toLocaleString("en") + (bytes === 1 ? " byte" : " bytes");
}

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return (seconds * 1e6).toFixed(1) + " µs";
  return seconds < 1 ? (seconds * 1e3).toFixed(2) + " ms" : seconds.toFixed(2) + " s";
}

function micros(time) {
  return duration(time / 1e6);
}

function many(count, one, more) {
  return count.toLocaleString("en") + " " + (count === 1 ? one : more || one + "s");
}

function last(name) {
  return name.slice(name.lastIndexOf("/") + 1) || name;
}

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function named(text) {
  return make("span", { class: "name", text, dir: "auto", title: text });
}

/** The ends of long paths, for a place with little room: as many parts as tell them apart. The whole is the title. */
function shortened(texts) {
  const ending = (text, parts) =>
    text.replace(/\S{25,}/g, (path) => {
      const words = path.split("/");
      return words.length > parts ? "…/" + words.slice(-parts).join("/") : path;
    });
  const short = texts.map((text) => ending(text, 2));
  for (let parts = 3; parts <= 6; parts++) {
    const seen = new Map();
    short.forEach((text, index) => seen.set(text, (seen.get(text) ?? new Set()).add(texts[index])));
    short.forEach((text, index) => {
      if (seen.get(text).size > 1) short[index] = ending(texts[index], parts);
    });
  }
  return texts.map((text, index) => make("span", { class: "name", text: short[index], dir: "auto", title: text }));
}

// ---- Colours ---------------------------------------------------------------------------------------------------------------------

const palette = {};
const listeners = [];

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    "paper",
    "card",
    "ink",
    "soft",
    "faint",
    "grid",
    "line",
    "focus",
    "slider",
    "early",
    "later",
    "middle",
    "late",
    "last",
    "scratch",
    "copy",
    "variables",
    "constants",
    "ends",
    "overhead",
    "measured",
  ];
  for (const name of names) palette[name] = style.getPropertyValue("--" + name).trim();
  const stops = ["early", "later", "middle", "late", "last"].map((name) => channels(palette[name]));
  palette.ramp = [];
  palette.light = [];
  for (let step = 0; step < 64; step++) {
    const place = (step / 63) * (stops.length - 1);
    const from = stops[Math.min(stops.length - 2, Math.floor(place))],
      to = stops[Math.min(stops.length - 1, Math.floor(place) + 1)];
    const mixed = from.map((channel, index) =>
      Math.round(channel + (to[index] - channel) * Math.min(1, place - Math.min(stops.length - 2, Math.floor(place))))
    );
    palette.ramp.push(`rgb(${mixed.join(",")})`);
    palette.light.push(isLight(mixed));
  }
  palette.hatch = {};
  palette.font = `12px ${getComputedStyle(document.body).fontFamily}`;
}

function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

function isLight([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
}

/** Stripes of the ground over a colour: copies and what runs again differ by more than their colour. */
function hatch(context, colour) {
  if (!palette.hatch[colour]) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 12;
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 12, 12);
    pen.strokeStyle = palette.card;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-12, 0, 12]) {
      pen.moveTo(shift, 12);
      pen.lineTo(shift + 12, 0);
    }
    pen.stroke();
    palette.hatch[colour] = context.createPattern(tile, "repeat");
  }
  return palette.hatch[colour];
}

/** Whether a buffer is the scratch of a loop: the buffers of its body lie there. That of a kernel is taken during one command. */
function isLoop({ kind, first, last }, index) {
  return kind[index] === 2 && first[index] < last[index];
}

/** The kind of a buffer, and in how many loops it is. */
function kindOf(buffers, index) {
  const depth = buffers.depth[index];
  const kind = isLoop(buffers, index) ? "body of a loop" : KINDS[buffers.kind[index]];
  return depth === 0 ? kind : `${kind}, in ${depth === 1 ? "a loop" : `${depth} loops`}`;
}

/** A colour by when a buffer begins: which layer memory belongs to is seen at once. */
function shade(device, index) {
  const commands = device.queue ? device.queue.count : 1;
  return Math.min(63, Math.floor((64 * device.buffers.first[index]) / Math.max(1, commands)));
}

function swatchOf(device, index) {
  const kind = device.buffers.kind[index];
  const swatch = make("span", { class: kind === 1 || kind === 3 ? "swatch stripes" : "swatch" });
  swatch.style.backgroundColor = kind === 2 ? palette.scratch : kind === 1 ? palette.copy : palette.ramp[shade(device, index)];
  return swatch;
}

// ---- Plots -----------------------------------------------------------------------------------------------------------------------

const GUTTER = 74;
const MARGIN = 10;

/** What part of a step is seen, by time or by the order of commands. Plots that share a clock move together. */
class Clock {
  constructor(end) {
    this.end = Math.max(end, 1e-9);
    this.reset();
    this.plots = [];
  }

  reset() {
    this.from = 0;
    this.to = this.end;
  }

  zoom(factor, around) {
    const width = Math.min(this.end, Math.max(this.end / 5000, (this.to - this.from) * factor));
    const place = (around - this.from) / (this.to - this.from);
    this.move(around - place * width, width);
  }

  move(from, width = this.to - this.from) {
    this.from = Math.max(0, Math.min(this.end - width, from));
    this.to = this.from + width;
    this.changed();
  }

  show(place) {
    const width = this.to - this.from;
    if (place < this.from || place > this.to) this.move(place - width / 2);
  }

  changed() {
    this.plots.forEach((plot) => plot.redraw());
  }
}

/** A canvas that is drawn at most once a frame, in the pixels of the screen. */
class Plot {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.isDue = false;
    new ResizeObserver(() => this.redraw()).observe(canvas);
    listeners.push(() => this.redraw());
  }

  get clock() {
    return this.state.isTimed ? this.state.time : this.state.order;
  }
  get width() {
    return this.canvas.clientWidth;
  }
  get height() {
    return this.canvas.clientHeight;
  }

  x(place) {
    const { from, to } = this.clock;
    return GUTTER + ((place - from) / (to - from)) * (this.width - GUTTER - MARGIN);
  }

  place(x) {
    const { from, to } = this.clock;
    return from + ((x - GUTTER) / (this.width - GUTTER - MARGIN)) * (to - from);
  }

  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const scale = window.devicePixelRatio || 1,
        { width, height } = this;
      if (width === 0 || height === 0) return;
      if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
        this.canvas.width = Math.round(width * scale);
        this.canvas.height = Math.round(height * scale);
      }
      this.context.setTransform(scale, 0, 0, scale, 0, 0);
      this.context.clearRect(0, 0, width, height);
      this.context.font = palette.font;
      this.paint();
    });
  }

  /** Zooms with the wheel and a key, moves by pulling, and says where the pointer is. */
  listen() {
    const { canvas } = this,
      pointers = new Map();
    let pulled = 0;
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.clock.zoom(Math.exp(event.deltaY * 0.0025), this.place(event.offsetX));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          const by = event.deltaX || event.deltaY;
          this.clock.move(this.clock.from + (by * (this.clock.to - this.clock.from)) / this.width);
        }
      },
      { passive: false }
    );
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event.offsetX);
      pulled = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) {
        this.point(event);
        return;
      }
      const before = [...pointers.values()],
        moved = event.offsetX - pointers.get(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      const now = [...pointers.values()];
      if (now.length === 2) {
        const apart = ([a, b]) => Math.max(10, Math.abs(a - b));
        this.clock.zoom(apart(before) / apart(now), this.place((now[0] + now[1]) / 2));
      } else if ((pulled += Math.abs(moved)) > 4) {
        if (!canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
        hideTip();
        this.clock.move(this.clock.from - (moved * (this.clock.to - this.clock.from)) / (this.width - GUTTER - MARGIN));
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (pointers.delete(event.pointerId) && pulled <= 4) this.press(event);
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      this.leave();
    });
    canvas.addEventListener("dblclick", (event) => this.clock.zoom(0.4, this.place(event.offsetX)));
  }

  leave() {}
}

/** Steps for an axis of so many: 1, 2 and 5 times a power of ten, or powers of two for bytes. */
function steps(from, to, wanted, isBytes) {
  const rough = (to - from) / Math.max(1, wanted);
  let step = isBytes ? 2 ** Math.ceil(Math.log2(Math.max(1, rough))) : 10 ** Math.floor(Math.log10(rough));
  if (!isBytes) step *= rough / step > 5 ? 10 : rough / step > 2 ? 5 : rough / step > 1 ? 2 : 1;
  const marks = [];
  for (let mark = Math.ceil(from / step) * step; mark <= to * (1 + 1e-9); mark += step) marks.push(mark);
  return { marks, step };
}

/** Marks for times of one axis: one unit, and as many digits as tell them apart. Times are in microseconds. */
function timeMarks(from, to, wanted) {
  const { marks, step } = steps(from, to, wanted, false);
  const [unit, each] = to < 1e3 ? ["µs", 1] : to < 1e6 ? ["ms", 1e3] : ["s", 1e6];
  const digits = Math.max(0, -Math.floor(Math.log10(step / each) + 1e-9));
  return marks.map((mark) => [mark, `${(mark / each).toFixed(digits)} ${unit}`]);
}

/** Marks in the middle of commands, by their numbers. `from` and `to` are positions, the first command being from 0 to 1. */
function commandMarks(from, to, wanted, count) {
  const { marks } = steps(from, Math.max(to, from + Math.max(1, wanted)), wanted, false);
  const numbers = [...new Set(marks.map((mark) => Math.max(1, Math.round(mark))))].filter((number) => number <= count);
  return numbers.map((number) => [number - 0.5, "#" + number.toLocaleString("en")]);
}

/** The memory of a device over a step: what stays, and every buffer where it lies. */
class Memory extends Plot {
  constructor(canvas, state) {
    super(canvas);
    this.state = state;
    this.device = state.device;
    const { buffers, queue } = this.device;
    // A device without commands has one moment: the whole step.
    const [start, end] = queue && queue.count ? [queue.start, queue.end] : [[0], [state.time.end]];
    this.begin = { order: buffers.first, time: buffers.first.map((index) => start[index]) };
    this.over = { order: buffers.last.map((index) => index + 1), time: buffers.last.map((index) => end[index]) };
    const { limit } = this.device.required;
    const highest = Math.max(this.device.peak, this.device.required.peak);
    this.hasLine = limit !== null && limit <= 1.7 * highest;
    this.top = (this.hasLine ? Math.max(limit, highest) : highest) * 1.06 || 1;
    this.lift = 0;
    this.spread = 1;
    this.listen();
  }

  get ends() {
    return this.state.isTimed ? [this.begin.time, this.over.time] : [this.begin.order, this.over.order];
  }

  y(bytes) {
    const room = this.height - 26 - 24;
    return this.height - 24 - ((bytes - this.lift) / (this.top / this.spread)) * room;
  }

  bytes(y) {
    return this.lift + ((this.height - 24 - y) / (this.height - 26 - 24)) * (this.top / this.spread);
  }

  /** Zooms bytes. */
  stretch(factor, around) {
    this.spread = Math.max(1, Math.min(256, this.spread * factor));
    const seen = this.top / this.spread;
    this.lift = Math.max(0, Math.min(this.top - seen, around - seen / 2));
    this.redraw();
  }

  /** Shows the arena alone, or all bytes. */
  stretchTo(isArena) {
    const { resident, arena } = this.device;
    this.spread = isArena && arena > 0 ? Math.max(1, Math.min(256, this.top / (arena * 1.08))) : 1;
    this.lift = this.spread === 1 ? 0 : Math.min(this.top - this.top / this.spread, resident);
    this.redraw();
  }

  paint() {
    const { context: pen, width, height, state } = this;
    this.paintAxes();
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 26, width - GUTTER - MARGIN, height - 50);
    pen.clip();
    this.paintBands();
    this.paintBuffers();
    pen.restore();
    this.paintLines();
    // The moment that the list beside it is of.
    const x = this.x(state.placeOf(state.moment));
    if (x >= GUTTER && x <= width - MARGIN) {
      pen.strokeStyle = palette.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x, 22);
      pen.lineTo(x, height - 24);
      pen.stroke();
      pen.fillStyle = palette.ink;
      pen.beginPath();
      pen.moveTo(x - 5, height - 18);
      pen.lineTo(x + 5, height - 18);
      pen.lineTo(x, height - 24);
      pen.fill();
    }
    if (state.chosen !== null) this.outline(state.chosen, palette.ink, 2.5);
    if (state.hovered !== null && state.hovered !== state.chosen) this.outline(state.hovered, palette.ink, 1.5);
    pen.globalAlpha = 1;
  }

  paintAxes() {
    const { context: pen, width, height, state } = this;
    pen.fillStyle = palette.soft;
    pen.strokeStyle = palette.grid;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const mark of steps(this.lift, this.lift + this.top / this.spread, height / 44, true).marks) {
      const y = this.y(mark);
      if (y < 26 || y > height - 20) continue;
      pen.beginPath();
      pen.moveTo(GUTTER, y);
      pen.lineTo(width - MARGIN, y);
      pen.stroke();
      pen.fillText(size(mark), GUTTER - 8, y);
    }
    pen.textBaseline = "alphabetic";
    const { from, to } = this.clock;
    const wanted = (width - GUTTER) / 110;
    for (const [mark, text] of state.isTimed ? timeMarks(from, to, wanted) : commandMarks(from, to, wanted, state.commands)) {
      const x = this.x(mark),
        half = pen.measureText(text).width / 2;
      pen.textAlign = "center";
      if (x - half > GUTTER - 30 && x + half < width) pen.fillText(text, x, height - 6);
    }
  }

  paintBands() {
    const { context: pen, width } = this;
    let sum = 0;
    for (const band of this.device.bands) {
      const top = this.y(sum + band.bytes),
        bottom = this.y(sum);
      pen.fillStyle = palette[BANDS[band.name]];
      pen.fillRect(GUTTER, top, width - GUTTER - MARGIN, bottom - top);
      let inner = sum;
      pen.strokeStyle = palette.card;
      pen.lineWidth = 0.6;
      for (const [, bytes] of band.entries) {
        inner += bytes;
        const y = this.y(inner);
        if (this.y(inner - bytes) - y < 2.5) break;
        pen.beginPath();
        pen.moveTo(GUTTER, y);
        pen.lineTo(width - MARGIN, y);
        pen.stroke();
      }
      if (bottom - top > 14) {
        pen.textAlign = "left";
        pen.textBaseline = "middle";
        const y = Math.max(34, Math.min(this.height - 32, (top + bottom) / 2));
        pen.fillStyle = isLight(channels(palette[BANDS[band.name]])) ? "#101820" : "#ffffff";
        pen.fillText(`${band.name} ${size(band.bytes)}`, GUTTER + 8, y);
        pen.textBaseline = "alphabetic";
      }
      sum += band.bytes;
    }
  }

  paintBuffers() {
    const { context: pen, device, state } = this;
    const { offset, bytes, kind, values } = device.buffers;
    const [begin, over] = this.ends,
      { from, to } = this.clock;
    const base = device.resident;
    const dim = state.chosen !== null;
    const labels = [];
    for (let index = 0; index < device.count; index++) {
      if (over[index] < from || begin[index] > to) continue;
      const left = this.x(begin[index]),
        right = this.x(over[index]);
      const top = this.y(base + offset[index] + bytes[index]),
        bottom = this.y(base + offset[index]);
      const wide = Math.max(0.7, right - left),
        high = Math.max(0.7, bottom - top);
      pen.globalAlpha = (dim && index !== state.chosen ? 0.42 : 1) * (isLoop(device.buffers, index) ? 0.3 : 1);
      const colour = kind[index] === 2 ? palette.scratch : kind[index] === 1 ? palette.copy : palette.ramp[shade(device, index)];
      pen.fillStyle = (kind[index] === 1 || kind[index] === 3) && wide > 6 && high > 6 ? hatch(pen, colour) : colour;
      const gap = wide > 3 && high > 3 ? 0.5 : 0;
      pen.fillRect(left + gap, top + gap, wide - 2 * gap, high - 2 * gap);
      if (wide > 54 && high > 15 && values[index].length && !isLoop(device.buffers, index))
        labels.push([index, Math.max(left, GUTTER), Math.min(right, this.width - MARGIN), top, bottom]);
    }
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const [index, left, right, top, bottom] of labels) {
      const room = right - left - 12;
      if (room < 40) continue;
      const isPale = kind[index] === 2 || (kind[index] !== 1 && palette.light[shade(device, index)]);
      pen.globalAlpha = dim && index !== state.chosen ? 0.42 : 1;
      pen.fillStyle = isPale ? "#101820" : "#ffffff";
      const text = fitted(pen, state.model.names[values[index][0].node], room),
        y = Math.max(36, Math.min(this.height - 34, (top + bottom) / 2));
      if (text && (kind[index] === 1 || kind[index] === 3)) {
        // Stripes leave letters no ground.
        const ground = pen.fillStyle;
        pen.fillStyle = kind[index] === 1 ? palette.copy : palette.ramp[shade(device, index)];
        pen.fillRect(left + 3, y - 8, pen.measureText(text).width + 6, 16);
        pen.fillStyle = ground;
      }
      pen.fillText(text, left + 6, y);
    }
    pen.globalAlpha = 1;
    pen.textBaseline = "alphabetic";
  }

  /** What is live under the line of the slider, over that plan's own step: as wide as the step that is drawn. */
  paintProfile({ length, count, end, live }) {
    const { context: pen, width, height, device, state } = this;
    if (count === 0) return;
    const whole = state.isTimed ? state.time.end : device.queue ? device.queue.count : 1;
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 26, width - GUTTER - MARGIN, height - 50);
    pen.clip();
    pen.beginPath();
    pen.moveTo(this.x(0), this.y(0));
    let from = this.x(0);
    for (let index = 0; index < live.length; index++) {
      const part = state.isTimed ? end[index] / 1000 : Math.min(1, ((index + 1) * length) / count);
      const to = this.x(part * whole),
        y = this.y(live[index]);
      pen.lineTo(from, y);
      pen.lineTo(to, y);
      from = to;
    }
    pen.lineTo(from, this.y(0));
    pen.globalAlpha = 0.16;
    pen.fillStyle = palette.slider;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = palette.slider;
    pen.lineWidth = 2;
    pen.stroke();
    pen.restore();
  }

  paintLines() {
    const { context: pen, width, height, device, state } = this;
    const { limit, peak: needed } = device.required;
    const across = (bytes, colour, thick, dashes) => {
      const y = this.y(bytes);
      if (y < 18 || y > height - 24) return null;
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.setLineDash(dashes);
      pen.beginPath();
      pen.moveTo(GUTTER, y);
      pen.lineTo(width - MARGIN, y);
      pen.stroke();
      pen.setLineDash([]);
      return y;
    };
    const say = (text, colour, y, side) => {
      const wide = pen.measureText(text).width,
        x = side === "right" ? width - MARGIN - 18 : GUTTER + 4;
      // Buffers under it leave letters no ground.
      pen.fillStyle = palette.card;
      pen.globalAlpha = 0.82;
      pen.fillRect(side === "right" ? x - wide - 3 : x - 3, y - 11, wide + 6, 15);
      pen.globalAlpha = 1;
      pen.fillStyle = colour;
      pen.textAlign = side;
      pen.fillText(text, x, y);
    };
    const peakAt = across(device.peak, palette.ink, 1, [3, 3]);
    const lineAt = this.hasLine ? across(limit, palette.line, 2, []) : null;
    if (state.marked !== null) {
      across(state.marked.limit, palette.slider, 1.5, [8, 4]);
      this.paintProfile(state.marked.profile);
    }
    if (needed > device.peak) {
      const y = across(needed, palette.soft, 1, [1, 3]);
      if (y !== null && Math.abs(y - (peakAt || 0)) > 12)
        say(`another run of the model takes ${size(needed)}`, palette.soft, y - 4, "left");
    }
    if (peakAt !== null) say(`peak ${size(device.peak)}`, palette.ink, peakAt - 5, "left");
    if (lineAt !== null) {
      pen.font = `600 ${pen.font}`;
      say(`limit ${size(limit)}`, palette.line, peakAt !== null && lineAt > peakAt ? lineAt + 14 : lineAt - 6, "right");
      pen.font = pen.font.replace(/^(600|bold) /, "");
      plimsoll(pen, width - MARGIN - 7, lineAt);
    } else if (limit !== null && !this.hasLine) {
      say(`limit ${size(limit)}, ${(limit / device.peak).toFixed(1)} times the peak: above this picture`, palette.line, 14, "right");
      pen.fillStyle = palette.line;
      pen.beginPath();
      pen.moveTo(width - MARGIN - 12, 16);
      pen.lineTo(width - MARGIN - 2, 16);
      pen.lineTo(width - MARGIN - 7, 8);
      pen.fill();
    }
  }

  outline(index, colour, thick) {
    const { offset, bytes } = this.device.buffers,
      [begin, over] = this.ends;
    const base = this.device.resident,
      pen = this.context;
    const left = Math.max(GUTTER, this.x(begin[index])),
      right = Math.min(this.width - MARGIN, this.x(over[index]));
    if (right < left) return;
    const top = this.y(base + offset[index] + bytes[index]),
      bottom = this.y(base + offset[index]);
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.strokeRect(left, top, Math.max(1.5, right - left), Math.max(1.5, bottom - top));
  }

  /** The buffer under a point, the smallest where pixels are shared; in a loop, that of its body. */
  find(x, y) {
    const { offset, bytes, depth } = this.device.buffers,
      [begin, over] = this.ends;
    const place = this.place(x),
      slack = (this.clock.to - this.clock.from) / this.width;
    const height = this.bytes(y) - this.device.resident,
      reach = this.top / this.spread / this.height;
    let found = null,
      exact = null;
    for (let index = 0; index < this.device.count; index++) {
      const inside =
        begin[index] - slack <= place &&
        place <= over[index] + slack &&
        offset[index] - reach <= height &&
        height <= offset[index] + bytes[index] + reach;
      const isExact =
        inside && begin[index] <= place && place <= over[index] && offset[index] <= height && height <= offset[index] + bytes[index];
      if (isExact && (exact === null || depth[index] > depth[exact])) exact = index;
      if (inside && (found === null || bytes[index] < bytes[found])) found = index;
    }
    return exact ?? found;
  }

  band(y) {
    let height = this.bytes(y);
    if (height < 0) return null;
    for (const band of this.device.bands) {
      if (height <= band.bytes) {
        for (const entry of band.entries) {
          if (height <= entry[1]) return [band, entry];
          height -= entry[1];
        }
        return [band, null];
      }
      height -= band.bytes;
    }
    return null;
  }

  point(event) {
    const { state } = this,
      index = this.find(event.offsetX, event.offsetY);
    const before = state.hovered;
    state.hovered = index;
    if (before !== index) this.redraw();
    const band = index === null ? this.band(event.offsetY) : null;
    if (index !== null) showTip(event, state.titleOf(index), `${size(this.device.buffers.bytes[index])}, ${state.spanOf(index)}`);
    else if (band)
      showTip(event, band[1] ? band[1][0] : band[0].name, `${size(band[1] ? band[1][1] : band[0].bytes)}, ${band[0].name}, the whole step`);
    else hideTip();
  }

  press(event) {
    const index = this.find(event.offsetX, event.offsetY);
    this.state.choose(index);
    if (index === null) this.state.go(this.state.commandAt(this.place(event.offsetX)));
  }

  leave() {
    if (this.state.hovered !== null) {
      this.state.hovered = null;
      this.redraw();
    }
  }
}

/** The mark on a ship's hull. */
function plimsoll(pen, x, y) {
  pen.strokeStyle = palette.line;
  pen.fillStyle = palette.card;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(x, y, 5, 0, 2 * Math.PI);
  pen.fill();
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x - 9, y);
  pen.lineTo(x + 9, y);
  pen.stroke();
}

/** As much of a name as has room: its end says most. */
function fitted(pen, name, room) {
  if (pen.measureText(name).width <= room) return name;
  const end = last(name);
  if (pen.measureText(end).width <= room) return end;
  const each = pen.measureText(end).width / end.length;
  const letters = Math.floor(room / each) - 1;
  return letters < 3 ? "" : Array.from(end).slice(0, letters).join("") + "…";
}

/** The commands of a queue: predicted above, and measured below where it is known. */
class Queue extends Plot {
  constructor(canvas, state, queue) {
    super(canvas);
    this.state = state;
    this.queue = queue;
    this.listen();
  }

  get lanes() {
    return this.queue.measured && this.state.isTimed ? 2 : 1;
  }

  span(index, lane) {
    const { queue, state } = this;
    if (!state.isTimed) return [index, index + 1];
    return lane === 1 ? [queue.measured.start[index], queue.measured.end[index]] : [queue.start[index], queue.end[index]];
  }

  paint() {
    const { context: pen, width, height, queue, state } = this;
    const high = (height - 6) / this.lanes;
    pen.font = palette.font;
    pen.textBaseline = "middle";
    for (let lane = 0; lane < this.lanes; lane++) {
      const top = 2 + lane * high;
      pen.fillStyle = palette.soft;
      pen.textAlign = "right";
      pen.fillText(this.lanes === 2 ? ["predicted", "measured"][lane] : queue.required.short, GUTTER - 8, top + high / 2);
      pen.fillStyle = palette.grid;
      pen.fillRect(GUTTER, top, width - GUTTER - MARGIN, high - 3);
      let drawn = -1;
      for (let index = 0; index < queue.count; index++) {
        const [from, to] = this.span(index, lane);
        if (from === null || to < this.clock.from || from > this.clock.to) continue;
        const left = Math.max(GUTTER, this.x(from)),
          right = Math.min(width - MARGIN, this.x(to));
        // Commands that are narrower than a pixel share one.
        if (right < drawn) continue;
        const work = queue.work[index],
          wide = Math.max(0.8, right - left);
        const colour = work === 1 ? palette.copy : work === 2 || work === 3 ? palette.overhead : palette.ramp[this.shade(index)];
        pen.fillStyle = (work === 1 || work === 4) && wide > 4 ? hatch(pen, colour) : colour;
        const gap = wide > 3 ? 0.5 : 0;
        pen.fillRect(left + gap, top, wide - 2 * gap, high - 3);
        drawn = left + 0.8;
        if (wide > 60 && high > 15) {
          const text = fitted(pen, queue.title(index), wide - 12);
          if (text && (work === 1 || work === 4)) {
            // Stripes leave letters no ground.
            pen.fillStyle = colour;
            pen.fillRect(left + 3, top + high / 2 - 9, pen.measureText(text).width + 6, 16);
          }
          const isPale = (work === 0 || work === 4) && palette.light[this.shade(index)];
          pen.fillStyle = isPale ? "#101820" : "#ffffff";
          pen.textAlign = "left";
          pen.fillText(text, left + 6, top + high / 2 - 1);
        }
        if (lane === 0) this.paintWaits(index, left, top, high);
      }
    }
    const moment = state.queue === queue ? state.moment : null;
    if (moment !== null && queue.count > 0) {
      const x = this.x(state.placeOf(moment));
      if (x >= GUTTER && x <= width - MARGIN) {
        pen.strokeStyle = palette.ink;
        pen.lineWidth = 1.5;
        pen.beginPath();
        pen.moveTo(x, 0);
        pen.lineTo(x, height);
        pen.stroke();
      }
    }
    this.paintChosen(high);
  }

  shade(index) {
    return Math.min(63, Math.floor((64 * index) / Math.max(1, this.queue.count)));
  }

  /** Where a command waited for another queue: a dotted bar from when its queue was free. */
  paintWaits(index, left, top, high) {
    const { queue, state, context: pen } = this;
    if (!state.isTimed || queue.waits[index].length === 0) return;
    const free = index > 0 ? queue.end[index - 1] : 0,
      waited = this.x(queue.start[index]) - this.x(free);
    if (waited < 2) return;
    pen.strokeStyle = palette.line;
    pen.lineWidth = 2;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(Math.max(GUTTER, left - waited), top + (high - 3) / 2);
    pen.lineTo(left, top + (high - 3) / 2);
    pen.stroke();
    pen.setLineDash([]);
  }

  /** Who writes and reads the chosen buffer. */
  paintChosen(high) {
    const { state, context: pen } = this;
    if (state.chosen === null) return;
    const own = state.stage.queues.indexOf(this.queue);
    for (const { writer, readers } of state.device.buffers.values[state.chosen]) {
      for (const [place, isWriter] of [[writer, true], ...readers.map((reader) => [reader, false])]) {
        if (place.queue !== own) continue;
        const [from, to] = this.span(place.number, 0),
          x = this.x((from + to) / 2);
        if (x < GUTTER || x > this.width - MARGIN) continue;
        pen.fillStyle = isWriter ? palette.ink : palette.line;
        pen.beginPath();
        pen.arc(x, 2 + (high - 3) / 2, 4, 0, 2 * Math.PI);
        pen.fill();
        pen.strokeStyle = palette.card;
        pen.lineWidth = 1.5;
        pen.stroke();
      }
    }
  }

  find(event) {
    const lane = this.lanes === 2 && event.offsetY > this.height / 2 ? 1 : 0,
      place = this.place(event.offsetX);
    const slack = (1.5 * (this.clock.to - this.clock.from)) / this.width;
    let found = null;
    for (let index = 0; index < this.queue.count; index++) {
      const [from, to] = this.span(index, lane);
      if (from === null) continue;
      if (from <= place && place <= to) return index;
      if (from - slack <= place && place <= to + slack) found = index;
    }
    return found;
  }

  point(event) {
    const index = this.find(event),
      { queue } = this;
    if (index === null) {
      hideTip();
      return;
    }
    showTip(event, queue.title(index), commandText(queue, index, this.state.stage));
  }

  press(event) {
    const index = this.find(event);
    if (index !== null && this.state.queue === this.queue) this.state.go(index);
  }
}

function commandText(queue, index, stage) {
  const parts = [`#${index + 1}, ${WORKS[queue.work[index]]} ${queue.detailOf(index)}`.trim()];
  if (stage.seconds > 0) parts.push(`${micros(queue.end[index] - queue.start[index])} predicted`);
  if (queue.measured && queue.measured.start[index] !== null) {
    parts.push(`${micros(queue.measured.end[index] - queue.measured.start[index])} measured`);
  }
  const waits = queue.waits[index].map((wait) => `${stage.queues[wait.queue].required.short} #${wait.count}`);
  if (waits.length) parts.push("waits for " + waits.join(", "));
  return parts.join(", ");
}

const tip = make("div", { class: "tip", role: "presentation" });

function showTip(event, title, text) {
  tip.replaceChildren(make("strong", { class: "name", text: title }), make("br"), document.createTextNode(text));
  tip.style.display = "block";
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(window.innerWidth - width - 8, event.clientX + 14)) + "px";
  const above = event.clientY - height - 12;
  tip.style.top = (above < 4 ? event.clientY + 18 : above) + "px";
}

function hideTip() {
  tip.style.display = "none";
}

// ---- Parts of the page -----------------------------------------------------------------------------------------------------------

/** What is looked at of a device: a moment, a buffer, a part of the step. */
class State {
  constructor(model, stage, device, time) {
    Object.assign(this, { model, stage, device, time });
    this.queue = device.queue;
    this.commands = device.queue ? device.queue.count : 0;
    this.order = new Clock(Math.max(1, this.commands));
    this.isTimed = stage.seconds > 0;
    this.chosen = this.hovered = this.marked = null;
    this.live = profile(device, this.commands);
    this.peakAt = this.live.indexOf(this.live.reduce((most, live) => Math.max(most, live), 0));
    this.moment = Math.max(0, this.peakAt);
    this.views = [];
  }

  placeOf(command) {
    if (!this.isTimed) return command + 0.5;
    if (!this.commands) return 0;
    return (this.queue.start[command] + this.queue.end[command]) / 2;
  }

  commandAt(place) {
    if (!this.commands) return 0;
    if (!this.isTimed) return Math.max(0, Math.min(this.commands - 1, Math.floor(place)));
    let low = 0,
      high = this.commands - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.queue.start[middle] <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  titleOf(index) {
    const { buffers } = this.device,
      { values, kind } = buffers,
      held = values[index];
    const name = held.length ? this.model.names[held[0].node] : "(no node)";
    if (isLoop(buffers, index)) return "body of " + name;
    return kind[index] === 2 ? "scratch of " + name : name + (held.length > 1 ? ` and ${held.length - 1} in place` : "");
  }

  spanOf(index) {
    const { first, last: end } = this.device.buffers;
    const span = first[index] === end[index] ? `during #${first[index] + 1}` : `from #${first[index] + 1} to #${end[index] + 1}`;
    if (!this.commands || !(this.stage.seconds > 0)) return span;
    return `${span}, ${micros(this.queue.end[end[index]] - this.queue.start[first[index]])}`;
  }

  /** The buffers at a moment, the largest first. */
  holders(moment) {
    const { first, last: end, bytes } = this.device.buffers,
      found = [];
    for (let index = 0; index < this.device.count; index++) {
      if (first[index] <= moment && moment <= end[index]) found.push(index);
    }
    return found.sort((a, b) => bytes[b] - bytes[a] || a - b);
  }

  go(moment) {
    this.moment = Math.max(0, Math.min(Math.max(0, this.commands - 1), moment));
    (this.isTimed ? this.time : this.order).show(this.placeOf(this.moment));
    this.changed();
  }

  choose(index) {
    this.chosen = index;
    this.changed();
  }

  changed() {
    this.views.forEach((view) => view());
  }
}

/** For each command, the bytes that are live in the arena, with the gaps behind buffers. */
function profile(device, commands) {
  const change = new Array(Math.max(1, commands) + 1).fill(0),
    { first, last: end, slot, depth } = device.buffers;
  for (let index = 0; index < device.count; index++) {
    if (depth[index] > 0) continue; // The scratch of its loop counts.
    change[first[index]] += slot[index];
    change[end[index] + 1] -= slot[index];
  }
  change.pop();
  let live = 0;
  return change.map((by) => (live += by));
}

function emblem() {
  const svg = draw("svg", { viewBox: "0 0 44 44", "aria-hidden": "true" });
  svg.append(draw("circle", { cx: 22, cy: 22, r: 13, fill: "none", stroke: "var(--line)", "stroke-width": 4 }));
  svg.append(draw("path", { d: "M2 22h40", stroke: "var(--line)", "stroke-width": 4 }));
  return svg;
}

function header(data, model, chooser) {
  const verdict = model.fits ? "fits" : `does not fit: ${size(model.shortfall)} short`;
  const step = [];
  if (model.measured) {
    const [median, below, above] = model.measured;
    step.push(fact("A step, measured", duration(median), `10% below ${duration(below)}, 10% above ${duration(above)}`));
  }
  if (model.seconds !== null) step.push(fact(model.modelled ? "A step, virtual clock" : "A step, predicted", duration(model.seconds), ""));
  const commands = model.stages.reduce((sum, stage) => sum + stage.queues.reduce((count, queue) => count + queue.count, 0), 0);
  const buffers = model.stages.reduce((sum, stage) => sum + stage.devices.reduce((count, device) => count + device.count, 0), 0);
  return make(
    "div",
    {},
    make(
      "header",
      {},
      emblem(),
      make(
        "div",
        {},
        make("div", { class: "what", text: model.measured ? "Plimsoll: a plan, and what was measured" : "Plimsoll: a plan" }),
        make("h1", {}, named(model.name)),
        make("div", { class: "verdict " + (model.fits ? "good" : "bad"), text: (model.fits ? "✓ " : "✗ ") + verdict }),
        chooser
      )
    ),
    make(
      "dl",
      { class: "facts" },
      ...step,
      fact("Smallest limit", size(model.minimum), exact(model.minimum)),
      fact("Commands", commands.toLocaleString("en"), ""),
      fact("Buffers", buffers.toLocaleString("en"), "")
    ),
    ...data.notes.map((note) => make("p", { class: "soft", text: note }))
  );
}

function fact(name, value, more) {
  return make("div", {}, make("dt", { text: name }), make("dd", {}, value, more ? make("small", { text: more }) : null));
}

function partsBar(need) {
  const bar = make("div", { class: "parts", "aria-hidden": "true" });
  const legend = make("ul", { class: "legend" });
  need.parts.forEach((bytes, index) => {
    if (bytes === 0) return;
    const part = make("span", { class: "of-" + PARTS[index] });
    part.style.width = (100 * bytes) / Math.max(1, need.peak) + "%";
    bar.append(part);
    legend.append(
      make("li", { title: exact(bytes) }, make("i", { class: "of-" + PARTS[index] }), PARTS[index] + " ", make("b", { text: size(bytes) }))
    );
  });
  return [bar, legend];
}

function deviceCard(state, number) {
  const { device } = state,
    need = device.required;
  const memory = make("canvas", {
    class: "plot memory",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "memory over a step",
    "aria-label":
      `Memory of ${need.short} over a step. Arrow keys left and right go through the commands, up and down through the buffers ` +
      `that are there, P goes to the peak, plus and minus zoom. The table below says the same.`,
  });
  const plot = new Memory(memory, state),
    plots = make("div", { class: "plots" }, memory);
  state.time.plots.push(plot);
  state.order.plots.push(plot);
  if (device.queue && device.queue.count) {
    const canvas = make("canvas", { class: "plot queue", "aria-hidden": "true" });
    const lane = new Queue(canvas, state, device.queue);
    state.time.plots.push(lane);
    state.order.plots.push(lane);
    state.views.push(() => lane.redraw());
    plots.append(canvas);
  }
  plots.append(kindLegend(device), keyHelp());
  state.views.push(() => plot.redraw());
  const spoken = make("div", { class: "hidden", "aria-live": "polite" });
  const side = make("div", { class: "side" });
  state.views.push(() => side.replaceChildren(...momentParts(state)));
  memory.addEventListener("keydown", (event) => keys(event, state, plot, spoken));
  const limit = need.limit === null ? "no limit" : `of ${size(need.limit)}`;
  const measured = need.measured === null ? "" : `, measured ${size(need.measured)}`;
  const card = make(
    "section",
    { class: "card", "aria-label": "Memory of " + need.short },
    make(
      "div",
      { class: "head" },
      make("h3", {}, named(need.short)),
      make(
        "div",
        { title: exact(need.peak) },
        make("strong", { text: "peak " + size(need.peak) }),
        make("span", { class: "soft", text: ` ${limit}, ${need.certainty}${measured}` })
      )
    ),
    ...partsBar(need),
    tools(state, plot),
    make("div", { class: "view" }, plots, side),
    spoken,
    bufferTable(state, number)
  );
  if (device.peak < need.peak) {
    card.append(
      make("p", {
        class: "soft",
        text: `This run itself takes ${size(device.peak)}; another one, or the loading of variables, takes more.`,
      })
    );
  }
  return card;
}

function tools(state, plot) {
  const button = (text, label, act) => make("button", { type: "button", text, "aria-label": label, onclick: act });
  const clock = () => plot.clock;
  const middle = () => (clock().from + clock().to) / 2;
  const bar = make("div", { class: "tools", role: "toolbar", "aria-label": "View" });
  if (state.stage.seconds > 0) {
    const byTime = button("by time", "Horizontal axis: predicted time", () => timed(true));
    const byOrder = button("by command", "Horizontal axis: commands in their order", () => timed(false));
    const timed = (isTimed) => {
      state.isTimed = isTimed;
      byTime.setAttribute("aria-pressed", String(isTimed));
      byOrder.setAttribute("aria-pressed", String(!isTimed));
      state.changed();
    };
    state.setTimed = timed;
    byTime.setAttribute("aria-pressed", "true");
    byOrder.setAttribute("aria-pressed", "false");
    bar.append(byTime, byOrder);
  }
  bar.append(
    button("+", "Zoom in", () => clock().zoom(0.5, middle())),
    button("−", "Zoom out", () => clock().zoom(2, middle())),
    button("↕ +", "Zoom bytes in", () => plot.stretch(2, plot.device.resident + plot.device.arena / 2)),
    button("↕ −", "Zoom bytes out", () => plot.stretch(0.5, plot.device.resident + plot.device.arena / 2)),
    button("arena", "Show the bytes of the arena alone, or all", () => plot.stretchTo(plot.spread === 1)),
    button("whole step", "Show the whole step", () => {
      plot.stretch(1e-9, 0);
      clock().reset();
      clock().changed();
    }),
    button("peak", "Go to the peak", () => {
      state.choose(null);
      state.go(state.peakAt);
    })
  );
  return bar;
}

function keys(event, state, plot, spoken) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const clock = plot.clock,
    here = state.placeOf(state.moment),
    step = event.shiftKey ? 10 : 1;
  const acts = {
    ArrowLeft: () => state.go(state.moment - step),
    ArrowRight: () => state.go(state.moment + step),
    PageUp: () => state.go(state.moment - 50),
    PageDown: () => state.go(state.moment + 50),
    Home: () => state.go(0),
    End: () => state.go(state.commands - 1),
    ArrowUp: () => nextBuffer(state, 1),
    ArrowDown: () => nextBuffer(state, -1),
    Escape: () => state.choose(null),
    p: () => state.go(state.peakAt),
    t: () => state.setTimed && state.setTimed(!state.isTimed),
    "+": () => clock.zoom(0.5, here),
    "=": () => clock.zoom(0.5, here),
    "-": () => clock.zoom(2, here),
    0: () => {
      clock.reset();
      clock.changed();
    },
  };
  const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
  spoken.textContent =
    momentText(state) +
    (state.chosen === null
      ? ""
      : `; ${state.titleOf(state.chosen)}, ${size(state.device.buffers.bytes[state.chosen])}, ${state.spanOf(state.chosen)}`);
}

/** Chooses the buffer above or below the chosen one, of those that are there at this moment. */
function nextBuffer(state, by) {
  const { offset } = state.device.buffers;
  const there = state.holders(state.moment).sort((a, b) => offset[a] - offset[b]);
  if (there.length === 0) return;
  const now = there.indexOf(state.chosen);
  const next = now < 0 ? (by > 0 ? 0 : there.length - 1) : Math.max(0, Math.min(there.length - 1, now + by));
  state.choose(there[next]);
}

function momentText(state) {
  if (!state.commands) return "no commands";
  const time = state.stage.seconds > 0 ? `, ${micros(state.queue.start[state.moment])}` : "";
  return (
    `command ${state.moment + 1} of ${state.commands}${time}: ${state.queue.title(state.moment)}, ` +
    `${size(state.device.resident + state.live[state.moment])} live`
  );
}

function keyHelp() {
  const key = (text) => make("kbd", { text });
  return make(
    "p",
    { class: "keys" },
    key("←"),
    " ",
    key("→"),
    " command  ",
    key("↑"),
    " ",
    key("↓"),
    " buffer  ",
    key("P"),
    " peak  ",
    key("+"),
    " ",
    key("−"),
    " ",
    key("0"),
    " zoom  ",
    key("T"),
    " time or command; Ctrl and the wheel zoom, pulling moves"
  );
}

function kindLegend(device) {
  const kinds = new Set(device.buffers.kind);
  const entry = (style, text) => make("li", {}, make("i", { class: style }), text);
  return make(
    "ul",
    { class: "legend" },
    kinds.has(0) ? entry("ramp", "values, by when they are made") : null,
    kinds.has(2) ? entry("of-workspace", "scratch of kernels") : null,
    kinds.has(1) ? entry("of-copy stripes", "copies") : null,
    kinds.has(3) ? entry("of-again stripes", "computed again") : null
  );
}

/** The list beside a picture: what is there at the moment, and the chosen buffer. */
function momentParts(state) {
  const MOST = 9,
    { device } = state,
    holders = state.holders(state.moment);
  const isPeak = state.moment === state.peakAt;
  const title = make("h4", { text: isPeak ? "At the peak" : state.commands ? `During command #${state.moment + 1}` : "All the time" });
  const text = [];
  if (state.commands) {
    const time = state.stage.seconds > 0 ? ` at ${micros(state.queue.start[state.moment])}` : "";
    text.push(make("div", { class: "soft" }, `#${state.moment + 1} of ${state.commands}${time}: `, named(state.queue.title(state.moment))));
  }
  const live = device.resident + (state.live[state.moment] || 0);
  text.push(
    make(
      "div",
      {},
      make("strong", { text: size(live) }),
      make("span", { class: "soft", text: ` live, ${many(holders.length, "buffer")} in the arena` })
    )
  );
  const stays = device.bands.flatMap((band) => band.entries.map(([name, bytes]) => ({ name, bytes, band: band.name })));
  const all = holders.map((index) => ({ index, bytes: device.buffers.bytes[index] })).concat(stays);
  all.sort((a, b) => b.bytes - a.bytes);
  const list = make("ol", { "aria-label": "What takes most at this moment" });
  const shown = all.slice(0, MOST);
  const names = shortened(shown.map(({ index, name }) => (index === undefined ? name : state.titleOf(index))));
  for (const [at, { index, bytes, band }] of shown.entries()) {
    if (index !== undefined) {
      const content = [swatchOf(device, index), names[at], make("span", { text: size(bytes) })];
      list.append(make("li", {}, make("button", { type: "button", onclick: () => state.choose(index) }, ...content)));
      continue;
    }
    const swatch = make("span", { class: "swatch", title: band });
    swatch.style.backgroundColor = palette[BANDS[band]];
    list.append(make("li", { class: "stays", title: band }, swatch, names[at], make("span", { text: size(bytes) })));
  }
  const rest = all.length > MOST ? make("div", { class: "soft", text: `and ${many(all.length - MOST, "smaller one")}` }) : null;
  return [title, ...text, list, rest, state.chosen === null ? null : chosen(state)].filter((part) => part !== null);
}

function chosen(state) {
  const { device, chosen: index, model, stage } = state,
    { offset, bytes, values, kind } = device.buffers;
  const facts = make("dl", {});
  const add = (name, ...content) => facts.append(make("dt", { text: name }), make("dd", {}, ...content));
  const link = ({ queue, number }) => {
    const of = stage.queues[queue],
      isHere = of === state.queue;
    const text = (isHere ? "" : of.required.short + " ") + `#${number + 1} ${of.title(number)}`;
    return make(
      "div",
      {},
      isHere ? make("button", { type: "button", class: "jump", onclick: () => state.go(number) }, named(text)) : named(text)
    );
  };
  add("bytes", `${size(bytes[index])} (${exact(bytes[index])})`);
  add("kind", kindOf(device.buffers, index));
  add("offset", offset[index].toLocaleString("en") + " in the arena");
  add("lives", state.spanOf(index));
  for (const { node, writer, readers } of values[index]) {
    add("node", named(model.names[node]), make("div", { class: "soft", text: model.op[node] }));
    add(kind[index] === 2 ? "used by" : "written by", link(writer));
    if (kind[index] !== 2) {
      const MOST = 12;
      add(
        `read by ${readers.length}`,
        ...readers.slice(0, MOST).map(link),
        readers.length > MOST ? `and ${readers.length - MOST} more` : null
      );
    }
  }
  return make(
    "div",
    { class: "chosen" },
    make("h4", {}, swatchOf(device, index), " ", named(last(state.titleOf(index)))),
    facts,
    make("button", { type: "button", text: "Close", onclick: () => state.choose(null) })
  );
}

/** All queues of several devices, one below the other. */
function queueCard(states, stage) {
  const card = make("section", { class: "card", "aria-label": "Queues over predicted time" });
  const copies = stage.queues.reduce((sum, queue) => sum + queue.work.filter((work) => work === 1).length, 0);
  const waits = stage.queues.reduce((sum, queue) => sum + queue.waits.filter((wait) => wait.length).length, 0);
  card.append(
    make("h3", { text: "Queues" }),
    make("p", {
      class: "soft",
      text: `${many(copies, "copy", "copies")} (striped); ${many(waits, "command waits", "commands wait")} for another queue (dotted where time goes)`,
    })
  );
  for (const queue of stage.queues) {
    if (queue.count === 0) continue;
    const state = states.find((one) => one.queue === queue) || states[0];
    const canvas = make("canvas", { class: "plot queue", "aria-hidden": "true" });
    const lane = new Queue(
      canvas,
      { ...shared(state), stage, queue: null, chosen: null, isTimed: true, time: states[0].time, moment: null },
      queue
    );
    states[0].time.plots.push(lane);
    card.append(canvas);
  }
  return card;
}

function shared(state) {
  return { model: state.model, device: state.device };
}

/** What less memory costs: a curve, and a slider over its points. */
function fitCard(model, states) {
  const cards = [];
  if (model.fitting) {
    const { recomputed, offloaded, masked, parts, segments, saved } = model.fitting;
    const counts = new Map();
    recomputed.forEach((name) => counts.set(name, (counts.get(name) || 0) + 1));
    const list = make(
      "details",
      {},
      make("summary", { text: "What runs again" }),
      make("ul", {}, ...[...counts].map(([name, times]) => make("li", {}, named(name), times > 1 ? ` (${times} times)` : null)))
    );
    cards.push(
      make(
        "section",
        { class: "card" },
        make("h3", { text: "Made to fit" }),
        make("p", {
          text:
            (recomputed.length || offloaded > 0 ? `${many(recomputed.length, "op runs", "ops run")} again` : "Ops have another order") +
            (offloaded > 0 ? ` and ${size(offloaded)} wait in slower memory` : "") +
            (masked > 0 ? ` and ${many(masked, "value is", "values are")} kept as masks` : "") +
            (parts > 0 ? ` and ${many(parts, "chain of ops runs", "chains of ops run")} in parts` : "") +
            (segments > 0 ? ` and ${many(segments, "loop keeps", "loops keep")} the state of every k-th iteration` : "") +
            `, which saves ${size(saved)}.`,
        }),
        recomputed.length ? list : null
      )
    );
  }
  for (const curve of model.curves) {
    if (curve.limit.length < 2) continue;
    cards.push(
      curveCard(
        model,
        curve,
        states.find((state) => state.device.need === curve.need)
      )
    );
  }
  return cards;
}

function curveCard(model, curve, state) {
  const need = model.needs[curve.need],
    count = curve.limit.length,
    whole = curve.seconds[count - 1];
  const W = 640,
    H = 220,
    L = 96,
    R = 16,
    T = 14,
    B = 34;
  const low = curve.limit[0],
    high = curve.limit[count - 1],
    slowest = Math.max(...curve.seconds),
    fastest = Math.min(...curve.seconds);
  const x = (bytes) => L + ((bytes - low) / Math.max(1, high - low)) * (W - L - R);
  const y = (seconds) => H - B - ((seconds - fastest) / Math.max(1e-12, slowest - fastest)) * (H - T - B);
  const text = (content, attributes) => {
    const label = draw("text", { fill: "var(--soft)", "font-size": 12, ...attributes });
    label.textContent = content;
    return label;
  };
  const dot = draw("circle", { r: 6, fill: "var(--slider)" });
  const svg = draw(
    "svg",
    { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `The time of a step of ${need.short} for ${count} limits` },
    draw("path", { d: `M${L} ${H - B}H${W - R}`, stroke: "var(--faint)" }),
    draw("path", { d: `M${L} ${T}V${H - B}`, stroke: "var(--faint)" }),
    text(duration(slowest), { x: L - 8, y: T + 5, "text-anchor": "end" }),
    text(duration(fastest), { x: L - 8, y: H - B + 4, "text-anchor": "end" }),
    text(size(low), { x: L, y: H - 12 }),
    text(size(high), { x: W - R, y: H - 12, "text-anchor": "end" }),
    text("memory", { x: (L + W - R) / 2, y: H - 12, "text-anchor": "middle" }),
    draw("path", {
      d: curve.limit.map((limit, index) => `${index ? "L" : "M"}${x(limit)} ${y(curve.seconds[index])}`).join(""),
      fill: "none",
      stroke: "var(--middle)",
      "stroke-width": 2.5,
    }),
    ...curve.limit.map((limit, index) => draw("circle", { cx: x(limit), cy: y(curve.seconds[index]), r: 3.5, fill: "var(--middle)" })),
    dot
  );
  const said = make("output", { "aria-live": "polite" });
  const outlined = make("div", {});
  const outline = make("details", {}, make("summary", { text: "What is live under the slider's limit, as a table" }), outlined);
  const fillOutline = () => {
    const { length, count: commands, end, live } = curve.profile[Number(slider.value)],
      seconds = curve.seconds[Number(slider.value)];
    const rows = live.map((bytes, index) => {
      const until = Math.min(commands, (index + 1) * length);
      return ["#" + until.toLocaleString("en"), duration((seconds * end[index]) / 1000), size(bytes)];
    });
    outlined.replaceChildren(plainTable(["up to command", "up to", "live at most"], rows));
  };
  outline.addEventListener("toggle", () => outline.open && fillOutline());
  const slider = make("input", {
    type: "range",
    min: 0,
    max: count - 1,
    step: 1,
    value: count - 1,
    "aria-label": `Limit of ${need.short}`,
  });
  const show = () => {
    const index = Number(slider.value),
      more = whole > 0 ? (curve.seconds[index] / whole - 1) * 100 : 0;
    dot.setAttribute("cx", x(curve.limit[index]));
    dot.setAttribute("cy", y(curve.seconds[index]));
    slider.setAttribute("aria-valuetext", size(curve.limit[index]));
    if (outline.open) fillOutline();
    said.replaceChildren(
      make("strong", { text: size(curve.limit[index]) }),
      `a step takes ${duration(curve.seconds[index])}` + (more > 0.05 ? `, ${more.toFixed(1)}% longer` : ", as without a limit"),
      make("br"),
      `peak ${size(curve.peak[index])}`,
      make("br"),
      curve.recomputed[index] ? `${many(curve.recomputed[index], "op runs", "ops run")} again` : "nothing runs again",
      curve.offloaded[index] ? `, ${size(curve.offloaded[index])} wait in slower memory` : "",
      curve.masked[index] ? `, ${many(curve.masked[index], "value is", "values are")} kept as masks` : "",
      curve.parts[index] ? `, ${many(curve.parts[index], "chain of ops runs", "chains of ops run")} in parts` : "",
      curve.segments[index] ? `, ${many(curve.segments[index], "loop keeps", "loops keep")} the state of every k-th iteration` : "",
      ...(state && index < count - 1 ? [make("br"), "The outline in the picture is what is live then, over a step of its own."] : [])
    );
    if (state) {
      state.marked = index === count - 1 ? null : { limit: curve.limit[index], profile: curve.profile[index] };
      state.changed();
    }
  };
  slider.addEventListener("input", show);
  show();
  const rows = curve.limit.map((limit, index) => [
    size(limit),
    size(curve.peak[index]),
    duration(curve.seconds[index]),
    curve.recomputed[index],
    size(curve.offloaded[index]),
  ]);
  return make(
    "section",
    { class: "card" },
    make("h3", {}, `What less memory of ${need.short} costs`),
    make("div", { class: "fit" }, make("div", {}, svg), make("div", {}, said, slider)),
    make("details", {}, make("summary", { text: "As a table" }), plainTable(["limit", "peak", "step", "run again", "on the host"], rows)),
    outline
  );
}

/** Predicted beside measured, by operation. */
function measuredCard(model, stage) {
  const sums = new Map();
  for (const queue of stage.queues) {
    if (!queue.measured) continue;
    for (let index = 0; index < queue.count; index++) {
      if (queue.measured.start[index] === null) continue;
      const node = queue.nodes[index][0];
      const op = queue.work[index] === 1 ? "copy" : node === undefined ? "(no node)" : model.op[node];
      const sum = sums.get(op) || { commands: 0, predicted: 0, measured: 0 };
      sum.commands += 1;
      sum.predicted += queue.end[index] - queue.start[index];
      sum.measured += queue.measured.end[index] - queue.measured.start[index];
      sums.set(op, sum);
    }
  }
  if (sums.size === 0) return null;
  const rows = [...sums].sort((a, b) => b[1].measured - a[1].measured);
  const most = Math.max(...rows.map(([, sum]) => Math.max(sum.predicted, sum.measured)), 1e-9);
  const bar = (style, value) => {
    const part = make("i", { class: style });
    part.style.width = (100 * value) / most + "%";
    return part;
  };
  return make(
    "section",
    { class: "card" },
    make("h3", { text: "Predicted beside measured" }),
    make(
      "ul",
      { class: "legend" },
      make("li", {}, make("i", { class: "of-predicted" }), "predicted"),
      make("li", {}, make("i", { class: "of-measured" }), "measured, medians")
    ),
    make(
      "div",
      { class: "rows", tabindex: "0", role: "region", "aria-label": "Predicted beside measured" },
      make(
        "table",
        { class: "bars" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            ...["operation", "commands", "predicted", "measured", "ratio"].map((title) => make("th", { scope: "col", text: title })),
            make("th", { class: "twin" }, make("span", { class: "hidden", text: "bars" }))
          )
        ),
        make(
          "tbody",
          {},
          ...rows.map(([op, sum]) =>
            make(
              "tr",
              {},
              make("th", { scope: "row" }, named(op)),
              make("td", { text: sum.commands }),
              make("td", { text: micros(sum.predicted) }),
              make("td", { text: micros(sum.measured) }),
              make("td", { text: sum.predicted > 0 ? (sum.measured / sum.predicted).toFixed(2) : "" }),
              make("td", { class: "twin" }, bar("of-predicted", sum.predicted), bar("of-measured", sum.measured))
            )
          )
        )
      )
    )
  );
}

/** What an N is. */
function sizeTitle(sizes, n) {
  const entry = sizes.sampled.find((size) => size.n === n);
  const marks = [n === sizes.largest ? "the largest that fits" : null, entry && !entry.fits ? "does not fit" : null];
  return [`N = ${n.toLocaleString("en")}`, ...marks.filter((mark) => mark !== null)].join(", ");
}

/** The peaks of every N, with those that are drawn as buttons. */
function sizesCard(sizes, modelAt, showModel) {
  const devices = sizes.sampled[0].needs.map(([name]) => name);
  const most = Math.max(1, ...sizes.sampled.flatMap(({ needs }) => needs.map(([, , peak]) => peak)));
  const rows = sizes.sampled.map(({ n, fits, minimum, needs }) => {
    const drawn = sizes.drawn.indexOf(n);
    const text = n.toLocaleString("en");
    const button = { type: "button", text, "aria-label": `Show N = ${text}`, "aria-pressed": String(drawn === modelAt) };
    const label = drawn < 0 ? text : make("button", { ...button, onclick: () => showModel(drawn) });
    const bars = needs.map(([, limit, peak]) => {
      const bar = make("i", { class: limit !== null && peak > limit ? "of-over" : "of-predicted" });
      bar.style.width = (100 * peak) / most + "%";
      return bar;
    });
    return make(
      "tr",
      { class: drawn === modelAt ? "shown" : "" },
      make("th", { scope: "row" }, label),
      ...needs.map(([, , peak]) => make("td", { title: exact(peak), text: size(peak) })),
      make("td", { title: exact(minimum), text: size(minimum) }),
      make("td", { text: n === sizes.largest ? "the largest that fits" : fits ? "fits" : "does not fit" }),
      make("td", { class: "twin", "aria-hidden": "true" }, ...bars)
    );
  });
  const limits = sizes.sampled[0].needs
    .filter(([, limit]) => limit !== null)
    .map(([name, limit]) => `The limit of ${name} is ${size(limit)}.`);
  const head = (title) => make("th", { scope: "col", text: title });
  return make(
    "section",
    { class: "card", "aria-label": "Peaks for every N" },
    make(
      "p",
      { class: "soft" },
      "Feeds: ",
      ...sizes.feeds.flatMap(([name, shape], index) => [index ? ", " : "", named(name), ` ${shape}`]),
      ["."].concat(limits).join(" ")
    ),
    make(
      "div",
      { class: "rows", tabindex: "0", role: "region", "aria-label": "Peaks for every N" },
      make(
        "table",
        { class: "bars" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            ...["N", ...devices.map((name) => `peak of ${name}`), "smallest limit", ""].map(head),
            make("th", { class: "twin", "aria-hidden": "true" })
          )
        ),
        make("tbody", {}, ...rows)
      )
    )
  );
}

// ---- Tables ----------------------------------------------------------------------------------------------------------------------

function plainTable(heads, rows) {
  return make(
    "div",
    { class: "rows", tabindex: "0" },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", text: head })))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", { text: String(cell) })))))
    )
  );
}

/** A table that is filled when it is opened, some rows a frame; sorted by a column, found by a word. */
function bigTable(title, columns, rows) {
  const body = make("tbody", {}),
    status = make("span", { class: "soft", role: "status" });
  const find = make("input", { type: "search", placeholder: "find a name", "aria-label": "Find a name" });
  let all = null,
    sorted = null,
    turn = 0;
  const heads = columns.map((column, index) =>
    make(
      "th",
      { scope: "col", class: column.text ? "text" : "" },
      make("button", { type: "button", text: column.title, onclick: () => sort(index) })
    )
  );
  const fill = () => {
    const word = find.value.trim().toLowerCase(),
      mine = ++turn;
    const seen = word ? all.filter((row) => row.words.includes(word)) : all;
    body.replaceChildren();
    status.textContent = many(seen.length, "row");
    let done = 0;
    const some = () => {
      if (mine !== turn) return;
      body.append(...seen.slice(done, done + 250).map((row) => row.element || (row.element = rowOf(row.cells))));
      if ((done += 250) < seen.length) requestAnimationFrame(some);
    };
    some();
  };
  const rowOf = (cells) =>
    make(
      "tr",
      {},
      ...cells.map((cell, index) => {
        const { text, show } = columns[index];
        const content = show ? show(cell) : String(cell);
        return text ? make("td", { class: "text" }, named(content)) : make("td", { text: content });
      })
    );
  const sort = (index) => {
    const isDown = sorted === index;
    sorted = isDown ? ~index : index;
    const { text } = columns[index],
      sign = isDown ? -1 : 1;
    all.sort((a, b) => sign * (text ? String(a.cells[index]).localeCompare(String(b.cells[index])) : b.cells[index] - a.cells[index]));
    heads.forEach(
      (head, at) =>
        head.removeAttribute("aria-sort") ||
        (at === index && head.setAttribute("aria-sort", (text ? isDown : !isDown) ? "descending" : "ascending"))
    );
    fill();
  };
  find.addEventListener("input", fill);
  const element = make(
    "details",
    {},
    make("summary", { text: title }),
    make("div", { class: "find" }, find, status),
    make(
      "div",
      { class: "rows", tabindex: "0", role: "region", "aria-label": title },
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)
    )
  );
  element.addEventListener("toggle", () => {
    if (!element.open || all) return;
    all = rows().map((cells) => ({
      cells,
      words: cells
        .filter((cell) => typeof cell === "string")
        .join(" ")
        .toLowerCase(),
      element: null,
    }));
    fill();
  });
  return element;
}

function bufferTable(state) {
  const { device, model, stage, queue } = state,
    { buffers } = device,
    isTimed = stage.seconds > 0 && queue;
  const name = ({ queue: of, number }) => {
    const other = stage.queues[of];
    return (other === queue ? "" : other.required.short + " ") + "#" + (number + 1);
  };
  const columns = [
    { title: "node", text: true },
    { title: "operation", text: true },
    { title: "kind", text: true },
    { title: "bytes", show: (bytes) => bytes.toLocaleString("en") },
    { title: "begins at byte", show: (bytes) => bytes.toLocaleString("en") },
    { title: "from", show: (number) => (number < 0 ? "start" : "#" + (number + 1)) },
    { title: "to", show: (number) => (number < 0 ? "end" : "#" + (number + 1)) },
    ...(isTimed
      ? [
          { title: "from time", show: micros },
          { title: "to time", show: micros },
        ]
      : []),
    { title: "written by", text: true },
    { title: "read by", text: true },
  ];
  const rows = () => {
    const all = [];
    let base = 0;
    for (const band of device.bands) {
      let inner = base;
      const entries = band.entries.length ? band.entries : [[band.name, band.bytes]];
      for (const [entry, bytes] of entries) {
        all.push([entry, "", band.name, bytes, inner, -1, -1, ...(isTimed ? [0, stage.seconds * 1e6] : []), "", "the whole step"]);
        inner += bytes;
      }
      base += band.bytes;
    }
    for (let index = 0; index < device.count; index++) {
      const held = buffers.values[index],
        first = buffers.first[index],
        end = buffers.last[index];
      const times = isTimed ? [queue.start[first], queue.end[end]] : [];
      all.push([
        held.map((value) => model.names[value.node]).join(", "),
        held.map((value) => model.op[value.node]).join(", "),
        kindOf(buffers, index),
        buffers.bytes[index],
        base + buffers.offset[index],
        first,
        end,
        ...times,
        held.map((value) => name(value.writer)).join(", "),
        held.flatMap((value) => value.readers.map(name)).join(", "),
      ]);
    }
    return all;
  };
  const entries = device.bands.reduce((sum, band) => sum + Math.max(1, band.entries.length), 0);
  return bigTable(`Everything in the memory of ${device.required.short} as a table: ${many(device.count + entries, "row")}`, columns, rows);
}

function commandTable(model, stage, queue) {
  const isTimed = stage.seconds > 0,
    hasMeasured = queue.measured !== null;
  const number = (value) => (value < 0 ? "" : value.toLocaleString("en"));
  const columns = [
    { title: "command", show: (index) => "#" + (index + 1) },
    { title: "node", text: true },
    { title: "operation", text: true },
    { title: "work", text: true },
    { title: "detail", text: true },
    ...(isTimed
      ? [
          { title: "starts", show: micros },
          { title: "takes", show: micros },
        ]
      : []),
    ...(hasMeasured
      ? [
          { title: "measured start", show: (time) => (time < 0 ? "" : micros(time)) },
          { title: "measured", show: (time) => (time < 0 ? "" : micros(time)) },
        ]
      : []),
    { title: "reads bytes", show: number },
    { title: "writes bytes", show: number },
    { title: "waits for", text: true },
  ];
  const rows = () =>
    queue.start.map((start, index) => {
      const nodes = queue.nodes[index];
      const began = hasMeasured && queue.measured.start[index] !== null ? queue.measured.start[index] : -1;
      const measured = began < 0 ? -1 : queue.measured.end[index] - began;
      return [
        index,
        nodes.map((node) => model.names[node]).join(", "),
        nodes.map((node) => model.op[node]).join(", "),
        WORKS[queue.work[index]],
        queue.detailOf(index),
        ...(isTimed ? [start, queue.end[index] - start] : []),
        ...(hasMeasured ? [began, measured] : []),
        queue.reads[index],
        queue.writes[index],
        queue.waits[index].map((wait) => `${stage.queues[wait.queue].required.short} #${wait.count}`).join(", "),
      ];
    });
  return bigTable(`The commands of ${queue.required.short} as a table: ${many(queue.count, "row")}`, columns, rows);
}

// ---- Start -----------------------------------------------------------------------------------------------------------------------

function showPage(data, models, modelAt, stageAt) {
  const model = models[modelAt],
    stage = model.stages[stageAt] || { devices: [], queues: [], seconds: 0 };
  const chooser = make("div", {});
  const select = (label, names, now, act) => {
    const box = make("select", { "aria-label": label, onchange: (event) => act(Number(event.target.value)) });
    names.forEach((name, index) => box.append(make("option", { value: index, text: name, selected: index === now })));
    chooser.append(box, " ");
  };
  listeners.length = 0;
  const showModel = (next) => showPage(data, models, next, 0);
  if (data.sizes)
    select(
      "N",
      data.sizes.drawn.map((n) => sizeTitle(data.sizes, n)),
      modelAt,
      showModel
    );
  else if (models.length > 1)
    select(
      "Model",
      models.map((one) => one.name),
      modelAt,
      showModel
    );
  if (model.stages.length > 1)
    select(
      "Stage",
      model.stages.map((one) => one.name),
      stageAt,
      (next) => showPage(data, models, modelAt, next)
    );
  const ends = stage.queues.flatMap((queue) => (queue.measured ? queue.measured.end.filter((end) => end !== null) : []));
  const time = new Clock(ends.reduce((most, end) => Math.max(most, end), stage.seconds * 1e6));
  const states = stage.devices.map((device) => new State(model, stage, device, time));
  const page = document.getElementById("page"),
    { tagName, ariaLabel } = document.activeElement ?? {};
  page.replaceChildren(
    header(data, model, chooser.childNodes.length ? chooser : null),
    ...(data.sizes ? [make("h2", { text: "Memory for every N" }), sizesCard(data.sizes, modelAt, showModel)] : []),
    make("h2", { text: "Memory over a step" }),
    ...states.map(deviceCard),
    ...(stage.queues.length > 1 && stage.seconds > 0 ? [make("h2", { text: "Who works when" }), queueCard(states, stage)] : [])
  );
  const measured = model.measured ? measuredCard(model, stage) : null;
  if (measured) page.append(measured);
  const fit = fitCard(model, states);
  if (fit.length) page.append(make("h2", { text: "With less memory" }), ...fit);
  const busy = stage.queues.filter((queue) => queue.count);
  if (busy.length) {
    const tables = busy.map((queue) => commandTable(model, stage, queue));
    page.append(make("h2", { text: "Commands" }), make("section", { class: "card" }, ...tables));
  }
  page.append(make("footer", { text: `Written by Plimsoll. ${model.costs ? `Times by the table of costs ${model.costs}.` : ""}` }));
  states.forEach((state) => state.changed());
  // What had the focus has it again: a choice is followed by the next one.
  const again = ariaLabel && [...page.querySelectorAll(tagName)].find((element) => element.ariaLabel === ariaLabel);
  if (again) again.focus({ preventScroll: true });
}

function openPage() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nameOf = readNames(data.names);
  const models = data.models.map((raw) => readModel(raw, nameOf, data.ops));
  document.body.append(tip);
  readPalette();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readPalette();
    listeners.forEach((redraw) => redraw());
  });
  // Of several sizes, the largest that fits.
  if (models.length) showPage(data, models, data.sizes ? models.length - 1 : 0, 0);
}

openPage();
