"use strict";
// What packing.py folded: deflated blocks in the page, and in one of them arrays by name.

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function inflateText(base64) {
  return new TextDecoder().decode(await inflate(base64));
}

function embedded(id) {
  return document.getElementById(id).textContent;
}

class Data {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    this.values = head.values;
    this.arrays = head.arrays;
    this.buffer = buffer;
    this.start = 4 + length;
  }

  array(name) {
    const [kind, offset, bytes] = this.arrays[name];
    const kept = KINDS[kind];
    return new kept(this.buffer, this.start + offset, bytes / kept.BYTES_PER_ELEMENT);
  }

  texts(name) {
    const [, offset, bytes] = this.arrays[name];
    return new TextDecoder().decode(new Uint8Array(this.buffer, this.start + offset, bytes)).split("\n");
  }

  chosen(name) {
    const numbers = this.array(name);
    const names = this.texts(`${name}.names`);
    return (place) => names[numbers[place]];
  }
}
